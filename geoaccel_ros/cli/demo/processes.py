"""The nodes as processes: started, watched, stopped."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.resources import share_path

# A node must be gone this long after SIGINT.
_STOP_TIMEOUT = 5.0


class NodeDied(UserError):
    """A node ended by itself; the message ends with the last lines of its log."""


def demo_environment() -> dict[str, str]:
    """Return variables for all processes of a demo: own domain, this machine only, big clouds.

    What the user has set stays.
    """
    defaults = {
        # Two demos beside each other must not hear each other; 1 to 101 are safe on every system.
        "ROS_DOMAIN_ID": str(1 + secrets.randbelow(101)),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "FASTDDS_DEFAULT_PROFILES_FILE": str(share_path("config/fastdds.xml")),
        # The nodes divide the cores by their `threads`; BLAS would take all of them in each.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "RCUTILS_LOGGING_BUFFERED_STREAM": "0",
    }
    return {name: os.environ.get(name, value) for name, value in defaults.items()}


class NodeProcess:
    """One node, its log file and what it used of the machine.

    Parameters
    ----------
    name : str
        Module below geoaccel_ros.nodes.
    ros_arguments : sequence of str
        What follows ``--ros-args``.
    log : Path
    wrapper : sequence of str
        Command that runs another, such as nsenter.
    """

    def __init__(
        self, name: str, ros_arguments: Sequence[str], log: Path, wrapper: Sequence[str] = ()
    ):
        self.name = name
        self._log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                [
                    *wrapper,
                    sys.executable,
                    "-m",
                    "geoaccel_ros.executables",
                    name,
                    "--ros-args",
                    *ros_arguments,
                ],
                stdout=stream,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal must reach the nodes through stop(), in its order.
                start_new_session=True,
            )
        self._usage = psutil.Process(self._process.pid)
        self._cpu_start = (0.0, time.monotonic())
        self.memory_mib = 0.0
        self.cpu_share = 0.0

    def check(self) -> None:
        """Raise :class:`NodeDied` if the node has ended."""
        if self._process.poll() is not None:
            raise NodeDied(
                f"{self.name} ended with status {self._process.returncode}; its log ends with\n"
                + self.log_tail()
            )

    def start_measuring(self) -> None:
        """Count CPU time from now on: compiling at start is no load of the running system."""
        self._cpu_start = (self._cpu_seconds(), time.monotonic())

    def measure(self) -> None:
        """Take the mean CPU share since :meth:`start_measuring` (1.0: one core) and the memory."""
        seconds, start = self._cpu_start
        try:
            self.memory_mib = max(self.memory_mib, self.resident_mib())
            self.cpu_share = (self._cpu_seconds() - seconds) / (time.monotonic() - start)
        except psutil.NoSuchProcess:
            self.check()

    def resident_mib(self) -> float:
        """Return the memory that the node occupies now; psutil.NoSuchProcess if it has ended."""
        return self._usage.memory_info().rss / 2**20

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C and `ros2 launch` do."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """Return the exit status; a node that does not end is killed."""
        try:
            return self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of the log."""
        text = self._log.read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in text[-lines:])

    def _cpu_seconds(self) -> float:
        times = self._usage.cpu_times()
        return times.user + times.system


def stop(nodes: Sequence[NodeProcess]) -> dict[str, int]:
    """Interrupt all nodes and return their exit statuses by name."""
    for node in nodes:
        node.interrupt()
    return {node.name: node.wait() for node in nodes}

"""Two hosts on this machine, with nothing between them but a bad link.

A host is a network namespace and a mount namespace with a /dev/shm of its own: like two machines,
they share no shared memory. Nothing of them is left when their processes have ended.
"""

import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Sequence

from geoaccel_ros.benchmark.errors import BenchmarkError
from geoaccel_ros.benchmark.link_model import LinkConfig, LinkCounts
from geoaccel_ros.benchmark.link_worker import Worker

ROBOT, BASE = "robot", "base"
_NETWORK = "10.77.0"
_TUN = "/dev/net/tun"
# Frames that the kernel keeps until the forwarder reads them: what is to be dropped, it drops.
_DEVICE_QUEUE = 10_000
_STOP_TIMEOUT = 10.0
_TOOLS = ("unshare", "nsenter", "ip")
# Lives until its standard input ends, which it does when this process has ended in whatever way.
_HOLD = "mount -t tmpfs shm /dev/shm && ip link set lo up && echo ready && exec cat"
_HOLDER = ("unshare", "--net", "--mount", "sh", "-c", _HOLD)


def problem() -> str:
    """Return why there can be no hosts here; empty if there can."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"no {' and no '.join(missing)} here: install util-linux and iproute2"
    if not os.access(_TUN, os.R_OK | os.W_OK):
        return f"{_TUN} is not there or not permitted: run as root"
    tried = subprocess.run(_HOLDER, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if tried.returncode:
        reason = tried.stderr.strip().rpartition("\n")[2]
        return f"network namespaces are not permitted ({reason}): run as root"
    return ""


class Host:
    """One of the hosts; to be closed.

    Parameters
    ----------
    name : str
    number : int
        Of its address, the last of four.
    """

    def __init__(self, name: str, number: int):
        self.name = name
        self.address = f"{_NETWORK}.{number}"
        self._holder = subprocess.Popen(
            _HOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if self._holder.stdout.readline() != "ready\n":
            self.close()
            raise BenchmarkError(f"no host '{name}': {problem() or 'its namespaces failed'}")

    def wrapper(self, **environment: str) -> list[str]:
        """Return the command that runs another on this host, with variables of its own."""
        entered = ["nsenter", f"--target={self._holder.pid}", "--net", "--mount"]
        variables = [f"{name}={value}" for name, value in environment.items()]
        return [*entered, f"--wd={os.getcwd()}", "--", "env", *variables]

    def attach(self, device: str) -> None:
        """Take a network device over, under this host's address."""
        _run("ip", "link", "set", device, "netns", str(self._holder.pid))
        ip = [*self.wrapper(), "ip"]
        _run(*ip, "address", "add", f"{self.address}/24", "dev", device)
        _run(*ip, "link", "set", device, "txqueuelen", str(_DEVICE_QUEUE), "up")

    def close(self) -> None:
        """Let the host go; what still runs on it keeps its namespaces."""
        self._holder.stdin.close()
        self._holder.wait(_STOP_TIMEOUT)
        self._holder.stdout.close()


class Link:
    """The link between two hosts; to be closed.

    Parameters
    ----------
    hosts : sequence of two Host
    config : LinkConfig
    seed : int
        Of what is lost.
    """

    def __init__(self, hosts: Sequence[Host], config: LinkConfig, seed: int):
        # At most 15 characters; others may measure on this machine, too.
        taps = [f"link{os.getpid()}{host.name[0]}" for host in hosts]
        settings = json.dumps(dataclasses.asdict(config))
        module = "geoaccel_ros.benchmark.link_forwarder"
        self._forwarder = Worker(module, [*taps, settings, str(seed)])
        for host, tap in zip(hosts, taps, strict=True):
            host.attach(tap)

    def down(self) -> None:
        """Begin an outage."""
        self._forwarder.ask("down")

    def up(self) -> None:
        """End an outage."""
        self._forwarder.ask("up")

    def counts(self) -> list[LinkCounts]:
        """Return what each host has sent so far, and what became of it."""
        return [LinkCounts(**counts) for counts in self._forwarder.ask("counts")]

    def close(self) -> None:
        self._forwarder.close()


def _run(*words: str) -> None:
    try:
        subprocess.run(words, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise BenchmarkError(f"'{' '.join(words)}' failed: {error.stderr.strip()}") from None

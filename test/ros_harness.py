"""Real nodes as processes, and a node in the test that talks to them over DDS."""

import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.client import Client
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.serialization import deserialize_message
from rclpy.signals import SignalHandlerOptions

from geoaccel_ros.ros import qos

# A first start compiles kernels, on a machine that is busy with other tests.
START_TIMEOUT = 120.0
# One side knows the other a moment before the other knows it: a best-effort message sent in between
# is lost, and a service does not know where to send its answer.
_SETTLE = 0.7


def wait_for(
    condition: Callable[[], object], timeout: float = 20.0, what: str | Callable[[], str] = ""
) -> object:
    """Return the first true value of ``condition``; fail the test when there is none in time."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:.0f} s for {what() if callable(what) else what}")
        time.sleep(0.02)


class Process:
    """A node's process and what it wrote."""

    def __init__(self, command: list[str], log: Path):
        self._log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        return self._process.pid

    def running(self) -> bool:
        return self._process.poll() is None

    def wait_for_output(self, text: str, timeout: float = START_TIMEOUT) -> None:
        """Wait until the process has written ``text``; fail when it ends without."""

        def written():
            found = text in self.output
            assert found or self.running(), f"ended without '{text}':\n{self.output}"
            return found

        wait_for(written, timeout, lambda: f"'{text}' in\n{self.output}")

    def wait(self, timeout: float = START_TIMEOUT) -> int:
        """Return the exit status."""
        return self._process.wait(timeout)

    def stop(self, number: int = signal.SIGINT, timeout: float = 30.0) -> tuple[int, float]:
        """Send a signal; return the exit status and the seconds until it was there."""
        start = time.monotonic()
        self._process.send_signal(number)
        return self._process.wait(timeout), time.monotonic() - start

    def interrupt(self) -> None:
        if self.running():
            self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """Wait for the process, which was interrupted; kill it when it does not end."""
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Processes:
    """Starts processes; ends what is left, cleanly: a killed one leaves 32 MiB in /dev/shm."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._started: list[Process] = []

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_) -> None:
        for process in self._started:
            process.interrupt()
        for process in self._started:
            process.end()

    def start(self, node: str, *ros_arguments: str, active: bool = True) -> Process:
        """Start a node of the package, or a script by its path; wait until it is active."""
        target = [node] if node.endswith(".py") else ["-m", f"geoaccel_ros.nodes.{node}"]
        arguments = ["--ros-args", *ros_arguments] if ros_arguments else []
        log = self._folder / f"{Path(node).stem}_{len(self._started)}.log"
        process = Process([sys.executable, *target, *arguments], log)
        self._started.append(process)
        if active:
            process.wait_for_output("]: active")
        return process


class Probe:
    """A node in the test's process, spun by a thread."""

    def __init__(self):
        self._context = rclpy.Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node("probe", context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._spin)
        self._clients: dict[str, Client] = {}
        self.received: dict[str, list] = defaultdict(list)
        self.listen(DiagnosticArray, "/diagnostics", qos.RELIABLE)

    def __enter__(self) -> "Probe":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._executor.shutdown()
        self._thread.join()
        self.node.destroy_node()
        rclpy.shutdown(context=self._context)

    def listen(self, message_type: type, topic: str, profile) -> list:
        """Collect a topic's messages; return the list that they go to."""
        # Raw, and read later: a probe that works while it listens loses clouds.
        raw = self.received[topic]
        self.node.create_subscription(message_type, topic, raw.append, profile, raw=True)
        self._executor.wake()
        return _Messages(raw, message_type)

    def speak(self, message_type: type, topic: str, profile, subscribers: int = 1):
        """Return a publisher that ``subscribers`` others hear by now."""
        publisher = self.node.create_publisher(message_type, topic, profile)
        wait_for(
            lambda: publisher.get_subscription_count() >= subscribers,
            START_TIMEOUT,
            f"{subscribers} subscribers of {topic}",
        )
        time.sleep(_SETTLE)
        return publisher

    def call(self, service_type: type, name: str, request=None, timeout: float = 20.0):
        """Return a service's answer."""
        if name not in self._clients:
            client = self.node.create_client(service_type, name)
            assert client.wait_for_service(timeout), f"no service {name}"
            time.sleep(_SETTLE)
            self._clients[name] = client
        client = self._clients[name]
        future = client.call_async(request or service_type.Request())
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        assert done.wait(timeout), f"no answer from {name}"
        return future.result()

    def diagnostics(self, node: str) -> dict[str, str]:
        """Return a node's newest diagnostic values, with ``level`` and ``message``.

        Empty before the first.
        """
        for raw in reversed(self.received["/diagnostics"]):
            for status in deserialize_message(raw, DiagnosticArray).status:
                if status.name == f"/{node}":
                    values = {pair.key: pair.value for pair in status.values}
                    return {"level": status.level, "message": status.message, **values}
        return {}

    def wait_for_count(self, node: str, name: str, count: int, timeout: float = 30.0) -> None:
        """Wait until a node's diagnostics count ``name`` up to ``count``."""
        wait_for(
            lambda: int(self.diagnostics(node).get(name, 0)) >= count,
            timeout,
            lambda: f"{name} {count} of {node}; it says {self.diagnostics(node)}",
        )

    def wait_for_connections(self, node: str, **counts: int) -> None:
        """Wait until a node has found ``subscribers`` or ``publishers`` of topics.

        ``subscribers_of_odom=2`` waits for two subscribers of ``odom``.
        """
        for name, count in counts.items():
            kind, _, topic = name.partition("_of_")
            self.wait_for_count(node, f"{kind} of {topic.replace('__', '/')}", count)

    def _spin(self) -> None:
        try:
            self._executor.spin()
        except ExternalShutdownException:
            pass


class _Messages:
    """Messages of a topic, read from their bytes when asked for."""

    def __init__(self, raw: list[bytes], message_type: type):
        self._raw = raw
        self._type = message_type

    def __len__(self) -> int:
        return len(self._raw)

    def __getitem__(self, index: int):
        return deserialize_message(self._raw[index], self._type)

    def __iter__(self):
        return (deserialize_message(raw, self._type) for raw in list(self._raw))

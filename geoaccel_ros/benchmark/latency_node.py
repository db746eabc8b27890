"""The node lidar_odometry as a process, clouds to it and odometry from it."""

import contextlib
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import rclpy
from nav_msgs.msg import Odometry as OdometryMessage
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.publisher import Publisher
from rclpy.serialization import deserialize_message
from rclpy.signals import SignalHandlerOptions
from rclpy.time import Time
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header
from tqdm import tqdm

from geoaccel_ros.benchmark.drives import Drive, Sweep
from geoaccel_ros.benchmark.environment import node_environment
from geoaccel_ros.benchmark.errors import BenchmarkError
from geoaccel_ros.cli.demo.processes import NodeProcess, stop
from geoaccel_ros.pointcloud.layout import packed_dtype
from geoaccel_ros.registration.metrics import absolute_trajectory_error
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.pointcloud2 import message_from_points
from geoaccel_ros.ros.transforms import matrix_from_pose

_NODE = "lidar_odometry"
# The default of the node's base_frame: the sensor is the base.
_FRAME = "base_link"
# A first start compiles kernels.
_START_TIMEOUT = 150.0
# One side knows the other a moment before the other knows it; a cloud sent in between is lost.
_SETTLE = 2.0
# What comes later than this after the last cloud counts as lost.
_LATE = 2.0
_FIRST_NS = 1_000_000_000
# A pose that is no more than predicted has variances far beyond this, m^2.
_MEASURED = 1e3
_XYZ = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])
_XYZ_TIME = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("time", "f4")])


@dataclass(frozen=True)
class NodeRun:
    """What one run of the node gave.

    Attributes
    ----------
    latencies : ndarray (N,), seconds
        From publication to odometry, of each cloud in their order; NaN where none came.
    predicted : int
        Poses that the node did not measure.
    memory : ndarray (M, 2)
        Seconds since the first cloud, and the node's resident memory in MiB, once a second.
    ate : float, metres
        Absolute trajectory error of all poses, aligned at the first.
    """

    latencies: np.ndarray
    predicted: int
    memory: np.ndarray
    ate: float


def run_node(turn: Drive, count: int, rate: float, threads: int) -> NodeRun:
    """Start the node, send it clouds, listen, and end it.

    Parameters
    ----------
    turn : Drive
        Repeated as often as it takes; ``stamps`` and ``poses`` are those of each sweep's end.
    count : int
        Clouds to send.
    rate : float, Hz
    threads : int
        Of the node.

    Raises
    ------
    BenchmarkError
        If the node does not start, or ends.
    """
    messages = [_message(sweep) for sweep in turn.sweeps]
    with node_environment(), tempfile.TemporaryDirectory() as folder, _Listener() as listener:
        log = Path(folder) / f"{_NODE}.log"
        node = NodeProcess(_NODE, ["-p", f"threads:={threads}"], log)
        try:
            publisher = listener.node.create_publisher(PointCloud2, "points", qos.sensor_data())
            _wait_until_active(node, log)
            time.sleep(_SETTLE)
            published, memory = _publish(publisher, messages, count, rate, node)
            time.sleep(_LATE)
            node.check()
        finally:
            stop([node])
        return _judge(turn, rate, published, listener.heard, memory)


class _Listener:
    """A node of its own that notes when odometry comes, spun by a thread."""

    def __init__(self):
        self._context = rclpy.Context()
        rclpy.init(args=[], context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node("latency_benchmark", context=self._context)
        self.heard: list[tuple[float, bytes]] = []
        self.node.create_subscription(
            OdometryMessage, "odom", self._on_odometry, qos.reliable(100), raw=True
        )
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._spin)

    def __enter__(self) -> "_Listener":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._executor.shutdown()
        self._thread.join()
        self.node.destroy_node()
        rclpy.shutdown(context=self._context)

    def _on_odometry(self, message: bytes) -> None:
        # Read later: what works while it listens is late itself.
        self.heard.append((time.perf_counter(), message))

    def _spin(self) -> None:
        with contextlib.suppress(ExternalShutdownException):
            self._executor.spin()


def _message(sweep: Sweep) -> PointCloud2:
    points = np.empty(len(sweep.xyz), _XYZ if sweep.times is None else _XYZ_TIME)
    points["x"], points["y"], points["z"] = sweep.xyz.T
    if sweep.times is not None:
        points["time"] = sweep.times
    return message_from_points(Header(frame_id=_FRAME), points)


def _wait_until_active(node: NodeProcess, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT
    while "]: active" not in log.read_text(errors="replace"):
        node.check()
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{_NODE} is not active after {_START_TIMEOUT:g} s")
        time.sleep(0.1)


def _publish(
    publisher: Publisher, messages: list[PointCloud2], count: int, rate: float, node: NodeProcess
) -> tuple[np.ndarray, np.ndarray]:
    """Return when each cloud was published (perf_counter), and the node's memory over time."""
    published, memory = np.empty(count), []
    start = time.perf_counter()
    # With None tqdm is silent where standard error is no terminal.
    for index in tqdm(range(count), unit="cloud", disable=None, leave=False):
        message = messages[index % len(messages)]
        message.header.stamp = Time(nanoseconds=_stamp_ns(index, rate)).to_msg()
        time.sleep(max(0.0, start + index / rate - time.perf_counter()))
        published[index] = time.perf_counter()
        publisher.publish(message)
        if not memory or published[index] - start >= memory[-1][0] + 1.0:
            node.check()
            memory.append((published[index] - start, node.resident_mib()))
    memory.append((published[-1] - start, node.resident_mib()))
    return published, np.array(memory)


def _stamp_ns(index: int, rate: float) -> int:
    return _FIRST_NS + round(1e9 * index / rate)


def _judge(
    turn: Drive,
    rate: float,
    published: np.ndarray,
    heard: list[tuple[float, bytes]],
    memory: np.ndarray,
) -> NodeRun:
    """Pair clouds and odometry by their stamps: a pose's is at the end of its sweep."""
    latencies = np.full(len(published), np.nan)
    poses, truth, predicted = [], [], 0
    for arrived, raw in heard:
        message = deserialize_message(raw, OdometryMessage)
        since = 1e-9 * (Time.from_msg(message.header.stamp).nanoseconds - _FIRST_NS)
        # A microsecond of rounding must not make it the scan before.
        index = int(np.floor((since + 1e-6) * rate))
        latencies[index] = arrived - published[index]
        predicted += int(message.pose.covariance[0] > _MEASURED)
        poses.append(matrix_from_pose(message.pose.pose))
        truth.append(turn.poses[index % len(turn.poses)])
    ate = absolute_trajectory_error(np.array(poses), np.array(truth)) if poses else float("nan")
    return NodeRun(latencies, predicted, memory, ate)

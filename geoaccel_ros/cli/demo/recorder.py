"""Writes what goes over the wire into an MCAP bag, and keeps the latest diagnostics."""

import queue
import re
import threading
import time
from pathlib import Path

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import TwistStamped
from nav_msgs.msg import Odometry
from nav_msgs.msg import Path as PathMessage
from point_cloud_interfaces.msg import CompressedPointCloud2
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.serialization import deserialize_message
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import PointCloud2
from std_srvs.srv import SetBool
from tf2_msgs.msg import TFMessage

from geoaccel_ros.ros import qos

# Deep enough for a second of disk stall.
_QUEUE = 100

TOPICS = {
    "/points": (PointCloud2, qos.sensor_data(_QUEUE)),
    "/points/compressed": (CompressedPointCloud2, qos.reliable(_QUEUE)),
    "/points/decompressed": (PointCloud2, qos.reliable(_QUEUE)),
    "/odom": (Odometry, qos.reliable(_QUEUE)),
    "/ground_truth/odom": (Odometry, qos.reliable(_QUEUE)),
    "/wheel_odometry": (Odometry, qos.reliable(_QUEUE)),
    "/cmd_vel": (TwistStamped, qos.reliable(_QUEUE)),
    "/plan": (PathMessage, qos.reliable(_QUEUE)),
    "/clock": (Clock, qos.CLOCK),
    "/tf": (TFMessage, qos.TRANSFORMS),
    "/tf_static": (TFMessage, qos.LATCHED),
    "/diagnostics": (DiagnosticArray, qos.reliable(_QUEUE)),
}


def typestore():
    """Return rosbags' types, with those of the package's own topics."""
    store = get_typestore(Stores.ROS2_JAZZY)
    definition = _definition(CompressedPointCloud2)
    store.register(get_types_from_msg(definition, _ros_name(CompressedPointCloud2)))
    return store


class Recorder:
    """A node of its own that records :data:`TOPICS`, timed by their arrival (wall clock).

    Attributes
    ----------
    diagnostics : dict of str to dict of str to str
        The latest values of each node, by its name, with ``message`` and ``level`` among them.
    clock : tuple of float
        Monotonic wall time at which /clock last spoke, and what it said, both in seconds.
    """

    def __init__(self, bag: Path):
        self.diagnostics: dict[str, dict[str, str]] = {}
        self.clock = (0.0, 0.0)
        self._node = rclpy.create_node("demo_recorder")
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._writer_error: Exception | None = None
        # Daemons: Ctrl-C between here and close() must not leave a thread that nobody ends.
        self._writing = threading.Thread(target=self._write, args=(bag,), name="bag", daemon=True)
        self._writing.start()
        self._subscriptions = {}
        # Raw: the bytes on the wire are the bytes in the bag.
        for topic, (message_type, profile) in TOPICS.items():
            self._subscriptions[topic] = self._node.create_subscription(
                message_type, topic, self._recording(topic), profile, raw=True
            )
        self._pause = self._node.create_client(SetBool, "/mujoco_simulation/pause")
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._node)
        self._spinning = threading.Thread(target=self._spin, name="recorder", daemon=True)
        self._spinning.start()

    def hears(self, topic: str) -> bool:
        """Return whether the recorder has found a topic's publisher."""
        return self._subscriptions[topic].get_publisher_count() > 0

    def pause(self, paused: bool, timeout: float = 5.0) -> bool:
        """Pause the simulation or let it run; return whether it answered."""
        if not self._pause.wait_for_service(timeout):
            return False
        future = self._pause.call_async(SetBool.Request(data=paused))
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        return done.wait(timeout) and future.result().success

    def close(self) -> None:
        """Stop recording and finish the bag.

        Raises
        ------
        OSError
            If the bag could not be written.
        """
        self._executor.shutdown()
        self._spinning.join()
        self._node.destroy_node()
        self._queue.put(None)
        self._writing.join()
        if self._writer_error is not None:
            raise self._writer_error

    def _recording(self, topic: str):
        def record(data: bytes) -> None:
            self._queue.put((topic, time.time_ns(), data))
            if topic == "/diagnostics":
                self._remember(deserialize_message(data, DiagnosticArray))
            elif topic == "/clock":
                now = deserialize_message(data, Clock).clock
                self.clock = (time.monotonic(), now.sec + 1e-9 * now.nanosec)

        return record

    def _remember(self, message: DiagnosticArray) -> None:
        for status in message.status:
            values = {pair.key: pair.value for pair in status.values}
            level = str(int.from_bytes(status.level, "little"))
            self.diagnostics[status.name.lstrip("/")] = {
                **values, "message": status.message, "level": level
            }  # fmt: skip

    def _spin(self) -> None:
        try:
            self._executor.spin()
        except ExternalShutdownException:
            pass

    def _write(self, bag: Path) -> None:
        try:
            store = typestore()
            with Writer(bag, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
                connections = {
                    topic: writer.add_connection(topic, _ros_name(message_type), typestore=store)
                    for topic, (message_type, _) in TOPICS.items()
                }
                while (item := self._queue.get()) is not None:
                    topic, arrival_ns, data = item
                    writer.write(connections[topic], arrival_ns, data)
        except Exception as error:
            self._writer_error = error


def _definition(message_type: type) -> str:
    """Return a message's definition as a .msg file writes it, from what its class says of itself.

    The file itself is not to be found where ROS comes from wheels.
    """
    lines = []
    for name, field_type in message_type.get_fields_and_field_types().items():
        field_type = re.sub(r"sequence<(.+)>", r"\1[]", field_type)
        lines.append(f"{field_type.replace('boolean', 'bool')} {name}")
    return "\n".join(lines)


def _ros_name(message_type: type) -> str:
    package = message_type.__module__.split(".")[0]
    return f"{package}/msg/{message_type.__name__}"

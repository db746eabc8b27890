"""Clouds in bags of ROS 1 and ROS 2 (sqlite3, MCAP), read by rosbags, without a ROS installation.

The definitions of the few types that are read are rosbags' own, not the bag's: whatever else is in
the bag, and however it is defined, does not matter.
"""

from collections.abc import Iterator
from pathlib import Path

from rosbags.rosbag1 import Reader as Rosbag1Reader
from rosbags.rosbag2 import Reader as Rosbag2Reader
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from geoaccel_ros.pointcloud.layout import LayoutError
from geoaccel_ros.pointcloud.messages import points_from_message
from geoaccel_ros.pointcloud.recordings.cloud import RecordedCloud, RecordingError

SUFFIXES = (".bag", ".db3", ".mcap")
# What may mend a recording that was cut off.
_REMEDIES = {".bag": "rosbag reindex", ".db3": "sqlite3 .recover", ".mcap": "mcap recover"}

_CLOUD = "sensor_msgs/msg/PointCloud2"
_TRANSFORMS = "tf2_msgs/msg/TFMessage"
_STATIC_TOPIC = "/tf_static"


class Bag:
    """The clouds on one topic of a bag, in the order of their recording.

    Parameters
    ----------
    path : Path
        A .bag, .mcap or .db3 file, or the folder of a rosbag2 with its metadata.yaml.
    topic : str or None
        None: the only topic with clouds.

    Attributes
    ----------
    topic : str
    notice : str
        Empty: a bag has its stamps within.

    Raises
    ------
    RecordingError
        If the bag is broken, there is no such topic, or there are several to choose from.
    """

    def __init__(self, path: Path, topic: str | None = None):
        self.notice = ""
        self._path = path
        self._is_ros1 = path.suffix == ".bag"
        self._types = get_typestore(Stores.ROS1_NOETIC if self._is_ros1 else Stores.LATEST)
        if self._is_ros1:
            # The one type that rosbags lacks for ROS 1.
            definition = "geometry_msgs/TransformStamped[] transforms\n"
            self._types.register(get_types_from_msg(definition, _TRANSFORMS))
        self._reader = (Rosbag1Reader if self._is_ros1 else Rosbag2Reader)(path)
        # Of a broken file, rosbags raises whatever its parser stumbled over.
        try:
            self._reader.open()
        except Exception as error:
            remedy = _REMEDIES.get(path.suffix, "ros2 bag reindex")
            raise RecordingError(
                f"'{path}' cannot be read as a bag: {_line(error)} (`{remedy}` may mend what was "
                "cut off)"
            ) from None
        try:
            self.topic = self._choose(topic)
        except RecordingError:
            self._reader.close()
            raise

    def __len__(self) -> int:
        return sum(c.msgcount for c in self._connections(self.topic, _CLOUD))

    def __enter__(self) -> "Bag":
        return self

    def __exit__(self, *exception) -> None:
        self._reader.close()

    def static_transforms(self) -> Iterator[object]:
        """Yield the messages of /tf_static, wherever they are in the bag."""
        for _, raw in self._messages(_STATIC_TOPIC, _TRANSFORMS):
            try:
                yield self._decode(raw, _TRANSFORMS)
            except ValueError:
                continue

    def clouds(self) -> Iterator[RecordedCloud]:
        """Yield the clouds of the topic, one at a time in memory.

        Raises
        ------
        RecordingError
            Where the bag turns out to be broken.
        """
        for index, (recorded_ns, raw) in enumerate(self._messages(self.topic, _CLOUD)):
            name = f"cloud {index}"
            try:
                message = self._decode(raw, _CLOUD)
            except ValueError as error:
                yield RecordedCloud(name, recorded_ns, "", None, str(error))
                continue
            header = message.header
            stamp_ns = header.stamp.sec * 1_000_000_000 + header.stamp.nanosec
            try:
                points, problem = points_from_message(message), ""
            except LayoutError as error:
                points, problem = None, str(error)
            yield RecordedCloud(name, stamp_ns, header.frame_id, points, problem)

    def _choose(self, wanted: str | None) -> str:
        counts: dict[str, int] = {}
        for connection in self._reader.connections:
            if connection.msgtype == _CLOUD:
                counts[connection.topic] = counts.get(connection.topic, 0) + connection.msgcount
        listed = ", ".join(f"{topic} ({count})" for topic, count in sorted(counts.items()))
        if wanted is not None:
            named = [topic for topic in counts if topic.strip("/") == wanted.strip("/")]
            if named:
                return named[0]
            raise RecordingError(
                f"'{self._path}' has no clouds on '{wanted}'; topics of PointCloud2: "
                f"{listed or 'none'}"
            )
        filled = [topic for topic, count in counts.items() if count]
        if len(filled) == 1:
            return filled[0]
        if filled:
            raise RecordingError(
                f"'{self._path}' has clouds on several topics, choose one with --topic: {listed}"
            )
        types = sorted({connection.msgtype for connection in self._reader.connections})
        raise RecordingError(
            f"'{self._path}' holds no clouds (sensor_msgs/PointCloud2); it has "
            f"{', '.join(types) or 'no topics'}"
        )

    def _connections(self, topic: str, msgtype: str) -> list:
        return [
            connection
            for connection in self._reader.connections
            if connection.topic == topic and connection.msgtype == msgtype
        ]

    def _messages(self, topic: str, msgtype: str) -> Iterator[tuple[int, bytes]]:
        """Yield the time of recording in nanoseconds and the bytes of each message."""
        connections = self._connections(topic, msgtype)
        # Without any, rosbags would give the messages of all.
        if not connections:
            return
        messages = self._reader.messages(connections)
        while True:
            try:
                _, recorded_ns, raw = next(messages)
            except StopIteration:
                return
            except Exception as error:
                raise RecordingError(f"'{self._path}' is broken: {_line(error)}") from None
            yield recorded_ns, raw

    def _decode(self, raw: bytes, msgtype: str):
        """Return a message; ValueError says in one line why it is none."""
        decode = self._types.deserialize_ros1 if self._is_ros1 else self._types.deserialize_cdr
        try:
            return decode(raw, msgtype)
        except Exception as error:
            reason = f"{len(raw)} bytes are no {msgtype.replace('/msg/', '/')}: {_line(error)}"
            raise ValueError(reason) from None


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__

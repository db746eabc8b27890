"""The clouds on one topic of a bag."""

from collections.abc import Iterator
from pathlib import Path

from geoaccel_ros.pointcloud.layout import LayoutError
from geoaccel_ros.pointcloud.messages import points_from_message
from geoaccel_ros.pointcloud.recordings.bag_messages import CLOUD, TRANSFORMS, BagMessages
from geoaccel_ros.pointcloud.recordings.cloud import RecordedCloud, RecordingError

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
        self._bag = BagMessages(path)
        try:
            self.topic = self._choose(topic)
        except RecordingError:
            self._bag.close()
            raise

    def __len__(self) -> int:
        return sum(c.msgcount for c in self._connections(self.topic, CLOUD))

    def __enter__(self) -> "Bag":
        return self

    def __exit__(self, *exception) -> None:
        self._bag.close()

    def static_transforms(self) -> Iterator[object]:
        """Yield the messages of /tf_static, wherever they are in the bag."""
        for _, _, raw in self._bag.messages(self._connections(_STATIC_TOPIC, TRANSFORMS)):
            try:
                yield self._bag.decode(raw, TRANSFORMS)
            except ValueError:
                continue

    def clouds(self) -> Iterator[RecordedCloud]:
        """Yield the clouds of the topic, one at a time in memory.

        Raises
        ------
        RecordingError
            Where the bag turns out to be broken.
        """
        messages = self._bag.messages(self._connections(self.topic, CLOUD))
        for index, (_, recorded_ns, raw) in enumerate(messages):
            name = f"cloud {index}"
            try:
                message = self._bag.decode(raw, CLOUD)
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
        for connection in self._bag.connections:
            if connection.msgtype == CLOUD:
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
        types = sorted({connection.msgtype for connection in self._bag.connections})
        raise RecordingError(
            f"'{self._path}' holds no clouds (sensor_msgs/PointCloud2); it has "
            f"{', '.join(types) or 'no topics'}"
        )

    def _connections(self, topic: str, msgtype: str) -> list:
        return [
            connection
            for connection in self._bag.connections
            if connection.topic == topic and connection.msgtype == msgtype
        ]

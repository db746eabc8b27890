"""Messages of bags of ROS 1 and ROS 2 (sqlite3, MCAP), read by rosbags, without a ROS installation.

The definitions of the few types that are read are rosbags' own, not the bag's: whatever else is in
the bag, and however it is defined, does not matter.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rosbags.interfaces import Connection
from rosbags.rosbag1 import Reader as Rosbag1Reader
from rosbags.rosbag2 import Reader as Rosbag2Reader
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from geoaccel_ros.pointcloud.recordings.cloud import RecordingError
from geoaccel_ros.resources import share_path

SUFFIXES = (".bag", ".db3", ".mcap")
# What may mend a recording that was cut off.
_REMEDIES = {".bag": "rosbag reindex", ".db3": "sqlite3 .recover", ".mcap": "mcap recover"}

CLOUD = "sensor_msgs/msg/PointCloud2"
COMPRESSED_CLOUD = "point_cloud_interfaces/msg/CompressedPointCloud2"
TRANSFORMS = "tf2_msgs/msg/TFMessage"


class BagMessages:
    """A bag and the messages of all its topics, as they were serialised.

    Parameters
    ----------
    path : Path
        A .bag, .mcap or .db3 file, or the folder of a rosbag2 with its metadata.yaml.

    Attributes
    ----------
    path : Path
    is_ros1 : bool
    reader : rosbags' Reader
        Open until :meth:`close`.
    types : rosbags' Typestore
        Knows the types that this module names.

    Raises
    ------
    RecordingError
        If the bag cannot be opened.
    """

    def __init__(self, path: Path):
        self.path = path
        self.is_ros1 = path.suffix == ".bag"
        self.types = get_typestore(Stores.ROS1_NOETIC if self.is_ros1 else Stores.LATEST)
        if self.is_ros1:
            # The one type of ROS 1 that rosbags lacks.
            definition = "geometry_msgs/TransformStamped[] transforms\n"
            self.types.register(get_types_from_msg(definition, TRANSFORMS))
        definition = share_path(
            "interfaces/point_cloud_interfaces/msg/CompressedPointCloud2.msg"
        ).read_text()
        self.types.register(get_types_from_msg(definition, COMPRESSED_CLOUD))
        self.reader = (Rosbag1Reader if self.is_ros1 else Rosbag2Reader)(path)
        # Of a broken file, rosbags raises whatever its parser stumbled over.
        try:
            self.reader.open()
        except Exception as error:
            remedy = _REMEDIES.get(path.suffix, "ros2 bag reindex")
            raise RecordingError(
                f"'{path}' cannot be read as a bag: {_line(error)} (`{remedy}` may mend what was "
                "cut off)"
            ) from None

    def __enter__(self) -> "BagMessages":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def close(self) -> None:
        """Close the bag."""
        self.reader.close()

    @property
    def connections(self) -> list[Connection]:
        """The topics, each with its type, of a ROS 1 bag and its publishers; one may come twice."""
        return self.reader.connections

    def messages(
        self, connections: Sequence[Connection]
    ) -> Iterator[tuple[Connection, int, bytes]]:
        """Yield connection, time of recording in nanoseconds and bytes of each message, in order.

        Raises
        ------
        RecordingError
            Where the bag turns out to be broken.
        """
        # Without any, rosbags would give the messages of all.
        if not connections:
            return
        messages = self.reader.messages(connections)
        while True:
            try:
                message = next(messages)
            except StopIteration:
                return
            except Exception as error:
                raise RecordingError(f"'{self.path}' is broken: {_line(error)}") from None
            yield message

    def decode(self, raw: bytes, msgtype: str):
        """Return a message of a type that this module names.

        Raises
        ------
        ValueError
            If the bytes are none; one line says why.
        """
        decode = self.types.deserialize_ros1 if self.is_ros1 else self.types.deserialize_cdr
        try:
            return decode(raw, msgtype)
        except Exception as error:
            reason = f"{len(raw)} bytes are no {msgtype.replace('/msg/', '/')}: {_line(error)}"
            raise ValueError(reason) from None

    def encode(self, msgtype: str, **values) -> memoryview:
        """Return the bytes of a message of a type that this module names."""
        encode = self.types.serialize_ros1 if self.is_ros1 else self.types.serialize_cdr
        return encode(self.types.types[msgtype](**values), msgtype)


def find_bag(path: Path) -> Path | None:
    """Return what of ``path`` to open as a bag, or None if it is none.

    Raises
    ------
    RecordingError
        If it is a folder of several bags, which nothing says to belong together.
    """
    if path.is_file():
        return path if path.suffix in SUFFIXES else None
    if (path / "metadata.yaml").exists():
        return path
    files = sorted(file for file in path.glob("*") if file.suffix in SUFFIXES)
    if len(files) > 1:
        raise RecordingError(
            f"'{path}' holds several bags and no metadata.yaml: give one of the files, or let "
            f"`ros2 bag reindex` make it ({', '.join(file.name for file in files)})"
        )
    return files[0] if files else None


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__

"""Bags of every kind, written by rosbags for the tests."""

from pathlib import Path

import numpy as np
from rosbags.rosbag1 import Writer as Rosbag1Writer
from rosbags.rosbag2 import StoragePlugin
from rosbags.rosbag2 import Writer as Rosbag2Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from geoaccel_ros.pointcloud.layout import fields_of

KINDS = ("ros1", "sqlite3", "mcap")
CLOUD = "sensor_msgs/msg/PointCloud2"
COMPRESSED_CLOUD = "point_cloud_interfaces/msg/CompressedPointCloud2"
TRANSFORMS = "tf2_msgs/msg/TFMessage"
_DEFINITION = (
    Path(__file__).resolve().parent.parent
    / "interfaces/point_cloud_interfaces/msg/CompressedPointCloud2.msg"
)
_PLUGINS = {"sqlite3": StoragePlugin.SQLITE3, "mcap": StoragePlugin.MCAP}


class WrittenBag:
    """A bag while it is written; ``path`` is what a user would give to the command.

    Clouds are recorded at their stamp unless told otherwise.
    """

    def __init__(self, folder: Path, kind: str):
        self._is_ros1 = kind == "ros1"
        self.store = get_typestore(Stores.ROS1_NOETIC if self._is_ros1 else Stores.ROS2_HUMBLE)
        if self._is_ros1:
            definition = "geometry_msgs/TransformStamped[] transforms\n"
            self.store.register(get_types_from_msg(definition, TRANSFORMS))
        self.store.register(get_types_from_msg(_DEFINITION.read_text(), COMPRESSED_CLOUD))
        if self._is_ros1:
            self.path = folder / "recorded.bag"
            self._writer = Rosbag1Writer(self.path)
        else:
            self.path = folder / f"recorded_{kind}"
            self._writer = Rosbag2Writer(self.path, version=9, storage_plugin=_PLUGINS[kind])
        self._connections = {}

    def compress(self, *how):
        self._writer.set_compression(*how)

    def __enter__(self):
        self._writer.open()
        return self

    def __exit__(self, *exception):
        self._writer.close()

    def topic(self, topic, msgtype, **options):
        """Return the connection of a topic, which may have no messages; options are rosbags'."""
        if topic not in self._connections:
            self._connections[topic] = self._writer.add_connection(
                topic, msgtype, typestore=self.store, **options
            )
        return self._connections[topic]

    def undefined_topic(self, topic):
        """Add a topic whose type's definition is no definition, with a message of that type."""
        digest = {"md5sum": "0" * 32} if self._is_ros1 else {"rihs01": "RIHS01_" + "0" * 64}
        connection = self._writer.add_connection(
            topic, "strange_msgs/msg/Strange", msgdef="]] this is * no definition", **digest
        )
        self._writer.write(connection, 1, b"\x01\x02\x03")

    def raw(self, topic, msgtype, recorded_ns, data):
        self._writer.write(self.topic(topic, msgtype), recorded_ns, bytes(data))

    def cloud(self, points, stamp_ns, frame="lidar", topic="/points", recorded_ns=None, **changes):
        """Write a cloud, some of its fields changed by name."""
        data = self.serialised(self.message(points, stamp_ns, frame, **changes), CLOUD)
        self.raw(topic, CLOUD, stamp_ns if recorded_ns is None else recorded_ns, data)

    def compressed_cloud(self, topic, points, stamp_ns, data, format_):
        """Write what a codec made of a cloud."""
        cloud = vars(self.message(points, stamp_ns, "lidar"))
        values = {name: cloud[name] for name in cloud if name not in ("data", "__msgtype__")}
        message = self.store.types[COMPRESSED_CLOUD](
            **values, compressed_data=np.frombuffer(data, np.uint8), format=format_
        )
        raw = self.serialised(message, COMPRESSED_CLOUD)
        self.raw(topic, COMPRESSED_CLOUD, stamp_ns, raw)

    def static_transform(self, parent, child, T_parent_child, recorded_ns):
        from scipy.spatial.transform import Rotation

        types = self.store.types
        x, y, z, w = Rotation.from_matrix(T_parent_child[:3, :3]).as_quat().tolist()
        translation = types["geometry_msgs/msg/Vector3"](*T_parent_child[:3, 3].tolist())
        stamped = types["geometry_msgs/msg/TransformStamped"](
            header=self.header(0, parent),
            child_frame_id=child,
            transform=types["geometry_msgs/msg/Transform"](
                translation, types["geometry_msgs/msg/Quaternion"](x, y, z, w)
            ),
        )
        message = types[TRANSFORMS]([stamped])
        self.raw("/tf_static", TRANSFORMS, recorded_ns, self.serialised(message, TRANSFORMS))

    def serialised(self, message, msgtype) -> bytes:
        serialise = self.store.serialize_ros1 if self._is_ros1 else self.store.serialize_cdr
        return bytes(serialise(message, msgtype))

    def header(self, stamp_ns, frame):
        types = self.store.types
        sec, nanosec = divmod(stamp_ns, 10**9)
        stamp = types["builtin_interfaces/msg/Time"](sec=sec, nanosec=nanosec)
        sequence = {"seq": 0} if self._is_ros1 else {}
        return types["std_msgs/msg/Header"](**sequence, stamp=stamp, frame_id=frame)

    def message(self, points, stamp_ns, frame, **changes):
        types = self.store.types
        field = types["sensor_msgs/msg/PointField"]
        values = {
            "header": self.header(stamp_ns, frame),
            "height": 1,
            "width": len(points),
            "fields": [
                field(f.name, f.offset, f.datatype, f.count) for f in fields_of(points.dtype)
            ],
            "is_bigendian": False,
            "point_step": points.dtype.itemsize,
            "row_step": points.nbytes,
            "data": np.frombuffer(points.tobytes(), np.uint8),
            "is_dense": True,
        }
        return types[CLOUD](**(values | changes))

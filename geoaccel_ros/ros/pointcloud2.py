"""sensor_msgs/PointCloud2 to structured arrays and back."""

import array

import numpy as np
from sensor_msgs.msg import PointCloud2
from sensor_msgs.msg import PointField as PointFieldMessage
from std_msgs.msg import Header

from geoaccel_ros.pointcloud.layout import fields_of
from geoaccel_ros.pointcloud.messages import NATIVE_IS_BIGENDIAN, points_from_message

__all__ = ["bytes_for_message", "message_from_points", "points_from_message"]


def message_from_points(header: Header, points: np.ndarray) -> PointCloud2:
    """Return an unorganised cloud of ``points``, shape (N,); one copy of the bytes."""
    fields = [
        PointFieldMessage(name=f.name, offset=f.offset, datatype=f.datatype, count=f.count)
        for f in fields_of(points.dtype)
    ]
    message = PointCloud2(
        header=header,
        height=1,
        width=len(points),
        fields=fields,
        is_bigendian=NATIVE_IS_BIGENDIAN,
        point_step=points.dtype.itemsize,
        row_step=points.dtype.itemsize * len(points),
        is_dense=True,
    )
    message.data = bytes_for_message(points)
    return message


def bytes_for_message(data: np.ndarray | bytes) -> array.array:
    """Return ``data`` in the one container that uint8[] takes without a check a byte."""
    return array.array("B", data.tobytes() if isinstance(data, np.ndarray) else data)

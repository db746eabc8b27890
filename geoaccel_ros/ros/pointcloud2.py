"""sensor_msgs/PointCloud2 to structured arrays and back, in place where the layout allows."""

import array
import sys

import numpy as np
from sensor_msgs.msg import PointCloud2
from sensor_msgs.msg import PointField as PointFieldMessage
from std_msgs.msg import Header

from geoaccel_ros.pointcloud.layout import LayoutError, dtype_of, fields_of

try:
    from sensor_msgs_py import point_cloud2 as distribution_reader
except ImportError:  # the PyPI wheels of ROS lack it
    distribution_reader = None

_NATIVE_IS_BIGENDIAN = sys.byteorder == "big"


def points_from_message(message: PointCloud2) -> np.ndarray:
    """Return the message's points, shape (height * width,), itemsize ``point_step``.

    A read-only-by-convention view of the message's bytes, unless rows are padded or the bytes are
    not in this machine's order: then a copy.

    Raises
    ------
    LayoutError
        If the declaration contradicts itself or the data is shorter than declared.
    """
    dtype = dtype_of(message.fields, message.point_step, message.is_bigendian)
    padded = _check_size(message)
    if distribution_reader is not None and not padded and _within_its_reach(message):
        return distribution_reader.read_points(message)
    return read_points(message, dtype, padded)


def read_points(message: PointCloud2, dtype: np.dtype, padded: bool) -> np.ndarray:
    """Read a message whose size was checked; ``padded``: its rows are longer than their points."""
    count = message.height * message.width
    if padded:
        row_bytes = message.width * message.point_step
        rows = np.frombuffer(message.data, np.uint8, message.height * message.row_step)
        rows = rows.reshape(message.height, message.row_step)[:, :row_bytes]
        points = np.ascontiguousarray(rows).reshape(-1).view(dtype)
    else:
        points = np.frombuffer(message.data, dtype, count)
    if message.is_bigendian != _NATIVE_IS_BIGENDIAN:
        points = points.astype(points.dtype.newbyteorder("="))
    return points


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
        is_bigendian=_NATIVE_IS_BIGENDIAN,
        point_step=points.dtype.itemsize,
        row_step=points.dtype.itemsize * len(points),
        is_dense=True,
    )
    message.data = bytes_for_message(points)
    return message


def bytes_for_message(data: np.ndarray | bytes) -> array.array:
    """Return ``data`` in the one container that uint8[] takes without a check a byte."""
    return array.array("B", data.tobytes() if isinstance(data, np.ndarray) else data)


def _check_size(message: PointCloud2) -> bool:
    """Return whether rows are padded; refuse a message whose data is shorter than declared."""
    row_bytes = message.width * message.point_step
    # Many drivers leave row_step 0 or wrong; it only means something when it holds a whole row.
    padded = message.height > 1 and message.row_step > row_bytes
    declared = message.height * (message.row_step if padded else row_bytes)
    if len(message.data) < declared:
        raise LayoutError(
            f"the cloud declares {message.height} x {message.width} points of {message.point_step} "
            f"bytes, {declared} bytes in all, but carries {len(message.data)}"
        )
    return padded


def _within_its_reach(message: PointCloud2) -> bool:
    # sensor_msgs_py asserts on counts of 0 and repeated names, splits counts above 1 into fields
    # of other names, and swaps bytes inside the message.
    names = [field.name for field in message.fields]
    plain = all(names) and len(set(names)) == len(names)
    single = all(field.count == 1 for field in message.fields)
    return plain and single and message.is_bigendian == _NATIVE_IS_BIGENDIAN

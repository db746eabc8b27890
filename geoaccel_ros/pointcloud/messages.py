"""sensor_msgs/PointCloud2 to structured arrays, in place where the layout allows.

Free of ROS: a message is read by its attributes, so those of rclpy and of a bag serve alike.
"""

import sys

import numpy as np

from geoaccel_ros.pointcloud.layout import LayoutError, dtype_of

NATIVE_IS_BIGENDIAN = sys.byteorder == "big"


def points_from_message(message) -> np.ndarray:
    """Return the points of a PointCloud2, shape (height * width,), itemsize ``point_step``.

    A read-only-by-convention view of the message's bytes, unless rows are padded or the bytes are
    not in this machine's order: then a copy. Organised clouds come row by row.

    Raises
    ------
    LayoutError
        If the declaration contradicts itself or the data is shorter than declared.
    """
    dtype = dtype_of(message.fields, message.point_step, message.is_bigendian)
    if _has_padded_rows(message):
        row_bytes = message.width * message.point_step
        rows = np.frombuffer(message.data, np.uint8, message.height * message.row_step)
        rows = rows.reshape(message.height, message.row_step)[:, :row_bytes]
        points = np.ascontiguousarray(rows).reshape(-1).view(dtype)
    else:
        points = np.frombuffer(message.data, dtype, message.height * message.width)
    if message.is_bigendian != NATIVE_IS_BIGENDIAN:
        points = points.astype(points.dtype.newbyteorder("="))
    return points


def _has_padded_rows(message) -> bool:
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

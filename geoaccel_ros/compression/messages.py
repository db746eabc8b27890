"""sensor_msgs/PointCloud2 to point_cloud_interfaces/CompressedPointCloud2 and back.

Free of ROS: a message is read by its attributes, so those of rclpy and of a bag serve alike; what
is made are the values of one.
"""

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np

from geoaccel_ros.compression.codec import Codec, StreamInfo, inspect
from geoaccel_ros.compression.errors import DeclarationError
from geoaccel_ros.compression.formats import FORMAT, check_format
from geoaccel_ros.pointcloud.layout import LayoutError, dtype_of, fields_of


def compressed_values(message) -> dict[str, Any]:
    """Return the values of the CompressedPointCloud2 of a PointCloud2, all but its data.

    Height, width, fields and byte order are those of the cloud; its stream may have lost rows.
    """
    return {
        "header": message.header,
        "height": message.height,
        "width": message.width,
        "fields": message.fields,
        "is_bigendian": message.is_bigendian,
        "point_step": message.point_step,
        "row_step": message.width * message.point_step,
        "is_dense": message.is_dense,
        "format": FORMAT,
    }


def decoded_cloud(message, codec: Codec, level: int = -1) -> tuple[dict[str, Any], np.ndarray]:
    """Return the values of the PointCloud2 of a CompressedPointCloud2, and its points.

    Rows are those of the original where the stream keeps the points' order; else there is one, of
    the points that are left if some were merged.

    Parameters
    ----------
    message : CompressedPointCloud2
    codec : Codec
    level : int
        Of an octree, the centres of the cells of this level alone: x, y and z. -1, or more levels
        than there are: all of it. Streams of other modes, or of version 1, are decoded whole.

    Returns
    -------
    values : dict
        All but the data.
    points : ndarray, shape (height * width,), structured
        Their bytes are the data, in the byte order that the message declares.

    Raises
    ------
    ForeignFormatError, FutureVersionError
        If the message is of another codec, or of a later version.
    DeclarationError
        If it holds another cloud than it declares.
    CodecError
        If its stream is damaged, or the cloud larger than the codec's ``max_decoded_mib``.
    """
    check_format(message.format)
    data = bytes(message.compressed_data)
    info = inspect(data)
    dtype = _declared(message, info)
    fields, is_dense = message.fields, message.is_dense
    if info.mode == "octree" and info.version > 1 and 0 <= level < info.depth:
        points, height = codec.decode_level(data, level), 1
        dtype = np.dtype([(axis, dtype[axis]) for axis in "xyz"])
        fields, is_dense = _of_coordinates(message.fields, dtype), True
    else:
        points, height = codec.decode(data)
    width = len(points) // height if height else 0
    values = {
        "header": message.header,
        "height": height,
        "width": width,
        "fields": fields,
        "is_bigendian": message.is_bigendian,
        "point_step": dtype.itemsize,
        "row_step": width * dtype.itemsize,
        "is_dense": is_dense,
    }
    return values, _in_layout(points, dtype)


def _declared(message, info: StreamInfo) -> np.dtype:
    """Return the layout that a message declares; refuse one that its stream does not have."""
    try:
        dtype = dtype_of(message.fields, message.point_step, message.is_bigendian)
    except LayoutError as error:
        raise DeclarationError(f"the message contradicts itself: {error}") from None
    # Points may have been merged: the message declares those that there were.
    count = message.height * message.width
    has_fields = tuple(fields_of(dtype)) == info.fields
    if not has_fields or dtype.itemsize != info.point_step or count != info.source_points:
        raise DeclarationError("the stream holds another cloud than its message declares")
    return dtype


def _of_coordinates(fields: Iterable[Any], dtype: np.dtype) -> list[Any]:
    """Return the fields of x, y and z alone, one after the other."""
    first = {field.name: field for field in reversed(list(fields))}
    moved = [copy.copy(first[axis]) for axis in "xyz"]
    for field, axis in zip(moved, "xyz", strict=True):
        field.offset = dtype.fields[axis][1]
    return moved


def _in_layout(points: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return points in the byte order of ``dtype``; its padding is zero."""
    if points.dtype == dtype:
        return points
    moved = np.zeros(len(points), dtype)
    for name in dtype.names:
        moved[name] = points[name]
    return moved

"""A point's layout in a stream's header: which layouts can be written, and their bytes.

Versions 1 and 2 of the stream share this table; docs/bitstream.md describes it.
"""

import struct

import numpy as np

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.pointcloud.layout import LayoutError, PointField, fields_of

# After the name: datatype, offset, count
_FIELD = struct.Struct("<BII")
_BIG_ENDIAN = 0x80
# NumPy's largest item.
_MAX_POINT_STEP = 2**31 - 1
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}


def check_layout(dtype: np.dtype) -> None:
    """Check that a point's layout can be written.

    Raises
    ------
    CodecError
        If it cannot, naming the field and the remedy.
    """
    if dtype.names is None:
        raise CodecError(f"the cloud must be a structured array with fields x y z, got {dtype}")
    try:
        rebuilt = _dtype_of(_table_of(dtype), dtype.itemsize)
    except LayoutError as error:
        raise CodecError(f"{error}: convert it to one of {', '.join(_TYPES.values())}") from None
    except struct.error:
        raise CodecError("a field's name is longer than 255 bytes: rename it") from None
    if rebuilt != dtype:
        changed = [name for name in dtype.names if rebuilt[name] != dtype[name]]
        raise CodecError(
            "a field must be a number or a row of at least two numbers, not so: "
            + ", ".join(changed)
        )
    check_coordinates(dtype)


def check_coordinates(dtype: np.dtype) -> None:
    """Raise CodecError unless x, y and z are single floats."""
    for axis in "xyz":
        if axis not in dtype.names:
            raise CodecError(f"no field {axis}; the cloud has {' '.join(dtype.names)}")
        if dtype[axis].shape or dtype[axis].kind != "f":
            raise CodecError(f"{axis} must be float32 or float64, got {dtype[axis]}")


def pack_fields(dtype: np.dtype) -> bytes:
    """Return the table's rows, in the dtype's order."""
    rows = []
    for field, is_bigendian in _table_of(dtype):
        name = field.name.encode()
        code = field.datatype | (_BIG_ENDIAN if is_bigendian else 0)
        rows.append(bytes([len(name)]) + name + _FIELD.pack(code, field.offset, field.count))
    return b"".join(rows)


def unpack_fields(
    body: memoryview, position: int, count: int, point_step: int
) -> tuple[np.dtype, int]:
    """Return the dtype that ``count`` rows from ``position`` on declare, and where they end.

    Raises
    ------
    CodecError, LayoutError, struct.error, UnicodeDecodeError
        If the rows are damaged.
    """
    table = []
    for _ in range(count):
        (name_length,) = struct.unpack_from("<B", body, position)
        position += 1
        name = bytes(body[position : position + name_length]).decode()
        code, offset, values = _FIELD.unpack_from(body, position + name_length)
        position += name_length + _FIELD.size
        field = PointField(name, offset, code & ~_BIG_ENDIAN, values)
        table.append((field, bool(code & _BIG_ENDIAN)))
    dtype = _dtype_of(table, point_step)
    check_coordinates(dtype)
    return dtype, position


def attributes_of(dtype: np.dtype) -> list[str]:
    """Return the names of the fields beside x, y and z, in the order of their sections."""
    return [name for name in dtype.names if name not in ("x", "y", "z")]


def _table_of(dtype: np.dtype) -> list[tuple[PointField, bool]]:
    """Return the fields in the dtype's order, each with whether it is big-endian."""
    by_name = {field.name: field for field in fields_of(dtype)}
    table = []
    for name in dtype.names:
        little = dtype[name].base.newbyteorder("<")
        table.append((by_name[name], dtype[name].base != little))
        struct.pack("B", len(name.encode()))
    return table


def _dtype_of(table: list[tuple[PointField, bool]], point_step: int) -> np.dtype:
    """Return the dtype of a field table; unlike layout.dtype_of it keeps each byte order."""
    if point_step > _MAX_POINT_STEP:
        raise LayoutError(f"a point of {point_step} bytes")
    names = [field.name for field, _ in table]
    if len(set(names)) != len(names) or not all(names):
        raise LayoutError("fields without a name or with the same")
    formats = []
    for field, is_bigendian in table:
        if field.datatype not in _TYPES or field.count < 1:
            raise LayoutError(f"field '{field.name}' has an unknown type")
        base = np.dtype((">" if is_bigendian else "<") + _TYPES[field.datatype])
        if field.offset + field.count * base.itemsize > point_step:
            raise LayoutError(f"field '{field.name}' ends beyond the point")
        formats.append(base if field.count == 1 else (base, (field.count,)))
    offsets = [field.offset for field, _ in table]
    return np.dtype(
        {"names": names, "formats": formats, "offsets": offsets, "itemsize": point_step}
    )

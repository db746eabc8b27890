"""The bytes of a stream, version 1: header, field table, section table, sections, CRC-32.

docs/bitstream.md describes them for other programs. Nothing here depends on how sections are coded.
"""

import math
import struct
import zlib
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.grid import MAX_DEPTH, Grid
from geoaccel_ros.pointcloud.layout import LayoutError, PointField, fields_of

MAGIC = b"GAPC"
VERSION = 1
MODE_OCTREE = 1
MODE_NAMES = {MODE_OCTREE: "octree"}

# magic, version, mode, fields, point_step, height, points, non-finite points, cells, depth, step,
# origin
_HEADER = struct.Struct("<4sBBHIIIIIIdqqq")
# After the name: datatype, offset, count
_FIELD = struct.Struct("<BII")
# Bytes before and after entropy coding
_SECTION = struct.Struct("<QQ")
_CRC = struct.Struct("<I")
CHECKSUM_SIZE = _CRC.size
_BIG_ENDIAN = 0x80
# NumPy's largest item.
_MAX_POINT_STEP = 2**31 - 1
# A double counts integers without gaps up to here, and so does the grid.
_MAX_CELL = 2**53
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}


@dataclass(frozen=True)
class Header:
    """What a stream says of its cloud.

    Attributes
    ----------
    mode : int
        1: octree, the points' order is not kept.
    height : int
        Rows of the decoded cloud; 1 where the order is not kept.
    points, nonfinite, cells : int
        All points; those of them with a coordinate that is NaN or infinite; occupied cells.
    grid : Grid
    dtype : dtype
        Layout of a point.
    """

    mode: int
    height: int
    points: int
    nonfinite: int
    cells: int
    grid: Grid
    dtype: np.dtype

    @property
    def finite(self) -> int:
        """Number of points with three finite coordinates."""
        return self.points - self.nonfinite

    @property
    def attributes(self) -> list[str]:
        """Names of the fields beside x, y and z, in the order of their sections."""
        return [name for name in self.dtype.names if name not in ("x", "y", "z")]

    @property
    def section_names(self) -> list[str]:
        """Names of the sections, in their order."""
        fields = [f"field {name}" for name in self.attributes]
        return ["occupancy", "multiplicity", *fields, "nonfinite"]


@dataclass(frozen=True)
class Section:
    """One section: its bytes as stored, and their number once decompressed."""

    stored: bytes | memoryview
    size: int


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


def pack(header: Header, sections: list[Section]) -> bytes:
    """Return the bytes of a stream."""
    table = _table_of(header.dtype)
    grid = header.grid
    parts = [
        _HEADER.pack(
            MAGIC, VERSION, header.mode, len(table), header.dtype.itemsize, header.height,
            header.points, header.nonfinite, header.cells, grid.depth, grid.step, *grid.origin,
        )
    ]  # fmt: skip
    for field, is_bigendian in table:
        name = field.name.encode()
        code = field.datatype | (_BIG_ENDIAN if is_bigendian else 0)
        parts.append(bytes([len(name)]) + name + _FIELD.pack(code, field.offset, field.count))
    parts += [_SECTION.pack(section.size, len(section.stored)) for section in sections]
    parts += [section.stored for section in sections]
    stream = b"".join(parts)
    return stream + _CRC.pack(zlib.crc32(stream))


def unpack(data: bytes) -> tuple[Header, list[Section]]:
    """Return header and sections, all counts checked against each other and against ``data``.

    Raises
    ------
    CodecError
        If the bytes are not a valid stream of this version.
    """
    view = memoryview(data).cast("B")
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise CodecError("not a geoaccel point-cloud stream (wrong first bytes)")
    if len(view) > len(MAGIC) and view[len(MAGIC)] != VERSION:
        raise CodecError(
            f"stream of version {view[len(MAGIC)]}, known is {VERSION}: update the decoder"
        )
    if len(view) < _HEADER.size + _CRC.size:
        raise CodecError(f"truncated stream: {len(view)} bytes are less than a header")
    body = view[: -_CRC.size]
    if _CRC.unpack(view[-_CRC.size :]) != (zlib.crc32(body),):
        raise CodecError("damaged or truncated stream: its checksum differs")
    try:
        header, position = _read_header(body)
        return header, _read_sections(body, position, header)
    except (struct.error, UnicodeDecodeError, LayoutError) as error:
        raise CodecError(f"damaged stream: {error}") from None


def _read_header(body: memoryview) -> tuple[Header, int]:
    (
        _, _, mode, field_count, point_step, height, points, nonfinite, cells, depth, step, *origin
    ) = _HEADER.unpack_from(body)  # fmt: skip
    if mode not in MODE_NAMES:
        raise CodecError(f"stream of the unknown mode {mode}: update the decoder")
    table, position = [], _HEADER.size
    for _ in range(field_count):
        (name_length,) = struct.unpack_from("<B", body, position)
        position += 1
        name = bytes(body[position : position + name_length]).decode()
        code, offset, count = _FIELD.unpack_from(body, position + name_length)
        position += name_length + _FIELD.size
        field = PointField(name, offset, code & ~_BIG_ENDIAN, count)
        table.append((field, bool(code & _BIG_ENDIAN)))
    dtype = _dtype_of(table, point_step)
    check_coordinates(dtype)
    header = Header(mode, height, points, nonfinite, cells, Grid(step, tuple(origin), depth), dtype)
    _check_counts(header)
    _check_grid(header.grid, [dtype[axis] for axis in "xyz"])
    return header, position


def _check_counts(header: Header) -> None:
    if header.height != 1:
        raise CodecError("damaged stream: rows in a mode that does not keep the points' order")
    if header.nonfinite > header.points:
        raise CodecError("damaged stream: more non-finite points than points")
    if header.cells > header.finite or (header.cells == 0) != (header.finite == 0):
        raise CodecError("damaged stream: the number of cells does not fit the number of points")
    if header.grid.depth > MAX_DEPTH or header.cells > 8**header.grid.depth:
        raise CodecError("damaged stream: the octree's depth does not fit its number of cells")


def _check_grid(grid: Grid, types: list[np.dtype]) -> None:
    if not (math.isfinite(grid.step) and grid.step > 0):
        raise CodecError("damaged stream: the step is not a positive number")
    for first, dtype in zip(grid.origin, types, strict=True):
        reach = max(abs(first), abs(first + 2**grid.depth))
        if reach > _MAX_CELL or reach * grid.step > float(np.finfo(dtype).max):
            raise CodecError("damaged stream: coordinates beyond their type's range")


def _read_sections(body: memoryview, position: int, header: Header) -> list[Section]:
    names = header.section_names
    sizes = [_SECTION.unpack_from(body, position + _SECTION.size * i) for i in range(len(names))]
    position += _SECTION.size * len(names)
    if position + sum(stored for _, stored in sizes) != len(body):
        raise CodecError("damaged stream: the sections do not fill it")
    sections = []
    limits = _largest_sizes(header)
    for (size, stored), name, limit in zip(sizes, names, limits, strict=True):
        if size > limit:
            raise CodecError(f"damaged stream: section '{name}' is larger than its points need")
        sections.append(Section(body[position : position + stored], size))
        position += stored
    return sections


def _largest_sizes(header: Header) -> list[int]:
    """Return the most bytes that each section can have before entropy coding."""
    field_sizes = [1 + header.finite * header.dtype[name].itemsize for name in header.attributes]
    return [
        header.cells * header.grid.depth,
        4 * header.cells,
        *field_sizes,
        header.nonfinite * sum(header.dtype[name].itemsize for name in header.dtype.names),
    ]


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

"""Decoding of streams of version 1, on the host: zstd sections, an octree of plain occupancy bytes.

Nothing writes them any more; docs/bitstream_version1.md describes them. Files that hold them stay
readable.
"""

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import zstandard

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.field_table import attributes_of, unpack_fields
from geoaccel_ros.compression.grid import MAX_DEPTH, Grid, check_grid
from geoaccel_ros.compression.nonfinite import as_unsigned
from geoaccel_ros.pointcloud.layout import LayoutError

# magic, version, mode, fields, point_step, height, points, non-finite points, cells, depth, step,
# origin
_HEADER = struct.Struct("<4sBBHIIIIIIdqqq")
# Bytes before and after entropy coding
_SECTION = struct.Struct("<QQ")
_CRC = struct.Struct("<I")
_MODE_OCTREE = 1
_PLANES, _PALETTE = 0, 1
_PALETTE_HEAD = 3
_CHILDREN = np.array([byte.bit_count() for byte in range(256)], np.uint8)


@dataclass(frozen=True)
class Stream:
    """A stream of version 1: what its header says, and its sections as stored.

    Attributes
    ----------
    points, nonfinite, cells : int
        All points; those of them with a coordinate that is not finite; occupied cells.
    grid : Grid
    dtype : dtype
        Layout of a point.
    stored, sizes : list
        Each section's bytes, and their number once decompressed: occupancy, multiplicity, the
        fields but x, y and z, the points that are not finite.
    """

    points: int
    nonfinite: int
    cells: int
    grid: Grid
    dtype: np.dtype
    stored: list[memoryview]
    sizes: list[int]

    @property
    def section_names(self) -> list[str]:
        """Names of the sections, in their order."""
        fields = [f"field {name}" for name in attributes_of(self.dtype)]
        return ["occupancy", "multiplicity", *fields, "nonfinite"]


def unpack(view: memoryview) -> Stream:
    """Return header and sections, all counts checked against each other.

    Raises
    ------
    CodecError
        If the bytes are not a valid stream of version 1.
    """
    if len(view) < _HEADER.size + _CRC.size:
        raise CodecError(f"truncated stream: {len(view)} bytes are less than a header")
    body = view[: -_CRC.size]
    if _CRC.unpack(view[-_CRC.size :]) != (zlib.crc32(body),):
        raise CodecError("damaged or truncated stream: its checksum differs")
    try:
        return _unpack(body)
    except (struct.error, UnicodeDecodeError, LayoutError) as error:
        raise CodecError(f"damaged stream: {error}") from None


def decode(stream: Stream, check_size) -> np.ndarray:
    """Return the points, structured (N,), by cell and then those that are not finite.

    ``check_size`` is called with every number of bytes before they are allocated.

    Raises
    ------
    CodecError
        If a section contradicts the header.
    """
    check_size(stream.points * stream.dtype.itemsize)
    # Fields may overlap: their sections together can be larger than the cloud.
    check_size(sum(stream.sizes))
    contents = [_decompress(*pair) for pair in zip(stream.stored, stream.sizes, strict=True)]
    occupancy, multiplicity, *attributes, nonfinite = contents
    leaves = _leaves(np.frombuffer(occupancy, np.uint8), stream.grid.depth, stream.cells)
    finite = stream.points - stream.nonfinite
    repeats = _repeats(multiplicity, stream.cells, finite)
    points = np.zeros(stream.points, stream.dtype)
    for axis, name in enumerate("xyz"):
        centres = stream.grid.centres(_collect(leaves >> np.uint64(axis)), axis)
        points[name][:finite] = np.repeat(centres, repeats)
    for name, content in zip(attributes_of(stream.dtype), attributes, strict=True):
        bits = as_unsigned(points[name][:finite])
        if bits.size or content:
            bits[...] = _values(content, bits.size, bits.itemsize).reshape(bits.shape)
    _read_raw(nonfinite, points[finite:])
    return points


def _unpack(body: memoryview) -> Stream:
    (
        _, _, mode, field_count, point_step, height, points, nonfinite, cells, depth, step, *origin
    ) = _HEADER.unpack_from(body)  # fmt: skip
    if mode != _MODE_OCTREE:
        raise CodecError(f"stream of the unknown mode {mode}: update the decoder")
    dtype, position = unpack_fields(body, _HEADER.size, field_count, point_step)
    finite = points - nonfinite
    if height != 1:
        raise CodecError("damaged stream: rows in a mode that does not keep the points' order")
    if finite < 0:
        raise CodecError("damaged stream: more non-finite points than points")
    if cells > finite or (cells == 0) != (finite == 0):
        raise CodecError("damaged stream: the number of cells does not fit the number of points")
    if depth > MAX_DEPTH or cells > 8**depth:
        raise CodecError("damaged stream: the octree's depth does not fit its number of cells")
    grid = Grid(step, tuple(origin), depth)
    check_grid(grid, 2**depth, [dtype[axis] for axis in "xyz"])
    limits = [
        cells * depth,
        4 * cells,
        *(1 + finite * dtype[name].itemsize for name in attributes_of(dtype)),
        nonfinite * sum(dtype[name].itemsize for name in dtype.names),
    ]
    rows = [_SECTION.unpack_from(body, position + _SECTION.size * i) for i in range(len(limits))]
    position += _SECTION.size * len(limits)
    if position + sum(length for _, length in rows) != len(body):
        raise CodecError("damaged stream: the sections do not fill it")
    stored = []
    for _, length in rows:
        stored.append(body[position : position + length])
        position += length
    stream = Stream(points, nonfinite, cells, grid, dtype, stored, [size for size, _ in rows])
    for name, size, limit in zip(stream.section_names, stream.sizes, limits, strict=True):
        if size > limit:
            raise CodecError(f"damaged stream: section '{name}' is larger than its points need")
    return stream


def _decompress(stored: memoryview, size: int) -> bytes:
    if size == 0 and len(stored) == 0:
        return b""
    try:
        # Compared before anything is allocated.
        if zstandard.get_frame_parameters(stored).content_size != size:
            raise CodecError("damaged stream: a section's content has another size than stated")
        return zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CodecError(f"damaged stream: {error}") from None


def _leaves(occupancy: np.ndarray, depth: int, count: int) -> np.ndarray:
    """Return the Morton codes of the occupied cells, uint64 (count,), level by level."""
    if not _CHILDREN[occupancy].all():
        raise CodecError("damaged stream: an octree node without children")
    misfit = CodecError("damaged stream: the octree does not fit its number of cells")
    codes, position = np.zeros(min(count, 1), np.uint64), 0
    for _ in range(depth if count else 0):
        level = occupancy[position : position + len(codes)]
        if len(level) < len(codes):
            raise CodecError("damaged stream: the octree ends within a level")
        position += len(codes)
        if int(_CHILDREN[level].sum(dtype=np.int64)) > count:
            raise misfit
        node, child = np.nonzero(np.unpackbits(level[:, None], axis=1, bitorder="little"))
        codes = codes[node] << np.uint64(3) | child.astype(np.uint64)
    if position != len(occupancy) or len(codes) != count:
        raise misfit
    return codes


def _collect(codes: np.ndarray) -> np.ndarray:
    """Return bit 3 k of every code as bit k."""
    cells = np.zeros(len(codes), np.uint32)
    for bit in range(MAX_DEPTH):
        cells |= ((codes >> np.uint64(3 * bit) & np.uint64(1)) << np.uint64(bit)).astype(np.uint32)
    return cells


def _repeats(content: bytes, cells: int, points: int) -> np.ndarray:
    """Return the points of each cell, int64 (cells,)."""
    repeats = np.ones(cells, np.int64)
    if content:
        repeats += _unplanes(content, 0, cells, 4).astype(np.int64)
    if int(repeats.sum()) != points:
        raise CodecError("damaged stream: the cells' multiplicities do not add up to the points")
    return repeats


def _values(content: bytes, count: int, itemsize: int) -> np.ndarray:
    """Return ``count`` values as unsigned integers of ``itemsize`` bytes."""
    if content[:1] == bytes([_PLANES]):
        return _unplanes(content, 1, count, itemsize)
    if content[:1] != bytes([_PALETTE]) or len(content) < _PALETTE_HEAD:
        raise CodecError("damaged stream: unknown coding of a field")
    size = 1 + int.from_bytes(content[1:_PALETTE_HEAD], "little")
    indices_at = _PALETTE_HEAD + size * itemsize
    if len(content) < indices_at:
        raise CodecError("damaged stream: a field's palette is cut short")
    palette = np.frombuffer(content, f"<u{itemsize}", size, _PALETTE_HEAD)
    indices = _unplanes(content, indices_at, count, 1 if size <= 256 else 2)
    if int(indices.max(initial=0)) >= size:
        raise CodecError("damaged stream: an index beyond its field's palette")
    return palette[indices]


def _unplanes(content: bytes, offset: int, count: int, itemsize: int) -> np.ndarray:
    """Return the values, little-endian unsigned (count,), of the byte planes from ``offset`` on."""
    if len(content) - offset != count * itemsize:
        raise CodecError("damaged stream: a section does not fit the number of points")
    by_plane = np.frombuffer(content, np.uint8, offset=offset).reshape(itemsize, count)
    return np.ascontiguousarray(by_plane.T).view(f"<u{itemsize}").reshape(count)


def _read_raw(content: bytes, target: np.ndarray) -> None:
    """Fill points of whole fields, one after the other, little-endian."""
    columns = [as_unsigned(target[name]) for name in target.dtype.names]
    if len(content) != sum(column.size * column.itemsize for column in columns):
        raise CodecError("damaged stream: the non-finite points do not fill their section")
    position = 0
    for column in columns:
        values = np.frombuffer(content, f"<u{column.itemsize}", column.size, position)
        column[...] = values.reshape(column.shape)
        position += values.nbytes

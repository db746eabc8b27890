"""The bytes of a stream, version 2: header, field table, section table, sections.

docs/bitstream.md describes them for other programs. Nothing here depends on how sections are coded.
Every section has a CRC-32C of its own, so that one can be read without the others.
"""

import struct
from dataclasses import dataclass

import google_crc32c
import numpy as np

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.field_table import attributes_of, pack_fields, unpack_fields
from geoaccel_ros.compression.grid import MAX_DEPTH, SCAN_REACH, Grid, check_grid
from geoaccel_ros.pointcloud.layout import LayoutError

MAGIC = b"GAPC"
VERSION = 2
MODE_OCTREE, MODE_SCAN, MODE_LOSSLESS = 1, 2, 3
MODE_NAMES = {MODE_OCTREE: "octree", MODE_SCAN: "scan", MODE_LOSSLESS: "lossless"}
# Sections in front of the fields'.
_GEOMETRY = {
    MODE_OCTREE: ("beams", "occupancy", "multiplicity"),
    MODE_SCAN: ("lines", "geometry"),
    MODE_LOSSLESS: ("lines",),
}

# magic, version, mode, fields, point_step, height, points, source points, non-finite points, cells,
# depth, step, origin
_HEADER = struct.Struct("<4sBBHIIIIIIIdqqq")
# Length and CRC-32C
_SECTION = struct.Struct("<QI")
_CRC = struct.Struct("<I")


@dataclass(frozen=True)
class Header:
    """What a stream says of its cloud.

    Attributes
    ----------
    mode : int
        1: octree, the points' order is not kept; 2: scan, it is; 3: lossless, coordinates too.
    height : int
        Rows of the decoded cloud; 1 where the order is not kept.
    points : int
        Points of the decoded cloud.
    source_points : int
        Points of the encoded cloud: more where points of one cell were merged.
    nonfinite, cells : int
        Points with a coordinate that is NaN or infinite; occupied cells (octree), 0 (scan).
    grid : Grid
    dtype : dtype
        Layout of a point.
    """

    mode: int
    height: int
    points: int
    source_points: int
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
        return attributes_of(self.dtype)

    @property
    def section_names(self) -> list[str]:
        """Names of the sections, in their order."""
        if self.mode == MODE_LOSSLESS:
            return [*_GEOMETRY[self.mode], *(f"field {name}" for name in self.dtype.names)]
        fields = [f"field {name}" for name in self.attributes]
        return [*_GEOMETRY[self.mode], *fields, "nonfinite"]


@dataclass(frozen=True)
class Stream:
    """A stream taken apart: its header, and its sections by name.

    Attributes
    ----------
    header : Header
    sections : dict of str to memoryview
    header_size : int
        Bytes in front of the first section.
    """

    header: Header
    sections: dict[str, memoryview]
    header_size: int


def pack(header: Header, sections: dict[str, bytes]) -> bytes:
    """Return the bytes of a stream; sections that are missing are empty."""
    grid = header.grid
    contents = [sections.get(name, b"") for name in header.section_names]
    head = _HEADER.pack(
        MAGIC, VERSION, header.mode, len(header.dtype.names), header.dtype.itemsize,
        header.height, header.points, header.source_points, header.nonfinite, header.cells,
        grid.depth, grid.step, *grid.origin,
    )  # fmt: skip
    head += pack_fields(header.dtype)
    head += b"".join(_SECTION.pack(len(c), google_crc32c.value(bytes(c))) for c in contents)
    return b"".join([head, _CRC.pack(google_crc32c.value(head)), *contents])


def unpack(view: memoryview) -> Stream:
    """Return header and sections, all counts checked against each other and against ``view``.

    Raises
    ------
    CodecError
        If the bytes are not a valid stream of version 2.
    """
    if len(view) < _HEADER.size + _CRC.size:
        raise CodecError(f"truncated stream: {len(view)} bytes are less than a header")
    try:
        return _unpack(view)
    except (struct.error, UnicodeDecodeError, LayoutError) as error:
        raise CodecError(f"damaged stream: {error}") from None


def _unpack(view: memoryview) -> Stream:
    (
        _, _, mode, field_count, point_step, height, points, source_points, nonfinite, cells,
        depth, step, *origin,
    ) = _HEADER.unpack_from(view)  # fmt: skip
    if mode not in MODE_NAMES:
        raise CodecError(f"stream of the unknown mode {mode}: update the decoder")
    dtype, position = unpack_fields(view, _HEADER.size, field_count, point_step)
    grid = Grid(step, tuple(origin), depth)
    header = Header(mode, height, points, source_points, nonfinite, cells, grid, dtype)
    names = header.section_names
    rows = [_SECTION.unpack_from(view, position + _SECTION.size * i) for i in range(len(names))]
    position += _SECTION.size * len(names)
    if _CRC.unpack_from(view, position) != (google_crc32c.value(bytes(view[:position])),):
        raise CodecError("damaged stream: its header's checksum differs")
    position += _CRC.size
    header_size = position
    _check_counts(header)
    if mode != MODE_LOSSLESS:
        reach = 2**depth if mode == MODE_OCTREE else SCAN_REACH
        check_grid(grid, reach, [dtype[axis] for axis in "xyz"])
    if position + sum(length for length, _ in rows) != len(view):
        raise CodecError("truncated stream: its sections do not fill it")
    sections = {}
    for name, (length, checksum) in zip(names, rows, strict=True):
        section = view[position : position + length]
        if google_crc32c.value(bytes(section)) != checksum:
            raise CodecError(f"damaged stream: the checksum of section '{name}' differs")
        sections[name] = section
        position += length
    return Stream(header, sections, header_size)


def _check_counts(header: Header) -> None:
    points, finite = header.points, header.finite
    if finite < 0:
        raise CodecError("damaged stream: more non-finite points than points")
    if header.source_points < points or (header.source_points > 0) != (points > 0):
        raise CodecError("damaged stream: fewer points encoded than decoded")
    if header.mode != MODE_OCTREE:
        if points % header.height if header.height else points:
            raise CodecError("damaged stream: the points do not fill their rows")
        if header.cells or header.grid.depth or header.source_points != points:
            raise CodecError("damaged stream: cells of an octree in a scan")
        if header.mode == MODE_LOSSLESS and (header.nonfinite or header.grid.step):
            raise CodecError("damaged stream: a step of coordinates that are bit-exact")
        return
    if header.height != 1:
        raise CodecError("damaged stream: rows in a mode that does not keep the points' order")
    if header.cells > finite or (header.cells == 0) != (finite == 0):
        raise CodecError("damaged stream: the number of cells does not fit the number of points")
    if header.grid.depth > MAX_DEPTH or header.cells > 8**header.grid.depth:
        raise CodecError("damaged stream: the octree's depth does not fit its number of cells")

"""ASPRS' .las and its compressed .laz, through the optional laspy and lazrs.

laspy believes what a header says. What could make it allocate or loop without end, or return fewer
points than there should be, is refused before it sees the file.
"""

import io
import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from geoaccel_ros.pointcloud.formats import laz
from geoaccel_ros.pointcloud.formats.malformed import Malformed
from geoaccel_ros.pointcloud.formats.records import refuse_repeats

if TYPE_CHECKING:
    import laspy

_REMEDY = "pip install 'geoaccel_ros[las]'"
_SMALLEST_HEADER = 227
_VLR_HEADER = 54
# Points held twice, as in the file and unpacked.
_BLOCK = 1_000_000

# What laspy logs is in the error, which is one line.
logging.getLogger("laspy").addHandler(logging.NullHandler())


def read(path: Path) -> np.ndarray:
    """Return x, y and z scaled, as float64, and all other dimensions under their LAS names.

    Each bit field becomes a uint8, extra bytes that declare a scale a float64; all else keeps its
    type.
    """
    raw = path.read_bytes()
    _check(raw)
    try:
        import laspy
    except ImportError:
        raise Malformed(f"LAS files need laspy: {_REMEDY}") from None
    if _is_compressed(raw) and not laspy.LazBackend.Lazrs.is_available():
        raise Malformed(f"compressed LAS files need lazrs: {_REMEDY}")
    try:
        source = io.BytesIO(raw)
        with laspy.open(source, laz_backend=laspy.LazBackend.Lazrs, read_evlrs=False) as reader:
            if _is_compressed(raw) and reader.header.point_count:
                laz.check(raw, reader.header)
            return _points(reader, laspy.ScaleAwarePointRecord.zeros(1, header=reader.header))
    except (Malformed, MemoryError):
        raise
    except Exception as error:
        # Neither library has an error of its own for what is damaged.
        raise Malformed(f"a damaged LAS file ({type(error).__name__}: {error})") from None


def _is_compressed(raw: bytes) -> bool:
    return raw[104] & 0xC0 == 0x80


def _check(raw: bytes) -> None:
    """Compare what the header declares with the length of the file."""
    if len(raw) < _SMALLEST_HEADER or not raw.startswith(b"LASF"):
        raise Malformed("not a LAS file")
    header_size, points_at, vlrs = struct.unpack_from("<HII", raw, 94)
    if not _SMALLEST_HEADER <= header_size <= points_at <= len(raw):
        raise Malformed("a damaged LAS file: its points begin outside of it")
    if vlrs * _VLR_HEADER > points_at - header_size:
        raise Malformed(f"a damaged LAS file: {vlrs} records do not fit into its header")
    point_size, count = struct.unpack_from("<HI", raw, 105)
    if raw[25] >= 4 and header_size >= 255:
        (count,) = struct.unpack_from("<Q", raw, 247)
    available = len(raw) - points_at
    if _is_compressed(raw):
        available *= laz.MOST_COMPRESSED
    if count * point_size > available:
        raise Malformed(
            f"{len(raw) - points_at} bytes of points, too few for the {count} that its header "
            "declares"
        )


def _points(reader: "laspy.LasReader", example: "laspy.ScaleAwarePointRecord") -> np.ndarray:
    columns = [(name, values.dtype, values.shape[1:]) for name, values in _columns(example)]
    refuse_repeats(name for name, *_ in columns)
    points = np.empty(reader.header.point_count, columns)
    end = 0
    # Scales of a damaged file may overflow.
    with np.errstate(all="ignore"):
        for block in reader.chunk_iterator(_BLOCK):
            start, end = end, end + len(block)
            for name, values in _columns(block):
                points[name][start:end] = values
    if end != len(points):
        raise Malformed(f"{end} points, its header declares {len(points)}")
    if not all(np.isfinite(points[axis]).all() for axis in "xyz"):
        raise Malformed("a damaged LAS file: its scales or offsets are no numbers")
    return points


def _columns(record: "laspy.ScaleAwarePointRecord") -> Iterator[tuple[str, np.ndarray]]:
    for axis in "xyz":
        yield axis, np.asarray(record[axis])
    for name in record.point_format.dimension_names:
        if name not in ("X", "Y", "Z"):
            yield name, np.asarray(record[name])

"""What a compressed LAS file has to be before lazrs may decompress it.

lazrs allocates what the chunk table and the chunks declare, and decompresses whatever follows the
last point as if it were more of them. The layout is that of LASzip (Martin Isenburg).
"""

import io
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from geoaccel_ros.pointcloud.formats.malformed import Malformed

if TYPE_CHECKING:
    import laspy

# Points that are all zero take a 3000th of their size; a header that promises more lies.
MOST_COMPRESSED = 10_000
# How LASzip's own record calls its ways to compress.
_UNCHUNKED, _LAYERED = 1, 3
# Layers of an item by its type; extra bytes, of type 14, have one a byte.
_LAYERS = {10: 9, 11: 1, 12: 2, 13: 1}


def check(raw: bytes, header: "laspy.LasHeader") -> None:
    """Compare the items, chunks and layers that a file declares with one another.

    Raises
    ------
    Malformed
        If they contradict each other or the length of the file.
    """
    import lazrs

    records = header.vlrs.get("LasZipVlr")
    if not records:
        raise Malformed("a damaged LAZ file: it does not say how it is compressed")
    record = records[0].record_data
    vlr = lazrs.LazVlr(record)
    point = header.point_format
    usual = lazrs.LazVlr.new_for_compression(point.id, point.num_extra_bytes)
    if _items(record) != _items(usual.record_data()):
        raise Malformed(f"a damaged LAZ file: not the items of point format {point.id}")
    (method,) = struct.unpack_from("<H", record)
    if method == _UNCHUNKED:
        return
    start = header.offset_to_point_data
    _check_table(raw, start)
    source = io.BytesIO(raw)
    source.seek(start)
    table = lazrs.read_chunk_table(source, vlr)
    # Writers of chunks that vary may end with an empty one.
    chunks = [chunk for chunk in _pieces(raw, start + 8, [size for _, size in table]) if chunk]
    if method == _LAYERED:
        layers = sum(_LAYERS.get(kind, size) for kind, size in _items(record))
        held = sum(_layered_points(chunk, vlr.item_size(), layers) for chunk in chunks)
    elif vlr.uses_variable_size_chunks():
        held = sum(points for points, _ in table)
    else:
        # All are full but the last, which does not say how full it is.
        full = vlr.chunk_size() * (len(chunks) - 1)
        held = full + min(max(header.point_count - full, 1), vlr.chunk_size())
    if held != header.point_count:
        raise Malformed(f"{held} points, its header declares {header.point_count}")


def _items(record: bytes) -> list[tuple[int, int]]:
    """Return of each item of a point its type and its size in bytes."""
    (number,) = struct.unpack_from("<H", record, 32)
    items = struct.iter_unpack("<HHH", record[34 : 34 + 6 * number])
    return [(kind, size) for kind, size, _ in items]


def _check_table(raw: bytes, start: int) -> None:
    """Refuse a table that lies outside of the file, or declares more chunks than there can be."""
    (table,) = struct.unpack_from("<q", raw, start)
    if table <= start:
        # The writer could not go back to say where it is: the file ends with it.
        (table,) = struct.unpack_from("<q", raw, len(raw) - 8)
    available = table - start - 8
    if available < 0 or table > len(raw) - 8:
        raise Malformed("a truncated LAZ file: it ends before its table of chunks")
    (number,) = struct.unpack_from("<I", raw, table + 4)
    if number > available:
        raise Malformed(f"a damaged LAZ file: {number} chunks in {available} bytes")


def _pieces(raw: bytes, start: int, sizes: list[int]) -> Iterator[memoryview]:
    for size in sizes:
        if start + size > len(raw):
            raise Malformed("a damaged LAZ file: a chunk ends beyond the file")
        yield memoryview(raw)[start : start + size]
        start += size


def _layered_points(chunk: memoryview, point_size: int, layers: int) -> int:
    """Return the number of points in a chunk, after its layers have been added up."""
    number, *sizes = struct.unpack_from(f"<I{layers}I", chunk, point_size)
    if point_size + 4 + 4 * layers + sum(sizes) > len(chunk):
        raise Malformed("a damaged LAZ file: a layer ends beyond its chunk")
    return number

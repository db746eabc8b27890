"""The Point Cloud Library's .pcd, version 0.7: ascii, binary, binary_compressed."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geoaccel_ros.pointcloud.formats import lzf, rows
from geoaccel_ros.pointcloud.formats.malformed import Malformed
from geoaccel_ros.pointcloud.formats.records import from_bytes, packed, refuse_repeats

# A header is short; what has no end of header within this is no cloud.
_HEADER_LIMIT = 1 << 20
# Values of a point: beyond this, NumPy has no dtype and the header is no cloud's.
_MOST_VALUES = 1 << 16
_PADDING = "_"
_CODES = {"F": "f", "I": "i", "U": "u"}
_TYPES = ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")


@dataclass(frozen=True)
class _Field:
    name: str
    type: np.dtype
    count: int

    @property
    def is_padding(self) -> bool:
        return self.name == _PADDING

    @property
    def size(self) -> int:
        return self.type.itemsize * self.count


def read(path: Path) -> np.ndarray:
    """Return the points; fields called _ are padding, a COUNT above 1 makes a subarray."""
    raw = path.read_bytes()
    header, body, header_lines = _header(raw)
    for key in ("FIELDS", "SIZE", "TYPE", "POINTS", "DATA"):
        if key not in header:
            raise Malformed(f"not a PCD file: no {key} in its header")
    fields, number = _fields(header)
    dtype = _dtype(fields)
    encoding = header["DATA"][0] if header["DATA"] else ""
    if encoding == "ascii":
        return _from_ascii(body, number, fields, dtype, header_lines + 1)
    if encoding == "binary":
        return from_bytes(body, number, dtype)
    if encoding == "binary_compressed":
        return _from_compressed(body, number, fields, dtype)
    raise Malformed(f"unknown DATA {encoding!r} (known: ascii, binary, binary_compressed)")


def read_height(path: Path) -> int:
    """Return the rows; 1 where HEIGHT and WIDTH do not give POINTS, by which :func:`read` goes."""
    with path.open("rb") as file:
        header, _, _ = _header(file.read(_HEADER_LIMIT))
    try:
        height, width, number = (int(header[key][0]) for key in ("HEIGHT", "WIDTH", "POINTS"))
    except (KeyError, ValueError, IndexError):
        return 1
    return height if height > 0 and height * width == number else 1


def write(path: Path, points: np.ndarray, height: int) -> None:
    """Write every field, binary, in as many rows."""
    records = packed(points)
    if _PADDING in records.dtype.names:
        raise Malformed(f"a field is called {_PADDING}, which PCD takes for padding")
    bases = [records.dtype[name].base for name in records.dtype.names]
    counts = [int(np.prod(records.dtype[name].shape, dtype=int)) for name in records.dtype.names]
    header = (
        "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\n"
        f"FIELDS {' '.join(records.dtype.names)}\n"
        f"SIZE {' '.join(str(base.itemsize) for base in bases)}\n"
        f"TYPE {' '.join(base.kind.upper() for base in bases)}\n"
        f"COUNT {' '.join(map(str, counts))}\n"
        f"WIDTH {len(records) // height}\nHEIGHT {height}\nVIEWPOINT 0 0 0 1 0 0 0\n"
        f"POINTS {len(records)}\nDATA binary\n"
    )
    path.write_bytes(header.encode() + records.tobytes())


def _header(raw: bytes) -> tuple[dict[str, list[str]], bytes, int]:
    """Return the header's entries, what follows it, and how many lines it has."""
    header, start, lines = {}, 0, 0
    while "DATA" not in header:
        end = raw.find(b"\n", start, _HEADER_LIMIT)
        if end < 0:
            raise Malformed("not a PCD file: its header does not end")
        words = raw[start:end].decode("latin-1").split("#")[0].split()
        if words:
            header[words[0].upper()] = words[1:]
        start, lines = end + 1, lines + 1
    return header, raw[start:], lines


def _fields(header: dict[str, list[str]]) -> tuple[list[_Field], int]:
    """Return the fields and the number of points."""
    names, kinds = header["FIELDS"], header["TYPE"]
    try:
        sizes = [int(value) for value in header["SIZE"]]
        counts = [int(value) for value in header.get("COUNT", ["1"] * len(sizes))]
        number = int(header["POINTS"][0])
    except (ValueError, IndexError):
        raise Malformed("a number of its header is not a number") from None
    if number < 0:
        raise Malformed(f"its header declares {number} points")
    if not len(names) == len(sizes) == len(kinds) == len(counts):
        raise Malformed("FIELDS, SIZE, TYPE and COUNT of its header differ in length")
    fields = []
    for name, kind, size, count in zip(names, kinds, sizes, counts, strict=True):
        code = _CODES.get(kind, "") + str(size)
        if code not in _TYPES or count < 1:
            raise Malformed(f"field '{name}' has the unknown type {kind} {size} x {count}")
        fields.append(_Field(name, np.dtype("<" + code), count))
    if sum(counts) > _MOST_VALUES:
        raise Malformed(f"its header declares {sum(counts)} values a point")
    return fields, number


def _dtype(fields: list[_Field]) -> np.dtype:
    """Return the dtype of a point as it lies in a binary file."""
    ends = np.cumsum([field.size for field in fields]).tolist()
    kept = [(f, end - f.size) for f, end in zip(fields, ends, strict=True) if not f.is_padding]
    if not kept:
        raise Malformed("its header names no fields")
    refuse_repeats(field.name for field, _ in kept)
    return np.dtype(
        {
            "names": [field.name for field, _ in kept],
            "formats": [f.type if f.count == 1 else (f.type, (f.count,)) for f, _ in kept],
            "offsets": [offset for _, offset in kept],
            "itemsize": ends[-1],
        }
    )


def _from_ascii(
    body: bytes, number: int, fields: list[_Field], dtype: np.dtype, first_line: int
) -> np.ndarray:
    names = [field.name for field in fields for _ in range(field.count)]
    types = [field.type for field in fields for _ in range(field.count)]
    table = rows.parse_declared(body, number, names, types, first_line=first_line)
    points = np.zeros(number, dtype)
    column = 0
    for field in fields:
        if not field.is_padding:
            values = points[field.name].reshape(number, field.count)
            for index in range(field.count):
                values[:, index] = table[f"f{column + index}"]
        column += field.count
    return points


def _from_compressed(body: bytes, number: int, fields: list[_Field], dtype: np.dtype) -> np.ndarray:
    """Decompress; then all values of the first field come first, then all of the second."""
    if len(body) < 8:
        raise Malformed("shorter than its header declares")
    packed_size, size = (int(value) for value in np.frombuffer(body, "<u4", 2))
    if packed_size > len(body) - 8 or size < number * dtype.itemsize:
        raise Malformed("shorter than its header declares")
    raw = lzf.decompress(body[8 : 8 + packed_size], size)
    points = np.zeros(number, dtype)
    start = 0
    for field in fields:
        if not field.is_padding:
            values = np.frombuffer(raw, field.type, number * field.count, start)
            points[field.name] = values.reshape(points[field.name].shape)
        start += number * field.size
    return points

"""Stanford's .ply: ascii and binary of either byte order; the vertices are the points."""

import re
from pathlib import Path

import numpy as np

from geoaccel_ros.pointcloud.formats import rows
from geoaccel_ros.pointcloud.formats.malformed import Malformed
from geoaccel_ros.pointcloud.formats.records import from_bytes, packed, refuse_repeats

# A header is short; what has no end of header within this is no cloud.
_HEADER_LIMIT = 1 << 20
_HEADER_END = re.compile(rb"^end_header[ \t\r]*\n", re.MULTILINE)
_TYPES = {
    "char": "i1",
    "int8": "i1",
    "uchar": "u1",
    "uint8": "u1",
    "short": "i2",
    "int16": "i2",
    "ushort": "u2",
    "uint16": "u2",
    "int": "i4",
    "int32": "i4",
    "uint": "u4",
    "uint32": "u4",
    "float": "f4",
    "float32": "f4",
    "double": "f8",
    "float64": "f8",
}
_NAMES = {
    "i1": "char",
    "u1": "uchar",
    "i2": "short",
    "u2": "ushort",
    "i4": "int",
    "u4": "uint",
    "f4": "float",
    "f8": "double",
}


def read(path: Path) -> np.ndarray:
    """Return the vertices, little-endian; the elements after them are left alone."""
    raw = path.read_bytes()
    end = _HEADER_END.search(raw, 0, _HEADER_LIMIT)
    if not raw.startswith(b"ply") or end is None:
        raise Malformed("not a PLY file: no complete header")
    encoding, number, properties = _header(raw[: end.start()].decode("latin-1"))
    names = [name for _, name in properties]
    types = [np.dtype("<" + _TYPES[code]) for code, _ in properties]
    dtype = np.dtype(list(zip(names, types, strict=True)))
    body = raw[end.end() :]
    if encoding == "ascii":
        first_line = raw.count(b"\n", 0, end.end()) + 1
        return rows.parse_declared(body, number, names, types, first_line=first_line).view(dtype)
    if encoding == "binary_little_endian":
        return from_bytes(body, number, dtype)
    if encoding == "binary_big_endian":
        return from_bytes(body, number, dtype.newbyteorder(">")).astype(dtype)
    raise Malformed(f"unknown format {encoding!r}")


def write(path: Path, points: np.ndarray) -> None:
    """Write every field, binary and little-endian."""
    records = packed(points)
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {len(records)}"]
    for name in records.dtype.names:
        code = records.dtype[name].str[1:]
        if code not in _NAMES:
            raise Malformed(f"PLY has no type for field '{name}' ({records.dtype[name]})")
        lines.append(f"property {_NAMES[code]} {name}")
    path.write_bytes(("\n".join([*lines, "end_header"]) + "\n").encode() + records.tobytes())


def _header(text: str) -> tuple[str, int, list[list[str]]]:
    """Return the encoding, the number of vertices, and of each property its type and name."""
    encoding, elements = "", []
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["format"] and len(words) >= 2:
            encoding = words[1]
        elif words[:1] == ["element"]:
            elements.append((words[1:], []))
        elif words[:1] == ["property"] and elements:
            elements[-1][1].append(words[1:])
    if not elements or elements[0][0][:1] != ["vertex"]:
        raise Malformed("its first element is not 'vertex'")
    (_, *numbers), properties = elements[0]
    if len(numbers) != 1 or not re.fullmatch("[0-9]{1,18}", numbers[0]):
        raise Malformed(f"the number of vertices is no number: {' '.join(numbers)!r}")
    for words in properties:
        if len(words) != 2 or words[0] not in _TYPES:
            raise Malformed(f"unsupported property of a vertex: {' '.join(words)}")
    if not properties:
        raise Malformed("its vertices have no properties")
    refuse_repeats(name for _, name in properties)
    return encoding, int(numbers[0]), properties

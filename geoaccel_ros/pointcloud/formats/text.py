"""Plain text, one point a line: .xyz, .txt, .csv, .pts.

Values are separated by commas, semicolons, tabs or any white space, as the first point shows. A
comment begins with # or //. Columns are called, in lower case, what the header says: a line before
the points that holds names, or a comment there that has a name for every column, x, y and z among
them. Without one, three columns are x y z and a fourth is the intensity; of six or seven columns
the last three are red green blue in a .pts, where that is usual. In other files they could as well
be normals, so they are called column_4 and so on.
"""

import csv
import re
from pathlib import Path

import numpy as np

from geoaccel_ros.pointcloud.formats import rows
from geoaccel_ros.pointcloud.formats.malformed import Malformed
from geoaccel_ros.pointcloud.formats.records import refuse_repeats

_FLOAT = np.dtype("<f8")
_COMMENT = re.compile(r"(#|//).*")
_QUOTED = re.compile(r'"([^"\s,;]*)"')
_COMMENT_MARKS = re.compile(r"[#/\s]*")
# A .pts begins with the number of its points, alone on a line.
_COUNT = re.compile(r"\s*[0-9]{1,18}\s*")
_BEGINS_LIKE_A_NUMBER = re.compile(r"[-+.0-9]|nan$|inf$")
_XYZ = ["x", "y", "z"]
_NAMES = {4: [*_XYZ, "intensity"]}
_NAMES_IN_PTS = {
    4: [*_XYZ, "intensity"],
    6: [*_XYZ, "red", "green", "blue"],
    7: [*_XYZ, "intensity", "red", "green", "blue"],
}


def read(path: Path) -> np.ndarray:
    """Return the points, every field as float64."""
    text = _decoded(path.read_bytes())
    lines = text.splitlines()
    count, header, comments, start = _preamble(lines)
    data = lines[start:]
    if not data:
        return np.empty(0, _dtype(_named(header, len(header)) if header else _XYZ))
    if "#" in text or "//" in text:
        data = [_COMMENT.sub("", line) for line in data]
    if '"' in text:
        data = [_QUOTED.sub(r"\1", line) for line in data]
    delimiter = _delimiter(data[0])
    if delimiter and data[0].rstrip(" ").endswith(delimiter):
        data = [line.rstrip(" ").removesuffix(delimiter) for line in data]
    width = len(data[0].split(delimiter))
    if width < len(_XYZ):
        raise Malformed(f"line {start + 1}: at least x, y and z expected, found {width}")
    header = header or _header_among(comments, width)
    names = _named(header, width) if header else _unnamed(width, path.suffix.lower())
    if len(names) != width:
        raise Malformed(f"the header names {len(names)} columns, but line {start + 1} has {width}")
    dtype = _dtype(names)
    points = rows.parse(data, names, [_FLOAT] * width, first_line=start + 1, delimiter=delimiter)
    if count is not None and count != len(points):
        raise Malformed(f"its first line declares {count} points, but {len(points)} follow")
    return points.view(dtype)


def _decoded(raw: bytes) -> str:
    if b"\0" in raw:
        raise Malformed("not a text file: it holds zero bytes")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _preamble(lines: list[str]) -> tuple[int | None, list[str] | None, list[list[str]], int]:
    """Return the declared number of points, the header, the comments, and where points begin."""
    count, header, comments = None, None, []
    for index, line in enumerate(lines):
        if not line or line.isspace():
            continue
        if _COMMENT.match(line.lstrip()):
            comments.append(_column_names(_COMMENT_MARKS.sub("", line, count=1)))
        elif header is None and count is None and _COUNT.fullmatch(line):
            count = int(line)
        elif header is None and _is_header(line):
            header = _column_names(line)
        else:
            return count, header, comments, index
    return count, header, comments, len(lines)


def _is_header(line: str) -> bool:
    names = _column_names(line)
    return set(_XYZ) <= set(names) or not any(map(_BEGINS_LIKE_A_NUMBER.match, names))


def _column_names(line: str) -> list[str]:
    """Return the names of a header line: quotes may enclose one, and its white space becomes _."""
    delimiter = next((mark for mark in ";,\t" if mark in line), " ")
    try:
        (words,) = csv.reader([line.strip()], delimiter=delimiter, skipinitialspace=True)
    except csv.Error:
        return [line]  # absurdly long: no header of anything
    return ["_".join(word.lower().split()) for word in words]


def _header_among(comments: list[list[str]], width: int) -> list[str] | None:
    """Return the last comment that names every column."""
    for names in reversed(comments):
        if len(names) == width and set(_XYZ) <= set(names):
            return names
    return None


def _named(header: list[str], width: int) -> list[str]:
    if len(header) == width + 1 and not header[-1]:
        header = header[:-1]  # it ends with a separator
    return [name or _column(index) for index, name in enumerate(header)]


def _unnamed(width: int, suffix: str) -> list[str]:
    usual = (_NAMES_IN_PTS if suffix == ".pts" else _NAMES).get(width, _XYZ)
    return usual + [_column(index) for index in range(len(usual), width)]


def _dtype(names: list[str]) -> np.dtype:
    refuse_repeats(names)
    return np.dtype([(name, _FLOAT) for name in names])


def _column(index: int) -> str:
    return f"column_{index + 1}"


def _delimiter(line: str) -> str | None:
    """Return what separates the values of a point; None: any white space."""
    for mark in ";,":
        if mark in line:
            return mark
    cells = line.split("\t")
    # Tabs are not any white space: between two of them a value may be missing.
    if len(cells) > 1 and cells[0].strip() and all(len(cell.split()) < 2 for cell in cells):
        return "\t"
    return None

"""Points as rows of text, one point a line, as in PCD, PLY and plain text files."""

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from geoaccel_ros.pointcloud.formats.malformed import Malformed


def parse(
    lines: Sequence[str],
    names: Sequence[str],
    types: Sequence[np.dtype],
    *,
    first_line: int = 1,
    delimiter: str | None = None,
) -> np.ndarray:
    """Return the points of all lines that are not blank.

    Parameters
    ----------
    lines : sequence of str
    names, types : sequences of str and of scalar dtypes
        For each value of a line what errors call it, and its type.
    first_line : int
        The number that errors give to the first of the lines.
    delimiter : str or None
        What stands between two values; None: any white space.

    Returns
    -------
    structured ndarray (N,), without padding, its fields in the order of the types

    Raises
    ------
    Malformed
        If a line has another number of values, or a value is no number of its type; the message
        names the line.
    """
    dtype = np.dtype([(f"f{column}", type_) for column, type_ in enumerate(types)])
    rows = [line for line in lines if not _is_blank(line)]
    if not rows:
        return np.empty(0, dtype)

    def read(part: list[str]) -> np.ndarray:
        return np.loadtxt(part, dtype, comments=None, delimiter=delimiter, ndmin=1)

    try:
        return read(rows)
    except ValueError:
        index = _first_refused(rows, read)
        numbers = (n for n, line in enumerate(lines, first_line) if not _is_blank(line))
        number = next(islice(numbers, index, None))
        fault = _fault(rows[index].split(delimiter), names, types)
        raise Malformed(f"line {number}{fault}") from None


def parse_declared(
    body: bytes,
    number: int,
    names: Sequence[str],
    types: Sequence[np.dtype],
    *,
    first_line: int,
) -> np.ndarray:
    """Return the points of the first ``number`` lines that are not blank, as :func:`parse` does.

    Raises
    ------
    Malformed
        If there are fewer lines, and as :func:`parse`.
    """
    lines = body.decode("latin-1").splitlines()
    filled = [index for index, line in enumerate(lines) if not _is_blank(line)]
    if len(filled) < number:
        raise Malformed(f"{len(filled)} lines of points, its header declares {number}")
    end = filled[number - 1] + 1 if number else 0
    return parse(lines[:end], names, types, first_line=first_line)


def _is_blank(line: str) -> bool:
    return not line or line.isspace()


def _first_refused(rows: list[str], read: Callable[[list[str]], np.ndarray]) -> int:
    """Return the index of the first row that cannot be read, by halves: files are long."""
    low, high = 0, len(rows)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            read(rows[low:middle])
            low = middle
        except ValueError:
            high = middle
    return low


def _fault(words: list[str], names: Sequence[str], types: Sequence[np.dtype]) -> str:
    if len(words) != len(types):
        return f": {len(types)} values expected, found {len(words)}"
    for name, type_, word in zip(names, types, map(str.strip, words), strict=True):
        if not _is_number(word, type_):
            what = "number" if type_.kind == "f" else type_.name
            return f": {name} is {word!r}, which is no {what}"
    return " cannot be read"


def _is_number(word: str, type_: np.dtype) -> bool:
    if word.split() != [word]:
        return False
    try:
        np.loadtxt([word], type_, comments=None)
    except ValueError:
        return False
    return True

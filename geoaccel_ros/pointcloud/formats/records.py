"""Points as binary records: checked before they are read, packed before they are written."""

import re
from collections.abc import Iterable

import numpy as np

from geoaccel_ros.pointcloud.formats.malformed import Malformed

# White space ends a name in the headers of PCD and PLY, and # begins a comment.
_WRITABLE_NAME = re.compile(r"[!\"$-~]+")


def from_bytes(body: bytes, number: int, dtype: np.dtype) -> np.ndarray:
    """Return the first ``number`` records of the bytes, a read-only view.

    Raises
    ------
    Malformed
        If there are fewer.
    """
    if len(body) < number * dtype.itemsize:
        raise Malformed(
            f"{len(body)} bytes of points, its header declares {number * dtype.itemsize}"
        )
    return np.frombuffer(body, dtype, number)


def packed(points: np.ndarray) -> np.ndarray:
    """Return the points little-endian and without padding.

    Raises
    ------
    Malformed
        If a field is no number, or has a name that a header cannot hold.
    """
    names = points.dtype.names
    fields = [(name, points.dtype[name].newbyteorder("<")) for name in names]
    for name, dtype in fields:
        if dtype.base.kind not in "fiu":
            raise Malformed(f"field '{name}' of type {dtype} is no number")
        if not _WRITABLE_NAME.fullmatch(name):
            raise Malformed(f"its header cannot hold a field called '{name}'; .npy can")
    little = np.empty(len(points), np.dtype(fields))
    for name in names:
        little[name] = points[name]
    return little


def refuse_repeats(names: Iterable[str]) -> None:
    """Raise Malformed where two fields have one name."""
    seen = set()
    for name in names:
        if name in seen:
            raise Malformed(f"two fields are called '{name}'")
        seen.add(name)

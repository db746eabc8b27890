"""What a point's position tells of a field: its ring by the elevation, its range by the distance.

Positions are cells of the global grid, whose zero is where the sensor is in clouds of one sweep.
Sums, products, quotients and roots are of doubles, each rounded as IEEE 754 has it: all machines
compute the same. A basis is a byte and what belongs to it:

- 0: nothing, 0 for every point.
- 1 elevation: steps of a table of e = floor(2048 * z / max(sqrt(x * x + y * y), 1)), limited to
  -2**15 and 2**15. Their number; then of each, less that of the step before it, the e where it
  begins (the first: less -2**15), and then the value (signed; the first: less 0). The first step's
  value also holds below it.
- 2 distance: floor(s * sqrt(x * x + y * y + z * z)); s, a float64, follows.

Numbers are as in :mod:`.sequences`.
"""

import struct
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.sequences import (
    decode_number,
    decode_numbers,
    decode_signed,
    encode_number,
    encode_numbers,
    encode_signed,
)

NONE, ELEVATION, DISTANCE = range(3)
_TANGENT = 2048.0
_LIMIT = 1 << 15
_F64 = struct.Struct("<d")
# Points that a table is made from, at most.
_SAMPLE = 16384
# Rings and the like; more would make the table long.
_MAX_SPAN = 1024
_MAX_STEPS = 4096
# Stretches of a sequence, and the values of each, that tell how rough it is.
_STRETCHES, _STRETCH = 32, 512
# Bits a point that a basis must save.
_WORTH = 0.05


def best_basis(values: np.ndarray, cells: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Return the basis that makes most of positions, as bytes, and the values without it.

    Parameters
    ----------
    values : ndarray, shape (N,), int64
    cells : ndarray, shape (3, N), integer
    """
    some = _stretches(len(values))
    tried, where = values[some], cells[:, some]
    best, smallest = bytes([NONE]), _bits(tried, some) - _WORTH
    for found in (_elevation_steps(values, cells), _distance_scale(values, cells)):
        if found is not None:
            rest = tried - read_basis(memoryview(found), 0)[0].values(where)
            size = _bits(rest, some) + 8 * len(found) / len(values)
            if size < smallest:
                best, smallest = found, size
    if best[0] == NONE:
        return best, values
    return best, values - read_basis(memoryview(best), 0)[0].values(cells)


def roughness(values: np.ndarray) -> float:
    """Return about the bits a value that a sequence needs, told by the steps between its values."""
    some = _stretches(len(values))
    return _bits(values[some], some)


def _stretches(count: int) -> np.ndarray:
    """Return indices of stretches of a sequence, all of it if it is short."""
    if count <= _STRETCHES * _STRETCH:
        return np.arange(count)
    firsts = np.linspace(0, count - _STRETCH, _STRETCHES).astype(np.int64)
    return (firsts[:, None] + np.arange(_STRETCH)).ravel()


def _bits(values: np.ndarray, indices: np.ndarray) -> float:
    """Return the mean bits of the steps between values at indices that follow one another."""
    steps = np.diff(values)[np.diff(indices) == 1]
    return float(np.log2(1 + np.abs(steps.astype(np.float32))).mean()) if len(steps) else 0.0


@dataclass(frozen=True)
class Basis:
    """A basis as read: steps of elevation, or a scale of distance, or neither."""

    steps: tuple[np.ndarray, np.ndarray] | None = None
    scale: float | None = None

    def values(self, cells: np.ndarray) -> np.ndarray:
        """Return the value at each position, int64 (N,)."""
        if self.steps is not None:
            begins, values = self.steps
            found = np.searchsorted(begins, _elevations(cells), side="right")
            return values[np.maximum(found - 1, 0)]
        if self.scale is not None:
            return np.floor(_distances(cells) * self.scale).astype(np.int64)
        return np.zeros(cells.shape[1], np.int64)


def read_basis(content: memoryview, position: int) -> tuple[Basis, int]:
    """Return the basis at ``position``, and where it ends.

    Raises
    ------
    CodecError
        If it is damaged.
    """
    kind = content[position] if position < len(content) else -1
    position += 1
    if kind == NONE:
        return Basis(), position
    if kind == ELEVATION:
        count, position = decode_number(content, position)
        if not 1 <= count <= _MAX_STEPS:
            raise CodecError("damaged stream: a table of elevations of an impossible size")
        gaps, position = decode_numbers(content, position, count)
        rises, position = decode_signed(content, position, count)
        begins = np.cumsum(gaps.astype(np.int64)) - _LIMIT
        return Basis(steps=(begins, np.cumsum(rises))), position
    if kind == DISTANCE and len(content) >= position + _F64.size:
        (scale,) = _F64.unpack_from(content, position)
        # No product with a distance of cells below 2^53 is beyond int64.
        if 0 < scale < 2**9:
            return Basis(scale=scale), position + _F64.size
    raise CodecError("damaged stream: unknown basis of a field")


def _elevation_steps(values: np.ndarray, cells: np.ndarray) -> bytes | None:
    # A few points show whether there are steps at all.
    for sample in (_SAMPLE // 8, _SAMPLE):
        stride = max(1, len(values) // sample)
        some = values[::stride]
        low = int(some.min())
        span = int(some.max()) - low + 1
        if not 2 <= span <= _MAX_SPAN:
            return None
        # The most frequent value at each elevation.
        pairs = (_elevations(cells[:, ::stride]) + _LIMIT) * span + (some - low)
        pairs, counts = np.unique(pairs, return_counts=True)
        elevations, found = np.divmod(pairs, span)
        order = np.lexsort((counts, elevations))
        last = np.flatnonzero(np.diff(elevations[order], append=-1))
        elevations, found = elevations[order][last], found[order][last]
        begins = np.flatnonzero(np.diff(found, prepend=-1))
        if len(begins) > min(_MAX_STEPS, len(some) // 8):
            return None
    return b"".join(
        (
            bytes([ELEVATION]),
            encode_number(len(begins)),
            encode_numbers(np.diff(elevations[begins], prepend=0).astype(np.uint64)),
            encode_signed(np.diff(found[begins] + low, prepend=0)),
        )
    )


def _distance_scale(values: np.ndarray, cells: np.ndarray) -> bytes | None:
    stride = max(1, len(values) // _SAMPLE)
    distances, values = _distances(cells[:, ::stride]), values[::stride]
    used = (distances > 0) & (values > 0)
    if np.count_nonzero(used) < 2:
        return None
    scale = float(np.median(values[used] / distances[used]))
    return bytes([DISTANCE]) + _F64.pack(scale) if 0 < scale < 2**9 else None


def _elevations(cells: np.ndarray) -> np.ndarray:
    x, y, z = cells.astype(np.float64)
    tangents = np.floor(_TANGENT * z / np.maximum(np.sqrt(x * x + y * y), 1.0))
    return np.clip(tangents, -_LIMIT, _LIMIT).astype(np.int64)


def _distances(cells: np.ndarray) -> np.ndarray:
    x, y, z = cells.astype(np.float64)
    return np.sqrt(x * x + y * y + z * z)

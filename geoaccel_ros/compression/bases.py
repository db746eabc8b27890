"""What a point's position tells of a field: ring by elevation, range by distance, time by azimuth.

Positions are cells of the global grid, whose zero is where the sensor is in clouds of one sweep.
Sums, products, quotients and roots are of doubles, each rounded as IEEE 754 has it: all machines
compute the same. A basis is a byte and what belongs to it:

- 0: nothing, 0 for every point.
- 1 elevation: steps of a table of e = floor(2048 * z / max(sqrt(x * x + y * y), 1)), limited to
  -2**15 and 2**15. Their number; then of each, less that of the step before it, the e where it
  begins (the first: less -2**15), and then the value (signed; the first: less 0). The first step's
  value also holds below it.
- 2 distance: floor(s * sqrt(x * x + y * y + z * z)); s, a float64, follows.
- 3 azimuth: with t = floor(1024 * y / max(|x| + |y|, 1)), a = t + 1024 for x >= 0 and 3072 - t for
  x < 0, k = a >> 5, the value is ((32 * n[k] + (n[k + 1] - n[k]) * (a & 31) >> 5) + h) >> 4. What
  follows: the 130 n, signed, each as the difference from the one before less the difference of
  that from its own (the first two: from 0 and less 0); then a table of elevation as in 1, for h.

Numbers are as in :mod:`.sequences`.
"""

import struct
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.compression.arranged import Arranged
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.leb128 import (
    decode_number,
    decode_numbers,
    decode_signed,
    encode_number,
    encode_numbers,
    encode_signed,
)
from geoaccel_ros.compression.positions import Positions

NONE, ELEVATION, DISTANCE, AZIMUTH = range(4)
_TANGENT = 2048.0
_LIMIT = 1 << 15
# Of the angle around the vertical in 4096ths: where it is told, linear in between, in 16ths.
_NODES, _NODE_BITS, _FRACTION_BITS = 130, 5, 4
_F64 = struct.Struct("<d")
# Points that a table is made from, at most.
_SAMPLE = 16384
# Rings and the like; more would make the table long.
_MAX_SPAN = 1024
_MAX_STEPS = 4096
# What grows less than this in a turn is no time; elevations that share an offset of it, in 2048ths.
_MIN_TURN, _TIED = 64, 2
# What lies between nodes of larger values would exceed int64 on the way.
_MOST_TOLD = 2**53
# Of a turn: what times may be off their azimuth's, half of them, before beams are told apart.
_LOOSE = 1 / 16
_ROUNDS = 4
# Stretches of a sequence, and the values of each, that tell how rough it is.
_STRETCHES, _STRETCH = 32, 512
# Bits a point that a basis must save.
_WORTH = 0.05


def best_basis(values: Arranged, positions: Positions) -> tuple[bytes, Arranged]:
    """Return the basis that makes most of positions, as bytes, and the values without it.

    Parameters
    ----------
    values : Arranged
    positions : Positions
    """
    some = _stretches(len(values))
    tried = values[some]
    best, smallest = bytes([NONE]), _bits(tried, some) - _WORTH
    for find in (_elevation_steps, _distance_scale, _azimuth_nodes):
        found = find(values, positions)
        if found is not None:
            rest = tried - read_basis(memoryview(found), 0)[0].values(positions.at(some))
            size = _bits(rest, some) + 8 * len(found) / len(values)
            if size < smallest:
                best, smallest = found, size
    if best[0] == NONE:
        return best, values
    told = read_basis(memoryview(best), 0)[0].values(positions.all())
    return best, Arranged(values.all() - told)


def roughness(values: Arranged) -> float:
    """Return about the bits that a value of a sequence needs."""
    some = _stretches(len(values))
    return _bits(values[some], some)


def _stretches(count: int) -> np.ndarray:
    """Return indices of stretches of a sequence, all of it if it is short."""
    if count <= _STRETCHES * _STRETCH:
        return np.arange(count)
    firsts = np.linspace(0, count - _STRETCH, _STRETCHES).astype(np.int64)
    return (firsts[:, None] + np.arange(_STRETCH)).ravel()


def _bits(values: np.ndarray, indices: np.ndarray) -> float:
    """Return the mean bits of what values at indices that follow one another leave.

    Of a step, or of a change of step, whichever is less.
    """
    steps, follows = np.diff(values), np.diff(indices) == 1
    bends = np.diff(steps)[follows[1:] & follows[:-1]]
    rests = [rest.astype(np.float32) for rest in (steps[follows], bends) if len(rest)]
    return min((float(np.log2(1 + np.abs(rest)).mean()) for rest in rests), default=0.0)


@dataclass(frozen=True)
class Basis:
    """A basis as read: steps of elevation, a scale of distance, nodes of azimuth (with steps)."""

    steps: tuple[np.ndarray, np.ndarray] | None = None
    scale: float | None = None
    nodes: np.ndarray | None = None

    def values(self, cells: np.ndarray) -> np.ndarray:
        """Return the value at each position, int64 (N,)."""
        if self.nodes is not None:
            found = _between(self.nodes, _angles(cells)) + _at(self.steps, _elevations(cells))
            return found >> _FRACTION_BITS
        if self.steps is not None:
            return _at(self.steps, _elevations(cells))
        return np.floor(_distances(cells) * self.scale).astype(np.int64)


def read_basis(content: memoryview, position: int) -> tuple[Basis | None, int]:
    """Return the basis at ``position``, None if it is nothing, and where it ends.

    Raises
    ------
    CodecError
        If it is damaged.
    """
    kind = content[position] if position < len(content) else -1
    position += 1
    if kind == NONE:
        return None, position
    if kind == ELEVATION:
        steps, position = _read_steps(content, position)
        return Basis(steps=steps), position
    if kind == AZIMUTH:
        bends, position = decode_signed(content, position, _NODES)
        steps, position = _read_steps(content, position)
        return Basis(steps=steps, nodes=np.cumsum(np.cumsum(bends))), position
    if kind == DISTANCE and len(content) >= position + _F64.size:
        (scale,) = _F64.unpack_from(content, position)
        # No product with a distance of cells below 2^53 is beyond int64.
        if 0 < scale < 2**9:
            return Basis(scale=scale), position + _F64.size
    raise CodecError("damaged stream: unknown basis of a field")


def _read_steps(content: memoryview, position: int) -> tuple[tuple[np.ndarray, np.ndarray], int]:
    count, position = decode_number(content, position)
    if not 1 <= count <= _MAX_STEPS:
        raise CodecError("damaged stream: a table of elevations of an impossible size")
    gaps, position = decode_numbers(content, position, count)
    rises, position = decode_signed(content, position, count)
    return (np.cumsum(gaps.astype(np.int64)) - _LIMIT, np.cumsum(rises)), position


def _stored_steps(begins: np.ndarray, values: np.ndarray) -> bytes:
    gaps = np.diff(begins, prepend=-_LIMIT).astype(np.uint64)
    return (
        encode_number(len(begins))
        + encode_numbers(gaps)
        + encode_signed(np.diff(values, prepend=0))
    )


def _at(steps: tuple[np.ndarray, np.ndarray], elevations: np.ndarray) -> np.ndarray:
    begins, values = steps
    found = np.searchsorted(begins, elevations, side="right")
    return values[np.maximum(found - 1, 0)]


def _between(nodes: np.ndarray, angles: np.ndarray) -> np.ndarray:
    k, part = angles >> _NODE_BITS, angles & (1 << _NODE_BITS) - 1
    return (nodes[k] << _NODE_BITS) + (nodes[k + 1] - nodes[k]) * part >> _NODE_BITS


def _elevation_steps(values: Arranged, positions: Positions) -> bytes | None:
    # A few points show whether there are steps at all.
    for sample in (_SAMPLE // 8, _SAMPLE):
        stride = max(1, len(values) // sample)
        some = values[::stride]
        low = int(some.min())
        span = int(some.max()) - low + 1
        if not 2 <= span <= _MAX_SPAN:
            return None
        # The most frequent value at each elevation.
        pairs = (_elevations(positions.at(slice(None, None, stride))) + _LIMIT) * span + (
            some - low
        )
        pairs, counts = np.unique(pairs, return_counts=True)
        elevations, found = np.divmod(pairs, span)
        order = np.lexsort((counts, elevations))
        last = np.flatnonzero(np.diff(elevations[order], append=-1))
        elevations, found = elevations[order][last], found[order][last]
        begins = np.flatnonzero(np.diff(found, prepend=-1))
        if len(begins) > min(_MAX_STEPS, len(some) // 8):
            return None
    return bytes([ELEVATION]) + _stored_steps(elevations[begins] - _LIMIT, found[begins] + low)


def _azimuth_nodes(values: Arranged, positions: Positions) -> bytes | None:
    """Return nodes and steps that explain values that grow with the azimuth, as times do."""
    for sample in (_SAMPLE // 8, _SAMPLE):
        stride = max(1, len(values) // sample)
        exact = values[::stride]
        low, high = int(exact.min()), int(exact.max())
        if not _MIN_TURN <= high - low < 2**40 or max(-low, high) >= _MOST_TOLD:
            return None
        some, where = (exact - low).astype(np.float64), positions.at(slice(None, None, stride))
        angles, elevations = _angles(where), _elevations(where) // _TIED + _LIMIT // _TIED
        # Angles to the nodes on both sides: the mean about each is what a line has there, but for
        # the ends of the sweep.
        nodes = _means(some, (angles + (1 << _NODE_BITS) // 2) >> _NODE_BITS, _NODES)
        rest = some - _line(nodes, angles)
        spread = np.median(np.abs(rest))
        if spread > _LOOSE * (high - low):
            return None
    for _ in range(_ROUNDS):
        used = np.abs(rest) <= 8 * spread + 1
        offsets = _means(
            (some - _line(nodes, angles))[used], elevations[used], _LIMIT // _TIED * 2 + 1
        )
        level = some - offsets[elevations]
        nodes = _means(level[used], ((angles + 16) >> _NODE_BITS)[used], _NODES)
        rest = level - _line(nodes, angles)
        spread = np.median(np.abs(rest))
    present = np.unique(elevations[used])
    begins, heights = _merged(present, offsets[present], spread / 2 + 0.25)
    scale = 1 << _FRACTION_BITS
    stored = np.rint((nodes + low) * scale).astype(np.int64)
    return b"".join(
        (
            bytes([AZIMUTH]),
            encode_signed(np.diff(np.diff(stored, prepend=0), prepend=0)),
            _stored_steps(begins * _TIED - _LIMIT, np.rint(heights * scale).astype(np.int64)),
        )
    )


def _means(values: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """Return the mean of each group, of one without values that of the group before."""
    sizes = np.bincount(groups, minlength=count)
    sums = np.bincount(groups, values, count)
    known = np.maximum.accumulate(np.where(sizes > 0, np.arange(count), 0))
    return (sums / np.maximum(sizes, 1))[known]


def _line(nodes: np.ndarray, angles: np.ndarray) -> np.ndarray:
    return np.interp(angles, np.arange(_NODES) << _NODE_BITS, nodes)


def _merged(
    begins: np.ndarray, heights: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return steps of neighbouring heights that lie within ``tolerance`` as one each."""
    starts, level = [0], heights[0]
    for i, height in enumerate(heights.tolist()):
        if abs(height - level) > tolerance:
            starts.append(i)
            level = height
    sizes = np.diff(starts, append=len(heights))
    return begins[starts], np.add.reduceat(heights, starts) / sizes


def _distance_scale(values: Arranged, positions: Positions) -> bytes | None:
    stride = max(1, len(values) // _SAMPLE)
    distances, values = _distances(positions.at(slice(None, None, stride))), values[::stride]
    used = (distances > 0) & (values > 0)
    if np.count_nonzero(used) < 2:
        return None
    scale = float(np.median(values[used] / distances[used]))
    return bytes([DISTANCE]) + _F64.pack(scale) if 0 < scale < 2**9 else None


def _elevations(cells: np.ndarray) -> np.ndarray:
    x, y, z = cells.astype(np.float64)
    tangents = np.floor(_TANGENT * z / np.maximum(np.sqrt(x * x + y * y), 1.0))
    return np.clip(tangents, -_LIMIT, _LIMIT).astype(np.int64)


def _angles(cells: np.ndarray) -> np.ndarray:
    """Return numbers from 0 to 4096 that grow with the angle around the vertical."""
    x, y, _ = cells.astype(np.float64)
    turned = np.floor(1024.0 * y / np.maximum(np.abs(x) + np.abs(y), 1.0)).astype(np.int64)
    return np.where(x >= 0, turned + 1024, 3072 - turned)


def _distances(cells: np.ndarray) -> np.ndarray:
    x, y, z = cells.astype(np.float64)
    return np.sqrt(x * x + y * y + z * z)

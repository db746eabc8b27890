"""Lines: the coding order of a cloud whose point order is kept.

Neighbours in a stream are best predicted along a scan line: a laser's points, a row of an image.
The coding order is a stable sort by a key that the decoder has before the coordinates: the ``ring``
or the ``row`` of each point, or its index modulo a lag where columns of a fixed height follow each
other; or the order as it is.

Stored: one byte, the kind (0 as is, 1 lag, 2 ``ring``, 3 ``row``), and for a lag its value, uint16.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from geoaccel_ros.compression.errors import CodecError

KEYS = ("ring", "row")

_AS_IS, _LAG, _FIRST_KEY = 0, 1, 2
_MAX_LAG = 256
# A key of more values is no line: a palette index, a label.
_MAX_LINES = 1024
# Bits of the three differences together that another order must save to be taken: below, the
# longer jumps at the ends of lines cost what is won.
_GAIN = 0.5
_WINDOW, _WINDOWS = 32, 64
# The search for a lag costs as much as all else here: only where the order promises little.
_ROUGH = 8.0
_LAG_SAMPLES = 256


@dataclass(frozen=True)
class Lines:
    """How the points of a cloud are ordered for coding.

    Attributes
    ----------
    order : uint32 (N,)
        Point ``order[i]`` is coded as the i-th.
    line : int64 (N,)
        The line of each point in the coding order: ascending, from 0, without gaps.
    stored : bytes
        What the decoder reads, see the module.
    roughness : float
        Mean bits of the differences of consecutive points; 0: not known.
    """

    order: np.ndarray
    line: np.ndarray
    stored: bytes
    roughness: float = 0.0

    @property
    def count(self) -> int:
        """Lines of the cloud; 1 where the order is as it is."""
        return int(self.line[-1]) + 1 if len(self.line) else 0


def find(points: np.ndarray, keys: Mapping[str, np.ndarray], step: float = 1.0) -> Lines:
    """Return the order in which consecutive points differ least.

    Parameters
    ----------
    points : ndarray, shape (3, N)
        Coordinates in the cloud's order.
    keys : mapping
        Integers (N,) by name, of those in ``KEYS``; the decoder must have the same ones.
    step : float
        What the points are coded to, in their unit.
    """
    count = points.shape[1]
    best = _as_is(count)
    roughness = _roughness(points, best.order, step)
    best, least = replace(best, roughness=roughness), roughness - _GAIN
    for name in KEYS:
        if name in keys:
            lines = _by_key(name, keys[name])
            if lines.count > _MAX_LINES:
                continue
            # A key that the order follows already still tells where lines begin.
            follows = lines.count > 1 and (np.diff(lines.order.astype(np.int64)) == 1).all()
            if follows:
                best, least = replace(lines, roughness=best.roughness), -np.inf
                continue
            roughness = _roughness(points, lines.order, step)
            if roughness < least:
                best, least = replace(lines, roughness=roughness), roughness
    if least < _ROUGH or best.count > 1:
        return best
    lines = _by_lag(count, _best_lag(points, step))
    roughness = _roughness(points, lines.order, step)
    return replace(lines, roughness=roughness) if roughness < least else best


def read(stored: memoryview, count: int, keys: Mapping[str, np.ndarray]) -> Lines:
    """Return the order that was stored for ``count`` points.

    Raises
    ------
    CodecError
        If the bytes are none that :func:`find` stores, or a key is missing.
    """
    kind = stored[0] if len(stored) else None
    if kind == _AS_IS and len(stored) == 1:
        return _as_is(count)
    if kind == _LAG and len(stored) == 3:
        lag = int.from_bytes(stored[1:3], "little")
        if 2 <= lag <= _MAX_LAG:
            return _by_lag(count, lag)
    if kind is not None and len(stored) == 1 and 0 <= kind - _FIRST_KEY < len(KEYS):
        name = KEYS[kind - _FIRST_KEY]
        if name in keys and len(keys[name]) == count:
            return _by_key(name, keys[name])
    raise CodecError("damaged stream: unknown order of the points")


def key_of(stored: memoryview) -> str | None:
    """Return the field by which stored lines go; None if they go by none."""
    kind = stored[0] - _FIRST_KEY if len(stored) else -1
    return KEYS[kind] if 0 <= kind < len(KEYS) else None


def _as_is(count: int) -> Lines:
    return Lines(np.arange(count, dtype=np.uint32), np.zeros(count, np.int64), bytes([_AS_IS]))


def _by_lag(count: int, lag: int) -> Lines:
    order, line = _sorted(np.arange(count) % lag)
    return Lines(order, line, bytes([_LAG]) + lag.to_bytes(2, "little"))


def _by_key(name: str, key: np.ndarray) -> Lines:
    order, line = _sorted(key)
    return Lines(order, line, bytes([_FIRST_KEY + KEYS.index(name)]))


def _sorted(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the stable order of integers and the rank of each value in that order."""
    if len(key) and 0 <= int(key.min()) and int(key.max()) < 2**16:
        # NumPy sorts integers of 16 bits by their digits, ten times faster than longer ones.
        key = key.astype(np.uint16)
    order = np.argsort(key, kind="stable")
    ascending = key[order]
    line = np.zeros(len(key), np.int64)
    np.cumsum(ascending[1:] != ascending[:-1], out=line[1:])
    return order.astype(np.uint32), line


def _roughness(points: np.ndarray, order: np.ndarray, step: float) -> float:
    """Return the mean bits of the differences of consecutive points, by windows of the order."""
    count = len(order)
    if count < 2:
        return 0.0
    starts = np.linspace(0, max(count - 1 - _WINDOW, 0), _WINDOWS).astype(np.int64)
    at = np.unique(starts[:, None] + np.arange(_WINDOW))
    at = at[at < count - 1]
    pairs = points.take(order[np.stack([at, at + 1])], axis=1)
    return _bits(pairs[:, 1], pairs[:, 0], step).mean()


def _best_lag(points: np.ndarray, step: float) -> int:
    """Return the lag at which points differ least; 1 for fewer points than two of any lag."""
    count = points.shape[1]
    longest = min(_MAX_LAG, count // 2)
    if longest < 2:
        return 1
    at = np.linspace(0, count - 1 - longest, _LAG_SAMPLES).astype(np.int64)
    runs = points.take(at[:, None] + np.arange(longest + 1), axis=1)
    return 1 + int(_bits(runs[..., 1:], runs[..., :1], step).mean(axis=0).argmin())


def _bits(points: np.ndarray, predicted: np.ndarray, step: float) -> np.ndarray:
    """Return the bits of the differences in cells, of all three coordinates together."""
    # float32 would round large cells, integers of 32 bits could not hold every difference.
    cells, expected = (np.rint(of / np.float64(step)) for of in (points, predicted))
    x, y, z = 1 + np.abs(cells - expected)
    # One logarithm of what is at most 2**96.
    return np.log2((x * y * z).astype(np.float32))

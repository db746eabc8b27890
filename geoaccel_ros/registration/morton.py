"""Order of points along a Z-curve: neighbours in the order are neighbours in space."""

import numpy as np
from numba import njit

# The curve's cells fill a cube of eight radii; what lies outside is counted to its border.
CELLS = 1024
RADII = 4.0


def morton_order(local: np.ndarray, radius: float) -> np.ndarray:
    """Return the order (N,) of int64 of points along a Z-curve.

    Parameters
    ----------
    local : ndarray (3, N) of float32, metres
        Finite.
    radius : float, metres
        Typical distance from zero.
    """
    keys = np.empty(local.shape[1], np.uint64)
    _keys(local, np.float32(RADII * radius), keys)
    # The index is part of the key: one sort of integers, and the same order on every machine.
    keys.sort()
    return (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)


@njit(nogil=True, cache=True)
def _keys(local, reach, keys):
    cells_per_metre = np.float32(CELLS) / (np.float32(2.0) * reach) if reach > 0.0 else reach
    last = np.float32(CELLS - 1)
    for i in range(local.shape[1]):
        key = np.uint64(0)
        for axis in range(3):
            place = (local[axis, i] + reach) * cells_per_metre
            cell = np.uint64(min(max(place, np.float32(0.0)), last))
            # Bit k to place 3 k.
            cell = (cell | cell << np.uint64(16)) & np.uint64(0x30000FF)
            cell = (cell | cell << np.uint64(8)) & np.uint64(0x300F00F)
            cell = (cell | cell << np.uint64(4)) & np.uint64(0x30C30C3)
            cell = (cell | cell << np.uint64(2)) & np.uint64(0x9249249)
            key |= cell << np.uint64(axis)
        keys[i] = key << np.uint64(32) | np.uint64(i)

"""The size of an octree, told by the nodes of a sample of the cells, without coding any.

A node with a single child takes about three bits, others four and half a bit for each child, and a
cell with several points three: within a quarter for nearly all clouds that were tried, sparse and
dense, at any step. In integers: whoever encodes a cloud finds the same.
"""

import numpy as np

# Points of a sample, about; and the edges of its cubes, as powers of two, to that of the root.
_SAMPLE = 12288
_CUBES = 9
# In tenths of bits: of a node with a single child; of others, and of each of their children; of a
# cell with several points; of all that is above a cube.
_SINGLE, _FORK, _CHILD, _SEVERAL, _CUBE = 29, 42, 4, 30, 25
# How the bits of a cell spread to every third of a code, as morton.cl has it.
_SPREAD = (
    (32, 0x001F00000000FFFF),
    (16, 0x001F0000FF0000FF),
    (8, 0x100F00F00F00F00F),
    (4, 0x10C30C30C30C30C3),
    (2, 0x1249249249249249),
)


def estimated_bits(cells: np.ndarray) -> int:
    """Return the bits that points take in an octree, about.

    Parameters
    ----------
    cells : ndarray, shape (3, N), int32
        Of the points, from any origin.
    """
    count = cells.shape[1]
    if not count:
        return 0
    lowest = cells.min(axis=1).astype(np.int64)
    extent = int((cells.max(axis=1) - lowest).max())
    depth = extent.bit_length()
    levels = max(depth - _CUBES, 0)
    every = max(count // _SAMPLE, 1)
    # Below 2**32, and unsigned differences are right whatever the signs.
    cells = cells.view(np.uint32) - lowest.astype(np.uint32)[:, None]
    if every > 1:
        taken = _hash(cells >> np.uint32(levels)) < np.uint32(2**32 // every)
        cells = cells.take(np.flatnonzero(taken), axis=1)
    nodes = np.sort(_codes(cells))
    starts = _firsts(nodes)
    tenths = _SEVERAL * np.count_nonzero(np.diff(starts, append=len(nodes)) > 1)
    nodes = nodes[starts]
    for _ in range(levels if every > 1 else depth):
        parents = nodes >> np.uint64(3)
        starts = _firsts(parents)
        single = np.count_nonzero(np.diff(starts, append=len(nodes)) == 1)
        tenths += _SINGLE * single
        tenths += _FORK * (len(starts) - single) + _CHILD * (len(nodes) - single)
        nodes = parents[starts]
    return int(tenths + _CUBE * len(nodes)) * every // 10


def _hash(cubes: np.ndarray) -> np.ndarray:
    """Return a number of each cube, uint32 (n,), that looks as if drawn."""
    drawn = cubes[0] * np.uint32(0x9E3779B1)
    drawn ^= cubes[1] * np.uint32(0x85EBCA77)
    drawn ^= cubes[2] * np.uint32(0xC2B2AE3D)
    drawn ^= drawn >> np.uint32(15)
    drawn *= np.uint32(0x2C1B3C6D)
    drawn ^= drawn >> np.uint32(12)
    return drawn


def _codes(cells: np.ndarray) -> np.ndarray:
    """Return Morton codes, uint64 (n,), of cells (3, n) below 2**21."""
    spread = cells.astype(np.uint64)
    for shift, kept in _SPREAD:
        spread |= spread << np.uint64(shift)
        spread &= np.uint64(kept)
    return spread[0] | spread[1] << np.uint64(1) | spread[2] << np.uint64(2)


def _firsts(ascending: np.ndarray) -> np.ndarray:
    """Return where each distinct value begins."""
    begins = np.ones(len(ascending), bool)
    np.not_equal(ascending[1:], ascending[:-1], out=begins[1:])
    return np.flatnonzero(begins)

"""Voxel keys and the open-addressing hash tables that hold them."""

import numpy as np
from numba import njit

# No voxel has this key: keys are not negative.
EMPTY = -1
# 21 bits an axis fill 63 of 64; at 0.1 m they span 210 km.
_HALF_SPAN = 1 << 20


def table_size(entries: int) -> int:
    """Return the power of two that keeps a table of ``entries`` keys at most half full."""
    return 1 << max(4, (2 * entries - 1).bit_length())


@njit(cache=True, inline="always")
def voxel_key(x, y, z):
    """Return the key of the voxel that holds a point, given in voxels: its three floors, packed.

    Beyond a million voxels from the origin keys repeat; ranges and the local map's origin keep
    points nearer.
    """
    i = np.int64(np.floor(x)) + _HALF_SPAN
    j = np.int64(np.floor(y)) + _HALF_SPAN
    k = np.int64(np.floor(z)) + _HALF_SPAN
    return pack(i, j, k)


@njit(cache=True, inline="always")
def pack(i, j, k):
    """Return the key of three non-negative indices of 21 bits."""
    bits = 0x1FFFFF
    return ((i & bits) << 42) | ((j & bits) << 21) | (k & bits)


@njit(cache=True, inline="always")
def unpack(key):
    """Return the three indices of a key."""
    bits = 0x1FFFFF
    return (key >> 42) & bits, (key >> 21) & bits, key & bits


@njit(cache=True, inline="always")
def home_slot(key, mask):
    """Return the slot where the search for ``key`` starts (Fibonacci hashing)."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(32)) & np.uint64(mask))

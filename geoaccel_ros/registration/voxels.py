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


def voxel_means(xyz: np.ndarray, voxel: float) -> np.ndarray:
    """Return the mean (M, 3) of float64 of the points in each voxel, in the order of their first.

    Parameters
    ----------
    xyz : ndarray (N, 3), metres
        Finite.
    voxel : float
        Edge of the cubic voxels in metres, on a grid fixed to the frame's origin.

    Raises
    ------
    ValueError
        If the cloud is more than two million voxels wide: their keys would repeat.
    """
    for axis in xyz.T:
        width = float(np.ptp(axis)) if len(axis) else 0.0
        if width >= 2 * _HALF_SPAN * voxel:
            raise ValueError(
                f"voxels of {voxel:g} m in a cloud {width:g} m wide: more than two million, take "
                f"{width / _HALF_SPAN:.2g} m or more"
            )
    size = table_size(len(xyz))
    table, places = np.full(size, EMPTY, np.int64), np.empty(size, np.int64)
    # One type and layout: each other one would be compiled anew.
    xyz = np.require(xyz, np.float64, ("C", "W"))
    return _voxel_means(xyz, 1.0 / voxel, table, places)


@njit(nogil=True, cache=True)
def _voxel_means(xyz, inverse_voxel, table, places):
    # Sums of the offsets from the first point: small numbers, at UTM coordinates too.
    firsts, sums = np.empty_like(xyz), np.zeros_like(xyz)
    counts = np.zeros(len(xyz), np.int64)
    mask = len(table) - 1
    used = 0
    for i in range(len(xyz)):
        key = voxel_key(
            xyz[i, 0] * inverse_voxel, xyz[i, 1] * inverse_voxel, xyz[i, 2] * inverse_voxel
        )
        slot = home_slot(key, mask)
        while table[slot] != EMPTY and table[slot] != key:
            slot = (slot + 1) & mask
        if table[slot] == EMPTY:
            table[slot], places[slot] = key, used
            firsts[used] = xyz[i]
            used += 1
        place = places[slot]
        counts[place] += 1
        for axis in range(3):
            sums[place, axis] += xyz[i, axis] - firsts[place, axis]
    means = np.empty((used, 3))
    for place in range(used):
        for axis in range(3):
            means[place, axis] = firsts[place, axis] + sums[place, axis] / counts[place]
    return means


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

"""Normal numbers made from counters, wherever they are used.

Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3": Philox4x32 with 10 rounds. The
same counter and key give the same numbers on every device and in any order.
"""

import math

import numba
import numpy as np

_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
_ROUNDS = 10
_STEP = np.float32(2.0**-32)
_HALF_STEP = np.float32(2.0**-33)
_TURN = np.float32(2.0 * math.pi)
_MINUS_TWO = np.float32(-2.0)


@numba.njit(inline="always")
def philox(c0, c1, c2, c3, key0, key1):
    """Return four random uint32 of the counter (c0, c1, c2, c3) and the key, all uint32."""
    # Words as wide as their products: to narrow them in every round costs a CPU three times this.
    c0, c1, c2, c3 = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    for _ in range(_ROUNDS):
        product0 = _MULTIPLIER_0 * c0
        product1 = _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ np.uint64(key0),
            product1 & _LOW,
            (product0 >> _SHIFT) ^ c3 ^ np.uint64(key1),
            product0 & _LOW,
        )
        key0 = np.uint32(key0 + _WEYL_0)
        key1 = np.uint32(key1 + _WEYL_1)
    return np.uint32(c0), np.uint32(c1), np.uint32(c2), np.uint32(c3)


@numba.njit(inline="always")
def two_normals(a, b):
    """Return two independent float32 normal numbers of two random uint32 (Box and Muller 1958).

    Of 2^32 uniform numbers, the largest ones lie 6.8 from zero.
    """
    radius = math.sqrt(_MINUS_TWO * math.log(np.float32(a) * _STEP + _HALF_STEP))
    angle = _TURN * (np.float32(b) * _STEP)
    return radius * math.cos(angle), radius * math.sin(angle)

"""Robust kernels: how much a residual counts, the less the larger it is.

The weights of iteratively reweighted least squares (Zhang, Image and Vision Computing 1997,
table 1).
"""

import numpy as np
from numba import njit

# Names, and the numbers by which compiled code knows them.
KERNELS = {"none": 0, "huber": 1, "cauchy": 2, "geman_mcclure": 3}


@njit(nogil=True, cache=True, inline="always")
def weight(kernel, square, width):
    """Return the weight of a residual, given its square and the width of the kernel, in metres."""
    if kernel == 0:
        return 1.0
    if kernel == 1:
        return 1.0 if square <= width * width else width / np.sqrt(square)
    ratio = square / (width * width)
    if kernel == 2:
        return 1.0 / (1.0 + ratio)
    return 1.0 / ((1.0 + ratio) * (1.0 + ratio))

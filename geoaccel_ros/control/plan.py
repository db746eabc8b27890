"""Sequences of controls in time."""

import numba
import numpy as np


def resample(controls: np.ndarray, dt: float, shift: float) -> np.ndarray:
    """Return the plan as seen ``shift`` seconds later; beyond its end, its end is held.

    Parameters
    ----------
    controls : np.ndarray
        (T, U); row i holds at i * dt after the plan's stamp, linear between.
    dt : float
        Step of the plan, s.
    shift : float
        Time since the plan's stamp, s, at least 0; need not be a multiple of dt.
    """
    horizon = len(controls)
    position = np.minimum(np.arange(horizon) + shift / dt, horizon - 1)
    left = np.minimum(position.astype(np.int64), max(horizon - 2, 0))
    right = np.minimum(left + 1, horizon - 1)
    fraction = (position - left)[:, None]
    return (1.0 - fraction) * controls[left] + fraction * controls[right]


# Sums in any order, so that several products are added at once; that assumes nothing of numbers.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def weighted_mean(plan, noise, lower, upper, weights):
    """Return the mean (T, U) of the perturbed plans, each clamped as it was rolled out.

    plan (T, U) and noise (T, U, K) float32; lower and upper (U,) float32; weights (K,) float64 that
    sum to one. The sum is float64.
    """
    mean = np.zeros(plan.shape)
    for t in range(plan.shape[0]):
        for u in range(plan.shape[1]):
            row = noise[t, u]
            planned, least, most = plan[t, u], lower[u], upper[u]
            total = 0.0
            for k in range(len(row)):
                control = min(max(planned + row[k], least), most)
                total += weights[k] * control
            mean[t, u] = total
    return mean

"""Sequences of controls in time."""

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def resample(controls, dt, shift):
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
    horizon, last = len(controls), len(controls) - 1
    result = np.empty_like(controls)
    for t in range(horizon):
        position = min(t + shift / dt, float(last))
        left = min(int(position), max(horizon - 2, 0))
        right = min(left + 1, last)
        fraction = position - left
        for u in range(controls.shape[1]):
            before, after = controls[left, u], controls[right, u]
            result[t, u] = (1.0 - fraction) * before + fraction * after
    return result


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

"""The plan made smooth, then held to limits of value and rate."""

from collections.abc import Sequence

import numba
import numpy as np


def smoothing_matrix(horizon: int, window: int, order: int) -> np.ndarray:
    """Return the filter of Savitzky and Golay (1964) for a plan and the commands before it.

    Every value becomes that of the polynomial which is fitted to the window around it by least
    squares. The window of the first one reaches into the past, so that what is sent next continues
    what was sent; at the plan's end, the last whole window serves all that is left.

    Parameters
    ----------
    horizon : int
        T, more than half a window.
    window : int
        Steps that a fit sees, odd.
    order : int
        Of the polynomial, less than ``window``.

    Returns
    -------
    np.ndarray
        (T, window // 2 + T) float64, to be multiplied with the past, in order of time, and the plan
        below it.
    """
    past = window // 2
    # To fit and to evaluate is one projection: row i gives the polynomial at the window's step i.
    powers = np.vander(np.linspace(-1.0, 1.0, window), order + 1)
    fit = powers @ np.linalg.pinv(powers)
    matrix = np.zeros((horizon, past + horizon))
    for t in range(horizon):
        begin = min(t, past + horizon - window)
        matrix[t, begin : begin + window] = fit[past + t - begin]
    return matrix


def past_commands(
    sent: Sequence[tuple[float, np.ndarray]], stamp: float, dt: float, count: int
) -> np.ndarray:
    """Return the commands (count, U) at count * dt, …, 2 dt, dt before ``stamp``.

    Linear between those sent, like the plan; before the first one and after the last, held.

    Parameters
    ----------
    sent : sequence of (instant, command)
        At least one, in order of time, s.
    stamp, dt : float
        s.
    """
    instants = stamp - dt * np.arange(count, 0, -1)
    at, commands = zip(*sent, strict=True)
    return np.column_stack([np.interp(instants, at, axis) for axis in np.transpose(commands)])


@numba.njit(cache=True, nogil=True)
def limit_plan(controls, before, lower, upper, rates, elapsed, dt):
    """Return the plan (T, U) held to limits of value and of rate.

    Parameters
    ----------
    controls : np.ndarray
        (T, U) float64.
    before : np.ndarray
        (U,) float64: the command before the plan, sent ``elapsed`` s ago. If it breaks the limits
        of value, rates count from the nearest one that does not.
    lower, upper : np.ndarray
        (U,) float64.
    rates : np.ndarray
        (U,) float64: largest change a second; 0 sets no limit.
    elapsed, dt : float
        s before the first step of the plan, and between the others.
    """
    limited = np.empty_like(controls)
    for u in range(controls.shape[1]):
        last = min(max(before[u], lower[u]), upper[u])
        for t in range(controls.shape[0]):
            value = min(max(controls[t, u], lower[u]), upper[u])
            if rates[u] > 0.0:
                change = rates[u] * (elapsed if t == 0 else dt)
                value = min(max(value, last - change), last + change)
            limited[t, u] = value
            last = value
    return limited

"""Scale of the noise, adapted to where the good samples lie."""

import numba
import numpy as np


# Sums in any order, so that several products are added at once; that assumes nothing of numbers.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def deviation(plan, noise, lower, upper, weights):
    """Return the weighted standard deviation (T, U) float64 of the samples around the plan.

    Around the plan that they were drawn around, not around their mean, and clamped as they were
    rolled out: where the good ones lie on one side it grows, so that a plan that must move again
    (after a push) is given room; of samples of equal cost it is the noise's own (the rank-mu update
    of Hansen 2016, "The CMA evolution strategy: a tutorial").

    plan (T, U) and noise (T, U, K) float32; lower and upper (U,) float32; weights (K,) float64 that
    sum to one.
    """
    result = np.zeros(plan.shape)
    for t in range(plan.shape[0]):
        for u in range(plan.shape[1]):
            row = noise[t, u]
            planned, least, most = plan[t, u], lower[u], upper[u]
            square = 0.0
            for k in range(len(row)):
                moved = min(max(planned + row[k], least), most) - planned
                square += weights[k] * moved * moved
            result[t, u] = np.sqrt(square)
    return result


def adapt(
    sigma: np.ndarray,
    deviation: np.ndarray,
    rate: float,
    floor: np.ndarray,
    ceiling: np.ndarray,
) -> np.ndarray:
    """Return the standard deviation (T, U) to draw with next: an exponential average of what is.

    Parameters
    ----------
    sigma : np.ndarray
        (T, U) that the samples were drawn with, in the controls' units.
    deviation : np.ndarray
        (T, U) of the weighted samples, by :func:`deviation`.
    rate : float
        Share of ``deviation`` in the average, 0 to 1.
    floor, ceiling : np.ndarray
        (U,) smallest and largest result. Without a floor, samples that differ by nothing but chance
        shrink it to nothing: there always is a best one, and it is nearer to the plan than most.
    """
    return np.clip((1.0 - rate) * sigma + rate * deviation, floor, ceiling)

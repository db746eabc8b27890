"""One step of the filter: what a scan's residuals and the prediction say together."""

import numpy as np
from numba import njit, types

_MATRIX = types.Array(types.float64, 2, "A", readonly=True)
_VECTOR = types.Array(types.float64, 1, "A", readonly=True)
_PLACES = types.Array(types.int64, 1, "A", readonly=True)


# Compiled: for NumPy the dozen small products and decompositions of an iteration are more work than
# the sums over the scan are for a GPU.
@njit(
    types.Tuple((types.float64[::1], types.float64[:, ::1], types.float64[:, ::1]))(
        _MATRIX, _VECTOR, _MATRIX, _MATRIX, _VECTOR, types.float64, _PLACES, types.float64
    ),
    cache=True,
)
def constrained_step(hessian, gradient, geometry, prior, offset, reach, moving, share):
    """Return the Gauss-Newton step on residuals and prediction, none where nothing is observed.

    Parameters
    ----------
    hessian : ndarray (12, 12); gradient : ndarray (12,)
        Of the residuals, divided by their variance: for a step of pose and twist, six each.
    geometry : ndarray (6, 6)
        The pose's Hessian that says what is observed.
    prior : ndarray (2 n, 2 n)
        Inverse of the prediction's covariance, of what moves.
    offset : ndarray (12,)
        The step from the prediction to the present motion.
    reach : float, metres
        Rotations are counted as displacements at this range.
    moving : ndarray (n,) of int64
        Which of the pose's six components move; of the twist's the same.
    share : float
        Directions with less than this part of the best one's information are not observed (Zhang
        et al., On degeneracy of optimization-based state estimation, ICRA 2016).

    Returns
    -------
    step : ndarray (12,)
    information : ndarray (2 n, 2 n)
        Of the residuals, in what they observe, and of the prediction.
    unobserved : ndarray (K, 6)
        Unit directions of a step of the pose.
    """
    size = len(moving)
    scale = np.ones(size)
    scale[moving >= 3] = 1.0 / max(reach, 1e-3)
    seen = np.empty((size, size))
    information, right = np.empty((2 * size, 2 * size)), np.empty(2 * size)
    for m in range(2 * size):
        row = moving[m % size] + 6 * (m // size)
        right[m] = -gradient[row]
        for k in range(2 * size):
            column = moving[k % size] + 6 * (k // size)
            information[m, k] = hessian[row, column]
            if m < size and k < size:
                seen[m, k] = geometry[row, column] * scale[m] * scale[k]
    values, vectors = np.linalg.eigh(seen)
    weak = np.flatnonzero(values <= max(share * values[-1], 0.0))
    # Takes the unobserved directions out of a step.
    observed = np.eye(2 * size)
    for direction in weak:
        for m in range(size):
            for k in range(size):
                part = scale[m] * vectors[m, direction] * vectors[k, direction] / scale[k]
                observed[m, k] -= part
                observed[size + m, size + k] -= part
    if len(weak):
        information = observed.T @ information @ observed
        right = observed.T @ right
    for m in range(2 * size):
        for k in range(2 * size):
            column = moving[k % size] + 6 * (k // size)
            information[m, k] += prior[m, k]
            right[m] -= prior[m, k] * offset[column]
    # Nor does what is observed drag the rest along: the prediction's errors may seem to go together
    # by chance where they are large.
    solution = observed @ np.linalg.solve(information, right)
    step = np.zeros(12)
    for m in range(2 * size):
        step[moving[m % size] + 6 * (m // size)] = solution[m]
    unobserved = np.zeros((len(weak), 6))
    for row in range(len(weak)):
        for m in range(size):
            unobserved[row, moving[m]] = scale[m] * vectors[m, weak[row]]
        unobserved[row] /= np.sqrt(np.sum(unobserved[row] ** 2))
    return step, information, unobserved

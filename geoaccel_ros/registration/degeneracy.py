"""Directions of motion that a scene does not fix: along a corridor, over a plain."""

import numpy as np


def observed(hessian: np.ndarray, scale: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues (M,) and unit eigenvectors (n, M) of the directions that a step needs.

    Of the scaled Hessian; those whose eigenvalue is above ``share`` of the largest (Zhang et al.,
    On degeneracy of optimization-based state estimation, ICRA 2016).

    Parameters
    ----------
    hessian : ndarray (n, n)
    scale : ndarray (n,)
        A step is ``scale`` times the scaled one: rotations are counted in radii of the cloud, so
        that neither the unit of length nor the size of the scene decides.
    share : float
    """
    values, vectors = np.linalg.eigh(hessian * np.outer(scale, scale))
    kept = _clear(values, share)
    return values[kept], vectors[:, kept]


def unobserved(hessian: np.ndarray, scale: np.ndarray, share: float) -> np.ndarray:
    """Return the directions (K, n) of a step that change the residuals next to nothing.

    Orthonormal, of the scaled step; all that :func:`observed` leaves.
    """
    values, vectors = np.linalg.eigh(hessian * np.outer(scale, scale))
    return vectors[:, ~_clear(values, share)].T


def _clear(values: np.ndarray, share: float) -> np.ndarray:
    """Return which eigenvalues, ascending, are large enough."""
    return values > max(share * values[-1], 0.0)


def without(directions: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the matrix (n, n) that takes the unobserved directions out of a step.

    With it as ``P``, ``P.T @ hessian @ P`` and ``P.T @ gradient`` say nothing of them.
    """
    return np.eye(len(scale)) - (scale[:, None] * directions.T) @ (directions / scale)

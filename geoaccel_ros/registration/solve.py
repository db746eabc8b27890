"""The pose that fits a set of matches best, from their sums (:mod:`.residuals`)."""

from dataclasses import dataclass

import numpy as np

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.residuals import (
    COUNT,
    CROSS,
    ERROR,
    GRADIENT,
    HESSIAN,
    LEVERS,
    SECOND,
    SQUARE_M,
    SUM_M,
    SUM_P,
    WEIGHTS,
)

# An eigenvalue of the Hessian (rotations in radii of the cloud) below this part of the largest:
# that direction is not observed. Noisy normals of one plane leave 1e-4, and gicp's metric 1e-3
# along it; real scans show 0.2, rolling ground 4e-3.
_DEGENERATE = {"point_to_point": 1e-3, "point_to_plane": 1e-3, "gicp": 3e-3}


def _unpacking(size: int) -> np.ndarray:
    """Return where the elements (size, size) of a symmetric matrix lie in its upper triangle."""
    places = np.zeros((size, size), int)
    rows, columns = np.triu_indices(size)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    return places


_MOMENTS = SECOND + _unpacking(3)
_SURFACE_HESSIAN = HESSIAN + _unpacking(6)


@dataclass(frozen=True)
class Fit:
    """A solution.

    Attributes
    ----------
    pose : ndarray (4, 4)
        Source to target, between their local origins.
    mean_square : float
        Weighted mean square of the residuals there, square metres; as linearised, but for
        point_to_point, where it is exact.
    """

    pose: np.ndarray
    mean_square: float


def fit(method: str, pose: np.ndarray, row: np.ndarray) -> Fit:
    """Solve for the pose that the sums ``row``, taken at ``pose``, lead to."""
    if method == "point_to_point":
        return _point_to_point(row)
    return _gauss_newton(pose, row, _DEGENERATE[method])


def rigid_fit(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the transform (4, 4) that lays matched points onto each other in least squares.

    Parameters
    ----------
    source, target : ndarray (N, 3), metres
        Row by row the same points. The result is a rotation even where a reflection fits better.
    """
    source_mean, target_mean = source.mean(axis=0), target.mean(axis=0)
    transform = np.eye(4)
    transform[:3, :3], _ = _rotation((target - target_mean).T @ (source - source_mean))
    transform[:3, 3] = target_mean - transform[:3, :3] @ source_mean
    return transform


def _rotation(cross: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the rotation R that makes trace(R cross') largest, and that trace.

    Arun et al., PAMI 1987; where a reflection would fit better, Umeyama, PAMI 1991.
    """
    left, singular, right = np.linalg.svd(cross)
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(left @ right))])
    return (left * signs) @ right, float(signs @ singular)


def _point_to_point(row: np.ndarray) -> Fit:
    weight = row[WEIGHTS]
    mean_p, mean_m = row[SUM_P : SUM_P + 3] / weight, row[SUM_M : SUM_M + 3] / weight
    cross = row[CROSS : CROSS + 9].reshape(3, 3) / weight - np.outer(mean_m, mean_p)
    pose = np.eye(4)
    pose[:3, :3], trace = _rotation(cross)
    pose[:3, 3] = mean_m - pose[:3, :3] @ mean_p
    spread = row[_MOMENTS].trace() / weight - mean_p @ mean_p
    spread += row[SQUARE_M] / weight - mean_m @ mean_m
    return Fit(pose, max(0.0, float(spread - 2.0 * trace)))


def _gauss_newton(pose: np.ndarray, row: np.ndarray, share: float) -> Fit:
    """A step in the directions that are observed; none in the others (Zhang et al., ICRA 2016)."""
    hessian, gradient = row[_SURFACE_HESSIAN], row[GRADIENT : GRADIENT + 6]
    scale, values, vectors = _spectrum(hessian, row)
    observed = (values >= share * values[-1]) & (values > 0.0)
    axes = vectors[:, observed]
    step = -scale * (axes @ (axes.T @ (scale * gradient) / values[observed]))
    error = row[ERROR] + 2.0 * gradient @ step + step @ hessian @ step
    return Fit(se3.perturbed(pose, step), max(0.0, float(error / row[WEIGHTS])))


def hessian_of(method: str, pose: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Return the Hessian (6, 6) of half the weighted squared residuals.

    For a step [translation, rotation] in the target's axes, the rotation about the image of the
    source's local origin.
    """
    if method != "point_to_point":
        return row[_SURFACE_HESSIAN]
    rotation = pose[:3, :3]
    lever = se3.cross_matrix(rotation @ row[SUM_P : SUM_P + 3])
    second = rotation @ row[_MOMENTS] @ rotation.T
    hessian = np.empty((6, 6))
    hessian[:3, :3] = row[WEIGHTS] * np.eye(3)
    hessian[:3, 3:] = -lever
    hessian[3:, :3] = lever
    hessian[3:, 3:] = second.trace() * np.eye(3) - second
    return hessian


def unobserved(method: str, hessian: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Return the directions (K, 6) of motion that change no residual, or next to none.

    Unit vectors of a step as in :func:`hessian_of`, rotations counted in radii of the cloud, so
    that neither the unit of length nor the size of the cloud decides.
    """
    scale, values, vectors = _spectrum(hessian, row)
    directions = (vectors[:, values < _DEGENERATE[method] * values[-1]] * scale[:, None]).T
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)


def _spectrum(hessian: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the scale (6,) applied first, the eigenvalues, ascending, and the eigenvectors."""
    square = row[LEVERS] / row[COUNT]
    scale = np.repeat([1.0, 1.0 / np.sqrt(square) if square > 0.0 else 1.0], 3)
    return scale, *np.linalg.eigh(hessian * np.outer(scale, scale))

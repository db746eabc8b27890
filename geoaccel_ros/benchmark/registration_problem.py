"""The problem that the registration benchmarks solve, at any size, and how wrong a solution is."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from geoaccel_ros.registration import se3

# 200,000 points in a cube of 50 m, moved by 3 degrees and 0.2 m, with 0.01 m of noise. At other
# sizes the points are as dense and the corners move as far, so that all sizes are equally hard.
POINTS = 200_000
_EDGE = 50.0
_ROTATION_DEG = 3.0
_TRANSLATION = 0.2
_NOISE = 0.01
_MAX_DISTANCE = 2.5


@dataclass(frozen=True)
class Problem:
    """Two clouds of the same points, with noise, and the truth.

    Attributes
    ----------
    target, source : ndarray (N, 3) of float64, metres
    T_target_source : ndarray (4, 4)
        The truth.
    max_distance : float
        How far apart matches may be, metres.
    """

    target: np.ndarray
    source: np.ndarray
    T_target_source: np.ndarray
    max_distance: float


def make_problem(points: int = POINTS, seed: int = 0) -> Problem:
    """Return the problem of that many points."""
    scale = np.cbrt(points / POINTS)
    rng = np.random.default_rng(seed)
    target = rng.uniform(-0.5, 0.5, (points, 3)) * (scale * _EDGE)
    direction, axis = (unit / np.linalg.norm(unit) for unit in rng.normal(size=(2, 3)))
    T_target_source = np.eye(4)
    T_target_source[:3, :3] = se3.exp_rotation(axis * np.radians(_ROTATION_DEG) / scale)
    T_target_source[:3, 3] = direction * _TRANSLATION
    source = se3.apply(se3.inverse(T_target_source), target)
    source += rng.normal(0.0, _NOISE, source.shape)
    return Problem(target, source, T_target_source, _MAX_DISTANCE)


def pose_error(found: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Return how far two transforms (4, 4) are apart: degrees and metres."""
    error = se3.inverse(truth) @ found
    angle = np.linalg.norm(se3.log_rotation(error[:3, :3]))
    return float(np.degrees(angle)), float(np.linalg.norm(error[:3, 3]))


class Judge:
    """Tells how wrong transforms are, the same way whoever found them."""

    def __init__(self, problem: Problem, threads: int):
        self._problem = problem
        self._threads = threads
        self._tree = cKDTree(problem.target)

    def __call__(self, T_target_source: np.ndarray) -> dict[str, float]:
        """Return the error of a transform, and the RMS distance of all matches at it."""
        problem = self._problem
        degrees, metres = pose_error(T_target_source, problem.T_target_source)
        distances, _ = self._tree.query(
            se3.apply(T_target_source, problem.source),
            distance_upper_bound=problem.max_distance,
            workers=self._threads,
        )
        matched = distances[np.isfinite(distances)]
        rmse = np.sqrt(np.mean(matched**2)) if len(matched) else np.nan
        return {"rotation_deg": degrees, "translation_m": metres, "rmse_m": float(rmse)}

"""The problem that the registration benchmarks solve, at any size, and how wrong a solution is."""

import numpy as np
from scipy.spatial import cKDTree

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.synthetic import SyntheticPair, synthetic_pair

# 200,000 points in a cube of 50 m, moved by 3 degrees and 0.2 m, with 0.01 m of noise. At other
# sizes the points are as dense and the corners move as far, so that all sizes are equally hard.
POINTS = 200_000
_EXTENT = 25.0
_ANGLE = np.radians(3.0)
# How far apart matches may be, metres.
MAX_DISTANCE = 2.5


def make_problem(points: int = POINTS) -> SyntheticPair:
    """Return the problem of that many points."""
    scale = np.cbrt(points / POINTS)
    return synthetic_pair(points, extent=scale * _EXTENT, angle=_ANGLE / scale)


def pose_error(found: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Return how far two transforms (4, 4) are apart: degrees and metres."""
    error = se3.inverse(truth) @ found
    angle = np.linalg.norm(se3.log_rotation(error[:3, :3]))
    return float(np.degrees(angle)), float(np.linalg.norm(error[:3, 3]))


class Judge:
    """Tells how wrong transforms are, the same way whoever found them."""

    def __init__(self, problem: SyntheticPair, threads: int):
        self._problem = problem
        self._threads = threads
        self._tree = cKDTree(problem.target)

    def __call__(self, T_target_source: np.ndarray) -> dict[str, float]:
        """Return the error of a transform, and the RMS distance of all matches at it."""
        problem = self._problem
        degrees, metres = pose_error(T_target_source, problem.T_target_source)
        distances, _ = self._tree.query(
            se3.apply(T_target_source, problem.source),
            distance_upper_bound=MAX_DISTANCE,
            workers=self._threads,
        )
        matched = distances[np.isfinite(distances)]
        rmse = np.sqrt(np.mean(matched**2)) if len(matched) else np.nan
        return {"rotation_deg": degrees, "translation_m": metres, "rmse_m": float(rmse)}

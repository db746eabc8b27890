"""Nearest neighbours within a distance: SciPy's KD-tree on the CPU, brute force on CUDA.

Both backends have the same two methods and give the same matches, so registration and odometry do
not know which one they run on.
"""

from typing import Protocol

import numpy as np
from scipy.spatial import cKDTree

from geoaccel_ros.backend import BackendError, choose_backend


class NearestSearch(Protocol):
    """What a backend offers."""

    def set_target(self, points: np.ndarray) -> None:
        """Take the points (M, 3) of float64, metres, that queries are matched to."""

    def nearest(self, queries: np.ndarray, max_distance: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the index (N,) of int64 of each query's nearest point and its distance (N,).

        Where no point lies within ``max_distance`` the index is -1 and the distance infinite.
        """


class KdTreeSearch:
    """Exact search by a KD-tree on the CPU; ``threads`` of them share the queries."""

    def __init__(self, threads: int = 1):
        self._threads = threads
        self._tree = None

    def set_target(self, points: np.ndarray) -> None:
        """See :class:`NearestSearch`; costs 6 ms for 40,000 points."""
        # Splits at the middle of a cell's extent, not at the median: built in half the time and
        # equally fast for points as evenly spread as voxel means are.
        self._tree = cKDTree(points, balanced_tree=False)

    def nearest(self, queries: np.ndarray, max_distance: float) -> tuple[np.ndarray, np.ndarray]:
        """See :class:`NearestSearch`."""
        distances, indices = self._tree.query(
            queries, distance_upper_bound=max_distance, workers=self._threads
        )
        # SciPy answers n where nothing is near enough.
        return np.where(indices == self._tree.n, -1, indices), distances


def make_search(requested: str, threads: int = 1) -> tuple[NearestSearch, str, str]:
    """Return the search for a backend of auto, cpu or cuda, its name, and why it was taken.

    Raises
    ------
    BackendError
        If CUDA was asked for and cannot be used, or disagrees with the CPU on a small problem.
    """
    name, reason = choose_backend(requested)
    if name == "cpu":
        return KdTreeSearch(threads), name, reason
    from geoaccel_ros.registration.cuda.search import CudaSearch

    search = CudaSearch()
    _check_parity(search)
    return search, name, reason


def _check_parity(search: NearestSearch) -> None:
    """Refuse a backend that answers otherwise than the KD-tree: some drivers fail in silence."""
    generator = np.random.default_rng(1)
    # Far from zero, as a map may be, and with queries that have no match.
    target = generator.uniform(-5.0, 5.0, (3000, 3)) + 1e6
    queries = generator.uniform(-6.0, 6.0, (1000, 3)) + 1e6
    expected_search = KdTreeSearch()
    expected_search.set_target(target)
    search.set_target(target)
    expected = expected_search.nearest(queries, 0.5)
    found = search.nearest(queries, 0.5)
    # Indices may differ only where two points are equally near in float32 (steps of 1e-6 m here).
    distances_agree = np.allclose(found[1], expected[1], atol=1e-5)
    if not distances_agree or np.mean(found[0] == expected[0]) < 0.999:
        raise BackendError(
            "CUDA's nearest neighbours differ from the CPU's on the start-up check: update the "
            "NVIDIA driver or set backend: cpu"
        )

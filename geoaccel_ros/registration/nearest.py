"""The KD-tree of a backend: on the CPU or on an NVIDIA GPU, with the same answers."""

import functools
from collections.abc import Callable
from typing import Protocol

import numpy as np

from geoaccel_ros.backend import BackendError, choose_backend
from geoaccel_ros.registration.kdtree.tree import KdTree
from geoaccel_ros.threads import Threads


class Tree(Protocol):
    """What a backend's tree offers."""

    def nearest(self, queries: np.ndarray, max_distance: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the index (N,) of int64 of each query's nearest point and its distance (N,).

        Where no point lies within ``max_distance`` the index is -1 and the distance infinite.
        """


# Makes the tree of points (M, 3), metres.
TreeBuilder = Callable[[np.ndarray], Tree]


def choose_tree(requested: str, threads: int = 1) -> tuple[TreeBuilder, str, str]:
    """Return what builds trees on a backend of auto, cpu or cuda, its name, and why it was taken.

    Raises
    ------
    BackendError
        If CUDA was asked for and cannot be used, or disagrees with the CPU on a small problem.
    """
    name, reason = choose_backend(requested)
    if name == "cpu":
        return functools.partial(KdTree, threads=Threads(threads)), name, reason
    from geoaccel_ros.registration.cuda.tree import CudaTree

    _check_parity(CudaTree)
    return CudaTree, name, reason


def _check_parity(build: TreeBuilder) -> None:
    """Refuse a backend that answers otherwise than the CPU: some drivers fail in silence."""
    generator = np.random.default_rng(1)
    # Far from zero, as a map may be, and with queries that have no match.
    target = generator.uniform(-5.0, 5.0, (3000, 3)) + 1e6
    queries = generator.uniform(-6.0, 6.0, (1000, 3)) + 1e6
    expected = KdTree(target).nearest(queries, 0.5)
    found = build(target).nearest(queries, 0.5)
    # Indices may differ only where two points are equally near in float32 (steps of 1e-6 m here).
    distances_agree = np.allclose(found[1], expected[1], atol=1e-5)
    if not distances_agree or np.mean(found[0] == expected[0]) < 0.999:
        raise BackendError(
            "CUDA's nearest neighbours differ from the CPU's on the start-up check: update the "
            "NVIDIA driver or set backend: cpu"
        )

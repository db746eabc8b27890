"""Points that stand apart: far from their neighbours on average, or with too few of them."""

import numpy as np
from numba import njit

from geoaccel_ros.registration.kdtree import search
from geoaccel_ros.registration.kdtree.tree import KdTree
from geoaccel_ros.threads import Threads

_BLOCK = 256


def statistical_filter(
    xyz: np.ndarray, neighbours: int, ratio: float, threads: int = 1
) -> np.ndarray:
    """Return the indices of the points to keep: finite, and near their neighbours as others are.

    A point goes whose mean distance to its nearest neighbours lies more than ``ratio`` standard
    deviations above the mean over the cloud (Rusu et al., RAS 2008).

    Parameters
    ----------
    xyz : ndarray (N, 3), metres
    neighbours : int
        How many, without the point itself; all others where there are fewer.
    ratio : float
    threads : int
        Share the work.

    Returns
    -------
    ndarray (M,) of int64, increasing

    Raises
    ------
    ValueError
        If there are no neighbours to look at, or the points have another shape.
    """
    _check(neighbours)
    finite, points = _finite(xyz)
    count = min(neighbours, len(points) - 1)
    if count < 1:
        return finite
    shared = Threads(threads)
    distances = mean_distances(KdTree(points, threads=shared), count, shared)
    return finite[distances <= np.mean(distances) + ratio * np.std(distances)]


def radius_filter(xyz: np.ndarray, radius: float, neighbours: int, threads: int = 1) -> np.ndarray:
    """Return the indices of the points to keep: finite, with enough neighbours within a radius.

    Parameters
    ----------
    xyz : ndarray (N, 3), metres
    radius : float, metres
        Inclusive.
    neighbours : int
        The fewest, without the point itself; copies of it count.
    threads : int
        Share the work.

    Returns
    -------
    ndarray (M,) of int64, increasing

    Raises
    ------
    ValueError
        If no neighbours are asked for, the radius is negative, or the points have another shape.
    """
    _check(neighbours)
    finite, points = _finite(xyz)
    # The point itself is within any radius.
    found = KdTree(points, threads=threads).count_within(points, radius, neighbours + 1)
    return finite[found > neighbours]


def mean_distances(tree: KdTree, count: int, threads: Threads) -> np.ndarray:
    """Return the mean distance of each of a tree's points to its ``count`` nearest others.

    Returns
    -------
    ndarray (N,) of float64, metres
        In the order of the points that the tree was built of.
    """
    means, in_trees_order = np.empty((2, len(tree)))
    threads.split(_mean_distances, len(tree), tree.nodes, count, in_trees_order, block=_BLOCK)
    means[tree.order] = in_trees_order
    return means


def _check(neighbours: int) -> None:
    if neighbours < 1:
        raise ValueError(f"{neighbours} neighbours, must be 1 or more")


def _finite(xyz: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the finite points, and these points."""
    xyz = np.asarray(xyz)
    finite = np.flatnonzero(np.isfinite(xyz).all(axis=-1))
    return finite, xyz[finite]


@njit(nogil=True, cache=True)
def _mean_distances(first, last, nodes, count, means):
    # The nearest of all is the point itself, or a copy of it.
    matches = np.empty((_BLOCK, count + 1), np.int32)
    squares = np.empty((_BLOCK, count + 1), np.float32)
    for start in range(first, last, _BLOCK):
        end = min(start + _BLOCK, last)
        x, y, z = nodes.x[start:end], nodes.y[start:end], nodes.z[start:end]
        search.neighbours(0, end - start, x, y, z, nodes, matches, squares)
        for i in range(end - start):
            total = 0.0
            for k in range(1, count + 1):
                total += np.sqrt(np.float64(squares[i, k]))
            means[start + i] = total / count

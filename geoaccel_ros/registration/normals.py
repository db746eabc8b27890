"""Normals of a cloud: the direction in which each point's neighbourhood is thinnest."""

import numpy as np
from numba import njit

from geoaccel_ros.registration.kdtree import search
from geoaccel_ros.registration.kdtree.tree import KdTree
from geoaccel_ros.threads import Threads

# Neighbours that a normal comes from, the point itself among them: fewer follow the noise, more
# round the edges off. Where they lie on a line, as the points of one ring of a lidar do, they tell
# no plane, and more are taken. Without that, 9 of 14 real pairs miss their reference at full
# density; with it none does.
NEIGHBOURS = (20, 40, 80)
# Middle eigenvalue of the covariance, as a part of the largest, below which it is a line.
LINE = 0.2
_BLOCK = 256


def estimate_normals(tree: KdTree, threads: Threads) -> np.ndarray:
    """Return the unit normals (3, N) of float32 of a tree's points, in the tree's order.

    The eigenvector of the smallest eigenvalue of the covariance of 20 to 80 nearest points, the
    point itself among them (Hoppe et al., SIGGRAPH 1992). Their sign is arbitrary, and where even
    80 points lie on a line so are they.
    """
    normals = np.empty((3, len(tree)), np.float32)
    threads.split(_normals, len(tree), tree.nodes, normals, block=_BLOCK)
    return normals


@njit(nogil=True, cache=True)
def _normals(first, last, nodes, normals):
    covariance, vectors, values = np.empty((3, 3)), np.empty((3, 3)), np.empty(3)
    total = len(nodes.x)
    for start in range(first, last, _BLOCK):
        remaining = np.arange(start, min(start + _BLOCK, last))
        for wanted in NEIGHBOURS:
            count = min(wanted, total)
            matches = np.empty((len(remaining), count), np.int32)
            squares = np.empty((len(remaining), count), np.float32)
            x, y, z = nodes.x[remaining], nodes.y[remaining], nodes.z[remaining]
            search.neighbours(0, len(remaining), x, y, z, nodes, matches, squares)
            lines = 0
            for i in range(len(remaining)):
                _covariance(x[i], y[i], z[i], nodes, matches[i], covariance)
                smallest = _eigen(covariance, vectors, values)
                for k in range(3):
                    normals[k, remaining[i]] = vectors[k, smallest]
                middle = values.sum() - values.min() - values.max()
                if middle < LINE * values.max():
                    remaining[lines] = remaining[i]
                    lines += 1
            remaining = remaining[:lines]
            if lines == 0 or count == total:
                break


@njit(nogil=True, cache=True, inline="always")
def _covariance(x, y, z, nodes, matches, covariance):
    """Write the covariance, times the number of points, of the neighbours of a point."""
    covariance[:] = 0.0
    mean, offset = np.zeros(3), np.empty(3)
    for match in matches:
        # From the point itself: small numbers, so that squares lose nothing.
        offset[0], offset[1], offset[2] = nodes.x[match] - x, nodes.y[match] - y, nodes.z[match] - z
        for a in range(3):
            mean[a] += offset[a]
            for b in range(a, 3):
                covariance[a, b] += offset[a] * offset[b]
    for a in range(3):
        for b in range(a, 3):
            covariance[a, b] -= mean[a] * mean[b] / len(matches)
            covariance[b, a] = covariance[a, b]


@njit(nogil=True, cache=True)
def _eigen(matrix, vectors, values):
    """Diagonalise a symmetric matrix (3, 3) in place by Jacobi's rotations.

    Writes the eigenvectors into the columns of ``vectors``; returns the smallest eigenvalue's.
    """
    vectors[:] = 0.0
    for k in range(3):
        vectors[k, k] = 1.0
    # Converges quadratically: 4 sweeps reach float64 from anything; the others are for scale.
    for _ in range(8):
        largest = max(abs(matrix[0, 1]), abs(matrix[0, 2]), abs(matrix[1, 2]))
        if largest <= 1e-12 * (matrix[0, 0] + matrix[1, 1] + matrix[2, 2]):
            break
        for p in range(2):
            for q in range(p + 1, 3):
                if matrix[p, q] == 0.0:
                    continue
                slope = (matrix[q, q] - matrix[p, p]) / (2.0 * matrix[p, q])
                tangent = 1.0 / (abs(slope) + np.sqrt(1.0 + slope * slope))
                if slope < 0.0:
                    tangent = -tangent
                cosine = 1.0 / np.sqrt(1.0 + tangent * tangent)
                sine = tangent * cosine
                for k in range(3):
                    left, right = matrix[k, p], matrix[k, q]
                    matrix[k, p] = cosine * left - sine * right
                    matrix[k, q] = sine * left + cosine * right
                for k in range(3):
                    left, right = matrix[p, k], matrix[q, k]
                    matrix[p, k] = cosine * left - sine * right
                    matrix[q, k] = sine * left + cosine * right
                    left, right = vectors[k, p], vectors[k, q]
                    vectors[k, p] = cosine * left - sine * right
                    vectors[k, q] = sine * left + cosine * right
    for k in range(3):
        values[k] = matrix[k, k]
    return np.argmin(values)

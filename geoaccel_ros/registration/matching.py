"""Correspondences of a moving cloud on the CPU: searched where they may have changed.

Between iterations a cloud moves less and less, and most points keep their match. A search
therefore also tells how near the next other point is; as long as a point has moved less since than
that leaves room for, its match is certain and nothing is searched (triangle inequality; Greenspan
and Godin, 3DIM 2001). The matches are exact at every iteration.
"""

import numpy as np
from numba import njit

from geoaccel_ros.registration.kdtree.search import PATIENCE, descend, height, narrow
from geoaccel_ros.registration.kdtree.tree import KdTree
from geoaccel_ros.threads import Threads

# A search looks farther than the match by this part of the target's spacing, which costs next to
# nothing, or by this many times what the point has moved since its last search: steps shrink, so
# what is clear by that much often stays clear. Beyond half a spacing the point has passed its
# neighbours, and looking farther does not pay. On the 200,000-point problem the searches of 30
# iterations take 0.42 of the time of full ones.
_LEAST_MARGIN = np.float32(0.1)
_MARGIN = np.float32(2.0)
_FARTHEST = np.float32(0.5)
# Rounding of the distances that are compared.
_SLACK = np.float32(1.0 - 1e-6)

# Points whose sums are added up one after the other; the blocks' sums are added in a fixed order,
# so that results do not depend on the number of threads.
BLOCK = 1024
# Points that are worth a thread's start.
SHARE = 4 * BLOCK


class Matcher:
    """The matches of one source in one target, as the pose changes.

    Parameters
    ----------
    tree : KdTree
        Of the target.
    source : ndarray (3, M) of float32, metres
        Relative to an origin of its own; neighbours in space near each other in memory.
    max_distance : float
        Matches are not farther apart, metres.
    spacing : float
        Typical distance between neighbouring target points, metres; only the speed depends on it.
    threads : Threads

    Attributes
    ----------
    matches : ndarray (M,) of int32
        Places in the tree's order, -1 for none.
    squares : ndarray (M,) of float32
        Squared distances to the matches; infinite for none.
    """

    def __init__(
        self,
        tree: KdTree,
        source: np.ndarray,
        max_distance: float,
        spacing: float,
        threads: Threads,
    ):
        count = source.shape[1]
        self._tree = tree
        self._source = source
        self._radius = np.float32(max_distance)
        self._spacing = np.float32(spacing)
        self._threads = threads
        self.matches = np.full(count, -1, np.int32)
        self.squares = np.empty(count, np.float32)
        # Where each point was when it was last searched, and how near other points may be to there.
        self._places = np.full((3, count), np.inf, np.float32)
        self._clear = np.full(count, -np.inf, np.float32)

    def update(self, pose: np.ndarray) -> None:
        """Match the source as moved by ``pose`` (4, 4), from its origin to the tree's."""
        self._threads.split(
            _update,
            len(self.matches),
            np.ascontiguousarray(pose[:3], np.float64),
            self._source,
            self._tree.nodes,
            self._radius,
            self._spacing,
            self._places,
            self._clear,
            self.matches,
            self.squares,
            block=SHARE,
        )


@njit(nogil=True, cache=True)
def _update(first, last, pose, source, nodes, radius, spacing, places, clear, matches, squares):
    stack = np.empty(height(nodes), np.int64)
    offsets = np.zeros((height(nodes), 3), np.float32)
    for i in range(first, last):
        x, y, z = source[0, i], source[1, i], source[2, i]
        qx = np.float32(pose[0, 0] * x + pose[0, 1] * y + pose[0, 2] * z + pose[0, 3])
        qy = np.float32(pose[1, 0] * x + pose[1, 1] * y + pose[1, 2] * z + pose[1, 3])
        qz = np.float32(pose[2, 0] * x + pose[2, 1] * y + pose[2, 2] * z + pose[2, 3])
        dx, dy, dz = qx - places[0, i], qy - places[1, i], qz - places[2, i]
        moved = np.sqrt(dx * dx + dy * dy + dz * dz)
        known = matches[i]
        distance, square = radius, np.float32(np.inf)
        if known >= 0:
            dx, dy, dz = nodes.x[known] - qx, nodes.y[known] - qy, nodes.z[known] - qz
            square = dx * dx + dy * dy + dz * dz
            distance = np.sqrt(square)
        if distance <= radius and distance + moved < clear[i] * _SLACK:
            squares[i] = square
            continue
        margin = _LEAST_MARGIN * spacing
        if moved < _FARTHEST * spacing:
            margin = max(margin, _MARGIN * moved)
        match, square, others = _search(
            qx, qy, qz, nodes, known, square, radius, margin, stack, offsets
        )
        matches[i], squares[i], clear[i] = match, square, others
        places[0, i], places[1, i], places[2, i] = qx, qy, qz


@njit(nogil=True, cache=True, inline="always")
def _search(qx, qy, qz, nodes, known, known_square, radius, margin, stack, offsets):
    """Return the match (-1: none within the radius), its squared distance, and what is clear.

    No target point but the match is nearer than that. Points up to ``margin`` farther than the
    match are looked at to tell.
    """
    nearest = np.float32(np.inf)
    match = -1
    limit = (radius + margin) * (radius + margin)
    if known_square < limit:
        match, nearest = known, known_square
        limit = min(limit, _widened(nearest, margin))
    stack[0], top = 0, 1
    offsets[0, :] = 0.0
    leaves = 0
    while top > 0:
        top -= 1
        node, fx, fy, fz = stack[top], offsets[top, 0], offsets[top, 1], offsets[top, 2]
        if leaves >= PATIENCE:
            node, fx, fy, fz, top = narrow(
                nodes, node, fx, fy, fz, qx, qy, qz, limit, stack, offsets, top
            )
        if fx * fx + fy * fy + fz * fz >= limit:
            continue
        start, end, identical, top = descend(
            nodes, node, fx, fy, fz, qx, qy, qz, limit, stack, offsets, top
        )
        leaves += 1
        if identical:
            end = start + 1
        for i in range(start, end):
            dx, dy, dz = nodes.x[i] - qx, nodes.y[i] - qy, nodes.z[i] - qz
            square = dx * dx + dy * dy + dz * dz
            if square < limit and i != match:
                if square < nearest:
                    limit = min(limit, nearest, _widened(square, margin))
                    nearest, match = square, i
                else:
                    limit = square
    if nearest > radius * radius:
        return -1, np.float32(np.inf), np.sqrt(min(nearest, limit))
    return match, nearest, np.sqrt(limit)


@njit(nogil=True, cache=True, inline="always")
def _widened(square, margin):
    distance = np.sqrt(square) + margin
    return distance * distance

"""The shortest way through goals among obstacles that are all known: a drive is compared with it.

Among convex polygons a shortest path that keeps a clearance bends only around their corners, on
arcs of that radius. So it is found exactly, but for tangents in place of the arcs, by Dijkstra's
algorithm on the visibility graph (Lozano-Pérez and Wesley 1979) of points around the corners. Ways
on a grid would be some percent too long.
"""

from collections.abc import Sequence

import numba
import numpy as np
from scipy.sparse.csgraph import dijkstra

# An arc is replaced by tangents, one for no more than this angle (rad): 0.4 % longer than the arc.
_ARC = np.radians(12.0)
# Places around a goal at which it counts as reached.
_PLACES = 32
# Ways that touch the clearance are free; rounding must not close them (m).
_ROUNDING = 1e-6


def shortest_path(
    start: np.ndarray,
    goals: np.ndarray,
    tolerance: float,
    obstacles: Sequence[np.ndarray],
    clearance: float,
) -> np.ndarray | None:
    """Return the shortest path to within ``tolerance`` of each goal in turn.

    Parameters
    ----------
    start : ndarray (2,)
        In metres, as all that follows.
    goals : ndarray (N, 2)
    tolerance : float
        A goal is reached at this distance.
    obstacles : sequence of ndarray (M, 2)
        Convex polygons, counter-clockwise.
    clearance : float
        The path keeps this distance from them; positive.

    Returns
    -------
    ndarray (P, 2) or None
        The corners of the path; None if there is none.
    """
    angles = 2 * np.pi * np.arange(_PLACES) / _PLACES
    circle = tolerance * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    around_goals = [goal + circle for goal in np.reshape(goals, (-1, 2))]
    corners = [_around(polygon, clearance) for polygon in obstacles]
    stops = [np.reshape(start, (1, 2)), *around_goals]
    nodes = np.concatenate([*stops, *corners])
    # Which of the nodes are the places of each stop.
    ends = np.cumsum([len(stop) for stop in stops])
    places = [np.arange(end - len(stop), end) for stop, end in zip(stops, ends, strict=True)]
    lengths, before = dijkstra(
        _visible_lengths(nodes, obstacles, clearance),
        directed=False,
        indices=np.arange(ends[-1]),
        return_predecessors=True,
    )
    # By stop, the least length to each of its places, and from which place of the one before.
    least = np.zeros(1)
    came_from = []
    for previous, following in zip(places[:-1], places[1:], strict=True):
        candidates = least[:, None] + lengths[np.ix_(previous, following)]
        came_from.append(candidates.argmin(axis=0))
        least = candidates.min(axis=0)
    if not np.isfinite(least.min()):
        return None
    choice = int(least.argmin())
    path = [int(places[-1][choice])]
    for stop in reversed(range(len(goals))):
        choice = int(came_from[stop][choice])
        source = int(places[stop][choice])
        while path[-1] != source:
            path.append(int(before[source, path[-1]]))
    return nodes[path[::-1]]


def _around(polygon: np.ndarray, clearance: float) -> np.ndarray:
    """Return points (K, 2) whose hull holds the polygon grown by ``clearance``, tangent to it."""
    along = np.roll(polygon, -1, axis=0) - polygon
    outward = np.arctan2(-along[:, 0], along[:, 1])  # the normal of the edge that begins there
    points = []
    for corner, first, last in zip(polygon, np.roll(outward, 1), outward, strict=True):
        turn = (last - first) % (2 * np.pi)
        count = max(1, int(np.ceil(turn / _ARC - 1e-9)))
        angles = first + turn * (np.arange(count) + 0.5) / count
        reach = clearance / np.cos(turn / count / 2)
        points.append(corner + reach * np.stack([np.cos(angles), np.sin(angles)], axis=1))
    return np.concatenate(points)


def _visible_lengths(
    nodes: np.ndarray, obstacles: Sequence[np.ndarray], clearance: float
) -> np.ndarray:
    """Return the distances (N, N) of nodes that a straight free way joins, 0 for all others."""
    nothing = np.empty((0, 2))
    first = np.concatenate([nothing, *obstacles])
    last = np.concatenate([nothing, *(np.roll(polygon, -1, axis=0) for polygon in obstacles)])
    inside = np.zeros(len(nodes), bool)
    for polygon in obstacles:
        along, to_node = np.roll(polygon, -1, axis=0) - polygon, nodes[:, None] - polygon
        inside |= (along[:, 0] * to_node[..., 1] >= along[:, 1] * to_node[..., 0]).all(axis=1)
    lengths = np.zeros((len(nodes), len(nodes)))
    _measure(nodes, inside, first, last, clearance - _ROUNDING, lengths)
    return lengths


@numba.njit(cache=True)
def _measure(nodes, inside, first, last, limit, lengths):
    """Enter the lengths of the free ways between nodes that are in no obstacle.

    Free are ways that cross no edge and come no nearer than ``limit`` to one: what is nearest is a
    corner, or one of the way's ends.
    """
    free = np.zeros(len(nodes), np.bool_)
    for i in range(len(nodes)):
        free[i] = not inside[i]
        for k in range(len(first)):
            if _distance(nodes[i], first[k], last[k]) < limit:
                free[i] = False
                break
    for i in range(len(nodes)):
        for j in range(i):
            if not (free[i] and free[j]):
                continue
            a, b = nodes[i], nodes[j]
            is_clear = True
            for k in range(len(first)):
                if _distance(first[k], a, b) < limit or _cross(a, b, first[k], last[k]):
                    is_clear = False
                    break
            if is_clear:
                lengths[i, j] = np.hypot(b[0] - a[0], b[1] - a[1])


@numba.njit
def _distance(point, first, last):
    """Return the distance of a point from a segment."""
    along_x, along_y = last[0] - first[0], last[1] - first[1]
    x, y = point[0] - first[0], point[1] - first[1]
    square = along_x * along_x + along_y * along_y
    t = 0.0
    if square > 0.0:
        t = min(max((x * along_x + y * along_y) / square, 0.0), 1.0)
    return np.hypot(x - t * along_x, y - t * along_y)


@numba.njit
def _cross(a, b, c, d):
    """Return whether the segments ab and cd cross."""
    return _side(a, b, c) * _side(a, b, d) < 0.0 and _side(c, d, a) * _side(c, d, b) < 0.0


@numba.njit
def _side(a, b, point):
    return (b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0])

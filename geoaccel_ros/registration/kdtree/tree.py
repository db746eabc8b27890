"""A KD-tree in flat arrays, built and searched on the CPU."""

import numpy as np

from geoaccel_ros.registration.kdtree import search
from geoaccel_ros.registration.kdtree.build import CYCLIC, SPREAD, build_levels
from geoaccel_ros.registration.local_frame import frame_of, to_local
from geoaccel_ros.threads import Threads

# Found by measurement (docs/benchmarks.md): 12 to 32 are equally fast.
LEAF_SIZE = 16
AXIS_RULES = {"spread": SPREAD, "cyclic": CYCLIC}

# A tree this deep serves 20 million points in leaves of 20; with more points leaves grow.
_DEPTH = 20
_LARGEST_LEAF = 64

# Squares of distances between points within this are float32.
_FARTHEST = 1e18


class KdTree:
    """Exact nearest neighbours among a fixed set of points.

    The tree is balanced by position: a node at depth d and place j in its level holds the points
    from N j / 2^d to N (j + 1) / 2^d, rounded down, in the tree's order. So the nodes need no
    pointers: they lie level by level, node i has the children 2 i + 1 and 2 i + 2, all leaves have
    the same depth, and a traversal's stack is never higher than that depth plus one.

    Parameters
    ----------
    points : ndarray (N, 3) of float32 or float64, metres
        Finite. Kept as float32 relative to their middle: 1e-6 m in 30 m.
    leaf_size : int
        The most points of a leaf, as long as the depth of 20 suffices for it; beyond that leaves
        grow up to 64 points before the tree becomes deeper.
    axis : str
        "spread": split across the axis on which the node's points spread most; "cyclic": x, y, z
        in turn, but for those on which they do not spread.
    threads : int or Threads
        Share the building and the queries.

    Attributes
    ----------
    origin : ndarray (3,) of float64
        What the coordinates below are relative to: the median by axis of a sample of the points.
    radius : float
        Their root mean square distance from it, metres; strays count little.
    split, axis : ndarray (2^depth - 1,) of float32, of int8
        Of the inner nodes, root first. Points left of a split are not greater, points right of it
        not smaller. Axis 3: all points of the node are the same.
    boxes : ndarray (2^depth - 1, 6) of float32
        What the inner nodes' points span: the least x, y, z and the greatest.
    starts : ndarray (2^depth + 1,) of int32
        Leaf l holds the points from ``starts[l]`` to ``starts[l + 1]``.
    x, y, z : ndarray (N,) of float32
        In the tree's order.
    order : ndarray (N,) of int32
        Their indices in ``points``.

    Raises
    ------
    ValueError
        If the points have another shape or are not finite, or an option is unknown.
    """

    def __init__(
        self,
        points: np.ndarray,
        leaf_size: int = LEAF_SIZE,
        axis: str = "spread",
        threads: int | Threads = 1,
    ):
        if axis not in AXIS_RULES:
            raise ValueError(f"axis {axis!r}, must be one of {', '.join(AXIS_RULES)}")
        if leaf_size < 1:
            raise ValueError(f"leaf_size is {leaf_size}, must be 1 or more")
        points = _checked(points, "points")
        self._threads = threads if isinstance(threads, Threads) else Threads(threads)
        count = len(points)
        self.depth = tree_depth(count, leaf_size)
        self.origin, self.radius = frame_of(points)
        keys = np.empty((count, 4), np.float32)
        keys[:, :3] = to_local(points, self.origin, self._threads).T
        keys.view(np.int32)[:, 3] = np.arange(count)
        self.split = np.empty((1 << self.depth) - 1, np.float32)
        self.axis = np.empty((1 << self.depth) - 1, np.int8)
        self.boxes = np.empty(((1 << self.depth) - 1, 6), np.float32)
        self._build(keys, AXIS_RULES[axis])
        self.starts = leaf_starts(count, self.depth)
        self.x, self.y, self.z = (np.ascontiguousarray(keys[:, k]) for k in range(3))
        self.order = np.ascontiguousarray(keys.view(np.int32)[:, 3])

    def __len__(self) -> int:
        return len(self.x)

    @property
    def nodes(self) -> search.Nodes:
        """The arrays that compiled functions take."""
        return search.Nodes(self.split, self.axis, self.boxes, self.starts, self.x, self.y, self.z)

    def nearest(
        self, queries: np.ndarray, max_distance: float = np.inf
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the index (Q,) of int64 of each query's nearest point and its distance (Q,).

        Queries that lie near each other in space are fastest one after the other.

        Parameters
        ----------
        queries : ndarray (Q, 3), metres
        max_distance : float, metres
            Where no point lies within it the index is -1 and the distance infinite; so it is for a
            query that is not finite.
        """
        x, y, z = self._local(queries)
        matches = np.empty(len(x), np.int32)
        squares = np.empty(len(x), np.float32)
        self._threads.split(
            search.nearest, len(x), x, y, z, self.nodes, limit_of(max_distance), matches, squares
        )
        indices = np.full(len(x), -1, np.int64)
        matched = matches >= 0
        indices[matched] = self.order[matches[matched]]
        return indices, np.sqrt(squares.astype(np.float64))

    def neighbours(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices (Q, count) of the nearest points, nearest first, and their distances.

        Where the tree has fewer points the rest is -1 and infinity.
        """
        if count < 1:
            raise ValueError(f"{count} neighbours, must be 1 or more")
        x, y, z = self._local(queries)
        matches = np.empty((len(x), count), np.int32)
        squares = np.empty((len(x), count), np.float32)
        self._threads.split(search.neighbours, len(x), x, y, z, self.nodes, matches, squares)
        indices = np.full(matches.shape, -1, np.int64)
        matched = matches >= 0
        indices[matched] = self.order[matches[matched]]
        return indices, np.sqrt(squares.astype(np.float64))

    def count_within(self, queries: np.ndarray, max_distance: float, most: int) -> np.ndarray:
        """Return how many points lie within a distance of each query, (Q,) of int64.

        The search ends at ``most``, which many and few are then told apart by at little cost.
        """
        if most < 1:
            raise ValueError(f"most is {most}, must be 1 or more")
        x, y, z = self._local(queries)
        counts = np.empty(len(x), np.int64)
        self._threads.split(
            search.count_within, len(x), x, y, z, self.nodes, limit_of(max_distance), most, counts
        )
        return counts

    def _build(self, keys: np.ndarray, rule: int) -> None:
        pairs = keys.view(np.int64)
        # The top by one thread until there is a subtree for each.
        top = min(self.depth, (self._threads.count - 1).bit_length())
        nodes = (rule, self.split, self.axis, self.boxes)
        build_levels(keys, pairs, 0, 0, top, *nodes)
        roots = range((1 << top) - 1, (2 << top) - 1)
        self._threads.run(
            [(build_levels, keys, pairs, root, top, self.depth, *nodes) for root in roots]
        )

    def _local(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        queries = _numbers(queries, "queries")
        local = np.empty((3, len(queries)), np.float32)
        # What is too far for float32 becomes infinite and so finds nothing.
        with np.errstate(over="ignore"):
            np.subtract(queries.T, self.origin[:, None], out=local, casting="same_kind")
        return local[0], local[1], local[2]


def tree_depth(count: int, leaf_size: int) -> int:
    """Return the depth of the leaves for ``count`` points: see :class:`KdTree`."""

    def needed(size: int) -> int:
        return (max(1, -(-count // size)) - 1).bit_length()

    return min(needed(leaf_size), max(_DEPTH, needed(_LARGEST_LEAF)))


def leaf_starts(count: int, depth: int) -> np.ndarray:
    """Return where the leaves begin, and the end of the last: (2^depth + 1,) of int32."""
    return ((count * np.arange((1 << depth) + 1, dtype=np.int64)) >> depth).astype(np.int32)


def limit_of(max_distance: float) -> np.float32:
    """Return the squared distance below which points lie within ``max_distance``, inclusive."""
    if not max_distance >= 0.0:
        raise ValueError(f"max_distance is {max_distance}, must not be negative")
    if max_distance > _FARTHEST:
        return np.float32(np.inf)
    return np.nextafter(np.float32(max_distance**2), np.float32(np.inf))


def _checked(points: np.ndarray, name: str) -> np.ndarray:
    points = _numbers(points, name)
    reach = max(-float(points.min(initial=0)), float(points.max(initial=0)))
    if not np.isfinite(reach):
        raise ValueError(f"{name} are not all finite: remove those that are not first")
    if reach > _FARTHEST:
        raise ValueError(f"{name} reach {reach:.3g} m, must be within {_FARTHEST:.0e}")
    return points


def _numbers(points: np.ndarray, name: str) -> np.ndarray:
    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"{name} have shape {points.shape}, must be (N, 3)")
    if points.dtype.kind not in "fiu":
        raise ValueError(f"{name} are of {points.dtype}, must be numbers")
    return points

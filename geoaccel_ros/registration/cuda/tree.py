"""A KD-tree built and searched on an NVIDIA GPU. Imports CuPy at once."""

import os

import cupy
import cupyx
import numpy as np

from geoaccel_ros.registration.alignment import SPACING_SAMPLE, median_distance
from geoaccel_ros.registration.cuda.kernels import blocks, module, multiprocessors
from geoaccel_ros.registration.kdtree.tree import (
    LEAF_SIZE,
    leaf_starts,
    limit_of,
    tree_depth,
)
from geoaccel_ros.registration.local_frame import frame_of, to_local
from geoaccel_ros.registration.normals import LINE, NEIGHBOURS
from geoaccel_ros.threads import Threads

# As in the .cu files.
_BUILD_THREADS = 1024
_SUBTREE = 2048
_LARGEST_TEAM = 128
_TEAM_BYTES = 4 * (7 + _LARGEST_TEAM + 3 * 2048)
# What split_subtrees takes of shared memory: keys, coordinates, indices, axes.
_SUBTREE_BYTES = _SUBTREE * (8 + 3 * 4 + 4 + 1)
_QUERY_THREADS = 128
# They shift clouds to their origin before the copy to the device: one alone takes longer than that.
_THREADS = Threads(min(4, len(os.sched_getaffinity(0))))


class Upload:
    """A cloud on its way to the device, on the current stream.

    Attributes
    ----------
    origin : ndarray (3,) of float64
    radius : float
        As of :class:`geoaccel_ros.registration.local_frame.Frame`.
    local : cupy.ndarray (3, N) of float32
        The points relative to the origin.
    """

    def __init__(self, points: np.ndarray):
        self.origin, self.radius = frame_of(points)
        # Copied from until the stream has come so far: kept as long as this object.
        self._staging = cupyx.empty_pinned((3, len(points)), np.float32)
        to_local(points, self.origin, _THREADS, self._staging)
        self.local = cupy.empty(self._staging.shape, np.float32)
        self.local.set(self._staging)


class CudaTree:
    """The same tree as :class:`geoaccel_ros.registration.kdtree.tree.KdTree`, in GPU memory.

    Attributes
    ----------
    split, axis, boxes, starts : cupy.ndarray
    points : cupy.ndarray (3, N) of float32
        In the tree's order.
    order : cupy.ndarray (N,) of int32
    """

    def __init__(self, points: np.ndarray, leaf_size: int = LEAF_SIZE, axis: str = "spread"):
        count = len(points)
        self._upload = Upload(points)
        self.origin, self.radius = self._upload.origin, self._upload.radius
        self.points = self._upload.local
        self.depth = tree_depth(count, leaf_size)
        self.starts = cupy.asarray(leaf_starts(count, self.depth))
        inner = (1 << self.depth) - 1
        # One element at least: an empty array has no address.
        self.split = cupy.empty(max(inner, 1), np.float32)
        self.axis = cupy.empty(max(inner, 1), np.int8)
        self.boxes = cupy.empty((max(inner, 1), 6), np.float32)
        self.order = cupy.arange(count, dtype=np.int32)
        self._build(count, np.int32(axis == "cyclic"))
        self.arguments = (
            self.split,
            self.axis,
            self.boxes,
            self.starts,
            self.points,
            np.int32(count),
            np.int32(inner),
        )

    def __len__(self) -> int:
        return len(self.order)

    def nearest(
        self, queries: np.ndarray, max_distance: float = np.inf
    ) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`geoaccel_ros.registration.kdtree.tree.KdTree.nearest`."""
        count = len(queries)
        matches = cupy.empty(count, np.int32)
        squares = cupy.empty(count, np.float32)
        if count and len(self):
            module("search").get_function("nearest")(
                blocks(count, _QUERY_THREADS),
                (_QUERY_THREADS,),
                (
                    *self.arguments,
                    self._on_device(queries),
                    np.int32(count),
                    limit_of(max_distance),
                    matches,
                    squares,
                ),
            )
        else:
            matches.fill(-1)
            squares.fill(np.inf)
        return self._indices(matches), np.sqrt(squares.get().astype(np.float64))

    def neighbours(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`geoaccel_ros.registration.kdtree.tree.KdTree.neighbours`."""
        matches, squares = self._neighbours(self._on_device(queries), count)
        return self._indices(matches).T, np.sqrt(squares.get().astype(np.float64)).T

    def spacing(self) -> float:
        """As :func:`geoaccel_ros.registration.alignment.spacing`."""
        queries = cupy.ascontiguousarray(self.points[:, :: max(1, len(self) // SPACING_SAMPLE)])
        _, squares = self._neighbours(queries, 2)
        return median_distance(squares[1].get())

    def normals(self) -> cupy.ndarray:
        """As :func:`geoaccel_ros.registration.normals.estimate_normals`."""
        normals = cupy.empty((3, len(self)), np.float32)
        # Each thread has room for the most neighbours: not more threads than run at once.
        grid = min(blocks(len(self), _QUERY_THREADS)[0], 8 * multiprocessors())
        scratch = (NEIGHBOURS[-1], grid * _QUERY_THREADS)
        module("search").get_function("normals")(
            (grid,),
            (_QUERY_THREADS,),
            (
                *self.arguments,
                np.int32(NEIGHBOURS[0]),
                np.int32(NEIGHBOURS[-1]),
                np.float64(LINE),
                cupy.empty(scratch, np.int32),
                cupy.empty(scratch, np.float32),
                normals,
            ),
        )
        return normals

    def _neighbours(self, queries: cupy.ndarray, count: int) -> tuple[cupy.ndarray, cupy.ndarray]:
        """Return places in the tree's order and squared distances, (count, Q) each."""
        matches = cupy.empty((count, queries.shape[1]), np.int32)
        squares = cupy.empty((count, queries.shape[1]), np.float32)
        if not matches.size or not len(self):
            matches.fill(-1)
            squares.fill(np.inf)
            return matches, squares
        module("search").get_function("neighbours")(
            blocks(queries.shape[1], _QUERY_THREADS),
            (_QUERY_THREADS,),
            (
                *self.arguments,
                queries,
                np.int32(queries.shape[1]),
                np.int32(count),
                matches,
                squares,
            ),
        )
        return matches, squares

    def _build(self, count: int, cyclic: np.int32) -> None:
        depth = 0
        points, order = cupy.empty_like(self.points), cupy.empty_like(self.order)
        while depth < self.depth and (count - 1 >> depth) + 1 > _SUBTREE:
            # As many blocks as run at once; they wait for each other only in teams.
            team = min(_LARGEST_TEAM, 1 << (multiprocessors() >> depth).bit_length() >> 1) or 1
            build = module("build", cooperative=team > 1)
            build.get_function("split_level")(
                (team << depth,),
                (_BUILD_THREADS,),
                (
                    self.points,
                    self.order,
                    np.int32(count),
                    np.int32(depth),
                    cyclic,
                    np.int32(team),
                    cupy.zeros(_TEAM_BYTES << depth, np.uint8),
                    points,
                    order,
                    self.split,
                    self.axis,
                    self.boxes,
                ),
            )
            self.points, points = points, self.points
            self.order, order = order, self.order
            depth += 1
        if depth == self.depth:
            return
        split_subtrees = module("build").get_function("split_subtrees")
        split_subtrees.max_dynamic_shared_size_bytes = _SUBTREE_BYTES
        split_subtrees(
            (1 << depth,),
            (_BUILD_THREADS,),
            (
                self.points,
                self.order,
                np.int32(count),
                np.int32(depth),
                np.int32(self.depth),
                cyclic,
                self.split,
                self.axis,
                self.boxes,
            ),
            shared_mem=_SUBTREE_BYTES,
        )

    def _on_device(self, queries: np.ndarray) -> cupy.ndarray:
        local = np.empty((3, len(queries)), np.float32)
        np.subtract(queries.T, self.origin[:, None], out=local, casting="same_kind")
        return cupy.asarray(local)

    def _indices(self, matches: cupy.ndarray) -> np.ndarray:
        if len(self):
            matches = cupy.where(matches < 0, np.int32(-1), self.order[cupy.maximum(matches, 0)])
        return matches.get().astype(np.int64)

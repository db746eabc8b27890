"""Nearest neighbours on an NVIDIA GPU: ``nearest.cu`` through CuPy. Imports CuPy at once."""

from importlib import resources

import cupy
import numpy as np

_BLOCK = 128


class CudaSearch:
    """Exact search by brute force; the same contract as the KD-tree's."""

    def __init__(self):
        source = resources.files(__package__).joinpath("nearest.cu").read_text()
        module = cupy.RawModule(code=source, options=("--std=c++17",))
        self._kernel = module.get_function("nearest")
        self._origin = np.zeros(3)
        self._target = cupy.empty((0, 3), cupy.float32)
        self._queries = cupy.empty((0, 3), cupy.float32)
        self._indices = cupy.empty(0, cupy.int32)
        self._squares = cupy.empty(0, cupy.float32)

    def set_target(self, points: np.ndarray) -> None:
        """Upload the points (M, 3) of float64, metres, relative to their own middle."""
        self._origin = points.mean(axis=0) if len(points) else np.zeros(3)
        self._target = cupy.asarray((points - self._origin).astype(np.float32))

    def nearest(self, queries: np.ndarray, max_distance: float) -> tuple[np.ndarray, np.ndarray]:
        """Return index (-1 for none) and distance (infinite for none) of each query's nearest."""
        count = len(queries)
        if not count:
            return np.empty(0, np.int64), np.empty(0)
        self._reserve(count)
        local = np.ascontiguousarray(queries - self._origin, np.float32)
        self._queries[:count].set(local)
        self._kernel(
            ((count + _BLOCK - 1) // _BLOCK,),
            (_BLOCK,),
            (
                self._queries,
                np.int32(count),
                self._target,
                np.int32(len(self._target)),
                np.float32(max_distance**2),
                self._indices,
                self._squares,
            ),
        )
        indices = self._indices[:count].get().astype(np.int64)
        return indices, np.sqrt(self._squares[:count].get().astype(np.float64))

    def _reserve(self, count: int) -> None:
        if len(self._queries) < count:
            self._queries = cupy.empty((count, 3), cupy.float32)
            self._indices = cupy.empty(count, cupy.int32)
            self._squares = cupy.empty(count, cupy.float32)

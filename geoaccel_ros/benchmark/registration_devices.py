"""Our trees and loops at a lower level than a registration, the same calls for both backends.

What a call starts on a GPU is done when it returns.
"""

import numpy as np

from geoaccel_ros.registration.engines import CpuEngine, Engine
from geoaccel_ros.registration.kdtree.tree import KdTree, limit_of
from geoaccel_ros.threads import Threads

_BLOCK = 128


class CpuDevice:
    """CPU threads."""

    name = "cpu"

    def __init__(self, threads: int):
        self._count = threads
        self._threads = Threads(threads)

    def engine(self, method: str) -> Engine:
        """Return what aligns by that method here."""
        return CpuEngine(method, self._count, "")

    def build(self, points: np.ndarray, **tree_options) -> KdTree:
        """Return the tree of points (N, 3)."""
        return KdTree(points, threads=self._threads, **tree_options)

    def along_curve(self, queries: np.ndarray, tree: KdTree) -> np.ndarray:
        """Return queries (M, 3) as ``search`` takes them, neighbours in space side by side."""
        source = self.engine("point_to_point").source(queries)
        return source.local.T + source.origin

    def search(self, tree: KdTree, queries: np.ndarray, max_distance: float) -> None:
        """Find the nearest point of each query."""
        tree.nearest(queries, max_distance)

    def shuffle(self, source, order: np.ndarray) -> None:
        """Reorder the points of an engine's source."""
        source.local = np.ascontiguousarray(source.local[:, order])


class CudaDevice:
    """An NVIDIA GPU; see :class:`CpuDevice`."""

    name = "cuda"

    def __init__(self):
        import cupy

        from geoaccel_ros.registration.cuda import alignment, kernels, tree

        self._cupy = cupy
        self._alignment, self._kernels, self._tree = alignment, kernels, tree

    def engine(self, method: str, **options) -> Engine:
        """See :meth:`CpuDevice.engine`; ``launch`` may be another than the usual."""
        return self._alignment.CudaEngine(method, "", **options)

    def occupancy(self, method: str, threads: int, blocks: int) -> dict[str, float]:
        """Return what the iterations take of a multiprocessor, as launched in that shape."""
        kernel, grid = self._alignment.loop_kernel(method, threads, blocks)
        resident = grid // self._kernels.multiprocessors() * threads
        most = self._cupy.cuda.Device().attributes["MaxThreadsPerMultiProcessor"]
        return {
            "registers": kernel.num_regs,
            "local_bytes": kernel.local_size_bytes,
            "occupancy": resident / most,
        }

    def build(self, points: np.ndarray, **tree_options):
        """See :meth:`CpuDevice.build`; the points are copied to the device."""
        tree = self._tree.CudaTree(points, **tree_options)
        self.synchronize()
        return tree

    def along_curve(self, queries: np.ndarray, tree):
        """See :meth:`CpuDevice.along_curve`; they are on the device."""
        source = self.engine("point_to_point").source(queries)
        self.synchronize()
        offset = self._cupy.asarray(source.origin - tree.origin, self._cupy.float32)
        local = source.local + offset[:, None]
        self.synchronize()
        return local

    def search(self, tree, queries, max_distance: float) -> None:
        """See :meth:`CpuDevice.search`; what is found stays on the device."""
        count = queries.shape[1]
        matches = self._cupy.empty(count, np.int32)
        squares = self._cupy.empty(count, np.float32)
        self._kernels.module("search").get_function("nearest")(
            self._kernels.blocks(count, _BLOCK),
            (_BLOCK,),
            (*tree.arguments, queries, np.int32(count), limit_of(max_distance), matches, squares),
        )
        self.synchronize()

    def shuffle(self, source, order: np.ndarray) -> None:
        """See :meth:`CpuDevice.shuffle`."""
        with source.stream:
            source.local = self._cupy.ascontiguousarray(source.local[:, self._cupy.asarray(order)])
        self.synchronize()

    def upload(self, arrays: list[np.ndarray]) -> None:
        """Copy arrays to the device."""
        for array in arrays:
            self._cupy.asarray(array)
        self.synchronize()

    def synchronize(self) -> None:
        """Wait for all that was started."""
        self._cupy.cuda.runtime.deviceSynchronize()


Device = CpuDevice | CudaDevice


def make_device(backend: str, threads: int) -> Device:
    """Return the device of "cpu" or "cuda"."""
    return CpuDevice(threads) if backend == "cpu" else CudaDevice()

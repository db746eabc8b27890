"""A stream, its launches, and the memory that they work in. Imports CuPy at once."""

import functools

import cupy
import cupyx
import numpy as np

from geoaccel_ros.registration.cuda.kernels import module, resident_blocks


class Workspace:
    """Memory that grows with what it is asked to hold, used by one launch after the other.

    Attributes
    ----------
    stream : cupy.cuda.Stream
        All that is done in this memory is done on it.
    barrier : int
        Address of what the blocks of a launch wait at: see barrier.cuh.
    """

    def __init__(self):
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._scratch: dict[str, cupy.ndarray] = {}
        self._pinned: dict[str, np.ndarray] = {}
        with self.stream:
            self._barrier = cupy.zeros(1, np.uint32)
        self.barrier = self._barrier.data.ptr

    def scratch(self, name: str, count: int, dtype) -> int:
        """Return the address of memory for ``count`` elements; what was there may be lost."""
        held = self._scratch.get(name)
        if held is None or len(held) < count:
            with self.stream:
                held = self._scratch[name] = cupy.empty(max(2 * count, 1), dtype)
        return held.data.ptr

    def pinned(self, name: str, count: int, dtype) -> np.ndarray:
        """Return host memory (count,) that the device writes to and copies from, as before."""
        held = self._pinned.get(name)
        if held is None or len(held) < count:
            held = self._pinned[name] = cupyx.empty_pinned(max(2 * count, 1), dtype)
        return held[:count]

    def upload(self, name: str, array: np.ndarray, dtype) -> int:
        """Start a copy of an array to the device; returns the address there.

        The last copy of this name has to be done: the launch that needed it was waited for.
        """
        staging = self.pinned(name, array.size, dtype)
        np.copyto(staging.reshape(array.shape), array)
        device = self.scratch(name, array.size, dtype)
        cupy.cuda.runtime.memcpyAsync(
            device,
            address(staging),
            staging.nbytes,
            cupy.cuda.runtime.memcpyHostToDevice,
            self.stream.ptr,
        )
        return device

    def launch(self, kernel: cupy.RawKernel, blocks: int, threads: int, arguments: np.ndarray):
        """Launch a kernel whose only argument is a structure, by value."""
        with self.stream:
            kernel((blocks,), (threads,), (arguments,))


@functools.cache
def cooperative_kernel(name: str, function: str, threads: int) -> tuple[cupy.RawKernel, int]:
    """Return a function of ``name``.cu, and how many of its blocks the device runs at once."""
    kernel = module(name, cooperative=True).get_function(function)
    return kernel, resident_blocks(kernel, threads)


def address(array: np.ndarray) -> int:
    """Return the address of an array of the host."""
    return array.__array_interface__["data"][0]

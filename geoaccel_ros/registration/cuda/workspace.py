"""A stream, its launches, and the memory that they work in. Imports CuPy at once."""

from collections.abc import Iterable, Mapping

import cupy
import cupyx
import numpy as np

from geoaccel_ros.registration.cuda.kernels import blocks, module, resident_blocks
from geoaccel_ros.registration.voxels import table_size

# FirstTable of voxels.cuh.
TABLE = np.dtype([("keys", "u8"), ("firsts", "u8"), ("mask", "u4")], align=True)

_NOTHING: Mapping[str, int] = {}


class Workspace:
    """A stream that all is done on, one launch after the other, and pinned memory of the host.

    Attributes
    ----------
    stream : cupy.cuda.Stream
    """

    def __init__(self):
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._pinned: dict[str, np.ndarray] = {}
        self._copies: dict[str, cupy.ndarray] = {}

    def pinned(self, name: str, count: int, dtype) -> np.ndarray:
        """Return host memory (count,) that the device reads and writes; grown, it is another."""
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
        held = self._copies.get(name)
        if held is None or len(held) < array.size:
            with self.stream:
                held = self._copies[name] = cupy.empty(max(2 * array.size, 1), dtype)
        cupy.cuda.runtime.memcpyAsync(
            held.data.ptr,
            address(staging),
            staging.nbytes,
            cupy.cuda.runtime.memcpyHostToDevice,
            self.stream.ptr,
        )
        return held.data.ptr


class Launch:
    """A cooperative kernel with the structure that it takes, and the memory that it works in.

    Parameters
    ----------
    workspace : Workspace
    file, function : str
        The kernel of a .cu file.
    threads : int
        Of a block.
    dtype : dtype
        The structure; its field "barrier", if any, and those named below are filled in.
    per_block, per_element, per_slot : mapping
        Bytes of working memory for each block, for each of what the kernel works on, and for each
        slot of a hash table for as many.
    tables : iterable of str
        Such tables, of type FirstTable.

    Attributes
    ----------
    arguments : ndarray (1,)
        The structure: each launch takes it as it is.
    """

    def __init__(
        self,
        workspace: Workspace,
        file: str,
        function: str,
        threads: int,
        dtype: np.dtype,
        *,
        per_block: Mapping[str, int] = _NOTHING,
        per_element: Mapping[str, int] = _NOTHING,
        per_slot: Mapping[str, int] = _NOTHING,
        tables: Iterable[str] = (),
    ):
        self.arguments = np.zeros(1, dtype)
        # Without its fields, which CuPy would list anew for each launch: 0.08 ms.
        self._bytes = self.arguments.view(f"V{dtype.itemsize}")
        self._stream = workspace.stream
        self._threads = threads
        self._kernel = module(file, cooperative=True).get_function(function)
        self._resident = resident_blocks(self._kernel, threads)
        self._per_element, self._per_slot, self._tables = per_element, per_slot, tuple(tables)
        self._room = 0
        self._memory: dict[str, cupy.ndarray] = {}
        with self._stream:
            self._barrier = cupy.zeros(1, np.uint32)
            for name, size in per_block.items():
                self.arguments[name] = self._allocate(name, size * self._resident)
        if "barrier" in dtype.names:
            self.arguments["barrier"] = self._barrier.data.ptr

    def reserve(self, count: int) -> None:
        """Make sure that the memory is enough for ``count`` elements; its content may be lost."""
        if self._room >= max(count, 1):
            return
        self._room = 2 * max(count, 1)
        slots = table_size(self._room)
        with self._stream:
            for sizes, number in ((self._per_element, self._room), (self._per_slot, slots)):
                for name, size in sizes.items():
                    self.arguments[name] = self._allocate(name, size * number)
            for name in self._tables:
                keys = self._allocate(f"{name} keys", 8 * slots)
                self.arguments[name] = keys, self._allocate(f"{name} firsts", 4 * slots), slots - 1

    def __call__(self, count: int, each: int | None = None) -> None:
        """Launch for ``count`` elements, ``each`` a block (one a thread), or more if need be."""
        grid = max(1, min(self._resident, *blocks(count, each or self._threads)))
        with self._stream:
            self._kernel((grid,), (self._threads,), (self._bytes,))

    def _allocate(self, name: str, size: int) -> int:
        self._memory[name] = cupy.empty(size, np.uint8)
        return self._memory[name].data.ptr


def address(array: np.ndarray) -> int:
    """Return the address of an array of the host."""
    return array.ctypes.data

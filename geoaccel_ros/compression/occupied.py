"""The occupied cells of a cloud: its points sorted by cell, and where each cell's points begin."""

from dataclasses import dataclass

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.prefix_sums import PrefixSums
from geoaccel_ros.compression.sorting import RadixSort


@dataclass(frozen=True)
class OccupiedCells:
    """What sorting the points of a cloud by their cells gives; on the device, until the next cloud.

    Attributes
    ----------
    leaves : Buffer
        uint64 (count,): Morton codes of the occupied cells, ascending.
    count : int
    points : int
        N.
    starts : Buffer
        uint32 (count + 1,): where each cell's points begin in their order, and N.
    """

    leaves: cl.Buffer
    count: int
    points: int
    starts: cl.Buffer
    _device: Device
    _order: cl.Buffer

    def order(self) -> np.ndarray:
        """Return the points by cell, uint32 (N,); those of a cell in the order that they had."""
        return self._device.download(self._order, self.points, "u4")

    def first(self) -> np.ndarray:
        """Return the place in the order of each cell's first point, uint32 (count,)."""
        return self._device.download(self.starts, self.count, "u4")


class CellSort:
    """Sorts points by their cells on an OpenCL device."""

    def __init__(self, device: Device, sums: PrefixSums):
        self._device = device
        self._sums = sums
        self._sort = RadixSort(device, sums)
        program = device.program("occupied.cl")
        self._mark = program.mark_first
        self._gather = program.gather_first
        self._take = program.take_blocks

    def sort(self, codes: cl.Buffer, count: int, depth: int) -> OccupiedCells:
        """Return the occupied cells.

        Parameters
        ----------
        codes : Buffer
            uint64 (count,): each point's Morton code, below 8**depth. Overwritten.
        count, depth : int
        """
        device = self._device
        if count == 0:
            return OccupiedCells(codes, 0, 0, codes, device, codes)
        keys, order = self._sort.sort(codes, count, 3 * depth)
        places = device.buffer("places", 4 * (count + 1))
        device.launch(self._mark, count, keys, count, places)
        self._sums.exclusive(places, count)
        (cells,) = device.download(places, 1, "u4", 4 * count).tolist()
        leaves = device.buffer("leaves", 8 * cells)
        first = device.buffer("first_points", 4 * (cells + 1))
        device.launch(self._gather, count, keys, count, places, leaves, first)
        return OccupiedCells(leaves, cells, count, first, device, order)

    def sample(self, cells: OccupiedCells, block: int, every: int) -> tuple[cl.Buffer, int]:
        """Return the cells of every ``every``-th block, uint64 (count,), and their number."""
        count = cells.count // (block * every) * block
        taken = self._device.buffer("sampled_leaves", 8 * count)
        self._device.launch(self._take, count, cells.leaves, block, every, count, taken)
        return taken, count

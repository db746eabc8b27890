"""The octree's shape as occupancy bytes, one an inner node, breadth first from the root.

Bit d of a byte says that child d exists; child d of a node appends the three bits of d to the
node's Morton prefix. Levels are built from the leaves upwards and expanded from the root downwards
by OpenCL kernels.
"""

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.errors import CodecError

_CHILDREN = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)
# A GPU's work-item takes at least so many nodes, and a level has at most so many work-items.
_MIN_RUN = 16
_MAX_ITEMS = 16384


class Octree:
    """Builds and expands octrees on an OpenCL device."""

    def __init__(self, device: Device):
        self._device = device
        program = device.program("octree.cl")
        self._count = program.count_parents
        self._scan = program.scan_counts
        self._scatter = program.scatter_parents
        self._expand = program.expand

    def build(self, leaves: np.ndarray, depth: int) -> np.ndarray:
        """Return the occupancy bytes, uint8 (inner nodes,), root first.

        Parameters
        ----------
        leaves : ndarray, shape (M,), uint64
            Morton codes of the occupied cells, ascending, without duplicates, each below 8**depth.
        depth : int
            Levels below the root.
        """
        count = len(leaves)
        if count == 0 or depth == 0:
            return np.empty(0, np.uint8)
        device = self._device
        capacity = sum(min(count, 8**level) for level in range(depth))
        occupancy = device.buffer("occupancy", capacity)
        sizes = np.zeros(depth + 1, np.uint32)
        sizes[depth] = count
        starts = np.full(depth + 1, capacity, np.uint32)
        level_sizes = device.upload("level_sizes", sizes)
        level_starts = device.upload("level_starts", starts)
        groups, group = self._groups(count)
        items = groups * group
        counts = device.buffer("counts", 4 * items)
        lanes = device.group_size(self._scan)
        children = device.upload("codes", leaves)
        parents = device.buffer("parents", 8 * count)
        for level in reversed(range(depth)):
            device.launch_groups(
                self._count, groups, group, children, level_sizes, level, items, counts
            )
            device.launch_groups(
                self._scan, 1, lanes,
                counts, items, level, level_sizes, level_starts, cl.LocalMemory(4 * lanes),
            )  # fmt: skip
            device.launch_groups(
                self._scatter, groups, group,
                children, level_sizes, level_starts, level, items, counts, parents, occupancy,
            )  # fmt: skip
            children, parents = parents, children
        first = int(device.download(level_starts, 1, "u4")[0])
        return device.download(occupancy, capacity - first, "u1", first)

    def expand(self, occupancy: np.ndarray, depth: int, count: int) -> np.ndarray:
        """Return the Morton codes of the leaves, uint64 (count,), ascending.

        Parameters
        ----------
        occupancy : ndarray, shape (inner nodes,), uint8
            As from :meth:`build`; may be hostile.
        depth : int
        count : int
            Number of leaves that the tree must have.

        Raises
        ------
        CodecError
            If the bytes are no tree of this depth and number of leaves.
        """
        if count == 0 or depth == 0:
            if len(occupancy) or count > 1:
                raise CodecError("damaged stream: the octree does not fit its number of cells")
            return np.zeros(count, np.uint64)
        levels, first_child = _levels(occupancy, depth, count)
        device = self._device
        nodes = len(occupancy) + count
        codes = device.buffer("nodes", 8 * nodes)
        device.upload("nodes", np.zeros(1, np.uint64))
        bytes_ = device.upload("occupancy", occupancy)
        first_children = device.upload("first_child", first_child)
        for first, size in levels:
            device.launch(self._expand, size, bytes_, first_children, first, size, codes)
        return device.download(codes, count, "u8", 8 * len(occupancy))

    def _groups(self, count: int) -> tuple[int, int]:
        """Return number and size of the work-groups that share the nodes of a level."""
        if self._device.is_cpu:
            # A core works best on one long run; a few runs a core even out what else the core does.
            return 4 * self._device.compute_units, 1
        group = self._device.group_size(self._scatter)
        items = min(-(-count // _MIN_RUN), _MAX_ITEMS)
        return -(-items // group), group


def _levels(
    occupancy: np.ndarray, depth: int, count: int
) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Return each inner level's first node and size, and each node's first child, all checked."""
    children = _CHILDREN[occupancy]
    if not children.all():
        raise CodecError("damaged stream: an octree node without children")
    # Nodes are numbered breadth first: the children of node i follow those of all nodes before i.
    ends = 1 + np.cumsum(children, dtype=np.int64)
    first_child = (ends - children).astype(np.uint32)
    levels, first, size = [], 0, 1
    for _ in range(depth):
        end = first + size
        if end > len(occupancy):
            raise CodecError("damaged stream: the octree ends within a level")
        levels.append((first, size))
        first, size = end, int(ends[end - 1]) - end
    if first != len(occupancy) or size != count:
        raise CodecError("damaged stream: the octree does not fit its number of cells")
    return levels, first_child

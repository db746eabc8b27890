"""The octree: its shape as occupancy bytes, one an inner node, breadth first from the root.

Bit d of a byte says that child d exists; child d of a node appends the three bits of d to the
node's Morton prefix. Levels are built from the leaves upwards, and coded from the root downwards,
by OpenCL kernels.

Section "occupancy", for a tree of levels below its root:

- binary logarithm of the nodes of a chunk, one byte;
- the nodes of each level below the root and above the leaves, each an unsigned LEB128 number;
- the events of the nodes (:mod:`.rans`), level by level; a level is cut into chunks.

Section "multiplicity", where there are more points than cells: the events of the cells, in chunks
of 4096. nodes.cl says which events a node and a cell have, and octree.cl and beams.cl what their
contexts go by; all of that is in integers.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression.beams import MAX_CELL, NO_BEAMS, Beams
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.leb128 import decode_counts, encode_numbers
from geoaccel_ros.compression.prefix_sums import PrefixSums
from geoaccel_ros.compression.rans import EntropyCoder, prior

# Codes a level, from its descriptions; its number of each node's children, and its occupancy bytes
# with their beginning, come of it.
_CodeLevel = Callable[[int, cl.Buffer, cl.Buffer], tuple[cl.Buffer, int]]

# A GPU's work-item takes at least so many nodes, and a level has at most so many work-items.
_MIN_RUN = 16
_MAX_ITEMS = 16384

# Nodes of a chunk, as powers of two: for clouds of few cells, whose chunks weigh more; for others;
# and for those of many, where a GPU decodes the more chunks at once.
_FEW_CELLS, _MANY_CELLS = 2**16, 2**18
_CHUNK_BITS_OF_FEW = 13
_CHUNK_BITS = 12
_CHUNK_BITS_OF_MANY = 11
_MIN_CHUNK_BITS, _MAX_CHUNK_BITS = 6, 24
# As in nodes.cl.
_EVENTS_PER_NODE = 9
# Nodes that a CPU's work-item describes.
_CPU_DESCRIBED = 256
# Nodes whose events a GPU's work-item writes.
_EMITTED_RUN = 4
OCCUPANCY_PARTS = ((16, 4, 7, 5), (4, 4, 2, 4), (4, 4, 2, 4, 3), (133, 4, 4), (8, 27, 3, 4, 8))
OCCUPANCY_CONTEXTS = 1 + sum(map(math.prod, OCCUPANCY_PARTS))
MULTIPLICITY_CONTEXTS = 1 + 16 * 3 * 4 + 16 + 70
# Trees that differ much in their probabilities: see kind_of.
KINDS = 6


class Octree:
    """Builds, encodes and decodes octrees on an OpenCL device.

    Parameters
    ----------
    device : Device
    occupancy_priors, multiplicity_prior : ndarray, uint8, or None
        Tables of probabilities, (kinds, OCCUPANCY_CONTEXTS) and (MULTIPLICITY_CONTEXTS,); None:
        those of the package.
    """

    def __init__(
        self,
        device: Device,
        occupancy_priors: np.ndarray | None = None,
        multiplicity_prior: np.ndarray | None = None,
    ):
        self._device = device
        self._sums = PrefixSums(device)
        self._entropy = EntropyCoder(device)
        if occupancy_priors is None:
            occupancy_priors = prior("octree_occupancy").reshape(KINDS, OCCUPANCY_CONTEXTS)
        self._occupancy_priors = occupancy_priors
        self._multiplicity_prior = (
            prior("octree_multiplicity") if multiplicity_prior is None else multiplicity_prior
        )
        # A work-item of a GPU describes a node.
        self._described = _CPU_DESCRIBED if device.is_cpu else 1
        options = [f"-DNODES_TOGETHER={self._described}"]
        if device.is_cpu and device.has_fp64:
            options.append("-DUSE_FP64")
        program = device.program("octree.cl", tuple(options))
        self._count = program.count_parents
        self._scan = program.scan_counts
        self._scatter = program.scatter_parents
        self._begin = program.begin_levels
        self._describe = program.describe_nodes
        self._descend = program.descend
        self._end = program.end_levels
        counting, emitting, decoding = (
            device.program("nodes.cl", (f"-D{use}",)) for use in ("COUNT", "EMIT", "DECODE")
        )
        self._count_nodes = counting.count_nodes
        self._emit_nodes = emitting.code_nodes
        self._decode_nodes = decoding.code_nodes
        self._count_cells = counting.code_multiplicity
        self._emit_cells = emitting.code_multiplicity
        self._decode_cells = decoding.code_multiplicity

    def encode(
        self,
        leaves: cl.Buffer,
        cells: int,
        starts: cl.Buffer | None,
        depth: int,
        origin: tuple[int, int, int],
        beams: Beams | None,
    ) -> dict[str, bytes]:
        """Return the sections "occupancy" and "multiplicity".

        Parameters
        ----------
        leaves : Buffer
            uint64 (cells,): Morton codes of the occupied cells, ascending, without duplicates,
            each below 8**depth.
        cells : int
        starts : Buffer or None
            uint32 (cells + 1,): where each cell's points begin, and how many there are; None where
            each cell has one.
        depth : int
            Levels below the root.
        origin : tuple of int
            Lowest cell on x, y and z, from the sensor.
        beams : Beams or None
            Of the sensor.
        """
        sections = {"occupancy": b"", "multiplicity": b""}
        if cells > 0 and depth > 0:
            events, chunks, sizes = self.occupancy_events(leaves, cells, depth, origin, beams)
            sections["occupancy"] = b"".join(
                (
                    bytes([_chunk_bits(cells)]),
                    encode_numbers(sizes[1:depth]),
                    self._entropy.encode(
                        events, chunks, self._occupancy_priors[kind_of(sizes, beams)]
                    ),
                )
            )
        if starts is not None:
            events, chunks = self.multiplicity_events(leaves, cells, starts, origin, beams)
            sections["multiplicity"] = self._entropy.encode(
                events, chunks, self._multiplicity_prior
            )
        return sections

    def decode(
        self,
        sections: dict[str, memoryview],
        points: int,
        cells: int,
        depth: int,
        origin: tuple[int, int, int],
        beams: Beams | None,
        levels: int | None = None,
    ) -> tuple[cl.Buffer, int, cl.Buffer | None]:
        """Return the codes of the cells, their number and where the points of each begin.

        Parameters
        ----------
        sections : dict
            As from :meth:`encode`; may be hostile.
        points, cells : int
            As the header states them: cells are at most 2**31, and memory is taken for so many.
        depth, origin, beams
            As they were encoded.
        levels : int or None
            Decode no more than this many levels below the root; None: all.

        Returns
        -------
        codes : Buffer
            uint64 (count,), ascending, of three bits for each level.
        count : int
        starts : Buffer or None
            uint32 (count + 1,), the last ``points``; None where each cell has one point, or where
            levels are left out.

        Raises
        ------
        CodecError
            If the sections are damaged.
        """
        misfit = CodecError("damaged stream: the octree does not fit its number of cells")
        if not 0 < cells <= points and not cells == points == 0:
            raise misfit
        if beams and not all(-MAX_CELL <= first <= MAX_CELL - 2**depth for first in origin):
            raise CodecError("damaged stream: beams of a sensor that is too far away")
        if cells == 0 or depth == 0:
            if cells > 1 or len(sections["occupancy"]):
                raise misfit
            count = cells
            codes = self._device.upload("nodes 0", np.zeros(1, np.uint64))
        else:
            codes, count = self._decode_occupancy(
                sections["occupancy"], cells, depth, origin, beams,
                depth if levels is None else min(levels, depth),
            )  # fmt: skip
        if levels is not None and levels < depth:
            return codes, count, None
        if points > cells:
            starts = self._decode_starts(
                sections["multiplicity"], codes, cells, points, origin, beams
            )
            return codes, count, starts
        if len(sections["multiplicity"]):
            raise misfit
        return codes, count, None

    def occupancy_events(
        self,
        leaves: cl.Buffer,
        cells: int,
        depth: int,
        origin: tuple[int, int, int],
        beams: Beams | None,
    ) -> tuple[cl.Buffer, np.ndarray, np.ndarray]:
        """Return the events of the nodes, where each chunk's begin, and the levels' sizes.

        Parameters
        ----------
        leaves, cells, depth, origin, beams
            As of :meth:`encode`; 1 or more cells and levels.

        Returns
        -------
        events : Buffer
            uint16; each node has room for as many as it can have.
        starts : ndarray, shape (chunks + 1,), uint32
        sizes : ndarray, shape (depth + 1,), int64
            Nodes of each level, from the root to the leaves.
        """
        device = self._device
        occupancy, level_starts = self._build_levels(leaves, cells, depth)
        sizes = np.append(np.diff(level_starts.astype(np.int64)), cells)
        bits = _chunk_bits(cells)
        starts = self._event_starts(occupancy, level_starts, sizes, bits)
        events = device.buffer("events", 2 * int(starts[-1]))
        coder = device.upload("event_starts", starts), events

        def code(level: int, descriptions: cl.Buffer, children: cl.Buffer) -> tuple[cl.Buffer, int]:
            first = int(level_starts[level])
            run = 2**bits if device.is_cpu else _EMITTED_RUN
            self._code_level(
                self._emit_nodes, sizes, level, bits, run,
                descriptions, occupancy, first, children, coder,
            )  # fmt: skip
            return occupancy, first

        self._walk(sizes, depth, origin, beams, code, ends=False)
        return events, starts, sizes

    def _event_starts(
        self, occupancy: cl.Buffer, level_starts: np.ndarray, sizes: np.ndarray, bits: int
    ) -> np.ndarray:
        """Return where each chunk's events begin, uint32 (chunks + 1,)."""
        device = self._device
        nodes = np.concatenate([_chunk_sizes(size, bits) for size in sizes[:-1]])
        if not device.is_cpu:
            # Work-items share a chunk: each needs to know where it writes.
            return np.append(0, np.cumsum(_EVENTS_PER_NODE * nodes)).astype(np.uint32)
        begins = np.cumsum([level_starts[0], *nodes]).astype(np.uint32)
        counts = device.buffer("event_counts", 4 * len(nodes))
        device.launch_serial(
            self._count_nodes, len(nodes),
            occupancy, device.upload("node_starts", begins), len(nodes), counts,
        )  # fmt: skip
        counts = device.download(counts, len(nodes), "u4")
        return np.append(0, np.cumsum(counts)).astype(np.uint32)

    def multiplicity_events(
        self,
        leaves: cl.Buffer,
        cells: int,
        points: cl.Buffer,
        origin: tuple[int, int, int],
        beams: Beams | None,
    ) -> tuple[cl.Buffer, np.ndarray]:
        """Return the events of the cells, and where each chunk's begin.

        ``points`` are the ``starts`` of :meth:`encode`.
        """
        device = self._device
        chunks = _chunk_count(cells, _CHUNK_BITS)
        counts = device.buffer("event_starts", 4 * (chunks + 1))
        arguments = (leaves, cells, *_location(origin, beams), 2**_CHUNK_BITS, chunks, points)
        device.launch_serial(self._count_cells, chunks, *arguments, counts)
        self._sums.exclusive(counts, chunks)
        starts = device.download(counts, chunks + 1, "u4")
        events = device.buffer("events", 2 * int(starts[-1]))
        device.launch_serial(self._emit_cells, chunks, *arguments, counts, events)
        return events, starts

    def _decode_occupancy(
        self,
        section: memoryview,
        cells: int,
        depth: int,
        origin: tuple[int, int, int],
        beams: Beams | None,
        levels: int,
    ) -> tuple[cl.Buffer, int]:
        content = np.frombuffer(section, np.uint8)
        if not len(content) or not _MIN_CHUNK_BITS <= content[0] <= _MAX_CHUNK_BITS:
            raise CodecError("damaged stream: an octree without the size of its chunks")
        chunk_bits = int(content[0])
        inner, position = decode_counts(content, 1, depth - 1)
        sizes = np.concatenate([[1], inner, [cells]])
        if (sizes[1:] < sizes[:-1]).any() or (sizes[1:] > 8 * sizes[:-1]).any():
            raise CodecError("damaged stream: the levels of the octree do not fit its cells")
        chunks = [_chunk_count(size, chunk_bits) for size in sizes[:depth]]
        stream = self._entropy.open(
            section[position:],
            sum(chunks),
            self._occupancy_priors[kind_of(sizes, beams)],
            "occupancy",
        )
        occupancy = self._device.buffer("occupancy", cells)

        def code(level: int, descriptions: cl.Buffer, children: cl.Buffer) -> tuple[cl.Buffer, int]:
            self._code_level(
                self._decode_nodes, sizes, level, chunk_bits, 2**chunk_bits,
                descriptions, occupancy, 0, children, stream.arguments,
            )  # fmt: skip
            return occupancy, 0

        codes, totals = self._walk(sizes, levels, origin, beams, code)
        replace(stream, chunks=sum(chunks[:levels])).finish()
        if (self._device.download(totals, levels, "u4") != sizes[1 : levels + 1]).any():
            raise CodecError("damaged stream: the levels of the octree are not as many as stated")
        return codes, int(sizes[levels])

    def _decode_starts(
        self,
        section: memoryview,
        codes: cl.Buffer,
        cells: int,
        points: int,
        origin: tuple[int, int, int],
        beams: Beams | None,
    ) -> cl.Buffer:
        device = self._device
        chunks = _chunk_count(cells, _CHUNK_BITS)
        stream = self._entropy.open(section, chunks, self._multiplicity_prior, "multiplicity")
        buffer = device.buffer("point_starts", 4 * (cells + 1))
        device.launch_serial(
            self._decode_cells, chunks,
            codes, cells, *_location(origin, beams), 2**_CHUNK_BITS, chunks, buffer,
            *stream.arguments,
        )  # fmt: skip
        stream.finish()
        multiplicity = device.download(buffer, cells, "u4")
        if int(multiplicity.sum(dtype=np.uint64)) != points or not multiplicity.all():
            raise CodecError("damaged stream: the cells do not hold the number of points")
        self._sums.exclusive(buffer, cells)
        return buffer

    def _build_levels(
        self, leaves: cl.Buffer, count: int, depth: int
    ) -> tuple[cl.Buffer, np.ndarray]:
        """Return the occupancy bytes, and where each level's begin, (depth + 1,) with the end."""
        device = self._device
        capacity = sum(min(count, 8**level) for level in range(depth))
        occupancy = device.buffer("occupancy", capacity)
        sizes = np.zeros(depth + 1, np.uint32)
        sizes[depth] = count
        level_sizes = device.upload("level_sizes", sizes)
        level_starts = device.upload("level_starts", np.full(depth + 1, capacity, np.uint32))
        groups, group = self._groups(count)
        items = groups * group
        counts = device.buffer("counts", 4 * items)
        lanes = device.group_size(self._scan, local_bytes=4)
        children = leaves
        spare = [device.buffer("parents 0", 8 * count), device.buffer("parents 1", 8 * count)]
        for level in reversed(range(depth)):
            parents = spare[level % 2]
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
            children = parents
        return occupancy, device.download(level_starts, depth + 1, "u4")

    def _walk(
        self,
        sizes: np.ndarray,
        levels: int,
        origin: tuple[int, int, int],
        beams: Beams | None,
        code: _CodeLevel,
        ends: bool = True,
    ) -> tuple[cl.Buffer, cl.Buffer]:
        """Code the first ``levels`` levels from the root on; return what is below the last.

        Parameters
        ----------
        sizes : ndarray, shape (depth + 1,), int64
            Nodes of each level.
        levels : int
        origin, beams
            As of :meth:`encode`.
        code : callable
            Codes a level.
        ends : bool
            Whether what is below the last level is wanted.

        Returns
        -------
        codes : Buffer
            uint64 (sizes[levels],).
        totals : Buffer
            uint32 (levels,): children that the nodes of each level have together.
        """
        device = self._device
        depth, most = len(sizes) - 1, int(sizes[: levels + 1].max())
        places, neighbours, states = (
            [device.buffer(f"{name} {i}", size * most) for i in range(2)]
            for name, size in (("nodes", 8), ("neighbours", 24), ("states", 4))
        )
        descriptions = device.buffer("descriptions", 8 * most)
        children = device.buffer("first_child", 4 * (most + 1))
        totals = device.buffer("level_totals", 4 * levels)
        first_cell = [np.int32(axis) for axis in origin] if beams is not None else [np.int32(0)] * 3
        model = (beams or NO_BEAMS).upload(device)
        device.launch(self._begin, 1, places[0], states[0])
        for level in range(levels):
            count, below = int(sizes[level]), int(sizes[level + 1])
            here, there = level % 2, 1 - level % 2
            launch = device.launch_serial if device.is_cpu else device.launch
            launch(
                self._describe, -(-count // self._described), places[here], states[here], count,
                depth - level, *first_cell, *model, descriptions,
            )  # fmt: skip
            occupancy, first = code(level, descriptions, children)
            if level + 1 == levels and not ends:
                break
            self._sums.exclusive(children, count)
            shape = occupancy, first, children, below, totals, level
            if level + 1 < levels:
                # The neighbours of the last nodes are not looked up: these are only counted.
                device.launch(
                    self._descend, count,
                    places[here], neighbours[here], states[here], count, *shape,
                    level + 2 < levels, places[there], neighbours[there], states[there],
                )  # fmt: skip
            else:
                device.launch(self._end, count, places[here], count, *shape, places[there])
        return places[levels % 2], totals

    def _code_level(
        self,
        kernel: cl.Kernel,
        sizes: np.ndarray,
        level: int,
        chunk_bits: int,
        run: int,
        descriptions: cl.Buffer,
        occupancy: cl.Buffer,
        first: int,
        children: cl.Buffer,
        coder: tuple[cl.Buffer, ...],
    ) -> None:
        """Queue the coding of a level, ``run`` nodes by each work-item.

        The level's occupancy begins at byte ``first``.
        """
        before = sum(_chunk_count(size, chunk_bits) for size in sizes[:level])
        count = int(sizes[level])
        launch = self._device.launch_serial if run == 2**chunk_bits else self._device.launch
        launch(
            kernel, -(-count // run),
            descriptions, count, len(sizes) - 1 - level, 2**chunk_bits, run, before,
            occupancy, first, children, *coder,
        )  # fmt: skip

    def _groups(self, count: int) -> tuple[int, int]:
        """Return number and size of the work-groups that share the nodes of a level."""
        if self._device.is_cpu:
            # A core works best on one long run; a few runs a core even out what else the core does.
            return 4 * self._device.compute_units, 1
        group = self._device.group_size(self._scatter)
        items = min(-(-count // _MIN_RUN), _MAX_ITEMS)
        return -(-items // group), group


def _chunk_bits(cells: int) -> int:
    if cells < _FEW_CELLS:
        return _CHUNK_BITS_OF_FEW
    return _CHUNK_BITS if cells < _MANY_CELLS else _CHUNK_BITS_OF_MANY


def _chunk_count(nodes: int, chunk_bits: int) -> int:
    return (int(nodes) + 2**chunk_bits - 1) >> chunk_bits


def _chunk_sizes(nodes: int, chunk_bits: int) -> np.ndarray:
    """Return the nodes of each chunk of a level, int64 (chunks,)."""
    return np.minimum(2**chunk_bits, int(nodes) - np.arange(0, int(nodes), 2**chunk_bits))


def _location(origin: tuple[int, int, int], beams: Beams | None) -> tuple[int, np.int32, np.int32]:
    """Return whether the sensor is known to be at the origin, and from there the lowest cell."""
    if beams is None:
        return 0, np.int32(0), np.int32(0)
    return 1, np.int32(origin[0]), np.int32(origin[1])


def kind_of(sizes: np.ndarray, beams: Beams | None) -> int:
    """Return which table of probabilities a tree begins with.

    It is twice 0 without beams, 1 with rings, 2 with the ground alone; and one more for a sparse
    cloud, where three levels above the cells there are more than four fifths as many nodes.

    Parameters
    ----------
    sizes : ndarray, shape (depth + 1,), int64
        Nodes of each level.
    beams : Beams or None
    """
    sensor = 0 if beams is None else 1 if len(beams.slopes) > 1 else 2
    return 2 * sensor + (len(sizes) > 3 and 5 * int(sizes[-4]) > 4 * int(sizes[-1]))

"""Mode octree: points become cells, sorted along a space-filling curve; their order is not kept."""

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression import nonfinite
from geoaccel_ros.compression.beams import Beams, fit_beams
from geoaccel_ros.compression.bitstream import MODE_OCTREE, Header, Stream
from geoaccel_ros.compression.cloud import Cloud
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.fields import Columns, FieldCoder, Places
from geoaccel_ros.compression.grid import Grid
from geoaccel_ros.compression.morton import Morton
from geoaccel_ros.compression.occupied import CellSort, OccupiedCells
from geoaccel_ros.compression.octree import KINDS, OCCUPANCY_CONTEXTS, Octree
from geoaccel_ros.compression.prefix_sums import PrefixSums
from geoaccel_ros.compression.rans import EntropyCoder

# A sample is of runs of cells, long enough for most to have their neighbours: of so many, if that
# is no more than a quarter of the cloud.
_RUN, _RUNS, _LEAST_EVERY = 512, 6, 4
# In a cloud of so many cells, rings that are so many cells apart tell much of a point's height.
_MANY_CELLS, _WIDE_GAP = 2**13, 2.5

Stage = Callable[[str], AbstractContextManager[None]]


class OctreeMode:
    """Encodes and decodes clouds by an octree over their cells.

    Parameters
    ----------
    device : Device
    fields : FieldCoder
    stage : callable
        Times a stage, by its name.
    aside : Executor
        Where beams are fitted while the device sorts.
    """

    def __init__(
        self,
        device: Device,
        sums: PrefixSums,
        entropy: EntropyCoder,
        fields: FieldCoder,
        stage: Stage,
        aside: Executor,
    ):
        self._morton = Morton(device)
        self._sort = CellSort(device, sums)
        self._octree = Octree(
            device,
            entropy.prior("octree_occupancy").reshape(KINDS, OCCUPANCY_CONTEXTS),
            entropy.prior("octree_multiplicity"),
        )
        self._fields = fields
        self._stage = stage
        self._aside = aside

    def encode(
        self,
        cloud: Cloud,
        grid: Grid,
        columns: Columns,
        is_merged: bool,
        limit: float | None = None,
    ) -> tuple[Header, dict[str, bytes]] | None:
        """Return header and sections of a cloud.

        Parameters
        ----------
        cloud : Cloud
        grid : Grid
            That holds the cloud.
        columns : Columns
            Each field but x, y and z.
        is_merged : bool
            Of points in one cell only the first is kept.
        limit : float, optional
            If coordinates take more bytes, None is returned.
        """
        fitted = self._aside.submit(fit_beams, cloud.xyz, grid.step, _rings(cloud))
        cells = self.cells(cloud, grid)
        starts = None if is_merged or cells.count == cells.points else cells.starts
        points, finite = cloud.points, cloud.finite
        rest = points[:0] if finite is None else points[~finite]
        header = Header(
            mode=MODE_OCTREE,
            height=1,
            points=(cells.count if is_merged else cells.points) + len(rest),
            source_points=len(points),
            nonfinite=len(rest),
            cells=cells.count,
            grid=grid,
            dtype=points.dtype,
        )
        with self._stage("beams"):
            likely = self._likely(fitted.result(), cloud, cells, grid)
        with self._stage("octree"):
            shapes = []
            for beams in likely:
                shape = self._octree.encode(
                    cells.leaves, cells.count, starts, grid.depth, grid.origin, beams
                )
                shapes.append(shape | {"beams": beams.to_bytes() if beams else b""})
            sections = min(shapes, key=_size)
        if limit is not None and _size(sections) > limit:
            return None
        with self._stage("fields"):
            if header.attributes:
                self._encode_fields(cloud, cells, starts, header, columns, sections)
            sections["nonfinite"] = nonfinite.encode(rest, list(points.dtype.names))
        return header, sections

    def decode(self, stream: Stream) -> np.ndarray:
        """Return the points: by cell, then those that are not finite.

        Raises
        ------
        CodecError
            If the stream is damaged.
        """
        header, sections = stream.header, stream.sections
        with self._stage("octree"):
            codes, count, starts = self._leaves(stream)
        with self._stage("cells"):
            points = self._morton.centres(
                codes, count, header.finite, starts, header.grid, header.dtype, header.points
            )
        with self._stage("fields"):
            if header.attributes:
                positions = self._morton.positions(codes, count, header.finite, starts, header.grid)
                places = Places(header.finite, positions=positions)
                for name in header.attributes:
                    self._fields.decode(
                        name, sections[f"field {name}"], points[name][: header.finite], places
                    )
            names = list(header.dtype.names)
            _, rest = nonfinite.decode(
                sections["nonfinite"], header.nonfinite, header.points, header.dtype, names, False
            )
            for name in names:
                values = nonfinite.as_unsigned(points[name])
                values[header.finite :] = nonfinite.as_unsigned(rest[name])
        return points

    def decode_level(self, stream: Stream, level: int) -> np.ndarray:
        """Return the centres of the cells of a level, structured (n,) with x, y and z alone.

        Raises
        ------
        CodecError
            If the stream is damaged, or has no such level.
        """
        header = stream.header
        grid = header.grid
        if not 0 <= level <= grid.depth:
            raise CodecError(f"level {level} of a stream whose levels are 0 to {grid.depth}")
        codes, count, _ = self._leaves(stream, level)
        indices = self._morton.decode(codes, count)
        points = np.zeros(count, [(axis, header.dtype[axis]) for axis in "xyz"])
        below = grid.depth - level
        for axis, name in enumerate("xyz"):
            # The middle of the leaves' centres, half a cell below the node's upper edge.
            lowest = grid.origin[axis] + (indices[axis].astype(np.int64) << below)
            points[name] = (lowest + (2**below - 1) / 2) * grid.step
        return points

    def _encode_fields(
        self,
        cloud: Cloud,
        cells: OccupiedCells,
        starts: cl.Buffer | None,
        header: Header,
        columns: Columns,
        sections: dict[str, bytes],
    ) -> None:
        """Add the sections of the fields, whose coding order is that of the cells."""
        order = cells.order()
        if header.finite < cells.points:
            order = order[cells.first()]
        taken = order if cloud.finite is None else np.flatnonzero(cloud.finite)[order]
        is_whole = len(taken) == len(cloud.points)
        positions = self._morton.positions(
            cells.leaves, cells.count, len(order), starts, header.grid
        )
        places = Places(len(order), order if is_whole else None, positions, is_order_told=False)
        for name in header.attributes:
            sequences = columns.sequences(name, None if is_whole else taken)
            sections[f"field {name}"] = self._fields.encode(sequences, places)

    def cells(self, cloud: Cloud, grid: Grid) -> OccupiedCells:
        """Return the occupied cells of a cloud."""
        with self._stage("cells"):
            codes = self._morton.encode(cloud.xyz, grid)
        with self._stage("sort"):
            return self._sort.sort(codes, cloud.xyz.shape[1], grid.depth)

    def _likely(
        self, beams: Beams | None, cloud: Cloud, cells: OccupiedCells, grid: Grid
    ) -> list[Beams | None]:
        """Return what may pay, of no beams and these: a grid's rows are cones too."""
        if beams is None:
            return [None]
        if cells.count >= _MANY_CELLS and beams.gap(cloud.xyz, grid.step) >= _WIDE_GAP:
            return [beams]
        sample = self._sample(cells)
        if sample is None:
            return [None, beams]
        with_beams = self._sampled_size(sample, cells, grid, beams) + len(beams.to_bytes())
        return [beams if with_beams < self._sampled_size(sample, cells, grid, None) else None]

    def _sample(self, cells: OccupiedCells) -> tuple[cl.Buffer, int] | None:
        """Return a sample of the cells, and their number; None if it were much of the cloud."""
        every = cells.count // (_RUN * _RUNS)
        return self._sort.sample(cells, _RUN, every) if every >= _LEAST_EVERY else None

    def _sampled_size(
        self, sample: tuple[cl.Buffer, int], cells: OccupiedCells, grid: Grid, beams: Beams | None
    ) -> float:
        """Return the bytes that all cells take, by a sample of them."""
        leaves, count = sample
        sections = self._octree.encode(leaves, count, None, grid.depth, grid.origin, beams)
        return _size(sections) * cells.count / count

    def _leaves(self, stream: Stream, levels: int | None = None):
        header, sections = stream.header, stream.sections
        beams = Beams.from_bytes(sections["beams"]) if len(sections["beams"]) else None
        return self._octree.decode(
            sections, header.finite, header.cells, header.grid.depth, header.grid.origin, beams,
            levels,
        )  # fmt: skip


def _size(sections: dict[str, bytes]) -> int:
    return sum(map(len, sections.values()))


def _rings(cloud: Cloud) -> np.ndarray | None:
    """Return the ring of each finite point, by its field or by the cloud's rows; None: unknown."""
    points = cloud.points
    if "ring" in points.dtype.names and not points.dtype["ring"].shape:
        return points["ring"] if cloud.finite is None else points["ring"][cloud.finite]
    if cloud.height < 2:
        return None
    rows = np.repeat(np.arange(cloud.height), len(points) // cloud.height)
    return rows if cloud.finite is None else rows[cloud.finite]

"""Mode scan: points are predicted along the lines of the sensor; their order is kept."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.compression import attributes, lines, nonfinite, scan
from geoaccel_ros.compression.bitstream import MODE_LOSSLESS, MODE_SCAN, Header, Stream
from geoaccel_ros.compression.cloud import Cloud
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.fields import Columns, FieldCoder, Places, Span
from geoaccel_ros.compression.grid import Grid
from geoaccel_ros.compression.lines import Lines
from geoaccel_ros.compression.positions import ArrangedPositions, Positions
from geoaccel_ros.compression.prefix_sums import PrefixSums
from geoaccel_ros.compression.rans import EntropyCoder
from geoaccel_ros.compression.scan import Scan

Stage = Callable[[str], AbstractContextManager[None]]

# Metres: of the cells that tell the lines where coordinates are bit-exact.
_LINE_STEP = 0.01
# Points that are decoded together: whole chunks of coordinates and of fields.
_SPAN = math.lcm(scan.CHUNK, attributes.CHUNK)


@dataclass(frozen=True)
class ScanPlan:
    """How a cloud is coded; on the device, until the next plan.

    Attributes
    ----------
    cells : int32 (3, N)
        Of the finite points, from the grid's origin.
    lines : Lines
    geometry : Plan
    """

    cells: np.ndarray
    lines: Lines
    geometry: scan.Plan


class ScanMode:
    """Encodes and decodes clouds in their own order.

    Parameters
    ----------
    device : Device
    fields : FieldCoder
    stage : callable
        Times a stage, by its name.
    """

    def __init__(
        self,
        device: Device,
        sums: PrefixSums,
        entropy: EntropyCoder,
        fields: FieldCoder,
        stage: Stage,
    ):
        self._scan = Scan(device, entropy)
        self._fields = fields
        self._stage = stage

    def lines(self, cloud: Cloud, grid: Grid, columns: Columns) -> Lines:
        """Return the order in which :meth:`encode` codes a cloud."""
        with self._stage("lines"):
            keys = _keys(cloud.points, cloud.finite, columns)
            return lines.find(cloud.xyz, keys, grid.step)

    def cells(self, cloud: Cloud, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates (3, F) in cells from the grid's origin, as float64 and as int32."""
        with self._stage("cells"):
            return _cells(cloud.xyz, grid)

    def plan(self, fine: np.ndarray, cells: np.ndarray, found: Lines, step: float) -> ScanPlan:
        """Return how :meth:`encode` codes a cloud of these cells and lines."""
        with self._stage("scan"):
            return ScanPlan(cells, found, self._scan.plan(cells, fine, found, step))

    def price(self, cloud: Cloud, grid: Grid, found: Lines) -> float:
        """Return the bits that the coordinates of a map take, by a few chunks of it alone."""
        with self._stage("scan"):
            _, cells = _cells(cloud.xyz.take(scan.priced(found.order), axis=1), grid)
            return self._scan.price(cells, cloud.xyz.shape[1])

    def encode(
        self,
        cloud: Cloud,
        grid: Grid,
        columns: Columns,
        plan: ScanPlan | None = None,
        limit: float | None = None,
    ) -> tuple[Header, dict[str, bytes]] | None:
        """Return header and sections of a cloud, its coordinates to the grid's step.

        Parameters
        ----------
        cloud : Cloud
        grid : Grid
            Of depth 0: any number of cells from its origin.
        columns : Columns
            Each field but x, y and z.
        plan : ScanPlan, optional
            Of this cloud and grid.
        limit : float, optional
            If coordinates take more bytes, None is returned.
        """
        points = cloud.points
        rest = points[:0] if cloud.finite is None else points[~cloud.finite]
        header = _header(MODE_SCAN, cloud, grid, len(rest))
        if plan is None:
            found = self.lines(cloud, grid, columns)
            plan = self.plan(*self.cells(cloud, grid), found, grid.step)
        found, cells = plan.lines, plan.cells
        with self._stage("scan"):
            sections = {"lines": found.stored}
            sections["geometry"] = self._scan.encode(plan.geometry)
        if limit is not None and sum(map(len, sections.values())) > limit:
            return None
        with self._stage("fields"):
            if header.attributes:
                places = _places(found, cells, cloud.finite, len(points))
            for name in header.attributes:
                known = _known(places, name, found)
                sections[f"field {name}"] = self._fields.encode(columns.sequences(name), known)
            mask = None if cloud.finite is None else ~cloud.finite
            sections["nonfinite"] = nonfinite.encode(rest, ["x", "y", "z"], mask)
        return header, sections

    def encode_lossless(self, cloud: Cloud, columns: Columns) -> tuple[Header, dict[str, bytes]]:
        """Return header and sections of a cloud, its coordinates bit-exact, finite or not."""
        points = cloud.points
        with self._stage("lines"):
            cells = np.zeros((3, len(points)), np.int64)
            limit = 2.0**31 * _LINE_STEP
            inside = np.clip(cloud.xyz.astype(np.float64), -limit, limit)
            cells[:, slice(None) if cloud.finite is None else cloud.finite] = inside / _LINE_STEP
            found = lines.find(cells, _keys(points, None, columns))
        header = _header(MODE_LOSSLESS, cloud, Grid(0.0, (0, 0, 0), 0), 0)
        sections = {"lines": found.stored}
        with self._stage("fields"):
            places = Places(len(points), found.order)
            for name in points.dtype.names:
                sections[f"field {name}"] = self._fields.encode(
                    columns.sequences(name), _known(places, name, found)
                )
        return header, sections

    def decode(self, stream: Stream) -> np.ndarray:
        """Return the points in the order that they had.

        Raises
        ------
        CodecError
            If the stream is damaged.
        """
        header, sections = stream.header, stream.sections
        points = np.zeros(header.points, header.dtype)
        if header.mode == MODE_LOSSLESS:
            self._decode_lossless(stream, points)
            return points
        with self._stage("fields"):
            mask, rest = nonfinite.decode(
                sections["nonfinite"], header.nonfinite, header.points, header.dtype,
                ["x", "y", "z"], True,
            )  # fmt: skip
            finite = None if mask is None else ~mask
            found, key = self._read_lines(stream, points.dtype, finite)
        with self._stage("scan"):
            cells = self._scan.decode(sections["geometry"], found)
        with self._stage("cells"):
            for axis, name in enumerate("xyz"):
                centres = header.grid.centres(cells[axis], axis)
                if finite is None:
                    points[name] = centres
                else:
                    points[name][finite] = centres
                    values = nonfinite.as_unsigned(points[name])
                    values[mask] = nonfinite.as_unsigned(rest[name])
        with self._stage("fields"):
            if header.attributes:
                places = _places(found, cells, finite, header.points)
                self._decode_fields(stream, points, header.attributes, places, key)
        return points

    def decode_range(self, stream: Stream, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Return points [first, end) of the coding order, and which of the cloud they are.

        Raises
        ------
        CodecError
            If what is decoded of the stream is damaged.
        """
        header, sections = stream.header, stream.sections
        if first == end:
            return np.zeros(0, header.dtype), np.zeros(0, np.int64)
        finite = rest = None
        with self._stage("fields"):
            if header.mode == MODE_SCAN:
                mask, rest = nonfinite.decode(
                    sections["nonfinite"], header.nonfinite, header.points, header.dtype,
                    ["x", "y", "z"], True,
                )  # fmt: skip
                finite = None if mask is None else ~mask
            found, key = self._read_lines(stream, header.dtype, finite)
        order = _order(found, finite)
        begin, stop = first // _SPAN * _SPAN, min(-(-end // _SPAN) * _SPAN, header.points)
        chunks = begin // attributes.CHUNK, -(-stop // attributes.CHUNK)
        span = Span(*chunks, header.points, order[begin:stop])
        points, places = np.zeros(stop - begin, header.dtype), Places(stop - begin)
        names = list(header.dtype.names)
        if header.mode == MODE_SCAN:
            cells, names = np.zeros((3, len(points)), np.int32), header.attributes
            self._decode_positions(stream, found, begin, cells, points, rest)
            places.positions = Positions(cells)
        with self._stage("fields"):
            self._decode_fields(stream, points, names, places, key, span)
        return points[first - begin : end - begin], order[first:end]

    def _decode_positions(
        self,
        stream: Stream,
        found: Lines,
        begin: int,
        cells: np.ndarray,
        points: np.ndarray,
        rest: np.ndarray,
    ) -> None:
        """Fill cells and coordinates of points from ``begin`` on in the coding order."""
        coded = len(found.order)
        number = min(max(coded - begin, 0), len(points))
        if number:
            with self._stage("scan"):
                chunks = begin // scan.CHUNK, -(-(begin + number) // scan.CHUNK)
                cells[:, :number] = self._scan.decode_chunks(
                    stream.sections["geometry"], found, *chunks
                )
        behind = max(begin - coded, 0)
        with self._stage("cells"):
            for axis, name in enumerate("xyz"):
                points[name][:number] = stream.header.grid.centres(cells[axis, :number], axis)
                bits = nonfinite.as_unsigned(points[name])[number:]
                bits[...] = nonfinite.as_unsigned(rest[name])[behind : behind + len(bits)]

    def _decode_lossless(self, stream: Stream, points: np.ndarray) -> None:
        with self._stage("fields"):
            found, key = self._read_lines(stream, points.dtype, None)
            places = Places(len(points), found.order)
            self._decode_fields(stream, points, list(points.dtype.names), places, key)

    def _read_lines(
        self, stream: Stream, dtype: np.dtype, finite: np.ndarray | None
    ) -> tuple[Lines, dict[str, np.ndarray]]:
        """Return the coding order, and the field by which it goes, if any: it is decoded first."""
        stored, count = stream.sections["lines"], stream.header.points
        name, key = lines.key_of(stored), {}
        if name in dtype.names:
            key[name] = np.zeros(count, dtype[name])
            self._fields.decode(name, stream.sections[f"field {name}"], key[name], Places(count))
        coded = count if finite is None else np.count_nonzero(finite)
        return lines.read(stored, coded, _integers(key, finite)), key

    def _decode_fields(
        self,
        stream: Stream,
        points: np.ndarray,
        names: list[str],
        places: Places,
        decoded: dict[str, np.ndarray],
        span: Span | None = None,
    ) -> None:
        for name in names:
            target = points[name]
            if name in decoded:
                bits = nonfinite.as_unsigned(decoded[name])
                nonfinite.as_unsigned(target)[...] = bits if span is None else bits[span.order]
            else:
                self._fields.decode(name, stream.sections[f"field {name}"], target, places, span)


def _cells(xyz: np.ndarray, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Return coordinates in cells from the grid's origin, float64 and rounded to int32 (3, n)."""
    fine = xyz / np.float64(grid.step)
    if any(grid.origin):
        fine -= np.array(grid.origin, float)[:, None]
    return fine, np.rint(fine).astype(np.int32)


def _header(mode: int, cloud: Cloud, grid: Grid, rest: int) -> Header:
    count = len(cloud.points)
    return Header(mode, cloud.height, count, count, rest, 0, grid, cloud.points.dtype)


def _keys(points: np.ndarray, finite: np.ndarray | None, columns: Columns) -> dict[str, np.ndarray]:
    """Return the fields that lines may go by, integers (F,) of the finite points, by name.

    A field that is rounded is none: the decoder would find other lines.
    """
    names = [name for name in lines.KEYS if name in points.dtype.names and columns.is_exact(name)]
    return _integers({name: points[name] for name in names}, finite)


def _integers(fields: dict[str, np.ndarray], finite: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return those fields of the finite points that are integers, whatever their type."""
    integers = {}
    for name, column in fields.items():
        values = column if finite is None else column[finite]
        whole = values.astype(np.int64) if values.dtype.kind != "f" else _integral(values)
        if whole is not None and whole.ndim == 1:
            integers[name] = whole
    return integers


def _integral(values: np.ndarray) -> np.ndarray | None:
    """Return floats as the small integers that they all are; None if they are not."""
    if not (np.abs(values) < 2**31).all():
        return None
    integers = values.astype(np.int64)
    return integers if (integers == values).all() else None


def _known(places: Places, name: str, found: Lines) -> Places:
    """Return what is known when a field is decoded: of the lines' own key, the order alone."""
    return Places(places.count) if name == lines.key_of(found.stored) else places


def _places(found: Lines, cells: np.ndarray, finite: np.ndarray | None, count: int) -> Places:
    """Return the places of all points, those that are not finite behind the others."""
    return Places(count, _order(found, finite), ArrangedPositions(cells, found.order, count))


def _order(found: Lines, finite: np.ndarray | None) -> np.ndarray:
    """Return the coding order of all points, those that are not finite behind the others."""
    if finite is None:
        return found.order
    return np.concatenate([np.flatnonzero(finite)[found.order], np.flatnonzero(~finite)])

"""The point-cloud codec: structured arrays to bytes and back, coordinates within half a step.

A cloud's points become cells of a global grid (:mod:`.grid`), the cells' Morton codes are sorted
(:mod:`.morton`) and become an octree (:mod:`.octree`); every other field is bit-exact
(:mod:`.fields`). Sections are entropy-coded (:mod:`.entropy`) and framed (:mod:`.bitstream`).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.compression import bitstream
from geoaccel_ros.compression.bitstream import Header, Section
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.entropy import compress, decompress
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.fields import (
    as_unsigned_view,
    decode_values,
    encode_values,
    planes,
    unplanes,
)
from geoaccel_ros.compression.grid import Grid
from geoaccel_ros.compression.morton import Morton
from geoaccel_ros.compression.octree import Octree
from geoaccel_ros.config import Configuration, parameter
from geoaccel_ros.pointcloud.layout import PointField, fields_of

__all__ = ["Codec", "CodecConfig", "CodecError", "DeviceConfig", "StreamInfo", "inspect"]


@dataclass(frozen=True)
class DeviceConfig(Configuration):
    """Parameters of encoding and decoding alike."""

    device: str = parameter(
        "auto",
        "OpenCL device: auto (a GPU if there is one, else the CPU), or part of a platform's or "
        "device's name.",
    )
    threads: int = parameter(
        0,
        "Threads of OpenCL on the CPU, 0: all cores; read once a process, when OpenCL starts.",
        minimum=0,
        maximum=1024,
    )
    max_decoded_mib: int = parameter(
        256,
        "Largest cloud that is encoded or decoded; decoding may take 20 times the memory.",
        unit="MiB",
        minimum=1,
        # The kernels count nodes with 32 bits.
        maximum=2048,
    )


@dataclass(frozen=True)
class CodecConfig(DeviceConfig):
    """Parameters of the codec; its own matter to encoding alone: a stream tells them."""

    step: float = parameter(
        0.01,
        "Edge of a grid cell; a decoded coordinate is at most half of it off.",
        unit="m",
        minimum=1e-6,
        maximum=100.0,
    )
    level: int = parameter(
        1, "Effort of zstd; occupancy bytes gain little from more.", minimum=1, maximum=19
    )


@dataclass(frozen=True)
class StreamInfo:
    """What a stream says of itself.

    Attributes
    ----------
    version : int
    mode : str
    order_kept : bool
    points, nonfinite, cells : int
        All points; those with a NaN or infinite coordinate, which come last; occupied cells.
    height : int
    step : float
        Edge of a cell in metres.
    origin : tuple of float
        Centre of the lowest cell in metres.
    depth : int
        Levels of the octree below its root.
    point_step : int
        Bytes of a decoded point.
    fields : tuple of PointField
    bytes_by_section : dict of str to int
        Their sum is the stream's size.
    """

    version: int
    mode: str
    order_kept: bool
    points: int
    nonfinite: int
    cells: int
    height: int
    step: float
    origin: tuple[float, float, float]
    depth: int
    point_step: int
    fields: tuple[PointField, ...]
    bytes_by_section: dict[str, int]


class Codec:
    """Encodes and decodes clouds on one OpenCL device; not for two threads at once.

    Parameters
    ----------
    config : CodecConfig

    Attributes
    ----------
    device_name : str
        ``platform: device``, as OpenCL reports them.
    stages_ms : dict of str to float
        Milliseconds of each stage of the last encode or decode.

    Raises
    ------
    CodecError
        If no OpenCL device matches.
    """

    def __init__(self, config: CodecConfig):
        self._config = config
        device = Device.open(config.device, config.threads)
        self.device_name = device.name
        self.stages_ms: dict[str, float] = {}
        self._morton = Morton(device)
        self._octree = Octree(device)
        self._warm_up()

    def encode(self, points: np.ndarray, height: int = 1) -> bytes:
        """Return a cloud as a stream.

        Parameters
        ----------
        points : ndarray, shape (N,), structured
            Any layout of :mod:`geoaccel_ros.pointcloud.layout`: fields x, y and z (float32 or
            float64, metres) and others; N may be 0.
        height : int
            Rows of an organised cloud; 0 only of an empty one, as a default PointCloud2 has it.
            The octree does not keep the points' order, so it is checked and then dropped: decoding
            returns a height of 1.

        Raises
        ------
        CodecError
            If the cloud cannot be encoded with every coordinate within half a step; the message
            says why and names the remedy.
        """
        self.stages_ms = {}
        self._check_cloud(points, height)
        with self._stage("cells"):
            grid, finite, codes = self._codes(points)
        with self._stage("sort"):
            order = np.argsort(codes, kind="stable")
            leaves, multiplicity = _runs(codes[order])
        with self._stage("octree"):
            occupancy = self._octree.build(leaves, grid.depth)
        header = Header(
            mode=bitstream.MODE_OCTREE,
            height=1,
            points=len(points),
            nonfinite=len(points) - len(codes),
            cells=len(leaves),
            grid=grid,
            dtype=points.dtype,
        )
        with self._stage("fields"):
            order = order if finite is None else np.flatnonzero(finite)[order]
            contents = [occupancy.tobytes(), _encode_multiplicity(multiplicity)]
            contents += [_encode_attribute(points[name], order) for name in header.attributes]
            contents.append(b"" if finite is None else _encode_raw(points[~finite]))
        self._check_size(sum(map(len, contents)))
        with self._stage("entropy"):
            sections = [Section(compress(c, self._config.level), len(c)) for c in contents]
        with self._stage("bitstream"):
            return bitstream.pack(header, sections)

    def decode(self, data: bytes) -> tuple[np.ndarray, int]:
        """Return the cloud of a stream and its height.

        Returns
        -------
        points : ndarray, shape (N,), structured
            Of the encoded dtype. Coordinates are the centres of their cells, every other field is
            bit-exact, padding is zero. Points come in Morton order, points of one cell in the
            order that they had; then come those with a coordinate that is not finite, unchanged
            and in the order that they had.
        height : int
            1, also of an empty cloud: the octree does not keep the points' order.

        Raises
        ------
        CodecError
            If the bytes are no valid stream, or the cloud is larger than ``max_decoded_mib``.
        """
        self.stages_ms = {}
        with self._stage("bitstream"):
            header, sections = bitstream.unpack(data)
            # Fields may overlap: their sections together can be larger than the cloud.
            self._check_size(header.points * header.dtype.itemsize)
            self._check_size(sum(section.size for section in sections))
        with self._stage("entropy"):
            contents = [decompress(section.stored, section.size) for section in sections]
        occupancy, multiplicity, *attributes, nonfinite = contents
        with self._stage("octree"):
            leaves = self._octree.expand(
                np.frombuffer(occupancy, np.uint8), header.grid.depth, header.cells
            )
        with self._stage("cells"):
            cells = self._morton.decode(leaves)
            repeats = _decode_multiplicity(multiplicity, header.cells, header.finite)
        with self._stage("fields"):
            points = np.zeros(header.points, header.dtype)
            finite = points[: header.finite]
            for axis, name in enumerate("xyz"):
                centres = header.grid.centres(cells[axis], axis)
                finite[name] = centres if repeats is None else np.repeat(centres, repeats)
            for name, content in zip(header.attributes, attributes, strict=True):
                _decode_attribute(content, finite[name])
            _decode_raw(nonfinite, points[header.finite :])
        return points, header.height

    def order(self, points: np.ndarray) -> np.ndarray:
        """Return which point becomes the i-th decoded one: the order that decoding returns.

        Returns
        -------
        order : ndarray, shape (N,), int64

        Raises
        ------
        CodecError
            As :meth:`encode`.
        """
        self._check_cloud(points, 1)
        _, finite, codes = self._codes(points)
        order = np.argsort(codes, kind="stable")
        if finite is None:
            return order
        return np.concatenate([np.flatnonzero(finite)[order], np.flatnonzero(~finite)])

    def _check_cloud(self, points: np.ndarray, height: int) -> None:
        if points.ndim != 1:
            raise CodecError(f"the cloud must be of shape (N,), got {points.shape}")
        bitstream.check_layout(points.dtype)
        if len(points) % height if height > 0 else height < 0 or len(points):
            raise CodecError(f"{len(points)} points cannot lie in {height} rows")
        self._check_size(points.nbytes)

    def _check_size(self, size: int) -> None:
        if size > self._config.max_decoded_mib * 2**20:
            raise CodecError(
                f"the cloud needs {size / 2**20:.0f} MiB, more than max_decoded_mib "
                f"({self._config.max_decoded_mib}): raise it if the cloud is meant to be so large"
            )

    def _codes(self, points: np.ndarray) -> tuple[Grid, np.ndarray | None, np.ndarray]:
        """Return grid, mask of the finite points (None: all) and those points' Morton codes."""
        types = [points.dtype[axis] for axis in "xyz"]
        wide = np.float64 if any(t.itemsize == 8 for t in types) else np.float32
        xyz = np.empty((3, len(points)), wide)
        for row, axis in zip(xyz, "xyz", strict=True):
            row[:] = points[axis]
        finite = None
        # The extremes are NaN or infinite if any coordinate is: a mask is seldom needed.
        if not all(np.isfinite([row.min(initial=0), row.max(initial=0)]).all() for row in xyz):
            finite = np.isfinite(xyz).all(axis=0)
            xyz = xyz[:, finite]
        grid = Grid.around(xyz, self._config.step, types)
        return grid, finite, self._morton.encode(xyz, grid)

    def _warm_up(self) -> None:
        """Compile every kernel, so that the first cloud takes no longer than the next.

        PoCL compiles a kernel anew for launches of 65,536 work-items or more: hence two sizes, of
        which the larger has two levels of so many nodes.
        """
        for count in 2, 150_000:
            for dtype in np.float32, np.float64:
                line = np.zeros((3, count), dtype)
                line[0] = np.arange(count) * self._config.step
                grid = Grid.around(line, self._config.step, [line.dtype] * 3)
                leaves = self._morton.encode(line, grid)
                occupancy = self._octree.build(leaves, grid.depth)
                self._morton.decode(self._octree.expand(occupancy, grid.depth, count))

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.stages_ms[name] = 1e3 * (time.perf_counter() - begin)


def inspect(data: bytes) -> StreamInfo:
    """Return what a stream says of itself, without decoding it; needs no OpenCL.

    Raises
    ------
    CodecError
        If the bytes are no valid stream.
    """
    header, sections = bitstream.unpack(data)
    sizes = [len(section.stored) for section in sections]
    checksum = bitstream.CHECKSUM_SIZE
    by_section = {"header": len(data) - sum(sizes) - checksum}
    by_section |= dict(zip(header.section_names, sizes, strict=True))
    by_section["checksum"] = checksum
    step = header.grid.step
    return StreamInfo(
        version=bitstream.VERSION,
        mode=bitstream.MODE_NAMES[header.mode],
        order_kept=False,
        points=header.points,
        nonfinite=header.nonfinite,
        cells=header.cells,
        height=header.height,
        step=step,
        origin=tuple(cell * step for cell in header.grid.origin),
        depth=header.grid.depth,
        point_step=header.dtype.itemsize,
        fields=tuple(fields_of(header.dtype)),
        bytes_by_section=by_section,
    )


def _runs(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values of ascending codes, and how often each occurs."""
    if not len(codes):
        return codes, np.empty(0, np.int64)
    first = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    return codes[first], np.diff(first, append=len(codes))


def _encode_multiplicity(multiplicity: np.ndarray) -> bytes:
    """Return the points of each cell beyond its first; nothing if no cell has more than one."""
    if (multiplicity == 1).all():
        return b""
    return planes((multiplicity - 1).astype(np.uint32))


def _decode_multiplicity(content: bytes, cells: int, points: int) -> np.ndarray | None:
    """Return the points of each cell, int64 (cells,), None if it is one each.

    Raises
    ------
    CodecError
        If they do not add up to ``points``.
    """
    repeats = unplanes(content, 0, cells, 4).astype(np.int64) + 1 if content else None
    if (cells if repeats is None else int(repeats.sum())) != points:
        raise CodecError("damaged stream: the cells' multiplicities do not add up to the points")
    return repeats


def _encode_attribute(values: np.ndarray, order: np.ndarray) -> bytes:
    return encode_values(values[order]) if len(order) else b""


def _decode_attribute(content: bytes, target: np.ndarray) -> None:
    """Fill a field of the finite points: shape (M,), or (M, count) if it has several values."""
    bits = as_unsigned_view(target)
    if bits.size or content:
        bits[...] = decode_values(content, bits.size, bits.itemsize).reshape(bits.shape)


def _encode_raw(points: np.ndarray) -> bytes:
    """Return all fields of points one after the other, little-endian, without padding."""
    columns = [as_unsigned_view(points[name]) for name in points.dtype.names]
    little = [column.astype(column.dtype.newbyteorder("<")) for column in columns]
    return b"".join(column.tobytes() for column in little)


def _decode_raw(content: bytes, target: np.ndarray) -> None:
    columns = [as_unsigned_view(target[name]) for name in target.dtype.names]
    if len(content) != sum(column.size * column.itemsize for column in columns):
        raise CodecError("damaged stream: the non-finite points do not fill their section")
    position = 0
    for column in columns:
        values = np.frombuffer(content, f"<u{column.itemsize}", column.size, position)
        column[...] = values.reshape(column.shape)
        position += values.nbytes

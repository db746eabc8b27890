"""The point-cloud codec: structured arrays to bytes and back, coordinates within half a step.

Two modes: an octree over the cells of a global grid (:mod:`.octree_mode`), which drops the order of
the points, and prediction along the lines of the sensor (:mod:`.scan_mode`), which keeps it. Unless
one is asked for, the mode of the smaller stream is taken; where samples tell it clearly, the cloud
is not coded in the other.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from geoaccel_ros.compression import bitstream, version1
from geoaccel_ros.compression.bitstream import (
    MODE_LOSSLESS,
    MODE_NAMES,
    MODE_OCTREE,
    MODE_SCAN,
    Header,
    Stream,
)
from geoaccel_ros.compression.cloud import Cloud
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.distortion import distortion
from geoaccel_ros.compression.errors import CodecError, FutureVersionError, TooLargeError
from geoaccel_ros.compression.field_table import check_layout
from geoaccel_ros.compression.fields import Columns, FieldCoder
from geoaccel_ros.compression.grid import Grid
from geoaccel_ros.compression.lines import Lines
from geoaccel_ros.compression.octree_estimate import estimated_bits
from geoaccel_ros.compression.octree_mode import OctreeMode
from geoaccel_ros.compression.policies import (
    COORDINATES,
    FieldsConfig,
    field_steps,
    is_measure,
)
from geoaccel_ros.compression.prefix_sums import PrefixSums
from geoaccel_ros.compression.rans import EntropyCoder
from geoaccel_ros.compression.rate_control import COARSEST_STEP, FINEST_STEP, step_for
from geoaccel_ros.compression.scan import MOST_OF_SWEEP
from geoaccel_ros.compression.scan_mode import ScanMode, ScanPlan
from geoaccel_ros.config import Configuration, ConfigurationError, parameter
from geoaccel_ros.pointcloud.layout import PointField, fields_of
from geoaccel_ros.threads import Threads

__all__ = [
    "Codec",
    "CodecConfig",
    "CodecError",
    "DeviceConfig",
    "EncodingConfig",
    "StreamInfo",
    "inspect",
]

# Mean distance of points that are anywhere in a cube of edge 1 from its centre.
_MEAN_OF_A_CELL = 0.480296
_TARGETS = (
    "target_max_error",
    "target_mean_error",
    "target_bits_per_point",
    "target_bytes_per_s",
)
# The part that coordinates take at least of what they are estimated to: in the octree, and in scan
# mode; there of the bits of the differences of consecutive points, too, whatever the model.
_OCTREE_SURE, _SCAN_SURE, _ROUGH_SURE = 0.8, 0.85, 0.75
# The part that fields take at least of what they do in the other mode: of the octree all, of scan
# mode measures alone, as times may be next to nothing in their order.
_OCTREE_FIELDS, _SCAN_MEASURES = 0.75, 0.45
# By so many bytes at most.
_HEADERS_DIFFER = 32
# What a doubling of the step saves: a bit on each axis.
_BITS_OF_A_DOUBLING = -3.0


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
    max_local_kib: int = parameter(
        0,
        "Cap of the local memory that a work-group takes; 0: the device's. Streams do not depend "
        "on it.",
        unit="KiB",
        minimum=0,
        maximum=1024,
    )
    max_group_size: int = parameter(
        0,
        "Size of work-groups as far as kernels and device allow it; 0: found by measurement. "
        "Streams do not depend on it.",
        minimum=0,
        maximum=1024,
    )


@dataclass(frozen=True)
class EncodingConfig(DeviceConfig, FieldsConfig):
    """Parameters of encoding; its own matter to encoding alone: a stream tells them."""

    mode: str = parameter(
        "auto",
        "Octree does not keep the points' order, scan does; auto: the one with fewer bytes, cloud "
        "by cloud.",
        choices=("auto", "octree", "scan"),
        live=True,
    )
    step: float = parameter(
        0.01,
        "Edge of a grid cell; a decoded coordinate is at most half of it off.",
        unit="m",
        minimum=FINEST_STEP,
        maximum=COARSEST_STEP,
        live=True,
    )
    duplicates: str = parameter(
        "keep",
        "Points of one cell in mode octree: keep all, or merge them to the first.",
        choices=("keep", "merge"),
        live=True,
    )
    max_depth: int = parameter(
        21,
        "Levels of the octree below its root; the step is doubled until that many hold the cloud.",
        minimum=1,
        maximum=21,
        live=True,
    )
    target_max_error: float = parameter(
        0.0,
        "Largest error of a coordinate, from which the step follows; 0: 'step' counts.",
        unit="m",
        minimum=0.0,
        maximum=COARSEST_STEP / 2,
        live=True,
    )
    target_mean_error: float = parameter(
        0.0,
        "Mean distance of decoded points from the originals, met within 5 % by choosing the step "
        "of each cloud; 0: 'step' counts.",
        unit="m",
        minimum=0.0,
        maximum=COARSEST_STEP / 2,
        live=True,
    )
    target_bits_per_point: float = parameter(
        0.0,
        "Bits a point of the whole stream, met within 5 % by choosing the step of each cloud; "
        "0: 'step' counts.",
        minimum=0.0,
        maximum=1000.0,
        live=True,
    )

    def __post_init__(self):
        super().__post_init__()
        targets = self.targets
        if len(targets) > 1:
            raise ConfigurationError(f"only one of {' and '.join(targets)} can be met: set one")
        if targets and self.max_depth < 21:
            raise ConfigurationError(f"{targets[0]} and max_depth would both choose the step")
        if self.mode == "scan" and (self.duplicates == "merge" or self.max_depth < 21):
            raise ConfigurationError(
                "duplicates and max_depth belong to mode octree, not to mode scan"
            )
        exact = [axis for axis in COORDINATES if axis in self.lossless]
        if exact and len(exact) < 3:
            raise ConfigurationError("x, y and z can only be lossless together")
        if exact and (self.mode == "octree" or targets or self.is_coarsened):
            raise ConfigurationError(
                "lossless x y z leave nothing to mode octree, to duplicates, max_depth or a target"
            )

    @property
    def targets(self) -> list[str]:
        """Names of the parameters that the step follows from; at most one."""
        return [name for name in _TARGETS if getattr(self, name, 0.0)]

    @property
    def is_lossless(self) -> bool:
        """Whether coordinates are kept bit for bit."""
        return "x" in self.lossless

    @property
    def is_coarsened(self) -> bool:
        """Whether points may be merged or cells be enlarged, as only the octree can."""
        return self.duplicates == "merge" or self.max_depth < 21


@dataclass(frozen=True)
class CodecConfig(EncodingConfig):
    """Parameters of the codec, which sees one cloud at a time."""

    target_bytes_per_s: float = parameter(
        0.0,
        "Bytes a second of the streams of 'clouds_per_s' such clouds, met within 5 % by choosing "
        "the step of each cloud; 0: 'step' counts.",
        unit="B/s",
        minimum=0.0,
        maximum=1e12,
    )
    clouds_per_s: float = parameter(
        10.0,
        "Clouds a second, for 'target_bytes_per_s'.",
        unit="Hz",
        minimum=0.01,
        maximum=1e5,
    )


@dataclass(frozen=True)
class StreamInfo:
    """What a stream says of itself.

    Attributes
    ----------
    version : int
    mode : str
        octree, scan or lossless.
    order_kept : bool
    points, source_points : int
        Points of the decoded cloud and of the encoded one, which differ where points were merged.
    nonfinite, cells : int
        Points with a NaN or infinite coordinate (not counted in mode lossless); occupied cells of
        the octree.
    height : int
    step : float
        Edge of a cell in metres; 0 in mode lossless.
    origin : tuple of float
        Centre of the lowest cell of the octree, in metres.
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
    source_points: int
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
    tables : Path or None
        Folder of the tables of probabilities that sections begin with; None: the package's. A
        stream can be decoded with the tables alone that it was encoded with.

    Attributes
    ----------
    device_name : str
        ``platform: device``, as OpenCL reports them.
    stages_ms : dict of str to float
        Milliseconds of each stage of the last encode or decode; of encoding in both modes, those
        of both together.

    Raises
    ------
    CodecError
        If no OpenCL device matches.
    """

    def __init__(self, config: CodecConfig, tables: Path | None = None):
        self._config = config
        device = Device.open(
            config.device, config.threads, config.max_local_kib, config.max_group_size
        )
        self.device_name = device.name
        # Where fields become integers and beams are fitted while the device is at work.
        self._aside = ThreadPoolExecutor(2, "aside")
        # A thread for each axis, where there are as many.
        self._threads = Threads(min(config.threads or os.cpu_count() or 1, 3))
        self.stages_ms: dict[str, float] = {}
        sums, entropy = PrefixSums(device), EntropyCoder(device, tables)
        fields = FieldCoder(device, entropy)
        self._octree = OctreeMode(device, sums, entropy, fields, self._stage, self._aside)
        self._scan = ScanMode(device, sums, entropy, fields, self._stage)
        self._warm_up()

    def reconfigure(self, config: CodecConfig) -> None:
        """Encode by other parameters from the next cloud on; the device stays as it was opened."""
        self._config = config

    def encode(self, points: np.ndarray, height: int = 1) -> bytes:
        """Return a cloud as a stream.

        Parameters
        ----------
        points : ndarray, shape (N,), structured
            Any layout of :mod:`geoaccel_ros.pointcloud.layout`: fields x, y and z (float32 or
            float64, metres) and others; N may be 0.
        height : int
            Rows of an organised cloud; 0 only of an empty one, as a default PointCloud2 has it.
            The octree does not keep the points' order, so there it is dropped: decoding returns a
            height of 1.

        Raises
        ------
        CodecError
            If the cloud cannot be encoded as promised; the message says why and names the remedy.
        """
        config = self._config
        self.stages_ms = {}
        self._check_cloud(points, height)
        columns = Columns(points, field_steps(points, config), self._aside)
        cloud = Cloud.of(points, height, self._threads)
        if config.target_max_error:
            return self._encode(cloud, 2 * config.target_max_error, columns)
        if cloud.xyz.shape[1] and config.targets:
            return self._encode_to_target(cloud, columns)
        return self._encode(cloud, config.step, columns)

    def decode(self, data: bytes) -> tuple[np.ndarray, int]:
        """Return the cloud of a stream and its height.

        Returns
        -------
        points : ndarray, shape (N,), structured
            Of the encoded dtype. Coordinates are the centres of their cells, fields that were not
            quantised are bit-exact, padding is zero. Of a stream whose order is not kept, points
            come in Morton order, points of one cell in the order that they had; then come those
            with a coordinate that is not finite, in the order that they had.
        height : int
            1, also of an empty cloud, where the order is not kept.

        Raises
        ------
        CodecError
            If the bytes are no valid stream, or the cloud is larger than ``max_decoded_mib``.
        """
        self.stages_ms = {}
        view, version = _version_of(data)
        if version == 1:
            with self._stage("version 1"):
                return version1.decode(version1.unpack(view), self._check_size), 1
        with self._stage("bitstream"):
            stream = self._unpack(view)
        mode = self._octree if stream.header.mode == MODE_OCTREE else self._scan
        return mode.decode(stream), stream.header.height

    def decode_level(self, data: bytes, level: int) -> np.ndarray:
        """Return the octree of a stream down to a level, coarser and in less time than all of it.

        Parameters
        ----------
        data : bytes
            A stream of mode octree, version 2.
        level : int
            0 (one cell) to the octree's depth (:func:`inspect` tells it); cells double with each
            level less.

        Returns
        -------
        points : ndarray, shape (cells of that level,), structured
            x, y and z alone: the cells' centres, of the encoded types.

        Raises
        ------
        CodecError
            If the bytes are no valid stream, its mode is another, or there is no such level.
        """
        self.stages_ms = {}
        return self._octree.decode_level(self._stream_of(data, MODE_OCTREE), level)

    def decode_range(self, data: bytes, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Return some points of a stream, in less time and memory than all of them.

        Only the chunks that hold them are decoded; of fields that are coded in the cloud's order,
        and of a field that the lines go by, all are.

        Parameters
        ----------
        data : bytes
            A stream of mode scan or lossless, version 2.
        first, end : int
            Points [first, end) of the coding order, which goes line by line; points that are not
            finite come last, but not in mode lossless.

        Returns
        -------
        points : ndarray, shape (end - first,), structured
            As :meth:`decode` returns them.
        order : ndarray, shape (end - first,), int64
            Which point of the cloud each is.

        Raises
        ------
        CodecError
            If the bytes are no valid stream, its mode is another, or it has no such points.
        """
        self.stages_ms = {}
        stream = self._stream_of(data, MODE_SCAN, MODE_LOSSLESS)
        count = stream.header.points
        if not 0 <= first <= end <= count:
            raise CodecError(f"points {first} to {end} of a stream whose points are 0 to {count}")
        points, order = self._scan.decode_range(stream, first, end)
        return points, order.astype(np.int64)

    def order(self, points: np.ndarray, data: bytes) -> np.ndarray:
        """Return which point became the i-th decoded one of a stream that holds them.

        Parameters
        ----------
        points : ndarray, shape (N,), structured
            As they were encoded.
        data : bytes
            What :meth:`encode` made of them.

        Returns
        -------
        order : ndarray, shape (decoded points,), int64

        Raises
        ------
        CodecError
            As :meth:`encode` and :meth:`decode`.
        """
        view, version = _version_of(data)
        header = version1.unpack(view) if version == 1 else self._unpack(view).header
        encoded = header.points if version == 1 else header.source_points
        if len(points) != encoded:
            raise CodecError(f"the stream is of {encoded} points, the cloud has {len(points)}")
        if version > 1 and header.mode != MODE_OCTREE:
            return np.arange(header.points)
        self._check_cloud(points, 1)
        cloud = Cloud.of(points, 1)
        cells = self._octree.cells(cloud, header.grid)
        order = cells.order()
        return cloud.indices(order[cells.first()] if len(points) > header.points else order)

    def _encode(self, cloud: Cloud, step: float, columns: Columns) -> bytes:
        """Return a cloud as the stream of the mode that is asked for, or of fewer bytes."""
        config = self._config
        if config.is_lossless or config.mode == "scan":
            return self._packed(*self._encode_scan(cloud, step, columns))
        if config.is_coarsened or config.mode == "octree":
            return self._packed(*self._encode_octree(cloud, step, columns))
        return self._encode_smaller(cloud, step, columns)

    def _encode_smaller(self, cloud: Cloud, step: float, columns: Columns) -> bytes:
        """Return the stream of fewer bytes; both modes are coded only where that is not clear."""
        try:
            along = Grid.of_scan(cloud.extents, step, cloud.types)
        except CodecError:
            # What the octree refuses too is told in its words.
            return self._packed(*self._encode_octree(cloud, step, columns))
        try:
            around = Grid.around(cloud.extents, step, cloud.types)
        except CodecError:
            return self._packed(*self._scan.encode(cloud, along, columns))
        count = cloud.xyz.shape[1]
        is_map = count > MOST_OF_SWEEP
        # Of a map they are wanted once the octree is coded.
        ahead = self._aside.submit(self._scan.lines, cloud, along, columns) if is_map else None

        @cache
        def found() -> Lines:
            return ahead.result() if ahead else self._scan.lines(cloud, along, columns)

        @cache
        def cells() -> tuple[np.ndarray, np.ndarray]:
            return self._scan.cells(cloud, along)

        @cache
        def plan() -> ScanPlan:
            return self._scan.plan(*cells(), found(), along.step)

        def scan_bits() -> float:
            if is_map:
                return self._scan.price(cloud, along, found())
            return plan().geometry.bits or 0.0

        def rough_bits() -> float:
            return found().roughness * count

        def encode_scan(limit: float | None = None):
            return self._scan.encode(cloud, along, columns, plan(), limit)

        def encode_octree(limit: float | None = None):
            return self._octree.encode(cloud, around, columns, False, limit)

        # Of maps the octree takes less, as a rule, and its own bytes tell that best.
        octree_bits = 0
        if not is_map:
            _, rounded = cells()
            with self._stage("estimate"):
                octree_bits = estimated_bits(rounded)
        names = columns.names
        # What is coded second takes at least these bits, the better known the longer it takes.
        if is_map or octree_bits < rough_bits() or octree_bits < scan_bits():
            first, second, share = encode_octree, encode_scan, _SCAN_MEASURES
            least = lambda: _ROUGH_SURE * rough_bits(), lambda: _SCAN_SURE * scan_bits()
            names = [name for name in names if is_measure(name, cloud.points.dtype[name])]
        else:
            first, second, share = encode_scan, encode_octree, _OCTREE_FIELDS
            least = (lambda: _OCTREE_SURE * octree_bits,)
        header, sections = first()
        stream = self._packed(header, sections)
        rest = share * sum(len(sections[f"field {name}"]) for name in names)
        rest += len(stream) - sum(map(len, sections.values())) - _HEADERS_DIFFER
        if any(len(stream) <= bits() / 8 + rest for bits in least):
            return stream
        coded = second(len(stream) - rest)
        other = self._packed(*coded) if coded else stream
        return min(stream, other, key=len)

    def _packed(self, header: Header, sections: dict[str, bytes]) -> bytes:
        with self._stage("bitstream"):
            return bitstream.pack(header, sections)

    def _encode_octree(
        self, cloud: Cloud, step: float, columns: Columns
    ) -> tuple[Header, dict[str, bytes]]:
        grid = Grid.around(cloud.extents, step, cloud.types, self._config.max_depth)
        return self._octree.encode(cloud, grid, columns, self._config.duplicates == "merge")

    def _encode_scan(
        self, cloud: Cloud, step: float, columns: Columns
    ) -> tuple[Header, dict[str, bytes]]:
        if self._config.is_lossless:
            return self._scan.encode_lossless(cloud, columns)
        return self._scan.encode(cloud, Grid.of_scan(cloud.extents, step, cloud.types), columns)

    def _encode_to_target(self, cloud: Cloud, columns: Columns) -> bytes:
        """Return the stream of the step that meets the target."""
        config, streams = self._config, {}

        def stream_of(step: float) -> bytes:
            streams[step] = self._encode(cloud, step, columns)
            return streams[step]

        def mean_error(step: float) -> float:
            stream = stream_of(step)
            decoded, _ = self.decode(stream)
            return distortion(cloud.points[self.order(cloud.points, stream)], decoded).mean_m

        if config.target_mean_error:
            target, first = config.target_mean_error, config.target_mean_error / _MEAN_OF_A_CELL
            first = min(max(first, FINEST_STEP), COARSEST_STEP)
            return streams[step_for(mean_error, target, first, target, "a mean error [m]")]
        target, what = config.target_bits_per_point, "bits a point"
        of_a_byte = 8 / len(cloud.points)
        if config.target_bytes_per_s:
            target, what = config.target_bytes_per_s, "bytes a second"
            of_a_byte = config.clouds_per_s
        slope = _BITS_OF_A_DOUBLING / 8 * len(cloud.points) * of_a_byte
        step = step_for(
            lambda step: of_a_byte * len(stream_of(step)), target, config.step, slope, what,
            is_budget=True,
        )  # fmt: skip
        return streams[step]

    def _stream_of(self, data: bytes, *modes: int) -> Stream:
        view, version = _version_of(data)
        stream = self._unpack(view) if version == bitstream.VERSION else None
        if stream is None or stream.header.mode not in modes:
            wanted = " or ".join(MODE_NAMES[mode] for mode in modes)
            found = "version 1" if stream is None else f"mode {MODE_NAMES[stream.header.mode]}"
            raise CodecError(f"a stream of {found}, where one of mode {wanted} is needed")
        return stream

    def _unpack(self, view: memoryview) -> Stream:
        stream = bitstream.unpack(view)
        header = stream.header
        self._check_size(header.points * header.dtype.itemsize)
        # Fields may overlap: together they can be larger than the cloud.
        fields = sum(header.dtype[name].itemsize for name in header.dtype.names)
        self._check_size(header.points * fields)
        return stream

    def _check_cloud(self, points: np.ndarray, height: int) -> None:
        if points.ndim != 1:
            raise CodecError(f"the cloud must be of shape (N,), got {points.shape}")
        check_layout(points.dtype)
        if len(points) % height if height > 0 else height < 0 or len(points):
            raise CodecError(f"{len(points)} points cannot lie in {height} rows")
        fields = sum(points.dtype[name].itemsize for name in points.dtype.names)
        self._check_size(len(points) * max(points.dtype.itemsize, fields))

    def _check_size(self, size: int) -> None:
        if size > self._config.max_decoded_mib * 2**20:
            raise TooLargeError(
                f"the cloud needs {size / 2**20:.0f} MiB, more than max_decoded_mib "
                f"({self._config.max_decoded_mib}): raise it if the cloud is meant to be so large"
            )

    def _warm_up(self) -> None:
        """Compile every kernel, so that the first cloud takes no longer than the next.

        PoCL compiles a kernel anew for launches of 65,536 work-items or more: hence two sizes.
        """
        config = self._config
        self._config = CodecConfig()
        for count, kind in (2, "f4"), (2, "f8"), (70_000, "f4"):
            turn = np.linspace(0, 6, count, dtype=np.float32)
            points = np.zeros(count, [*((axis, kind) for axis in "xyz"), ("value", "u2")])
            points["x"], points["y"] = 10 * np.cos(turn), 10 * np.sin(turn)
            points["value"] = np.arange(count) % 1000
            for encode in self._encode_octree, self._encode_scan:
                columns = Columns(points, {"value": 0.0}, self._aside)
                header, sections = encode(Cloud.of(points, 1), 0.001, columns)
                self.decode(bitstream.pack(header, sections))
        self._config = config
        self.stages_ms = {}

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        elapsed = 1e3 * (time.perf_counter() - begin)
        self.stages_ms[name] = self.stages_ms.get(name, 0.0) + elapsed


def inspect(data: bytes) -> StreamInfo:
    """Return what a stream says of itself, without decoding it; needs no OpenCL.

    Raises
    ------
    CodecError
        If the bytes are no valid stream.
    """
    view, version = _version_of(data)
    if version == 1:
        header = version1.unpack(view)
        by_section = dict(zip(header.section_names, map(len, header.stored), strict=True))
        mode, source_points, height = "octree", header.points, 1
        by_section = {"header": len(view) - sum(by_section.values()) - 4} | by_section
        by_section["checksum"] = 4
    else:
        stream = bitstream.unpack(view)
        header = stream.header
        mode, source_points, height = MODE_NAMES[header.mode], header.source_points, header.height
        by_section = {"header": stream.header_size}
        by_section |= {name: len(section) for name, section in stream.sections.items()}
    return StreamInfo(
        version=version,
        mode=mode,
        order_kept=mode != "octree",
        points=header.points,
        source_points=source_points,
        nonfinite=header.nonfinite,
        cells=header.cells,
        height=height,
        step=header.grid.step,
        origin=tuple(cell * header.grid.step for cell in header.grid.origin),
        depth=header.grid.depth,
        point_step=header.dtype.itemsize,
        fields=tuple(fields_of(header.dtype)),
        bytes_by_section=by_section,
    )


def _version_of(data: bytes) -> tuple[memoryview, int]:
    """Return the bytes of a stream, and its version."""
    view = memoryview(data).cast("B")
    if bytes(view[: len(bitstream.MAGIC)]) != bitstream.MAGIC:
        raise CodecError("not a geoaccel point-cloud stream (wrong first bytes)")
    if len(view) == len(bitstream.MAGIC):
        raise CodecError("truncated stream: it ends before its version")
    version = view[len(bitstream.MAGIC)]
    if version not in (1, bitstream.VERSION):
        raise FutureVersionError(
            f"stream of version {version}, known are 1 to {bitstream.VERSION}: update the decoder"
        )
    return view, version

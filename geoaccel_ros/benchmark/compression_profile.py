"""Our modes kernel by kernel: a device that keeps what each launch took."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyopencl as cl

from geoaccel_ros.benchmark.errors import BenchmarkError
from geoaccel_ros.benchmark.interleaving import Stopwatch
from geoaccel_ros.compression import bitstream
from geoaccel_ros.compression.bitstream import MODE_OCTREE
from geoaccel_ros.compression.cloud import Cloud
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.fields import Columns, FieldCoder
from geoaccel_ros.compression.grid import Grid
from geoaccel_ros.compression.octree_mode import OctreeMode
from geoaccel_ros.compression.policies import FieldsConfig, field_steps
from geoaccel_ros.compression.prefix_sums import PrefixSums
from geoaccel_ros.compression.rans import EntropyCoder
from geoaccel_ros.compression.scan_mode import ScanMode

# A GPU tries up to seven sizes of each kernel's work-groups three times, and launches made for that
# are not kept.
WARM_ROUNDS = 25


@dataclass(frozen=True)
class Launch:
    """A kernel that was queued.

    Attributes
    ----------
    stage, kernel : str
    group : int
        Work-items of a group.
    event : Event
        Of a queue that takes times.
    """

    stage: str
    kernel: str
    group: int
    event: cl.Event

    @property
    def milliseconds(self) -> float:
        """What it took on the device, once it has ended."""
        return 1e-6 * (self.event.profile.end - self.event.profile.start)


@dataclass
class ProfiledDevice(Device):
    """A device whose queue takes times.

    Attributes
    ----------
    stage : str
        That launches belong to.
    launches : list of Launch
    """

    stage: str = ""
    launches: list[Launch] = field(default_factory=list)

    def __post_init__(self):
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(self.context, properties=profiling)

    def launch_groups(self, kernel: cl.Kernel, groups: int, group: int, *arguments) -> cl.Event:
        """Queue ``kernel`` as any device does, and keep its event."""
        event = super().launch_groups(kernel, groups, group, *arguments)
        self.launches.append(Launch(self.stage, kernel.function_name, group, event))
        return event

    def launch_serial(self, kernel: cl.Kernel, items: int, *arguments) -> None:
        """Queue ``kernel`` as any device does; on GPUs in groups of the size that is asked for."""
        if self.is_cpu or not self.max_group_size or not items:
            super().launch_serial(kernel, items, *arguments)
            return
        group = self.group_size(kernel)
        self.launch_groups(kernel, -(-items // group), group, *arguments)


def open_device(wanted: str, threads: int, max_group_size: int = 0) -> ProfiledDevice:
    """Open a device as of :meth:`.Device.open`.

    Raises
    ------
    BenchmarkError
        If no OpenCL device matches.
    """
    try:
        return ProfiledDevice.open(wanted, threads, max_group_size=max_group_size)
    except CodecError as error:
        raise BenchmarkError(str(error)) from None


@dataclass(frozen=True)
class Profile:
    """A run.

    Attributes
    ----------
    stages_ms : dict of str to float
        From the stage's begin until its kernels have ended.
    launches : tuple of Launch
        In their order.
    all_ms : float
    """

    stages_ms: dict[str, float]
    launches: Sequence[Launch]
    all_ms: float

    def kernels_ms(self) -> dict[tuple[str, str], float]:
        """Return what the kernels took, by stage and name."""
        result: dict[tuple[str, str], float] = {}
        for launch in self.launches:
            key = launch.stage, launch.kernel
            result[key] = result.get(key, 0.0) + launch.milliseconds
        return result


class ProfiledModes:
    """The octree and the scan mode on a profiled device.

    Parameters
    ----------
    device : ProfiledDevice
    step : float
        Edge of a cell, metres.

    Attributes
    ----------
    device : ProfiledDevice
    """

    def __init__(self, device: ProfiledDevice, step: float):
        self.device, self._step = device, step
        sums, entropy = PrefixSums(device), EntropyCoder(device)
        fields = FieldCoder(device, entropy)
        self._aside = ThreadPoolExecutor(2)
        self._octree = OctreeMode(device, sums, entropy, fields, self._stage, self._aside)
        self._scan = ScanMode(device, sums, entropy, fields, self._stage)
        self._stages_ms: dict[str, float] = {}

    def encode(self, points: np.ndarray, mode: str) -> tuple[bytes, Profile]:
        """Return a cloud's stream of mode ``octree`` or ``scan``, and how it came about."""
        with self._profiled() as profile:
            columns = Columns(points, field_steps(points, FieldsConfig()), self._aside)
            with self._stage("cells"):
                cloud = Cloud.of(points, 1)
            if mode == "octree":
                grid = Grid.around(cloud.extents, self._step, cloud.types)
                coded = self._octree.encode(cloud, grid, columns, False)
            else:
                grid = Grid.of_scan(cloud.extents, self._step, cloud.types)
                coded = self._scan.encode(cloud, grid, columns)
            with self._stage("bitstream"):
                stream = bitstream.pack(*coded)
        return stream, profile()

    def decode(self, stream: bytes) -> Profile:
        """Decode a stream, and return how."""
        with self._profiled() as profile:
            with self._stage("bitstream"):
                unpacked = bitstream.unpack(memoryview(stream))
            mode = self._octree if unpacked.header.mode == MODE_OCTREE else self._scan
            mode.decode(unpacked)
        return profile()

    @property
    def warm_rounds(self) -> int:
        """How often a cloud is coded until every kernel has its groups."""
        return 1 if self.device.group_sizes is None else WARM_ROUNDS

    def warm_up(self, points: np.ndarray) -> dict[str, bytes]:
        """Let kernels be compiled and groups be measured; return the streams by mode."""
        streams = {}
        for _ in range(self.warm_rounds):
            for mode in "octree", "scan":
                streams[mode], _ = self.encode(points, mode)
                self.decode(streams[mode])
        return streams

    @contextmanager
    def _profiled(self):
        self._stages_ms = {}
        self.device.launches = []
        stopwatch = Stopwatch()
        with stopwatch:
            yield lambda: Profile(self._stages_ms, self.device.launches, stopwatch.milliseconds)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        stopwatch, before = Stopwatch(), self.device.stage
        self.device.stage = name
        with stopwatch:
            yield
            self.device.queue.finish()
        self.device.stage = before
        self._stages_ms[name] = self._stages_ms.get(name, 0.0) + stopwatch.milliseconds

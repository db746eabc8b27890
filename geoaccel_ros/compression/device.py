"""The OpenCL device: chosen by name, programs from package resources, buffers reused."""

import functools
import os
import re
import warnings
from dataclasses import dataclass, field
from importlib import resources

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression.errors import CodecError, DeviceError
from geoaccel_ros.compression.group_sizes import GroupSizes, cache_path

_SOURCES = "geoaccel_ros.compression.opencl"
# Enough to fill any device; what a kernel or device allows may be less.
_PREFERRED_GROUP_SIZE = 256
_GROUP_SIZES = (32, 64, 128, 256, 512, 1024)
# Work-items that each work long and go their own ways are best not held in step with each other.
_SERIAL_GROUP_SIZE = 8
_SERIAL_GROUP_SIZES = (1, 2, 4, 8, 16, 32, 64)
_INCLUDE = re.compile(r'#include "(\w+\.cl)"')
# PoCL's name for it until version 3, and since.
_POCL_THREADS = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT")


@dataclass
class Device:
    """An OpenCL device with its queue and buffers.

    Attributes
    ----------
    name : str
        ``platform: device``, as OpenCL reports them.
    is_cpu, has_fp64 : bool
    compute_units : int
    local_bytes : int
        Local memory that a work-group may have.
    max_group_size : int
        Cap of the work-groups' sizes; 0: the device's.
    group_sizes : GroupSizes or None
        What measures and remembers the best; None: nothing is measured.
    """

    name: str
    context: cl.Context
    queue: cl.CommandQueue
    is_cpu: bool
    has_fp64: bool
    compute_units: int
    local_bytes: int
    max_group_size: int = 0
    group_sizes: GroupSizes | None = None
    _buffers: dict[str, cl.Buffer] = field(default_factory=dict)
    # Those that know the types of their arguments.
    _typed: set[cl.Kernel] = field(default_factory=set)
    # Of each kernel: the largest group, and its name with the program's options.
    _kernels: dict[cl.Kernel, tuple[int, str]] = field(default_factory=dict)
    # Where launches are measured.
    _timed_queue: cl.CommandQueue | None = None

    @classmethod
    def open(
        cls,
        wanted: str = "auto",
        threads: int = 0,
        max_local_kib: int = 0,
        max_group_size: int = 0,
    ) -> "Device":
        """Open the first device that ``wanted`` selects.

        Parameters
        ----------
        wanted : str
            ``auto``: a GPU if there is one, else the CPU. Otherwise part of a platform's or
            device's name.
        threads : int
            Threads of PoCL, the OpenCL of CPUs; 0 leaves it its default, all cores. PoCL reads
            the number once, when a process first asks for platforms: later calls cannot change it.
        max_local_kib : int
            Cap of the local memory of a work-group; 0: the device's.
        max_group_size : int
            Size of the work-groups, as far as kernel and device allow it; 0: a good one, on GPUs
            found by measurement. Streams are the same whatever the caps.

        Raises
        ------
        DeviceError
            If there is no OpenCL device, or none of that name; the message lists those present.
        """
        if threads > 0:
            for variable in _POCL_THREADS:
                os.environ[variable] = str(threads)
        devices = _devices_present()
        if wanted == "auto":
            # False sorts before True, and the sort is stable: GPUs first.
            chosen = sorted(devices, key=lambda device: not device.type & cl.device_type.GPU)[0]
        else:
            matches = [d for d in devices if wanted.lower() in _name_of(d).lower()]
            if not matches:
                present = "; ".join(map(_name_of, devices))
                raise DeviceError(f"no OpenCL device matches '{wanted}'; present: {present}")
            chosen = matches[0]
        context = _context_of(chosen)
        is_cpu = bool(chosen.type & cl.device_type.CPU)
        local_bytes = chosen.local_mem_size
        # PoCL compiles a kernel anew for each size of its groups, which gains a CPU nothing.
        measured = not is_cpu and max_group_size == 0
        cache = cache_path(f"{_name_of(chosen)} {chosen.driver_version}")
        return cls(
            name=_name_of(chosen),
            context=context,
            queue=cl.CommandQueue(context),
            is_cpu=is_cpu,
            has_fp64=bool(chosen.double_fp_config),
            compute_units=chosen.max_compute_units,
            local_bytes=min(local_bytes, 1024 * max_local_kib) if max_local_kib else local_bytes,
            max_group_size=max_group_size,
            group_sizes=GroupSizes(cache) if measured else None,
        )

    def program(self, file_name: str, options: tuple[str, ...] = ()) -> "Program":
        """Build the package's OpenCL C source of this name; its kernels are attributes."""
        return self.build(_source(file_name), options)

    def build(self, source: str, options: tuple[str, ...] = ()) -> "Program":
        """Build OpenCL C, in which ``#include "name.cl"`` stands for the package's source, once."""
        return Program(_built(self.context, with_includes(source), options))

    def group_size(self, kernel: cl.Kernel, local_bytes: int = 0) -> int:
        """Return a work-group size that this kernel can have on this device.

        Parameters
        ----------
        kernel : Kernel
        local_bytes : int
            Local memory that each of its work-items needs.
        """
        limit, _ = self._properties(kernel)
        if local_bytes:
            limit = min(limit, self.local_bytes // local_bytes)
        return min(self.max_group_size or _PREFERRED_GROUP_SIZE, limit)

    def buffer(self, name: str, size: int) -> cl.Buffer:
        """Return the buffer of this name, of at least ``size`` bytes; its contents are not kept.

        It is kept between calls and grows to at least twice its size where the device allows that,
        so that the clouds of a sensor soon need no allocation.

        Raises
        ------
        CodecError
            If the device has no buffer of that size.
        """
        # OpenCL has no empty buffers.
        size = max(size, 1)
        present = self._buffers.get(name)
        if present is None or present.size < size:
            limit = self.context.devices[0].max_mem_alloc_size
            refusal = f"{self.name} has no {size / 2**20:.0f} MiB for the cloud: split it"
            # NVIDIA's driver makes a buffer of any size and fails when it is first used.
            if size > limit:
                raise CodecError(refusal)
            grown = grown_size(present.size if present else 0, size, limit)
            try:
                self._buffers[name] = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, grown)
            except cl.Error:
                raise CodecError(refusal) from None
        return self._buffers[name]

    def upload(self, name: str, array: np.ndarray) -> cl.Buffer:
        """Return the buffer of this name after copying ``array`` to its beginning."""
        buffer = self.buffer(name, array.nbytes)
        if array.nbytes:
            cl.enqueue_copy(self.queue, buffer, np.ascontiguousarray(array))
        return buffer

    def zeros(self, name: str, size: int) -> cl.Buffer:
        """Return the buffer of this name, of at least ``size`` bytes, once they will be 0."""
        # Eight at a time: a CPU's driver takes a loop's turn for each.
        rounded = -(-size // 8) * 8
        buffer = self.buffer(name, rounded)
        if rounded:
            cl.enqueue_fill_buffer(self.queue, buffer, np.uint64(0), 0, rounded)
        return buffer

    def download(
        self, buffer: cl.Buffer, count: int, dtype: np.dtype | str, offset: int = 0
    ) -> np.ndarray:
        """Return ``count`` values from byte ``offset`` of ``buffer`` on, once kernels are done."""
        array = np.empty(count, dtype)
        if count:
            cl.enqueue_copy(self.queue, array, buffer, src_offset=offset)
        return array

    def launch(self, kernel: cl.Kernel, items: int, *arguments) -> None:
        """Queue ``kernel`` with ``items`` work-items and those that fill the last group.

        Integers are passed as unsigned 32-bit numbers, buffers and NumPy scalars as they are.
        """
        self._launch_items(kernel, items, self.group_size(kernel), _GROUP_SIZES, arguments)

    def launch_serial(self, kernel: cl.Kernel, items: int, *arguments) -> None:
        """Queue ``kernel``, whose work-items each do long work in sequence."""
        group = 1 if self.is_cpu else min(_SERIAL_GROUP_SIZE, self.group_size(kernel))
        self._launch_items(kernel, items, group, _SERIAL_GROUP_SIZES, arguments)

    def launch_groups(self, kernel: cl.Kernel, groups: int, group: int, *arguments) -> cl.Event:
        """Queue ``kernel`` with this number of work-groups, each of ``group`` work-items."""
        return self._queue_groups(self.queue, kernel, groups, group, arguments)

    def _queue_groups(
        self, queue: cl.CommandQueue, kernel: cl.Kernel, groups: int, group: int, arguments: tuple
    ) -> cl.Event:
        if kernel not in self._typed:
            # A launch whose arguments' types are known takes PyOpenCL a twentieth of the time.
            kernel.set_scalar_arg_dtypes([_scalar_type(argument) for argument in arguments])
            self._typed.add(kernel)
        return kernel(queue, (groups * group,), (group,), *arguments)

    def _launch_items(
        self, kernel: cl.Kernel, items: int, group: int, sizes: tuple[int, ...], arguments: tuple
    ) -> None:
        """Queue ``kernel`` in groups of one of these sizes: ``group`` if nothing is measured."""
        if items == 0:
            return
        if self.group_sizes is None:
            self.launch_groups(kernel, -(-items // group), group, *arguments)
            return
        limit, name = self._properties(kernel)
        # What is best depends on how many work-items there are, roughly.
        task = f"{name} 2^{items.bit_length()}"
        candidates = [size for size in sizes if size <= limit] or [limit]
        group, measured = self.group_sizes.choose(task, candidates)
        if not measured:
            self.launch_groups(kernel, -(-items // group), group, *arguments)
            return
        if self._timed_queue is None:
            profiling = cl.command_queue_properties.PROFILING_ENABLE
            self._timed_queue = cl.CommandQueue(self.context, properties=profiling)
        self.queue.finish()
        event = self._queue_groups(self._timed_queue, kernel, -(-items // group), group, arguments)
        event.wait()
        seconds = 1e-9 * (event.profile.end - event.profile.start)
        self.group_sizes.record(task, group, seconds, candidates)

    def _properties(self, kernel: cl.Kernel) -> tuple[int, str]:
        if kernel not in self._kernels:
            device = self.queue.device
            limit = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device)
            options = kernel.program.get_build_info(device, cl.program_build_info.OPTIONS)
            # The models' kernels differ by these alone.
            defined = [option for option in options.split() if option.startswith("-D")]
            self._kernels[kernel] = limit, " ".join([kernel.function_name, *defined])
        return self._kernels[kernel]


class Program:
    """A built program, shared by a process's codecs, whose kernels are each user's own."""

    def __init__(self, program: cl.Program):
        self._program = program

    def __getattr__(self, name: str) -> cl.Kernel:
        return cl.Kernel(self._program, name)


@functools.cache
def _context_of(device: cl.Device) -> cl.Context:
    """Return the process's context of a device: what is built there serves every codec."""
    return cl.Context([device])


@functools.cache
def _built(context: cl.Context, source: str, options: tuple[str, ...]) -> cl.Program:
    with warnings.catch_warnings():
        # NVIDIA's compiler remarks on kernels that are as they should be.
        warnings.simplefilter("ignore", cl.CompilerWarning)
        return cl.Program(context, source).build(options=list(options))


def _scalar_type(argument: object) -> type | None:
    """Return the type that a kernel takes this argument as; None for buffers and the like."""
    if isinstance(argument, int):
        return np.uint32
    return type(argument) if isinstance(argument, np.generic) else None


def _source(file_name: str) -> str:
    return resources.files(_SOURCES).joinpath(file_name).read_text(encoding="utf-8")


def with_includes(source: str) -> str:
    """Return OpenCL C with the package's sources in place of the lines that include them.

    Each is included once, where it is first wanted; the compiler sees no files.
    """
    included = set()

    def replaced(line: str) -> str:
        match = _INCLUDE.fullmatch(line)
        if not match:
            return line
        if match[1] in included:
            return ""
        included.add(match[1])
        return resolved(_source(match[1]))

    def resolved(text: str) -> str:
        return "\n".join(map(replaced, text.splitlines()))

    return resolved(source)


def _devices_present() -> list[cl.Device]:
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:
        platforms = []
    devices = [device for platform in platforms for device in platform.get_devices()]
    if not devices:
        raise DeviceError(
            "no OpenCL device: install the GPU vendor's OpenCL driver (ICD), or PoCL for the CPU "
            "(pip install pocl-binary-distribution, or your system's pocl package)"
        )
    return devices


def _name_of(device: cl.Device) -> str:
    return f"{device.platform.name.strip()}: {device.name.strip()}"


def grown_size(present: int, needed: int, limit: int) -> int:
    """Return the bytes that a buffer of ``present`` grows to for ``needed``: twice, or less."""
    return min(max(needed, 2 * present), limit)

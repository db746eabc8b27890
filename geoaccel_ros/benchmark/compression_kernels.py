"""Choices that the kernels rest on, measured: group sizes, predictions, memories, arrangements."""

import numpy as np

from geoaccel_ros.benchmark.compression_layouts import layouts
from geoaccel_ros.benchmark.compression_neighbours import memories, predictions
from geoaccel_ros.benchmark.compression_profile import (
    WARM_ROUNDS,
    Profile,
    ProfiledModes,
    open_device,
)
from geoaccel_ros.benchmark.compression_stages import POINTS, STEP
from geoaccel_ros.benchmark.courtyard import map_courtyard
from geoaccel_ros.benchmark.report import Table
from geoaccel_ros.compression.grid import Grid, extents_of
from geoaccel_ros.compression.morton import Morton
from geoaccel_ros.pointcloud.layout import coordinates

GROUP_SIZES = (32, 64, 128, 256, 512, 1024)
# Of all kernels' time; those that take less are left out.
_LEAST_PART = 0.01


def kernels(device: str, threads: int, repetitions: int, points: int = POINTS) -> list[Table]:
    """Return tables of a map of simulated scans.

    Raises
    ------
    BenchmarkError
        If no OpenCL device matches.
    """
    cloud = map_courtyard(points)
    opened = open_device(device, threads)
    xyz = np.ascontiguousarray(coordinates(cloud).T, np.float32)
    grid = Grid.around(extents_of(xyz), STEP, [xyz.dtype] * 3)
    codes = opened.download(Morton(opened).encode(xyz, grid), len(cloud), "u8")
    order = np.argsort(codes, kind="stable")
    cells = grid.cells(xyz)[:, order].astype(np.int64)
    values = cloud["intensity"][order].astype(np.int64)
    if opened.group_sizes is not None:
        # So that groups have the sizes that are found for them.
        predictions(opened, cells, values, WARM_ROUNDS)
    return [
        group_sizes(device, threads, repetitions, cloud),
        predictions(opened, cells, values, repetitions),
        memories(opened, cells, repetitions),
        layouts(opened, xyz, STEP, repetitions),
    ]


def group_sizes(device: str, threads: int, repetitions: int, cloud: np.ndarray) -> Table:
    """Return the milliseconds of each kernel by the size of its work-groups.

    Raises
    ------
    BenchmarkError
        If no OpenCL device matches.
    """
    times: dict[tuple[str, str, str], dict[int, float]] = {}
    for size in GROUP_SIZES:
        modes = ProfiledModes(open_device(device, threads, size), STEP)
        streams = modes.warm_up(cloud)
        for _ in range(repetitions):
            for mode, stream in streams.items():
                for direction, profile in (
                    ("encode", modes.encode(cloud, mode)[1]),
                    ("decode", modes.decode(stream)),
                ):
                    for kernel, ms in _of_size(profile, size).items():
                        own = times.setdefault((mode, direction, kernel), {})
                        own[size] = min(ms, own.get(size, np.inf))
    least = _LEAST_PART * sum(min(own.values()) for own in times.values())
    rows = [
        {"mode": mode, "direction": direction, "kernel": kernel}
        | {f"{size}": own.get(size) for size in GROUP_SIZES}
        for (mode, direction, kernel), own in sorted(times.items())
        if min(own.values()) >= least
    ]
    note = f"Milliseconds of all of a kernel's launches, the least of {repetitions} runs, for "
    note += f"{len(cloud)} points on {modes.device.name}. Empty: device or kernel has no such size."
    note += " Kernels that take less than a hundredth of these are left out."
    if modes.device.is_cpu:
        note += " A CPU works through a group in one thread: the kernels that are not here, whose "
        note += "work-items each have a long run of the data, are given groups of one."
    return Table("Size of work-groups", rows, note)


def _of_size(profile: Profile, size: int) -> dict[str, float]:
    """Return the milliseconds of the kernels that had groups of that size in every launch."""
    of_kernels: dict[str, list[float]] = {}
    others = {launch.kernel for launch in profile.launches if launch.group != size}
    for launch in profile.launches:
        if launch.kernel not in others:
            of_kernels.setdefault(launch.kernel, []).append(launch.milliseconds)
    return {kernel: sum(each) for kernel, each in of_kernels.items()}

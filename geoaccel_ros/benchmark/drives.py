"""Sequences of scans with the true poses of the sensor: what odometry is measured on."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from geoaccel_ros.benchmark.errors import BenchmarkError
from geoaccel_ros.cli.trajectories import read_trajectory
from geoaccel_ros.pointcloud.layout import LayoutError, coordinates
from geoaccel_ros.pointcloud.recordings import RecordingError, ScanFolder
from geoaccel_ros.pointcloud.times import point_times
from geoaccel_ros.registration.metrics import interpolate_poses


@dataclass(frozen=True)
class Sweep:
    """A scan as odometry takes it.

    Attributes
    ----------
    stamp : float, seconds
    xyz : ndarray (N, 3) of float64, metres
        In the sensor's frame, each point as the sensor was at the point's own time.
    times : ndarray (N,) of float64, seconds since ``stamp``, or None
    """

    stamp: float
    xyz: np.ndarray
    times: np.ndarray | None

    @property
    def end(self) -> float:
        """The instant of the last point; the stamp where times are not known."""
        return self.stamp if self.times is None else self.stamp + float(np.max(self.times))


@dataclass(frozen=True)
class Drive:
    """A sequence of scans.

    Attributes
    ----------
    name : str
    sweeps : sequence of Sweep
        Stamps rise.
    stamps : ndarray (M,), seconds, rising
    poses : ndarray (M, 4, 4)
        True poses of the sensor in the world at ``stamps``.
    """

    name: str
    sweeps: Sequence[Sweep]
    stamps: np.ndarray
    poses: np.ndarray

    def truth(self, instants: np.ndarray) -> np.ndarray:
        """Return the true poses at some instants, (N, 4, 4)."""
        return interpolate_poses(self.stamps, self.poses, instants)


def read_drive(folder: Path, scans: int | None = None) -> Drive:
    """Read a KITTI folder: velodyne/ with scans, times.txt, poses.txt of the sensor.

    Parameters
    ----------
    folder : Path
    scans : int or None
        Only the first ones.

    Raises
    ------
    BenchmarkError
        If a scan, a stamp or a pose is missing or cannot be read.
    """
    if not folder.is_dir():
        raise BenchmarkError(f"'{folder}' is no folder; give a KITTI folder with a poses.txt")
    poses_file = folder / "poses.txt"
    if not poses_file.exists():
        raise BenchmarkError(f"'{folder}' has no poses.txt to compare with")
    sweeps, first_ns = [], None
    try:
        with ScanFolder(folder) as recording:
            for cloud in islice(recording.clouds(), scans):
                if cloud.points is None:
                    raise BenchmarkError(f"'{folder}': {cloud.name}: {cloud.problem}")
                first_ns = cloud.stamp_ns if first_ns is None else first_ns
                stamp = 1e-9 * (cloud.stamp_ns - first_ns)
                xyz = np.ascontiguousarray(coordinates(cloud.points), np.float64)
                times = point_times(cloud.points, 1e-9 * cloud.stamp_ns).times
                sweeps.append(Sweep(stamp, xyz, times))
    except (RecordingError, LayoutError) as error:
        raise BenchmarkError(str(error)) from None
    poses = read_trajectory(poses_file).poses
    if len(poses) < len(sweeps):
        raise BenchmarkError(f"'{poses_file}': {len(poses)} poses for {len(sweeps)} scans")
    stamps = np.array([sweep.stamp for sweep in sweeps])
    return Drive(folder.resolve().name, sweeps, stamps, poses[: len(sweeps)])

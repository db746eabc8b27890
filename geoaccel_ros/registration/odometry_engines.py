"""Where odometry runs: on CPU threads, or on an NVIDIA GPU.

An engine thins sweeps, matches them to a local map, and adds them to it; what to do with the
normal equations is :mod:`.odometry`'s.
"""

from typing import Protocol

import numpy as np

from geoaccel_ros.backend import choose_backend
from geoaccel_ros.registration.deskew import move_along
from geoaccel_ros.registration.local_map import LocalMap
from geoaccel_ros.registration.scan_matching import ScanMatcher
from geoaccel_ros.registration.sweep import Sweep, suitable_voxel, thin
from geoaccel_ros.threads import Threads


class Engine(Protocol):
    """What a backend offers; ``name`` is "cpu" or "cuda", ``reason`` why it was taken."""

    name: str
    reason: str

    def suitable_voxel(self, xyz: np.ndarray) -> float:
        """See :func:`.sweep.suitable_voxel`."""

    def thin(self, xyz: np.ndarray, times: np.ndarray | None, voxel: float) -> Sweep:
        """See :func:`.sweep.thin`."""

    def local_map(self, voxel: float, origin: np.ndarray) -> LocalMap:
        """Return an empty local map around ``origin`` (3,)."""

    def matcher(
        self, local_map: LocalMap, sweep: Sweep, tolerance: float, least_deviation: float
    ) -> ScanMatcher:
        """Return what matches a sweep to a local map."""

    def add(
        self, local_map: LocalMap, sweep: Sweep, T_odom_base: np.ndarray, twist: np.ndarray
    ) -> None:
        """Add a sweep, at a pose (4, 4) at its middle with a twist (6,), to a local map."""


class CpuEngine:
    """CPU threads; ``config`` is an :class:`.odometry.OdometryConfig`."""

    name = "cpu"

    def __init__(self, config, reason: str):
        self.reason = reason
        self._config = config
        self._threads = Threads(config.threads)

    def suitable_voxel(self, xyz: np.ndarray) -> float:
        config = self._config
        return suitable_voxel(xyz, config.min_range, config.max_range, self._threads)

    def thin(self, xyz: np.ndarray, times: np.ndarray | None, voxel: float) -> Sweep:
        config = self._config
        return thin(xyz, times, voxel, config.min_range, config.max_range, self._threads)

    def local_map(self, voxel: float, origin: np.ndarray) -> LocalMap:
        config = self._config
        return LocalMap(
            voxel, config.max_range, config.max_voxels, origin, config.planar, self._threads
        )

    def matcher(
        self, local_map: LocalMap, sweep: Sweep, tolerance: float, least_deviation: float
    ) -> ScanMatcher:
        matched = sweep.matched
        return ScanMatcher(
            local_map,
            sweep.points[matched],
            sweep.ages[matched],
            tolerance,
            least_deviation,
            self._threads,
        )

    def add(
        self, local_map: LocalMap, sweep: Sweep, T_odom_base: np.ndarray, twist: np.ndarray
    ) -> None:
        moved = np.empty_like(sweep.points)
        move_along(0, len(sweep), sweep.points, sweep.ages, twist, T_odom_base, moved)
        local_map.add(moved, T_odom_base[:3, 3])


def choose_engine(config) -> Engine:
    """Return the engine for an :class:`.odometry.OdometryConfig`.

    Raises
    ------
    BackendError
        If CUDA was asked for and cannot be used.
    """
    name, reason = choose_backend(config.backend)
    return CpuEngine(config, reason)

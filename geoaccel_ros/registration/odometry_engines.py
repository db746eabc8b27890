"""Where odometry runs: on CPU threads, or on an NVIDIA GPU.

An engine thins sweeps, matches them to a local map, and adds them to it; what to do with the
normal equations is :mod:`.odometry`'s.
"""

from typing import Protocol

import numpy as np

from geoaccel_ros.backend import BackendError, choose_backend
from geoaccel_ros.registration import se3
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
        return thin(xyz, times, voxel, config.min_range, config.max_range)

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

    With "auto" it is CUDA wherever there is one, whatever the size of the scans: on an H200 CUDA is
    the faster from 60 points on, the smallest that was measured (docs/benchmarks.md).

    Raises
    ------
    BackendError
        If CUDA was asked for and cannot be used, or disagrees with the CPU on a small problem.
    """
    name, reason = choose_backend(config.backend)
    if name == "cpu":
        return CpuEngine(config, reason)
    from geoaccel_ros.registration.cuda.odometry import CudaEngine

    engine = CudaEngine(config, reason)
    _check_parity(CpuEngine(config, ""), engine)
    return engine


def _check_parity(cpu: CpuEngine, cuda: Engine) -> None:
    """Refuse a device that computes otherwise than the CPU: some drivers fail in silence."""
    for dtype in (np.float32, np.float64):
        expected, found = (_equations_of_a_corner(engine, dtype) for engine in (cpu, cuda))
        for own, other in zip(expected, found, strict=True):
            if not np.allclose(own, other, rtol=1e-4, atol=1e-4 * np.abs(own).max()):
                raise BackendError(
                    "CUDA's odometry differs from the CPU's on the start-up check: update the "
                    "NVIDIA driver or set backend: cpu"
                )


def _equations_of_a_corner(engine: Engine, dtype) -> tuple[np.ndarray, ...]:
    """Return what an engine makes of a floor, two walls and some noise, seen on the move."""
    generator = np.random.default_rng(1)
    sides = [generator.uniform(-4.0, 4.0, (2000, 3)) for _ in range(3)]
    for axis, side in enumerate(sides):
        side[:, axis] = (-4.0, -4.0, -1.0)[axis]
    points = np.vstack([*sides, generator.uniform(-4.0, 4.0, (500, 3))])
    points += generator.normal(0.0, 0.01, points.shape)
    points = points.astype(dtype)
    times = generator.uniform(0.0, 0.1, len(points))
    sweep = engine.thin(points, times, 0.5)
    twist = np.array([1.0, -0.5, 0.2, 0.1, 0.2, -0.5])
    local_map = engine.local_map(0.5, np.zeros(3))
    engine.add(local_map, sweep, np.eye(4), twist)
    matcher = engine.matcher(local_map, sweep, 0.1, 0.02)
    pose = se3.exp(np.array([0.02, -0.03, 0.01, 0.01, -0.005, 0.01]))
    near, far = (matcher.linearise(pose, twist, radius) for radius in (0.5, 2.0))
    counts = np.array([len(sweep), near.inliers, far.inliers])
    moments = np.array([sweep.middle, sweep.end, sweep.reach, near.deviation, far.deviation])
    points = local_map.points()
    ends = sweep.matched_at_end(twist)
    return counts, moments, near.hessian, far.hessian, near.gradient, points, ends

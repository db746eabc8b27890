"""Contenders of the benchmark of odometry: each takes scan after scan and says where the sensor is.

Each has its package's own defaults, undoes the motion during a sweep where its package can, and
uses ``threads`` where it can be told; the bindings' conversions of arrays belong to their work.
"""

import os
from collections.abc import Callable
from typing import Protocol

import numpy as np

from geoaccel_ros.benchmark.drives import Sweep
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.registration.odometry import Odometry, OdometryConfig

_NO_TIMES = np.empty(0)


class Contender(Protocol):
    """What is measured."""

    # The fractions of the sweep at which its pose may be meant; the one that fits best counts.
    pose_at: tuple[float, ...]
    # CPU threads that it uses.
    threads: int

    def register(self, sweep: Sweep) -> np.ndarray:
        """Return the pose of the sensor, (4, 4), in the frame of the first."""

    def map_size(self) -> int:
        """Return the points or voxels of the local map."""


class Geoaccel:
    """Ours; the base is the sensor."""

    # Its result is stamped with the sweep's end.
    pose_at = (1.0,)

    def __init__(self, threads: int, backend: str = "auto"):
        self.threads = threads
        self._odometry = Odometry(OdometryConfig(backend=backend, threads=threads))

    def register(self, sweep: Sweep) -> np.ndarray:
        return self._odometry.register(sweep.xyz, sweep.times, sweep.stamp).T_odom_base

    def map_size(self) -> int:
        return len(self._odometry.local_map())


class KissIcp:
    """KISS-ICP, whose 1.3 undoes the motion to the sweep's end."""

    pose_at = (0.0, 0.5, 1.0)

    def __init__(self, threads: int):
        from kiss_icp.config import load_config
        from kiss_icp.kiss_icp import KissICP

        self.threads = threads
        config = load_config(None)
        config.registration.max_num_threads = threads
        self._odometry = KissICP(config)

    def register(self, sweep: Sweep) -> np.ndarray:
        # Equal times make it abort the process; of none it takes the scan as it is.
        self._odometry.register_frame(sweep.xyz, _NO_TIMES if sweep.times is None else sweep.times)
        return self._odometry.last_pose

    def map_size(self) -> int:
        return len(self._odometry.local_map.point_cloud())


class GenzIcp:
    """GenZ-ICP, which takes all cores; undoing the motion is off by default there."""

    pose_at = (0.0, 0.5, 1.0)

    def __init__(self, threads: int):
        from genz_icp.config import load_config
        from genz_icp.genz_icp import GenZICP

        self.threads = os.cpu_count() or threads
        config = load_config(None)
        config.data.deskew = True
        self._odometry = GenZICP(config)

    def register(self, sweep: Sweep) -> np.ndarray:
        self._odometry.register_frame(sweep.xyz, sweep.times)
        return self._odometry.last_pose

    def map_size(self) -> int:
        return len(self._odometry.local_map.point_cloud())


class SmallVgicp:
    """small_gicp's VGICP, scan to model, as its example of odometry does it; it knows no times."""

    pose_at = (0.0, 0.5, 1.0)

    def __init__(self, threads: int):
        import small_gicp

        self.threads = threads
        self._package = small_gicp
        self._map = small_gicp.GaussianVoxelMap(1.0)
        self._map.set_lru(horizon=100, clear_cycle=10)
        self._pose, self._motion = np.eye(4), np.eye(4)

    def register(self, sweep: Sweep) -> np.ndarray:
        points, _ = self._package.preprocess_points(sweep.xyz, 0.25, num_threads=self.threads)
        if self._map.size():
            result = self._package.align(
                self._map, points, self._pose @ self._motion, num_threads=self.threads
            )
            self._motion = np.linalg.inv(self._pose) @ result.T_target_source
            self._pose = result.T_target_source
        self._map.insert(points, self._pose)
        return self._pose

    def map_size(self) -> int:
        return self._map.size()


# What makes a contender anew, of the number of threads.
Make = Callable[[int], Contender]

PEERS = (
    Peer("KISS-ICP", "kiss-icp", "kiss_icp.kiss_icp", KissIcp),
    Peer("GenZ-ICP", "genz-icp", "genz_icp.genz_icp", GenzIcp),
    Peer("small_gicp, VGICP", "small-gicp", "small_gicp", SmallVgicp),
)

#!/usr/bin/env python3
"""Odometry beside KISS-ICP, where installed, on rolling-shutter scans of the simulated yard."""

from collections.abc import Callable

import numpy as np
from common import Stopwatch, drive, interleave, parse, report, spread, version

from geoaccel_ros.pointcloud.layout import coordinates
from geoaccel_ros.registration.metrics import absolute_trajectory_error, interpolate_poses
from geoaccel_ros.registration.odometry import Odometry, OdometryConfig
from geoaccel_ros.simulation.world import Simulation

SECONDS = 12.0


def geoaccel(scans, T_base_lidar: np.ndarray, results: dict) -> Callable[[], float]:
    def run() -> float:
        odometry, stopwatch = Odometry(OdometryConfig(backend="cpu", threads=1)), Stopwatch()
        poses = []
        for scan in scans:
            xyz = coordinates(scan.points) @ T_base_lidar[:3, :3].T + T_base_lidar[:3, 3]
            times = scan.points["time"].astype(float)
            with stopwatch:
                result = odometry.register(xyz, times, scan.stamp_ns * 1e-9)
            poses.append((result.stamp, result.T_odom_base))
        results["poses"] = poses
        return stopwatch.milliseconds / len(scans)

    return run


def kiss_icp(scans, T_base_lidar: np.ndarray, results: dict) -> Callable[[], float] | None:
    try:
        from kiss_icp.config import KISSConfig
        from kiss_icp.kiss_icp import KissICP
    except ImportError:
        return None

    def run() -> float:
        config = KISSConfig()
        config.data.max_range, config.data.deskew = 100.0, True
        config.mapping.voxel_size = 1.0
        odometry, stopwatch = KissICP(config), Stopwatch()
        poses = []
        for scan in scans:
            xyz = coordinates(scan.points).astype(np.float64)
            times = scan.points["time"].astype(np.float64)
            with stopwatch:
                odometry.register_frame(xyz, times)
            # In the lidar's frame at the sweep's end; to the base's, for the same comparison.
            T = T_base_lidar @ odometry.last_pose @ np.linalg.inv(T_base_lidar)
            poses.append((scan.stamp_ns * 1e-9 + times.max(), T))
        results["poses"] = poses
        return stopwatch.milliseconds / len(scans)

    return run


def main() -> None:
    options = parse(__doc__)
    scans, truth = drive(SECONDS)
    T_base_lidar = Simulation().T_base_lidar
    stamps = np.array([t.stamp_ns for t in truth]) * 1e-9
    true_poses = np.array([t.T_world_base for t in truth])
    contenders, results = {}, {}
    for name, make in (
        ("geoaccel, 1 thread", geoaccel),
        (f"KISS-ICP {version('kiss-icp')}", kiss_icp),
    ):
        results[name] = {}
        run = make(scans, T_base_lidar, results[name])
        if run is not None:
            contenders[name] = run
    times = interleave(contenders, options.repetitions)
    rows = []
    for name in contenders:
        at, poses = map(np.array, zip(*results[name]["poses"], strict=True))
        expected = interpolate_poses(stamps, true_poses, at)
        relative = np.linalg.inv(expected[0]) @ expected, np.linalg.inv(poses[0]) @ poses
        rows.append(
            {
                "contender": name,
                **{key.replace("_", " "): value for key, value in spread(times[name]).items()},
                "ATE m": absolute_trajectory_error(relative[1], relative[0]),
            }
        )
    title = f"Odometry: {len(scans)} scans of the yard, 1 m/s on a circle, ms a scan"
    report(title, rows, options.json)


if __name__ == "__main__":
    main()

"""Odometry beside KISS-ICP, on rolling-shutter scans of the simulated yard."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.options import add_backend, positive_float
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.benchmark.pictures import save
from geoaccel_ros.benchmark.report import Report
from geoaccel_ros.benchmark.yard import drive
from geoaccel_ros.pointcloud.layout import coordinates
from geoaccel_ros.registration.metrics import absolute_trajectory_error, interpolate_poses
from geoaccel_ros.registration.odometry import Odometry, OdometryConfig
from geoaccel_ros.simulation.events import Scan
from geoaccel_ros.simulation.world import Simulation

# Stamps in seconds and poses of the base, one a scan; a run fills it anew.
Trajectory = list[tuple[float, np.ndarray]]


def geoaccel(
    scans: list[Scan], T_base_lidar: np.ndarray, config: OdometryConfig, found: Trajectory
) -> Callable[[], float]:
    """Return a run over all scans that gives milliseconds a scan."""

    def run() -> float:
        odometry, stopwatch = Odometry(config), Stopwatch()
        found.clear()
        for scan in scans:
            xyz = coordinates(scan.points) @ T_base_lidar[:3, :3].T + T_base_lidar[:3, 3]
            times = scan.points["time"].astype(float)
            with stopwatch:
                result = odometry.register(xyz, times, scan.stamp_ns * 1e-9)
            found.append((result.stamp, result.T_odom_base))
        return stopwatch.milliseconds / len(scans)

    return run


def kiss_icp(
    scans: list[Scan], T_base_lidar: np.ndarray, config: OdometryConfig, found: Trajectory
) -> Callable[[], float]:
    """Return the same of KISS-ICP, with the voxel that it takes for that range by itself."""
    from kiss_icp.config import KISSConfig
    from kiss_icp.kiss_icp import KissICP

    settings = KISSConfig()
    settings.data.max_range, settings.data.deskew = config.max_range, True
    settings.mapping.voxel_size = 0.01 * config.max_range
    settings.registration.max_num_threads = config.threads

    def run() -> float:
        odometry, stopwatch = KissICP(settings), Stopwatch()
        found.clear()
        for scan in scans:
            xyz = coordinates(scan.points).astype(np.float64)
            times = scan.points["time"].astype(np.float64)
            with stopwatch:
                odometry.register_frame(xyz, times)
            # In the lidar's frame at the sweep's end; to the base's, for the same comparison.
            T = T_base_lidar @ odometry.last_pose @ np.linalg.inv(T_base_lidar)
            found.append((scan.stamp_ns * 1e-9 + times.max(), T))
        return stopwatch.milliseconds / len(scans)

    return run


PEERS = (Peer("KISS-ICP", "kiss-icp", "kiss_icp.kiss_icp", kiss_icp),)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the length of the drive and our own backends."""
    parser.add_argument(
        "--seconds", type=positive_float, default=12.0, metavar="S",
        help="simulated drive (default: %(default)g)",
    )  # fmt: skip
    add_backend(parser)


def run(options: argparse.Namespace, peers: Sequence[Peer]) -> Report:
    """Drive a circle and register its scans, one after another."""
    scans, truth = drive(options.seconds)
    T_base_lidar = Simulation().T_base_lidar
    contenders, trajectories = {}, {}

    def add(name: str, make: Callable, config: OdometryConfig) -> None:
        trajectories[name] = []
        contenders[name] = make(scans, T_base_lidar, config, trajectories[name])

    for backend in options.backend:
        config = OdometryConfig(backend=backend, threads=options.threads)
        add(f"geoaccel, {Odometry(config).backend}", geoaccel, config)
    for peer in peers:
        add(peer.name, peer.contender, OdometryConfig(threads=options.threads))
    times = interleave(contenders, options.repetitions)

    stamps = np.array([t.stamp_ns for t in truth]) * 1e-9
    true_poses = np.array([t.T_world_base for t in truth])
    rows, paths = [], {}
    for name, trajectory in trajectories.items():
        at, poses = map(np.array, zip(*trajectory, strict=True))
        expected = interpolate_poses(stamps, true_poses, at)
        paths["truth"] = np.linalg.inv(expected[0]) @ expected
        paths[name] = np.linalg.inv(poses[0]) @ poses
        rows.append(
            {
                "contender": name,
                "scans": len(scans),
                "points": int(np.median([len(scan.points) for scan in scans])),
                "ms": spread(times[name]),
                "repetitions": options.repetitions,
                "ate_rmse_m": absolute_trajectory_error(paths[name], paths["truth"]),
            }
        )
    images = ()
    if options.output is not None:
        images = (options.output / "odometry_paths.png",)
        _draw(images[0], paths)
    return Report("Odometry: the yard, 1 m/s on a circle, milliseconds a scan", rows, images=images)


def _draw(path: Path, paths: dict[str, np.ndarray]) -> None:
    figure = Figure(figsize=(7.0, 7.0), layout="constrained")
    axes = figure.subplots()
    for name, poses in paths.items():
        axes.plot(*poses[:, :2, 3].T, "--" if name == "truth" else "-", label=name)
    axes.set(aspect="equal", xlabel="x [m]", ylabel="y [m]")
    axes.legend()
    save(figure, path)

"""geoaccel odometry: the poses of a recorded sequence of scans."""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.output import write_json
from geoaccel_ros.cli.trajectories import (
    read_kitti_poses,
    read_numbers,
    write_kitti_poses,
    write_tum_poses,
)
from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.pointcloud.files import PointFileError, read_points
from geoaccel_ros.pointcloud.layout import LayoutError, coordinates
from geoaccel_ros.pointcloud.times import point_times
from geoaccel_ros.registration.metrics import (
    absolute_trajectory_error,
    kitti_error,
    path_length,
    relative_pose_error,
)
from geoaccel_ros.registration.odometry import Odometry, OdometryConfig
from geoaccel_ros.ros.params_file import read_mapping, read_parameters

_SUFFIXES = (".bin", ".las", ".laz", ".npy", ".pcd", ".ply", ".pts", ".xyz")
# What else lies in a folder of scans is of these kinds too.
_SUFFIXES_IF_ALONE = (".csv", ".txt")
_NO_SCANS = ("times.txt", "poses.txt", "calib.txt")
# Where a folder has no times.txt.
_PERIOD = 0.1
# Frames over which the relative error is taken where the path is too short for KITTI's 100 m.
_RELATIVE_FRAMES = 10


@dataclass(frozen=True)
class ScanFolder:
    """Scans in the order of their names, with their stamps in seconds."""

    files: list[Path]
    stamps: np.ndarray


def add_parsers(subparsers: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "odometry",
        help="poses of a folder of scans",
        description="Register scan after scan; no scan is ever dropped for want of time.",
    )
    parser.add_argument(
        "path",
        metavar="PATH",
        help="KITTI folder (velodyne/*.bin, times.txt, poses.txt) or folder of scans "
        "(.bin, .las, .laz, .npy, .pcd, .ply, .pts, .xyz; .csv and .txt where there is no other; "
        "a times.txt beside them is used)",
    )
    parser.add_argument(
        "--config",
        metavar="YAML",
        help="parameters of odometry: a ROS parameter file with a section lidar_odometry, or "
        "names and values alone",
    )
    parser.add_argument("--output", metavar="DIR", help="write poses and a picture there")
    parser.add_argument(
        "--truth",
        metavar="FILE",
        help="true poses of the lidar, 3 x 4 row-major on each line (default: PATH/poses.txt)",
    )
    parser.add_argument("--frames", metavar="N", type=_positive, help="only the first N scans")
    parser.add_argument(
        "--json", metavar="FILE", help="write the results as JSON, '-' for standard output"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    path = Path(args.path)
    scans = find_scans(path, args.frames)
    truth = _truth(path, args.truth, len(scans.files))
    config = read_config(Path(args.config)) if args.config else OdometryConfig()
    output = Path(args.output) if args.output else None
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make folder '{output}': {error.strerror}") from None

    odometry = Odometry(config)
    poses, stamps, statuses, milliseconds = _register_all(odometry, scans, args.json == "-")
    statistics = milliseconds[statuses != "seeded"]
    if not len(statistics):
        statistics = milliseconds
    result = {
        "frames": len(poses),
        "dropped": int(np.count_nonzero(statuses == "skipped")),
        "failed": int(np.count_nonzero(statuses == "failed")),
        "ms": {
            "median": float(np.median(statistics)),
            "p95": float(np.percentile(statistics, 95)),
        },
        "path_m": path_length(poses),
        "backend": odometry.backend,
        "backend_reason": odometry.backend_reason,
        "threads": config.threads,
        "voxel_m": odometry.voxel,
    }
    if truth is not None:
        result |= _errors(poses, truth)
    if output is not None:
        write_kitti_poses(output / "poses_kitti.txt", poses)
        write_tum_poses(output / "poses_tum.txt", stamps, poses)
        _plot(output / "trajectory.png", poses, truth, odometry.local_map())
    _report(args, result)
    return 0


def find_scans(path: Path, frames: int | None = None) -> ScanFolder:
    """Return the scans of a KITTI folder or of a folder of scans, the first ``frames`` of them.

    Files of .csv and .txt are scans only where there are no others: they may as well be poses.
    Stamps come from times.txt; without one the scans are taken to be 0.1 s apart.

    Raises
    ------
    UserError
        If there are no scans, or times.txt does not fit them.
    """
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise UserError(f"'{path}' {what}; give a KITTI folder or a folder of scans")
    folder = path / "velodyne" if (path / "velodyne").is_dir() else path
    files = _of_kind(folder, _SUFFIXES) or _of_kind(folder, _SUFFIXES_IF_ALONE)
    if not files:
        known = ", ".join(_SUFFIXES + _SUFFIXES_IF_ALONE)
        raise UserError(f"'{folder}' holds no scans ({known})")
    stamps = np.arange(len(files)) * _PERIOD
    times_file = path / "times.txt"
    if times_file.exists():
        stamps = read_numbers(times_file, 1)[:, 0]
        if len(stamps) < len(files):
            raise UserError(f"'{times_file}': {len(stamps)} stamps for {len(files)} scans")
        stamps = stamps[: len(files)]
        if np.any(np.diff(stamps) <= 0.0):
            raise UserError(f"'{times_file}': its stamps do not rise")
    return ScanFolder(files[:frames], stamps[:frames])


def _of_kind(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    files = (file for file in folder.iterdir() if file.suffix.lower() in suffixes)
    return sorted(file for file in files if file.name not in _NO_SCANS and file.is_file())


def read_config(path: Path) -> OdometryConfig:
    """Return the parameters in a YAML file; those of the node alone (frames, topics) are skipped.

    Raises
    ------
    ConfigurationError, UserError
        If the file cannot be read, or a value is not accepted.
    """
    content = read_mapping(path)
    if any(isinstance(value, dict) for value in content.values()):
        content = read_parameters(path, "/lidar_odometry")
        if not content:
            raise UserError(f"'{path}': no section lidar_odometry with ros__parameters")
        known = {declared.name for declared in OdometryConfig.parameters()}
        content = {name: value for name, value in content.items() if name in known}
    try:
        return OdometryConfig.from_mapping(content)
    except ConfigurationError as error:
        raise UserError(f"'{path}': {error}") from None


def _register_all(
    odometry: Odometry, scans: ScanFolder, quiet: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return poses (N, 4, 4), their stamps (N,), statuses (N,) and milliseconds (N,)."""
    poses, stamps, statuses, milliseconds = [], [], [], []
    progress = tqdm(
        zip(scans.files, scans.stamps, strict=True),
        total=len(scans.files),
        unit="scan",
        disable=quiet or not sys.stderr.isatty(),
    )
    for file, stamp in progress:
        try:
            points = read_points(file)
            xyz = coordinates(points)
        except (PointFileError, LayoutError) as error:
            raise UserError(str(error)) from None
        started = time.perf_counter()
        result = odometry.register(xyz, point_times(points, stamp).times, float(stamp))
        milliseconds.append(1e3 * (time.perf_counter() - started))
        if result.status in ("skipped", "failed"):
            tqdm.write(f"{file.name}: {result.status}: {result.reason}", file=sys.stderr)
        poses.append(result.T_odom_base)
        stamps.append(result.stamp)
        statuses.append(result.status)
    return np.array(poses), np.array(stamps), np.array(statuses), np.array(milliseconds)


def _truth(path: Path, given: str | None, frames: int) -> np.ndarray | None:
    file = Path(given) if given else path / "poses.txt"
    if not given and not file.exists():
        return None
    poses = read_kitti_poses(file)
    if len(poses) < frames:
        raise UserError(f"'{file}': {len(poses)} poses for {frames} scans")
    return poses[:frames]


def _errors(poses: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return the errors under the names that say which definition they follow."""
    errors = {
        "truth_path_m": path_length(truth),
        "ate_rmse_m": absolute_trajectory_error(poses, truth),
    }
    kitti = kitti_error(poses, truth)
    if kitti is not None:
        errors["rpe_trans_percent"] = 100.0 * kitti[0]
        errors["rpe_rot_deg_per_100m"] = float(np.degrees(100.0 * kitti[1]))
    elif len(poses) > _RELATIVE_FRAMES:
        translation, rotation = relative_pose_error(poses, truth, _RELATIVE_FRAMES)
        errors[f"rpe_{_RELATIVE_FRAMES}_frames_m"] = translation
        errors[f"rpe_{_RELATIVE_FRAMES}_frames_deg"] = float(np.degrees(rotation))
    return errors


def _plot(file: Path, poses: np.ndarray, truth: np.ndarray | None, points: np.ndarray) -> None:
    """Draw the trajectory from above over the local map, and its height along the path."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 9.0), layout="constrained")
    top, side = figure.subplots(2, 1, height_ratios=(4, 1))
    start = poses[0, :3, 3]
    # The surroundings of the path; the whole range would shrink it to a dot.
    near = np.abs(points - start).max(axis=1) < 15.0 + 1.2 * np.abs(poses[:, :3, 3] - start).max()
    top.plot(*points[near][:, :2].T, ".", markersize=1.0, color="0.6", zorder=0)
    lines = [("odometry", poses, "-", "tab:blue")]
    if truth is not None:
        aligned = poses[0] @ np.linalg.inv(truth[0]) @ truth
        lines.insert(0, ("truth", aligned, "--", "black"))
    for label, trajectory, style, colour in lines:
        top.plot(*trajectory[:, :2, 3].T, style, color=colour, label=label)
        steps = np.linalg.norm(np.diff(trajectory[:, :3, 3], axis=0), axis=1)
        travelled = np.concatenate([[0.0], np.cumsum(steps)])
        side.plot(travelled, trajectory[:, 2, 3], style, color=colour)
    top.plot(*start[:2], "o", color="tab:green", label="start")
    top.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
    top.set_adjustable("datalim")
    top.legend()
    side.set(xlabel="path [m]", ylabel="z [m]")
    side.grid(alpha=0.3)
    try:
        figure.savefig(file, dpi=120)
    except OSError as error:
        raise UserError(f"cannot write '{file}': {error.strerror}") from None


def _report(args: argparse.Namespace, result: dict) -> None:
    if args.json:
        write_json(result, args.json)
    if args.json == "-":
        return
    for name, value in result.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {number:.1f}" for key, number in value.items())
        elif isinstance(value, float):
            value = f"{value:.4g}"
        print(f"{name:22} {value}")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value

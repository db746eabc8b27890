"""geoaccel odometry: the poses of a recorded sequence of scans."""

import argparse
import difflib
import sys
from pathlib import Path

import numpy as np
import yaml

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.options import add_options
from geoaccel_ros.cli.output import write_json
from geoaccel_ros.cli.recorded_odometry import RecordedOdometry, RecordedOdometryConfig
from geoaccel_ros.cli.trajectories import write_kitti_poses, write_tum_poses
from geoaccel_ros.cli.trajectory_picture import draw_trajectory
from geoaccel_ros.cli.truth import Comparison, Truth
from geoaccel_ros.config import ConfigurationError, unknown_name_message
from geoaccel_ros.pointcloud.recordings import Bag, RecordingError, ScanFolder, open_recording
from geoaccel_ros.pointcloud.times import PointTimes
from geoaccel_ros.registration.metrics import path_length
from geoaccel_ros.ros.params_file import read_mapping, read_parameters, sections_of

_NODE = "lidar_odometry"
# A name this much like a parameter's is a misspelt one, and none of the node's own.
_MISSPELT = 0.8


def add_parsers(subparsers: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "odometry",
        help="poses of a bag or a folder of scans",
        description="Register scan after scan; no scan is ever dropped for want of time. With "
        "--output DIR: poses_tum.txt, poses_kitti.txt, trajectory.png, timing.csv and config.yaml.",
    )
    parser.add_argument(
        "path",
        metavar="PATH",
        help="a bag of ROS 1 (.bag) or ROS 2 (folder, .mcap, .db3), a KITTI folder "
        "(velodyne/*.bin, times.txt, poses.txt, calib.txt), or a folder of scans "
        "(.bin, .las, .laz, .npy, .pcd, .ply, .pts, .xyz; .csv and .txt where there is no other; "
        "a times.txt beside them is used)",
    )
    parser.add_argument(
        "--topic", metavar="NAME", help="the clouds' topic in a bag that has them on several"
    )
    parser.add_argument(
        "--config",
        metavar="YAML",
        help=f"parameters: a ROS parameter file with a section {_NODE}, or names and values alone",
    )
    parser.add_argument("--output", metavar="DIR", help="write poses, times and a picture there")
    parser.add_argument(
        "--truth",
        metavar="FILE",
        help="true poses of the base (the lidar, where that is taken for it): KITTI (12 numbers on "
        "each line, a line a cloud; with a calib.txt in PATH those of its camera 0) or TUM (stamp "
        "x y z qx qy qz qw, interpolated); default: PATH/poses.txt, if it can be used",
    )
    parser.add_argument("--frames", metavar="N", type=_positive, help="only the first N clouds")
    parser.add_argument(
        "--json", metavar="FILE", help="write the results as JSON, '-' for standard output"
    )
    add_options(
        parser.add_argument_group("parameters", "They win over those of --config."),
        RecordedOdometryConfig,
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    path, output = Path(args.path), Path(args.output) if args.output else None
    config = _configuration(args)
    try:
        recording = open_recording(path, args.topic)
    except RecordingError as error:
        raise UserError(str(error)) from None
    with recording:
        clouds = min(len(recording), args.frames or len(recording))
        truth = _truth(path, args.truth, clouds)
        for notice in (recording.notice, truth.notice(len(recording)) if truth else ""):
            _tell(notice)
        if output is not None:
            _make_folder(output)
        run = RecordedOdometry(config, recording)
        run.run(clouds, quiet=args.json == "-")
    estimate = run.estimate()
    comparison, mismatch = None, ""
    if truth is not None:
        try:
            comparison = truth.compare(estimate)
        except UserError as error:
            # Not raised before all is written: the poses are worth more than their errors.
            mismatch = str(error)
    if output is not None:
        write_kitti_poses(output / "poses_kitti.txt", run.poses())
        write_tum_poses(output / "poses_tum.txt", estimate.stamps_ns, estimate.poses)
        run.write_timing(output / "timing.csv")
        _write_config(output / "config.yaml", config, run)
    result = _result(config, recording, run, comparison)
    if mismatch:
        result["truth_not_used"] = mismatch
    _report(args, result)
    _hint(config, run)
    if output is not None:
        # Last: it takes longest, and the rest is told whatever comes between.
        draw_trajectory(output / "trajectory.png", estimate.poses, run.surroundings, comparison)
    if mismatch and not args.truth:
        _tell(f"{mismatch}; gone on without truth")
        mismatch = ""
    broke_off = f"{run.broke_off}: the poses so far are told" if run.broke_off else ""
    if broke_off or mismatch:
        raise UserError("; ".join(filter(None, [broke_off, mismatch])))
    return 0


def read_config(path: Path) -> dict[str, object]:
    """Return the parameters in a YAML file; those of the node alone (tf, queues) are left out.

    Raises
    ------
    ConfigurationError, UserError
        If the file cannot be read, or a name is unknown and is not the node's.
    """
    content = read_mapping(path)
    if any(isinstance(value, dict) for value in content.values()):
        names = sections_of(path, _NODE)
        content = read_parameters(path, names[0] if len(names) == 1 else f"/{_NODE}")
        if not content and len(names) > 1:
            raise UserError(
                f"'{path}': several sections {_NODE} ({', '.join(names)}): give a file with one"
            )
        if not content:
            raise UserError(f"'{path}': no section {_NODE} with ros__parameters")
        known = [declared.name for declared in RecordedOdometryConfig.parameters()]
        for name in content.keys() - known:
            if difflib.get_close_matches(name, known, cutoff=_MISSPELT):
                raise UserError(f"'{path}': {unknown_name_message(name, known)}")
        content = {name: value for name, value in content.items() if name in known}
    try:
        return RecordedOdometryConfig.from_mapping(content).as_dict()
    except ConfigurationError as error:
        raise UserError(f"'{path}': {error}") from None


def _configuration(args: argparse.Namespace) -> RecordedOdometryConfig:
    values = read_config(Path(args.config)) if args.config else {}
    names = [declared.name for declared in RecordedOdometryConfig.parameters()]
    values |= {name: getattr(args, name) for name in names if hasattr(args, name)}
    return RecordedOdometryConfig(**values)


def _truth(path: Path, given: str | None, clouds: int) -> Truth | None:
    file = Path(given) if given else path / "poses.txt"
    if not given and not file.is_file():
        return None
    calibration = path / "calib.txt"
    try:
        truth = Truth(file, calibration if calibration.is_file() else None)
        truth.check(clouds)
    except UserError as error:
        if given:
            raise
        # Nobody asked for it, and it may be anything.
        _tell(f"{error}; gone on without truth")
        return None
    return truth


def _tell(line: str) -> None:
    if line:
        print(line, file=sys.stderr)


def _hint(config: RecordedOdometryConfig, run: RecordedOdometry) -> None:
    """Say what helps where most scans left directions open, or fitted no map."""
    scans, failed = len(run.rows), sum(row.status == "failed" for row in run.rows)
    planar = [] if config.planar else ["--planar for a 2D lidar"]
    if 2 * run.degenerate > scans:
        remedies = [*planar, "on a robot, a prior for the node (wheel odometry or an IMU)"]
        _tell(
            f"{run.degenerate} of {scans} scans do not fix the motion in all directions, which "
            f"there is predicted: {'; '.join(remedies)}"
        )
    elif 2 * failed > scans and planar:
        # The points of a 2D lidar lie on lines, and make no surfaces in space.
        _tell(f"{failed} of {scans} scans did not fit the map: {planar[0]}")


def _make_folder(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make folder '{output}': {error.strerror}") from None


def _write_config(file: Path, config: RecordedOdometryConfig, run: RecordedOdometry) -> None:
    """Write the configuration as the node and --config read it."""
    # ROS cannot read an empty list: not to be set is to be empty.
    values = {name: value for name, value in config.as_dict().items() if value != []}
    section = {f"/**/{_NODE}": {"ros__parameters": values}}
    text = f"# voxel found: {run.odometry.voxel:.6g} m\n" if config.voxel == 0.0 else ""
    try:
        file.write_text(text + yaml.safe_dump(section, sort_keys=False))
    except OSError as error:
        raise UserError(f"cannot write '{file}': {error.strerror}") from None


def _result(
    config: RecordedOdometryConfig,
    recording: Bag | ScanFolder,
    run: RecordedOdometry,
    comparison: Comparison | None,
) -> dict:
    timed = [row.ms for row in run.rows if row.status in ("registered", "failed")]
    timed = timed or [row.ms for row in run.rows if row.status == "seeded"]
    result = {
        "frames": len(run.rows),
        "dropped": sum(run.dropped.values()),
        "dropped_because": dict(run.dropped),
        "failed": sum(row.status == "failed" for row in run.rows),
        "restarts": run.restarts,
        "degenerate": run.degenerate,
        "lost": run.lost,
        "ms": {"median": float(np.median(timed)), "p95": float(np.percentile(timed, 95))},
        "path_m": path_length(run.estimate().poses),
        "layout": run.layout,
        "point_times": _describe(run.point_times, run.without_times),
        "mount": run.mounts.describe(),
        "backend": run.odometry.backend,
        "backend_reason": run.odometry.backend_reason,
        "threads": config.threads,
        "voxel_m": run.odometry.voxel,
    }
    if run.broke_off:
        result["broke_off"] = run.broke_off
    if isinstance(recording, Bag):
        result["topic"] = recording.topic
    if comparison is not None:
        result |= comparison.errors()
    return result


def _describe(point_times: PointTimes, without: int) -> str:
    """Return where the points' times come from, one line."""
    if point_times.times is None:
        return f"none, {point_times.reason}"
    counts_from = {
        "header": "from the header's stamp",
        "absolute": "absolute",
        "first": "the first point at the header's stamp",
        "last": "the last point at the header's stamp",
    }
    text = f"{point_times.field} [{point_times.unit}], {counts_from[point_times.reference]}"
    return f"{text}; {without} clouds without" if without else text


def _report(args: argparse.Namespace, result: dict) -> None:
    if args.json:
        write_json(result, args.json)
    if args.json == "-":
        return
    for name, value in result.items():
        if name == "dropped_because" and not value:
            continue
        if isinstance(value, dict):
            value = ", ".join(f"{key} {number:.4g}" for key, number in value.items())
        elif isinstance(value, float):
            value = f"{value:.4g}"
        print(f"{name:22} {value}")


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"is '{text}', must be a whole number above 0")
    return value

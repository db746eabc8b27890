"""geoaccel register: the transform between two clouds."""

import argparse
import time
from pathlib import Path

import numpy as np

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.output import write_json
from geoaccel_ros.cli.trajectories import read_transform
from geoaccel_ros.pointcloud.files import PointFileError, read_points
from geoaccel_ros.pointcloud.layout import LayoutError, coordinates
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.icp import METHODS, register


def add_parsers(subparsers: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "register",
        help="the transform between two clouds",
        description="Lay SOURCE onto TARGET by iterative closest point.",
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="cloud: .bin (KITTI), .npy, .pcd, .ply, .las, .laz or text (.xyz, .txt, .csv, .pts)",
    )
    parser.add_argument("source", metavar="SOURCE", help="cloud that is moved onto it")
    parser.add_argument(
        "--method", choices=METHODS, default="point_to_plane", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--max-dist",
        type=_positive,
        default=1.0,
        metavar="M",
        help="drop matches farther apart, in metres (default: %(default)s)",
    )
    parser.add_argument(
        "--voxel", type=_positive, metavar="M", help="thin both clouds first, edge in metres"
    )
    parser.add_argument(
        "--init", metavar="FILE", help="first guess of T_target_source: 16 numbers, row by row"
    )
    parser.add_argument("--truth", metavar="FILE", help="the true transform; its error is printed")
    parser.add_argument(
        "--backend", choices=("auto", "cpu", "cuda"), default="auto", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="CPU threads (default: %(default)s)"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write the results as JSON, '-' for standard output"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; 0 also where the clouds do not converge, which the result says."""
    initial = read_transform(Path(args.init)) if args.init else None
    truth = read_transform(Path(args.truth)) if args.truth else None
    if not 1 <= args.threads <= 256:
        raise UserError(f"--threads is {args.threads}, must be 1 to 256")
    started = time.perf_counter()
    target, source = _read(args.target), _read(args.source)
    read_ms = 1e3 * (time.perf_counter() - started)

    started = time.perf_counter()
    found = register(
        target,
        source,
        args.method,
        max_distance=args.max_dist,
        initial=initial,
        voxel=args.voxel,
        backend=args.backend,
        threads=args.threads,
    )
    result = {
        "T_target_source": found.T_target_source.ravel().tolist(),
        "converged": found.converged,
        "reason": found.reason,
        "iterations": found.iterations,
        "rmse_m": found.rmse,
        "inliers": found.inliers,
        "overlap": found.overlap,
        "timings_ms": {"read": read_ms, "total": 1e3 * (time.perf_counter() - started)},
    }
    if truth is not None:
        error = se3.inverse(truth) @ found.T_target_source
        rotation = se3.log_rotation(error[:3, :3])
        result["error_m"] = float(np.linalg.norm(error[:3, 3]))
        result["error_deg"] = float(np.degrees(np.linalg.norm(rotation)))
    if args.json:
        write_json(result, args.json)
    if args.json != "-":
        _print(result)
    return 0


def _read(path: str) -> np.ndarray:
    try:
        return coordinates(read_points(path))
    except (PointFileError, LayoutError) as error:
        raise UserError(str(error)) from None


def _print(result: dict) -> None:
    for name, value in result.items():
        if name == "T_target_source":
            rows = np.reshape(value, (4, 4))
            value = ("\n" + " " * 18).join(" ".join(f"{v:12.8f}" for v in row) for row in rows)
        elif isinstance(value, dict):
            value = ", ".join(f"{key} {number:.1f}" for key, number in value.items())
        elif isinstance(value, float):
            value = f"{value:.6g}"
        print(f"{name:17} {value}")


def _positive(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive length")
    return value

"""geoaccel register: the transforms that lay clouds onto a target."""

import argparse
import collections
import contextlib
import dataclasses
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from geoaccel_ros.backend import choose_backend
from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.options import add_options, configuration
from geoaccel_ros.cli.output import check_target, write_json
from geoaccel_ros.cli.registration_report import describe, page, table
from geoaccel_ros.cli.trajectories import read_transform
from geoaccel_ros.pointcloud.files import PointFileError, read_points
from geoaccel_ros.pointcloud.layout import LayoutError, coordinates
from geoaccel_ros.registration import Registration, RegistrationConfig, Target

_MAIN_OPTIONS = ("method", "voxel", "max_distance", "backend", "threads")
_DESCRIPTION = """\
Lay each SOURCE onto TARGET by iterative closest point and tell the rigid transform. Clouds are .bin
(KITTI), .npy, .pcd, .ply, .las, .laz or text (.xyz, .txt, .csv, .pts), with coordinates in metres.
"""
_EPILOG = """\
A transform is T_target_source: it maps the source's coordinates to the target's. In a file it is 16
numbers, row by row. The status is 0 also where nothing converged: `converged` and `reason` tell.

examples:
  geoaccel register map.pcd scan.pcd --init guess.txt --plot scan.png
  geoaccel register map.pcd scan.pcd --voxel 1,0.5,0.1    coarse to fine: the first guess is far off
  geoaccel register map.pcd scans/*.pcd --method gicp --json results.json
"""


@dataclasses.dataclass(frozen=True)
class Cloud:
    """Points (N, 3) of a file, and the milliseconds that reading it took."""

    path: str
    points: np.ndarray
    read_ms: float


def add_parsers(subparsers: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "register",
        help="the transform between clouds",
        usage="%(prog)s [options] TARGET SOURCE [SOURCE ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="TARGET", help="cloud that stays where it is")
    parser.add_argument(
        "sources", metavar="SOURCE", nargs="+", help="cloud that is moved onto it, or several"
    )
    add_options(
        parser.add_argument_group("registration"),
        RegistrationConfig,
        _MAIN_OPTIONS,
        aliases={"max_distance": "--max-dist"},
    )
    files = parser.add_argument_group("files")
    files.add_argument(
        "--init", metavar="FILE", help="first guess, of every source (default: identity)"
    )
    files.add_argument(
        "--truth", metavar="FILE", action="append",
        help="true transform: errors are told; for several sources once, or once for each in order",
    )  # fmt: skip
    files.add_argument(
        "--plot", metavar="FILE", help="draw a PNG: before, after and convergence (of one source)"
    )
    files.add_argument(
        "--json", metavar="FILE", help="write the results as JSON, '-' for standard output"
    )
    names = [declared.name for declared in RegistrationConfig.parameters()]
    add_options(
        parser.add_argument_group("finer points"),
        RegistrationConfig,
        [name for name in names if name not in _MAIN_OPTIONS],
    )
    parser.set_defaults(run=lambda args: run(args, parser))


def run(args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Run the command; 0 also where the clouds do not converge, which the result says."""
    count = len(args.sources)
    if args.truth and len(args.truth) not in (1, count):
        parser.error(f"--truth is given {len(args.truth)} times, must be once or {count} times")
    if args.plot and count > 1:
        parser.error(f"--plot draws one source, not {count}")
    if args.plot:
        check_target(args.plot)
        taken = {Path(path).resolve() for path in (args.target, *args.sources, args.json or "-")}
        if Path(args.plot).resolve() in taken:
            parser.error(f"--plot {args.plot} would write over a cloud or the JSON")
    config = configuration(args, RegistrationConfig)
    initial = read_transform(Path(args.init)) if args.init else None
    truths = [read_transform(Path(path)) for path in args.truth or []] or [None]

    # Reading, compiling, the target, each source.
    steps = (1 + count) + 1 + 1 + count
    with tqdm(total=steps, disable=not sys.stderr.isatty(), leave=False) as progress:
        target, *sources = (_read(path, progress) for path in (args.target, *args.sources))
        progress.set_description("compiling")
        warm_up(config)
        progress.update()
        prepared, found, speeds = register_all(target, sources, config, initial, progress)

    content = {
        "target": target.path,
        "backend": prepared.backend,
        "backend_reason": prepared.backend_reason,
    }
    results = [
        {
            "source": source.path,
            **describe(one, source.points, target.read_ms + source.read_ms, truth),
        }
        for one, source, truth in zip(found, sources, itertools.cycle(truths), strict=False)
    ]
    for result in results:
        for warning in result["warnings"]:
            print(f"geoaccel register: {result['source']}: {warning}", file=sys.stderr)
    content |= results[0] if count == 1 else {"registrations": results, **speeds}
    if args.plot:
        # matplotlib takes longer to import than most clouds to register.
        from geoaccel_ros.cli.registration_picture import draw

        draw(args.plot, target.points, sources[0].points, initial, found[0], truths[0])
    if args.json:
        write_json(content, args.json)
    if args.json != "-":
        print(page(content) if count == 1 else table(content))
    return 0


def warm_up(config: RegistrationConfig) -> None:
    """Have compiled what a registration calls, so that it is not what is timed."""
    backends = {config.backend}
    if config.backend == "auto" and choose_backend("auto")[0] == "cuda":
        backends = {"cpu", "cuda"}
    points = np.random.default_rng(0).uniform(-5.0, 5.0, (500, 3))
    for backend in backends:
        tiny = dataclasses.replace(
            config, backend=backend, voxel=(0.5,) if config.voxel else (), max_iterations=3
        )
        for dtype in (np.float32, np.float64):
            Target(points.astype(dtype), tiny).register(points.astype(dtype))


def register_all(
    target: Cloud,
    sources: list[Cloud],
    config: RegistrationConfig,
    initial: np.ndarray | None,
    progress: tqdm,
) -> tuple[Target, list[Registration], dict[str, float | None]]:
    """Register all sources; where there are several, measure how many are done a second.

    Returns
    -------
    Target
    list of Registration
    dict of str to float
        frames_per_second, each waited for, and frames_per_second_overlapped: on CUDA, where one is
        copied to the device while another is aligned; None on the CPU. Empty for one source.
    """
    progress.set_description("preparing the target")
    with _naming(target):
        prepared = Target(target.points, config)
    progress.update()
    if len(sources) > 1 and prepared.backend == "cuda":
        # Allocates the device's memory, which is not the work of a frame.
        collections.deque(prepared.register_all(s.points for s in sources[:2]), maxlen=0)
    found, elapsed = [], 0.0
    for source in sources:
        progress.set_description(f"registering {Path(source.path).name}")
        started = time.perf_counter()
        with _naming(source):
            found.append(prepared.register(source.points, initial))
        elapsed += time.perf_counter() - started
        progress.update()
    if len(sources) == 1:
        return prepared, found, {}
    speeds = {"frames_per_second": len(sources) / elapsed, "frames_per_second_overlapped": None}
    if prepared.backend == "cuda":
        progress.set_description("registering all, overlapped")
        started = time.perf_counter()
        for _ in prepared.register_all((source.points for source in sources), initial):
            progress.update()
        overlapped = time.perf_counter() - started
        speeds["frames_per_second_overlapped"] = len(sources) / overlapped
    return prepared, found, speeds


@contextlib.contextmanager
def _naming(cloud: Cloud) -> Iterator[None]:
    """Say of which file an error is."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"{cloud.path}: {error}") from None


def _read(path: str, progress: tqdm) -> Cloud:
    progress.set_description(f"reading {Path(path).name}")
    started = time.perf_counter()
    try:
        # Side by side in memory, as they are copied to a device.
        points = np.ascontiguousarray(coordinates(read_points(path)))
    except PointFileError as error:
        raise UserError(str(error)) from None
    except LayoutError as error:
        raise UserError(f"{path}: {error}") from None
    progress.update()
    return Cloud(path, points, 1e3 * (time.perf_counter() - started))

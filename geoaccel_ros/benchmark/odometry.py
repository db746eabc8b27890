"""Odometry beside its peers, on drives through a simulated courtyard or on recorded ones."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from geoaccel_ros.benchmark.courtyard import drive_courtyard, stand_in_courtyard
from geoaccel_ros.benchmark.drives import Drive, read_drive
from geoaccel_ros.benchmark.errors import BenchmarkError
from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.odometry_contenders import PEERS, Contender, Geoaccel, Make
from geoaccel_ros.benchmark.odometry_errors import (
    drift_rate,
    errors,
    pose_instants,
    typical_pass,
)
from geoaccel_ros.benchmark.options import add_backend, positive_int
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.benchmark.pictures import save
from geoaccel_ros.benchmark.report import Report, Table
from geoaccel_ros.registration.odometry import Odometry, OdometryConfig

__all__ = ["PEERS", "add_options", "run"]

# Name, and whether the drive begins at rest.
_SCENES = {"at-speed": False, "from-rest": True}
_STANDSTILL = "standstill"
# Ten minutes.
_STANDSTILL_SCANS = 6000
_FEWEST_STANDSTILL_SCANS = 3
_STANDSTILL_NOTE = (
    "Drift (the slope of the line that fits the positions best) and growth of the map are counted "
    "from the end of the first tenth of the time on; the map's size is in points or voxels."
)
# A contender's poses and the true ones at the same instants, (N, 4, 4), each from the origin on.
_Path = tuple[np.ndarray, np.ndarray]
_NAMES = {0.0: "begin", 0.5: "middle", 1.0: "end"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the scenes, recorded drives, their length, and our own backends."""
    parser.add_argument(
        "--scene", nargs="+", choices=(*_SCENES, _STANDSTILL), metavar="NAME",
        help=f"drives in the courtyard: {', '.join(_SCENES)}, or {_STANDSTILL} for ten minutes, "
        "once and not repeated (default: the first two, none where --data is given)",
    )  # fmt: skip
    parser.add_argument(
        "--data", nargs="+", type=Path, default=[], metavar="DIR",
        help="recorded drives: KITTI folders with velodyne/, times.txt and poses.txt of the lidar",
    )  # fmt: skip
    parser.add_argument(
        "--scans", type=positive_int, metavar="N", help="only the first N of each drive"
    )
    add_backend(parser)


def run(options: argparse.Namespace, peers: Sequence[Peer]) -> Report:
    """Run every contender over every drive, scan by scan in turn."""
    makes: dict[str, Make] = {}
    for backend in options.backend:
        name = f"geoaccel, {Odometry(OdometryConfig(backend=backend)).backend}"
        makes[name] = lambda threads, backend=backend: Geoaccel(threads, backend)
    makes |= {peer.name: peer.contender for peer in peers}

    rows, tables, images = [], [], []
    scenes = options.scene or ([] if options.data else [*_SCENES])
    for drive in _drives(scenes, options.data, options.scans):
        runs = {name: _Run(drive, make, options.threads) for name, make in makes.items()}
        times = _interleave(runs, drive, options.repetitions)
        own, paths = _rows(drive, runs, times, options.repetitions)
        rows += own
        if options.output is not None:
            stem = "".join(c if c.isalnum() else "_" for c in drive.name)
            images.append(options.output / f"odometry_{stem}.png")
            _draw(images[-1], drive.name, paths)
    if _STANDSTILL in scenes:
        tables.append(_stand(options.scans or _STANDSTILL_SCANS, makes, options.threads))
    title = "Odometry: milliseconds a scan, errors against the truth"
    return Report(title, rows, tuple(tables), tuple(images))


def _drives(scenes: Sequence[str], folders: Sequence[Path], scans: int | None) -> Iterator[Drive]:
    """Yield the drives asked for, one at a time in memory."""
    for scene in scenes:
        if scene != _STANDSTILL:
            yield drive_courtyard(_SCENES[scene], scans)
    for folder in folders:
        yield read_drive(folder, scans)


class _Run:
    """A contender on its way through a drive, one scan a call; after the last it starts anew.

    Attributes
    ----------
    contender : Contender
    passes : list of list of ndarray (4, 4)
        The poses of each time through; the last may be under way.
    """

    def __init__(self, drive: Drive, make: Callable[[int], Contender], threads: int):
        self._drive, self._make, self._threads = drive, make, threads
        self.passes: list[list[np.ndarray]] = []

    def __call__(self) -> float:
        if not self.passes or len(self.passes[-1]) == len(self._drive.sweeps):
            self.contender = self._make(self._threads)
            self.passes.append([])
        poses = self.passes[-1]
        sweep = self._drive.sweeps[len(poses)]
        stopwatch = Stopwatch()
        with stopwatch:
            pose = self.contender.register(sweep)
        poses.append(np.array(pose))
        return stopwatch.milliseconds


def _interleave(runs: dict[str, _Run], drive: Drive, repetitions: int) -> dict[str, np.ndarray]:
    """Return milliseconds (repetitions, scans); one more pass goes before them and is dropped."""
    scans = len(drive.sweeps)
    # The scan that interleave drops is the first of the pass that is dropped.
    times = interleave(runs, (repetitions + 1) * scans - 1)
    return {name: each[scans - 1 :].reshape(repetitions, scans) for name, each in times.items()}


def _rows(
    drive: Drive, runs: dict[str, _Run], times: dict[str, np.ndarray], repetitions: int
) -> tuple[list[dict], dict[str, _Path]]:
    """Return the rows of a drive, and all paths."""
    rows, paths = [], {}
    points = int(np.median([len(sweep.xyz) for sweep in drive.sweeps]))
    timed = any(sweep.times is not None for sweep in drive.sweeps)
    for name, run_ in runs.items():
        poses, fraction = typical_pass(run_.passes[1:], drive, run_.contender.pose_at)
        truth = drive.truth(pose_instants(drive, fraction))
        paths[name] = _from_origin(poses), _from_origin(truth)
        rows.append(
            {
                "contender": name,
                "drive": drive.name,
                "scans": len(poses),
                "points": points,
                "threads": run_.contender.threads,
                "ms": spread(times[name].ravel()),
                "p95_ms": float(np.percentile(times[name], 95)),
                "repetitions": repetitions,
                "pose_at": _NAMES[fraction] if timed else "stamp",
                **errors(poses, truth),
            }
        )
    return rows, paths


def _stand(scans: int, makes: Mapping[str, Make], threads: int) -> Table:
    """Let every contender stand still."""
    if scans < _FEWEST_STANDSTILL_SCANS:
        raise BenchmarkError(
            f"{scans} scans tell of no drift: --scans {_FEWEST_STANDSTILL_SCANS} or more"
        )
    drive = stand_in_courtyard(scans)
    runs = {name: _Run(drive, make, threads) for name, make in makes.items()}
    begin = max(1, scans // 10)
    interleave(runs, begin - 1)
    sizes = {name: run_.contender.map_size() for name, run_ in runs.items()}
    times = interleave(runs, scans - begin - 1)
    minutes = drive.stamps[begin:scans] / 60.0
    rows = []
    for name, run_ in runs.items():
        positions = np.array(run_.passes[0])[:, :3, 3]
        rows.append(
            {
                "contender": name,
                "minutes": float(drive.stamps[scans]) / 60.0,
                "ms": spread(times[name]),
                "p95_ms": float(np.percentile(times[name], 95)),
                "drift_mm_a_minute": 1e3 * drift_rate(minutes, positions[begin:]),
                "farthest_mm": 1e3 * float(np.max(_distance(positions[0], positions))),
                "map_size": run_.contender.map_size(),
                "map_growth": run_.contender.map_size() - sizes[name],
            }
        )
    return Table("Standstill", rows, _STANDSTILL_NOTE)


def _from_origin(poses: np.ndarray) -> np.ndarray:
    return np.linalg.inv(poses[0]) @ poses


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.norm(a - b, axis=-1)


def _draw(path: Path, name: str, paths: Mapping[str, _Path]) -> None:
    """Draw the paths from above, and each one's distance from the truth."""
    figure = Figure(figsize=(8.0, 8.0), layout="constrained")
    top, below = figure.subplots(2, 1, height_ratios=[2, 1])
    for label, (poses, truth) in paths.items():
        top.plot(*poses[:, :2, 3].T, label=label)
        # Nothing is to be seen of the first, where all begin.
        distances = _distance(poses[1:, :3, 3], truth[1:, :3, 3])
        below.plot(np.arange(1, len(poses)), distances)
    top.plot(*truth[:, :2, 3].T, "k--", linewidth=1, label="truth")
    top.set(aspect="equal", xlabel="x [m]", ylabel="y [m]", title=name)
    # Beside the axes: the paths fill them.
    top.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    below.set(yscale="log", xlabel="scan", ylabel="distance from the truth [m]")
    below.grid(alpha=0.3)
    save(figure, path)

"""The node lidar_odometry as a process: from a cloud's publication to its odometry, over DDS."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from geoaccel_ros.benchmark.courtyard import drive_courtyard
from geoaccel_ros.benchmark.drives import Drive, Sweep, read_drive
from geoaccel_ros.benchmark.errors import BenchmarkError, no_ros
from geoaccel_ros.benchmark.interleaving import spread
from geoaccel_ros.benchmark.options import positive_float, positive_int
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.benchmark.pictures import save
from geoaccel_ros.benchmark.report import Report

if TYPE_CHECKING:
    from geoaccel_ros.benchmark.latency_node import NodeRun

PEERS: tuple[Peer, ...] = ()

# By then the node's memory should rest, s; in a run no longer than that, half way through.
_EARLY = 60.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the drive, its rate and how long it goes forth and back."""
    parser.add_argument(
        "--data", type=Path, metavar="DIR",
        help="recorded drive: KITTI folder with velodyne/, times.txt and poses.txt of the lidar "
        "(default: the simulated courtyard, from rest)",
    )  # fmt: skip
    parser.add_argument(
        "--scans", type=positive_int, metavar="N", help="only the first N of the drive"
    )
    parser.add_argument(
        "--minutes", type=positive_float, default=1.0, metavar="M",
        help="the drive goes forth and back for so long (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=positive_float, default=10.0, metavar="HZ",
        help="clouds a second (default: %(default)g)",
    )  # fmt: skip
    # A node's run is long enough by itself.
    parser.set_defaults(repetitions=1)


def run(options: argparse.Namespace, peers: Sequence[Peer]) -> Report:
    """Start the node anew for each repetition and send it the drive."""
    if options.data is None:
        drive = drive_courtyard(True, options.scans)
    else:
        drive = read_drive(options.data, options.scans)
    count = max(2, round(60.0 * options.minutes * options.rate))
    there_and_back = forth_and_back(drive, 1.0 / options.rate)
    try:
        from geoaccel_ros.benchmark.latency_node import run_node
    # Absent, or without the system libraries that it needs.
    except ImportError as error:
        raise no_ros(error) from None
    runs = [
        run_node(there_and_back, count, options.rate, options.threads)
        for _ in range(options.repetitions)
    ]
    latencies = np.concatenate([each.latencies for each in runs])
    arrived = 1e3 * latencies[np.isfinite(latencies)]
    if not len(arrived):
        raise BenchmarkError(
            "lidar_odometry answered no cloud: `geoaccel info` tells what is amiss"
        )
    p99, largest = np.percentile(arrived, [99, 100]).tolist()
    row = {
        "contender": "geoaccel, lidar_odometry",
        "drive": drive.name,
        "points": int(np.median([len(sweep.xyz) for sweep in drive.sweeps])),
        "clouds": len(latencies),
        "rate_hz": options.rate,
        "lost": len(latencies) - len(arrived),
        "predicted": sum(each.predicted for each in runs),
        "ms": spread(arrived),
        "p95_ms": float(np.percentile(arrived, 95)),
        "p99_ms": p99,
        "max_ms": largest,
        "repetitions": options.repetitions,
        "memory_early_mib": _memory_early(runs[-1].memory),
        "memory_end_mib": float(runs[-1].memory[-1, 1]),
        "ate_rmse_m": runs[-1].ate,
    }
    images = ()
    if options.output is not None:
        images = (options.output / "latency.png",)
        _draw(images[0], runs[-1], 1.0 / options.rate)
    return Report("Latency: milliseconds from a cloud to its odometry", [row], images=images)


def forth_and_back(drive: Drive, period: float) -> Drive:
    """Return the drive with its way back, at one scan a period, as one turn that can be repeated.

    On the way back each sweep runs backwards too, its last point first, so that it is what a sensor
    would have seen on that way. Times within a sweep are scaled with the period.

    Returns
    -------
    Drive
        Of 2 N - 2 scans whose stamps begin at 0; its ``stamps`` and ``poses`` are those of the ends
        of the sweeps.
    """
    forth = list(drive.sweeps)
    recorded = np.diff([sweep.stamp for sweep in forth])
    scale = period / float(np.median(recorded)) if len(recorded) else 1.0
    ends = drive.truth(np.array([sweep.end for sweep in forth]))
    begins = drive.truth(np.array([sweep.stamp for sweep in forth]))
    back = [_reversed(sweep) for sweep in forth[-2:0:-1]]
    sweeps = [
        replace(sweep, stamp=index * period, times=_scaled(sweep.times, scale))
        for index, sweep in enumerate(forth + back)
    ]
    stamps = np.array([sweep.end for sweep in sweeps])
    return Drive(drive.name, sweeps, stamps, np.concatenate([ends, begins[-2:0:-1]]))


def _reversed(sweep: Sweep) -> Sweep:
    if sweep.times is None:
        return sweep
    times = np.max(sweep.times) - sweep.times
    return Sweep(sweep.stamp, np.ascontiguousarray(sweep.xyz[::-1]), times[::-1])


def _scaled(times: np.ndarray | None, scale: float) -> np.ndarray | None:
    return None if times is None else scale * times


def _memory_early(memory: np.ndarray) -> float:
    times = memory[:, 0]
    early = _EARLY if times[-1] > _EARLY else times[-1] / 2
    return float(memory[np.searchsorted(times, early), 1])


def _draw(path: Path, run_: "NodeRun", period: float) -> None:
    """Draw latency and memory over time."""
    figure = Figure(figsize=(8.0, 6.0), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(period * np.arange(len(run_.latencies)), 1e3 * run_.latencies, ".", markersize=3)
    above.axhline(1e3 * period, color="k", linestyle="--", linewidth=1, label="period")
    above.set(ylabel="cloud to odometry [ms]")
    above.set_ylim(bottom=0.0)
    above.legend()
    below.plot(*run_.memory.T)
    below.set(xlabel="time [s]", ylabel="resident memory [MiB]")
    below.set_ylim(bottom=0.0)
    for axes in (above, below):
        axes.grid(alpha=0.3)
    save(figure, path)

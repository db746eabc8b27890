"""One whole MPPI update, a state in and a command out, noise included; and closed loops."""

import argparse
from collections.abc import Callable, Sequence

import numpy as np

from geoaccel_ros.benchmark.interleaving import interleave, spread
from geoaccel_ros.benchmark.mppi_claims import OURS, claims
from geoaccel_ros.benchmark.mppi_contenders import PEERS
from geoaccel_ros.benchmark.mppi_kernels import kernel_table
from geoaccel_ros.benchmark.mppi_layouts import layout_table
from geoaccel_ros.benchmark.mppi_loops import LOOPS, drive_loops
from geoaccel_ros.benchmark.mppi_mujoco import relative_throughput
from geoaccel_ros.benchmark.mppi_pictures import draw_stages, draw_sweep
from geoaccel_ros.benchmark.mppi_problems import (
    BARE,
    PROBLEMS,
    SYSTEMS,
    Problem,
    commands,
    controller,
    updates,
)
from geoaccel_ros.benchmark.mppi_quality import SWEEPS, quality
from geoaccel_ros.benchmark.mppi_sweep import SAMPLES, sizes, stages
from geoaccel_ros.benchmark.options import add_backend, positive_int
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.benchmark.report import Report, Table

__all__ = ["PEERS", "add_options", "run"]

# A time of an update: by problem, contender and where it ran.
Key = tuple[Problem, str, str]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add which robots are run, what beside the updates, and our own backends."""
    parser.add_argument(
        "--system", nargs="+", choices=SYSTEMS, default=SYSTEMS, help="robots (default: all)"
    )
    parser.add_argument(
        "--sweep", action="store_true", help="times over numbers of samples; stages of an update"
    )
    parser.add_argument(
        "--samples", nargs="+", type=positive_int, default=SAMPLES, metavar="K",
        help="sizes of the sweep (default: 256 to 16384 by powers of two)",
    )  # fmt: skip
    parser.add_argument(
        "--quality", type=int, default=0, metavar="N",
        help="cost of the cartpole's swing over samples, horizon, temperature and sigma, with N "
        "seeds each (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=int, metavar="N",
        help="seeds of each closed loop (default: 20 with --peers, else none)",
    )  # fmt: skip
    parser.add_argument(
        "--updates", type=positive_int, default=100, metavar="N",
        help="updates of each size of the sweep (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--kernels", action="store_true",
        help="registers and memory of the CUDA kernels; rollouts in other shapes",
    )  # fmt: skip
    add_backend(parser)


def run(options: argparse.Namespace, peers: Sequence[Peer]) -> Report:
    """Update every problem's controllers in turns, and what else was asked for."""
    contenders = _contenders(options, peers)
    times = interleave(contenders, options.repetitions)
    tables, images = [], []
    seeds = options.seeds if options.seeds is not None else 20 * options.peers
    driven = [loop for loop in LOOPS if loop.system in options.system]
    loops = drive_loops(driven, seeds, options.threads) if seeds else []
    if options.peers:
        throughput = relative_throughput(options.threads, options.repetitions)
        tables.append(claims(times, throughput, loops))
    elif loops:
        tables.append(Table("Closed loops", loops))
    if options.sweep:
        problems = [problem for problem in BARE if problem.system in options.system]
        settings = options.backend, options.threads, options.updates
        swept, sweep_tables = sizes(problems, options.samples, *settings)
        shares = stages(problems, *settings)
        tables += [*sweep_tables, shares]
        if options.output is not None:
            images += [options.output / "mppi_samples.png", options.output / "mppi_stages.png"]
            draw_sweep(images[0], swept)
            draw_stages(images[1], shares.rows)
    if options.quality:
        tables += [quality(sweep, options.quality, options.threads) for sweep in SWEEPS]
    if options.kernels:
        tables += [kernel_table(), layout_table(options.repetitions)]
    rows = _rows(times, options.repetitions)
    return Report("MPPI: milliseconds of an update", rows, tuple(tables), tuple(images))


def _contenders(
    options: argparse.Namespace, peers: Sequence[Peer]
) -> dict[Key, Callable[[], float]]:
    contenders = {}
    for problem in PROBLEMS:
        if problem.system not in options.system:
            continue
        devices = []
        for backend in options.backend:
            mppi = controller(problem, backend, options.threads)
            if mppi.backend not in devices:
                devices.append(mppi.backend)
                contenders[problem, OURS, mppi.backend] = updates(problem, mppi)
        if problem.obstacles:
            continue
        for peer in peers:
            for device in devices if peer.module != "numpy" else ["cpu"]:
                command = peer.contender(problem, device, options.threads)
                contenders[problem, peer.name, device] = commands(problem, command)
    return contenders


def _rows(times: dict[Key, np.ndarray], repetitions: int) -> list[dict]:
    rows = []
    for (problem, contender, device), own in times.items():
        row = {
            "contender": f"{OURS}, {device}" if contender == OURS else contender,
            "device": device,
            "system": problem.name,
            "samples": problem.samples,
            "horizon": problem.horizon,
            "ms": spread(own),
        }
        ours = times.get((problem, OURS, device))
        if ours is not None:
            row["times_ours"] = spread(own / ours)
        rows.append(row | {"repetitions": repetitions})
    return rows

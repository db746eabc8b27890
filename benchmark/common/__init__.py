"""What the benchmarks share: input, interleaved timing, one table and one JSON file for all."""

import argparse
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from geoaccel_ros.simulation.events import Scan, TruthState
from geoaccel_ros.simulation.world import Simulation, SimulationConfig


def parse(description: str) -> argparse.Namespace:
    """Return the options that every benchmark takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repetitions", type=int, default=7, help="runs of each contender")
    parser.add_argument("--json", type=Path, help="also write rows, machine and versions here")
    return parser.parse_args()


def drive(seconds: float, v: float = 1.0, w: float = 0.4) -> tuple[list[Scan], list[TruthState]]:
    """Return the scans and the true poses of a robot that drives a circle in the yard."""
    simulation = Simulation(SimulationConfig(realtime_factor=0.0, seed=1))
    scans, truth = [], []
    while simulation.time_ns < seconds * 1e9:
        simulation.command(v, w)
        for event in simulation.step():
            if isinstance(event, Scan):
                scans.append(event)
            elif isinstance(event, TruthState):
                truth.append(event)
    return scans, truth


def interleave(
    contenders: dict[str, Callable[[], float]], repetitions: int
) -> dict[str, np.ndarray]:
    """Run the contenders in turn, so that a slow minute of the machine hits all of them alike.

    A contender returns the milliseconds that it counts for itself, so that what is not measured
    (making its input) does not count. The first round warms up and is dropped.
    """
    times = {name: [] for name in contenders}
    for _ in range(repetitions + 1):
        for name, run in contenders.items():
            times[name].append(run())
    return {name: np.array(values[1:]) for name, values in times.items()}


class Stopwatch:
    """Adds up the time spent inside ``with`` blocks, in milliseconds."""

    def __init__(self):
        self.milliseconds = 0.0

    def __enter__(self):
        self._start = time.perf_counter()

    def __exit__(self, *_):
        self.milliseconds += 1e3 * (time.perf_counter() - self._start)


def spread(times: np.ndarray) -> dict[str, float]:
    """Return median and quartiles."""
    low, median, high = np.percentile(times, [25, 50, 75])
    return {"ms": median, "ms_q1": low, "ms_q3": high}


def version(package: str) -> str:
    """Return an installed package's version, or an empty string."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def report(title: str, rows: list[dict], json_path: Path | None) -> None:
    """Print the rows as a Markdown table, below the machine that they were measured on."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"\n{title} ({machine})\n")
    columns = list(rows[0])
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(_cell(row[column]) for column in columns) + " |")
    if json_path is not None:
        content = {"title": title, "machine": machine, "rows": rows}
        json_path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _cell(value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)

"""Times of an update over numbers of samples, and what its stages take of it."""

import dataclasses
import time
from collections.abc import Sequence

import numpy as np

from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.mppi_problems import (
    CARTPOLE,
    Problem,
    controller,
)
from geoaccel_ros.benchmark.report import Table
from geoaccel_ros.control.mppi import Mppi

SAMPLES = (256, 512, 1024, 2048, 4096, 8192, 16384)
# Of a controller's loop of 50 Hz, ms.
PERIOD_MS = 20.0
# In a turn so many updates are dropped and so many count, one after the other.
_WARM_UPS = 10
_TIMED = 10


def sizes(
    problems: Sequence[Problem],
    samples: Sequence[int],
    backends: Sequence[str],
    threads: int,
    count: int,
) -> tuple[list[dict], tuple[Table, Table]]:
    """Return the rows of single updates at each number of samples, and tables of them.

    Sizes and systems take turns.

    Parameters
    ----------
    problems : sequence of Problem
        Their own numbers of samples do not count.
    samples : sequence of int
    backends : sequence of str
    threads : int
    count : int
        Updates that count, of each; tens.

    Returns
    -------
    rows : list of dict
        With ``contender``, ``system``, ``samples`` and ``ms``.
    tables : two of Table
        The times, and of each system and backend the knee and what fits into 20 ms.
    """
    clocks = {}
    for problem in problems:
        for size in samples:
            for backend in backends:
                sized = dataclasses.replace(problem, samples=size)
                mppi = controller(sized, backend, threads)
                key = problem.system, f"geoaccel, {mppi.backend}", size
                clocks[key] = _Clock(sized, mppi)
    turns = -(-count // _TIMED)
    times = interleave({key: clock.turn for key, clock in clocks.items()}, turns)
    rows = [
        {"contender": contender, "system": system, "samples": size, "ms": spread(own.ravel())}
        for (system, contender, size), own in times.items()
    ]
    note = f"Milliseconds of an update: {turns} turns of {_TIMED}, each after {_WARM_UPS} more."
    beside = [
        {"system": system, "contender": contender} | {str(row["samples"]): row["ms"] for row in own}
        for (system, contender), own in _curves(rows).items()
    ]
    knees = [
        {"system": system, "contender": contender}
        | knee([row["samples"] for row in own], [row["ms"]["median"] for row in own])
        for (system, contender), own in _curves(rows).items()
    ]
    return rows, (
        Table("Number of samples", beside, note),
        Table(
            "Knees",
            knees,
            "Medians as a fixed time and one a sample; at the knee the two are equal. "
            f"What fits into {PERIOD_MS:g} ms by that line, a period of 50 Hz.",
        ),
    )


def knee(samples: Sequence[int], milliseconds: Sequence[float]) -> dict:
    """Return the line through the times, fitted to their relative errors, and where it bends.

    Drawn over logarithms, a line ``fixed + each * K`` is level left of ``fixed / each`` and rises
    in proportion right of it.
    """
    times = np.asarray(milliseconds, float)
    columns = np.stack((np.ones(len(times)), np.asarray(samples, float)), axis=1)
    (fixed, each), *_ = np.linalg.lstsq(columns / times[:, None], np.ones(len(times)), rcond=None)
    return {
        "fixed_ms": float(fixed),
        "us_per_1000_samples": 1e6 * float(each),
        "knee_samples": max(0, round(fixed / each)),
        "samples_in_20_ms": round((PERIOD_MS - fixed) / each),
    }


def stages(problems: Sequence[Problem], backends: Sequence[str], threads: int, count: int) -> Table:
    """Return the median milliseconds of each stage of an update, and of whole ones at 50 Hz."""
    rows = []
    for problem in problems:
        for backend in backends:
            mppi = controller(problem, backend, threads)
            clock = _Clock(problem, mppi)
            found = []
            for _ in range(_WARM_UPS + count):
                clock.update()
                found.append(clock.stages)
            taken = {name: [update[name] for update in found[_WARM_UPS:]] for name in found[-1]}
            medians = {name: float(np.median(values)) for name, values in taken.items()}
            rows.append(
                {"system": problem.system, "contender": f"geoaccel, {mppi.backend}"}
                | medians
                | {"whole_at_50_hz": _paced(clock, count)}
            )
    return Table(
        "Stages of an update",
        rows,
        f"Medians, ms, of {count} updates at K={CARTPOLE.samples}, one after the other; whole ones "
        f"also a period of {PERIOD_MS:g} ms apart, in which the processors idle.",
    )


def _paced(clock: "_Clock", count: int) -> float:
    due = time.perf_counter()
    times = []
    for _ in range(count):
        times.append(clock.update())
        due += 1e-3 * PERIOD_MS
        time.sleep(max(0.0, due - time.perf_counter()))
    return float(np.median(times))


class _Clock:
    """Updates a controller, a step later each time, and returns the milliseconds."""

    def __init__(self, problem: Problem, mppi: Mppi):
        self._problem, self._mppi = problem, mppi
        self._state, self._goal = np.array(problem.start), np.array(problem.goal)
        self._now = 0.0

    def update(self) -> float:
        stopwatch = Stopwatch()
        with stopwatch:
            update = self._mppi.update(self._state, self._goal, self._now)
        self._now += self._problem.dt
        self.stages = update.milliseconds
        return stopwatch.milliseconds

    def turn(self) -> list[float]:
        for _ in range(_WARM_UPS):
            self.update()
        return [self.update() for _ in range(_TIMED)]


def _curves(rows: Sequence[dict]) -> dict[tuple[str, str], list[dict]]:
    curves: dict[tuple[str, str], list[dict]] = {}
    for row in rows:
        curves.setdefault((row["system"], row["contender"]), []).append(row)
    return curves

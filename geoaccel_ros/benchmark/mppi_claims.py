"""What is claimed of MPPI, and what a run measured."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.benchmark.mppi_problems import (
    CARTPOLE,
    DIFF_DRIVE,
    DIFF_DRIVE_16384,
    QUADROTOR,
    Problem,
)
from geoaccel_ros.benchmark.report import Table

OURS = "geoaccel"
PYTORCH = "pytorch_mppi"


@dataclass(frozen=True)
class Speedup:
    """Times of another package's update, ours one, round by round on the CPU."""

    problem: Problem
    must: float
    aim: float


@dataclass(frozen=True)
class Latency:
    """Milliseconds of our update on an H200."""

    problem: Problem
    must: float
    aim: float


SPEEDUPS = (Speedup(CARTPOLE, 4.0, 10.0), Speedup(QUADROTOR, 5.0, 12.0))
LATENCIES = (
    Latency(DIFF_DRIVE, 0.25, 0.10),
    Latency(DIFF_DRIVE_16384, 0.5, 0.25),
    Latency(QUADROTOR, 0.25, 0.10),
)
# Our rollouts in MuJoCo, parts of the throughput of its own with as many threads.
MUJOCO_MUST, MUJOCO_AIM = 0.9, 0.97
# Change of the cartpole's force from step to step while it is upright, N.
JITTER_AIM = 1.0


def claims(
    times: dict[tuple[Problem, str, str], np.ndarray],
    mujoco: float | None,
    loops: Sequence[dict],
) -> Table:
    """Return each claim beside what was measured.

    Parameters
    ----------
    times : dict of ndarray
        Milliseconds of the rounds by problem, contender and device (cpu, cuda).
    mujoco : float or None
        Throughput of our rollouts in MuJoCo, bare ones one; None if it was not measured.
    loops : sequence of dict
        By :func:`.mppi_loops.drive_loops`.
    """
    rows = [_of_speedup(claim, times) for claim in SPEEDUPS]
    rows += [_of_latency(claim, times) for claim in LATENCIES]
    if mujoco is not None:
        verdict = _verdict(mujoco >= MUJOCO_MUST, mujoco >= MUJOCO_AIM)
        rows.append(
            _row("MuJoCo's rollouts, parts of bare", MUJOCO_MUST, MUJOCO_AIM, mujoco, verdict)
        )
    for loop in loops:
        rows += _of_loop(loop)
    return Table("Claims", rows, "Milliseconds are of a whole update, state in, command out.")


def _of_speedup(claim: Speedup, times: dict) -> dict:
    ours = times.get((claim.problem, OURS, "cpu"))
    theirs = times.get((claim.problem, PYTORCH, "cpu"))
    name = f"{_size(claim.problem)}, CPU: times {PYTORCH}'s speed"
    if ours is None or theirs is None:
        return _row(name, claim.must, claim.aim, None, "needs --peers and the CPU")
    ratio = float(np.median(theirs / ours))
    return _row(
        name, claim.must, claim.aim, ratio, _verdict(ratio >= claim.must, ratio >= claim.aim)
    )


def _of_latency(claim: Latency, times: dict) -> dict:
    ours = times.get((claim.problem, OURS, "cuda"))
    name = f"{_size(claim.problem)}, H200: ms"
    if ours is None:
        return _row(name, claim.must, claim.aim, None, "needs a GPU")
    median = float(np.median(ours))
    return _row(
        name, claim.must, claim.aim, median, _verdict(median <= claim.must, median <= claim.aim)
    )


def _of_loop(loop: dict) -> list[dict]:
    all_of_them = f"{loop['seeds']}/{loop['seeds']}"
    found = f"{loop['in_time']}/{loop['seeds']}"
    is_aim = "mass" in loop["loop"]
    must, aim = ("", all_of_them) if is_aim else (all_of_them, "")
    held = "yes" if loop["in_time"] == loop["seeds"] else "no"
    rows = [_row(f"{loop['loop']}: in time", must, aim, found, held)]
    if "jitter" in loop:
        held = "yes" if loop["jitter"] < JITTER_AIM else "no"
        name = f"{loop['loop']}: N a step"
        rows.append(_row(name, "", f"below {JITTER_AIM:g}", loop["jitter"], held))
    return rows


def _size(problem: Problem) -> str:
    return f"{problem.system} K={problem.samples} T={problem.horizon}"


def _verdict(holds_must: bool, holds_aim: bool) -> str:
    return "aim" if holds_aim else "must" if holds_must else "no"


def _row(what: str, must, aim, measured, held: str) -> dict:
    return {"what": what, "must": must, "aim": aim, "measured": measured, "held": held}

"""What samples, horizon, temperature and sigma do to the cartpole's swing, over many seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.benchmark.interleaving import spread
from geoaccel_ros.benchmark.report import Table
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.systems import load_system
from geoaccel_ros.simulation.closed_loop import Run, drive

_SYSTEM = "cartpole"
_SECONDS = 4.0
# The last of these seconds are what the cost and the commands are told of.
_LAST = 1.0


@dataclass(frozen=True)
class Sweep:
    """One value of the sampling that is varied, and its values."""

    title: str
    name: str
    values: tuple


SWEEPS = (
    Sweep("Samples, and how the swing ends", "samples", (64, 256, 1024, 4096)),
    Sweep("Horizon, and how the swing ends", "horizon", (15, 30, 50, 100)),
    Sweep("Fixed temperatures, and how the swing ends", "temperature", (0.01, 0.1, 1.0, 10.0)),
    Sweep("Shares that count, and how the swing ends", "ess_fraction", (0.003, 0.03, 0.1, 0.3)),
    Sweep("Sigma, and how the swing ends", "sigma", ((1.0,), (2.5,), (5.0,), (10.0,))),
)  # fmt: skip


def quality(sweep: Sweep, seeds: int, threads: int) -> Table:
    """Return a row for each value: what runs with several seeds come to on MuJoCo's plant."""
    rows = []
    for value in sweep.values:
        config = MppiConfig.for_system(
            load_system(_SYSTEM), **{sweep.name: value, "threads": threads}
        )
        runs = [drive(_SYSTEM, config, _SECONDS, seed=seed) for seed in range(seeds)]
        shown = value[0] if isinstance(value, tuple) else value
        rows.append({sweep.name: shown} | summary(runs, config.dt))
    return Table(
        sweep.title,
        rows,
        f"Cartpole on MuJoCo's plant, {seeds} seeds of {_SECONDS:g} s each, all else at the "
        f"defaults. Cost a second, command and its deviation are of the last {_LAST:g} s.",
    )


def summary(runs: Sequence[Run], dt: float) -> dict:
    """Return how many runs were upright, when, at what ESS, and their last second."""
    steps = round(_LAST / dt)
    commands = np.array([run.controls[-steps:, 0] for run in runs])
    times = [run.time_to_goal_s for run in runs if run.success]
    return {
        "upright": f"{len(times)}/{len(runs)}",
        "to_upright_s": float(np.median(times)) if times else math.nan,
        "ess": float(np.median([update.ess for run in runs for update in run.updates])),
        "temperature": float(
            np.median([update.temperature for run in runs for update in run.updates])
        ),
        "cost": spread(np.array([cost(run, steps) for run in runs])),
        "u0_mean": float(commands.mean()),
        "u0_deviation": float(commands.std()),
        "u0_step": float(np.abs(np.diff(commands, axis=1)).mean()),
    }


def cost(run: Run, steps: int) -> float:
    """Return the mean cost of a second, by the system's running cost, over the last steps."""
    system = load_system(_SYSTEM)
    p, goal = system.pack(system.parameters(), float), system.task["goal"]
    controls = run.controls[-steps - 1 :]
    states = run.states[-steps:]
    return float(
        np.mean(
            [
                sum(system.running(tuple(x), tuple(u), tuple(before), goal, p))
                for x, u, before in zip(states, controls[1:], controls[:-1], strict=True)
            ]
        )
    )

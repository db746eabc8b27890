"""Closed loops on MuJoCo's plants: what is claimed of them, seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np

from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.systems import load_system
from geoaccel_ros.simulation.closed_loop import Run, drive

# The task must have begun its hold by then, s; a run lasts long enough to see the hold.
WITHIN = 3.0
_SECONDS = 5.0
# What the controller reckons with where the plant's mass is another, and finds out.
_MASSES = {
    "parameter_sets": 13,
    "randomised": ("mass",),
    "randomised_by": (0.4,),
    "evidence_memory": 0.5,
    # Evidence is weighed there alone.
    "backend": "cpu",
}


@dataclass(frozen=True)
class Loop:
    """A task that is driven with several seeds.

    Attributes
    ----------
    name : str
    system : str
    sampling : dict
        Values of MppiConfig that differ from the system's own.
    delay : float
        s until the plant acts on a command.
    mass : float
        Times the controller's, the plant's.
    jitter : bool
        Whether the change of the command from step to step is told.
    """

    name: str
    system: str
    sampling: dict = field(default_factory=dict)
    delay: float = 0.0
    mass: float = 1.0
    jitter: bool = False

    def run(self, seed: int, threads: int) -> Run:
        config = MppiConfig.for_system(
            load_system(self.system), command_delay=self.delay, threads=threads, **self.sampling
        )
        return drive(
            self.system,
            config,
            _SECONDS,
            seed=seed,
            delay=self.delay,
            model_edit=self._scale_mass if self.mass != 1.0 else None,
        )

    def _scale_mass(self, model: mujoco.MjModel) -> None:
        model.body_mass *= self.mass
        model.body_inertia *= self.mass


LOOPS = (
    *(
        Loop(f"cartpole on MuJoCo's plant, T={steps}", "cartpole", {"horizon": steps}, jitter=True)
        for steps in (30, 50, 100)
    ),
    *(
        Loop(f"the same, 100 ms of delay, T={steps}", "cartpole", {"horizon": steps}, delay=0.1)
        for steps in (30, 50, 100)
    ),
    Loop("quadrotor, a step of 3 m", "quadrotor"),
    *(
        Loop(f"the same, {mass:g} times the mass", "quadrotor", _MASSES, mass=mass)
        for mass in (1.3, 0.7)
    ),
)


def drive_loops(loops: Sequence[Loop], seeds: int, threads: int) -> list[dict]:
    """Return a row for each loop: in time of how many, when, and the command's jitter."""
    return [summary(loop, [loop.run(seed, threads) for seed in range(seeds)]) for loop in loops]


def summary(loop: Loop, runs: Sequence[Run]) -> dict:
    """Return what several runs of a loop come to.

    ``in_time`` counts those whose hold began within :data:`WITHIN`; ``to_goal_s`` is the slowest of
    the ones that held; ``jitter`` is the largest mean change of a command a step during the hold.
    """
    times = [run.time_to_goal_s for run in runs if run.success]
    row = {
        "loop": loop.name,
        "seeds": len(runs),
        "in_time": sum(time <= WITHIN for time in times),
        "held": len(times),
        "to_goal_s": max(times, default=math.nan),
    }
    if loop.jitter:
        row["jitter"] = float(np.max([run.jitter() for run in runs]))
    return row

"""Prediction of a state through the commands that were sent since it was measured."""

import copy
import functools
from collections.abc import Sequence

import mujoco
import numpy as np

from geoaccel_ros.control.systems import System

# What is older says nothing about now (s).
LONGEST = 60.0


def predict(
    system: System,
    p: tuple,
    state: np.ndarray,
    stamp: float,
    commands: Sequence[tuple[float, np.ndarray]],
    until: float,
    largest_step: float = 0.01,
) -> np.ndarray:
    """Return the state at ``until``, rolled through ``commands`` by the robot's own model.

    Where the system has no step, MuJoCo's steps are its model; the first one's solver starts cold.

    Parameters
    ----------
    p : tuple
        The system's parameters, packed as float64.
    state : np.ndarray
        (X,) at ``stamp``. Where it or an instant is not finite, where the model fails on it, and
        where it would have to be predicted for longer than :data:`LONGEST`, nan is returned; a
        state of another shape as it is.
    commands : sequence of (instant, control)
        In order of time; each in force from its instant (when it takes effect) to the next one's.
        Before the first one, the first one; without any, the robot is taken to be told zero.
    until : float
        s, on the clock of ``stamp``; before ``stamp``, the state is returned as it is.
    largest_step : float
        Longest step of the integration, s; MuJoCo's is at most its model's.
    """
    state = np.asarray(state, float)
    if state.shape != (len(system.state),):
        return state
    unknown = np.full(len(state), np.nan)
    if not np.isfinite([*state, stamp, until]).all() or until - stamp > LONGEST:
        return unknown
    try:
        return _rolled(system, p, state, stamp, commands, until, largest_step)
    except (ArithmeticError, ValueError):  # what Python's own math raises out of its domain
        return unknown


def _rolled(system, p, state, stamp, commands, until, largest_step) -> np.ndarray:
    zero = (0.0, np.zeros(len(system.control)))
    commands = list(commands) or [zero]
    ends = [instant for instant, _ in commands[1:]] + [np.inf]
    x = tuple(np.float64(value) for value in state)
    step = system.step
    if step is None:
        step, largest = _mujoco_step(system, p, x)
        largest_step = min(largest_step, largest)
    now = stamp
    for (_, control), end in zip(commands, ends, strict=True):
        u = tuple(np.float64(value) for value in control)
        duration = min(end, until) - now
        if duration <= 0.0:
            continue
        # The margin keeps a quotient that is whole but for rounding.
        steps = int(np.ceil(duration / largest_step - 1e-9))
        for _ in range(max(steps, 1)):
            x = step(x, u, p, duration / max(steps, 1))
        now += duration
    return np.array(x)


def _mujoco_step(system: System, p: tuple, x: tuple):
    """Return a ``step`` that goes on from ``x``, MuJoCo's, and its longest time."""
    # A copy: its time step is set, and several threads may predict.
    model = copy.copy(_mujoco_model(system, p))
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = np.split(np.array(x), [model.nq])

    def step(x, u, p, dt):
        model.opt.timestep = dt
        data.ctrl[:] = u
        mujoco.mj_step(model, data)
        return (*data.qpos, *data.qvel)

    return step, model.opt.timestep


@functools.lru_cache(maxsize=16)
def _mujoco_model(system: System, p: tuple) -> mujoco.MjModel:
    model = system.mujoco_model(p)
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    return model

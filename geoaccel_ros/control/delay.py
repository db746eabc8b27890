"""Prediction of a state through the commands that were sent since it was measured."""

from collections.abc import Sequence

import numpy as np

from geoaccel_ros.control.systems import System


def predict(
    system: System,
    p: tuple,
    state: np.ndarray,
    stamp: float,
    commands: Sequence[tuple[float, np.ndarray]],
    until: float,
    largest_step: float = 0.05,
) -> np.ndarray:
    """Return the state at ``until``, rolled through ``commands`` by the robot's own model.

    Parameters
    ----------
    p : tuple
        The system's parameters, packed as float64.
    state : np.ndarray
        (X,) at ``stamp``.
    commands : sequence of (instant, control)
        In order of time; each in force from its instant (when it takes effect) to the next one's.
        Before the first one, the first one; without any, the robot is taken to be told zero.
    until : float
        s, on the clock of ``stamp``; before ``stamp``, the state is returned as it is.
    largest_step : float
        Longest step of the integration, s.
    """
    zero = (0.0, np.zeros(len(system.control)))
    commands = list(commands) or [zero]
    ends = [instant for instant, _ in commands[1:]] + [np.inf]
    x = tuple(np.float64(value) for value in state)
    now = stamp
    for (_, control), end in zip(commands, ends, strict=True):
        u = tuple(np.float64(value) for value in control)
        duration = min(end, until) - now
        if duration <= 0.0:
            continue
        steps = int(np.ceil(duration / largest_step))
        for _ in range(steps):
            x = system.step(x, u, p, duration / steps)
        now += duration
    return np.array(x)

"""Goals one after the other."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.config import Configuration, parameter


@dataclass(frozen=True)
class GoalConfig(Configuration):
    """When a robot on a plane has reached a goal."""

    goal_tolerance: float = parameter(
        0.25, "A goal is reached within this distance.", unit="m", minimum=0.01, live=True
    )
    goal_speed: float = parameter(
        0.1,
        "The last goal is reached below this speed (m/s, and rad/s).",
        unit="m/s",
        minimum=0.001,
        live=True,
    )

    def reached(self, goal: np.ndarray, is_last: bool, position: np.ndarray, speed: float) -> bool:
        """Return whether a goal is reached: passed through, or stood at if it is the last.

        Parameters
        ----------
        goal, position : np.ndarray
            x and y in m, further components are ignored.
        is_last : bool
        speed : float
            Largest of the speed in m/s and the turning speed in rad/s, absolute.
        """
        distance = np.hypot(*(goal[:2] - position[:2]))
        return distance <= self.goal_tolerance and (not is_last or speed <= self.goal_speed)


class GoalSequence:
    """The goals of a robot; it passes through all but the last.

    Parameters
    ----------
    goals : array_like
        (N, G) in the order of a system's GOAL.

    Attributes
    ----------
    index : int
        How many goals were reached.

    Raises
    ------
    ValueError
        If a goal is not finite.
    """

    def __init__(self, goals: np.ndarray):
        self._goals = np.array(goals, np.float64)
        if not np.isfinite(self._goals).all():
            raise ValueError("goals must be finite")
        self.index = 0

    def __len__(self) -> int:
        return len(self._goals)

    @property
    def finished(self) -> bool:
        """Whether the last goal was reached, or there was none."""
        return self.index >= len(self._goals)

    @property
    def current(self) -> np.ndarray | None:
        """The goal to go to, (G,) float64; None when finished."""
        return None if self.finished else self._goals[self.index]

    @property
    def last(self) -> np.ndarray | None:
        """The last goal, reached or not; None if there was none."""
        return self._goals[-1] if len(self) else None

    def update(self, is_reached: Callable[[np.ndarray, bool], bool]) -> bool:
        """Return whether the current goal was reached just now, and go on to the next if so.

        ``is_reached`` is called with the current goal and whether it is the last one.
        """
        if self.finished or not is_reached(self._goals[self.index], self.index == len(self) - 1):
            return False
        self.index += 1
        return True

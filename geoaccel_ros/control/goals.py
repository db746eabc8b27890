"""Goals one after the other."""

from dataclasses import dataclass

import numpy as np

from geoaccel_ros.config import Configuration, parameter


@dataclass(frozen=True)
class GoalConfig(Configuration):
    """When a goal counts as reached."""

    goal_tolerance: float = parameter(
        0.25, "A goal is reached within this distance.", unit="m", minimum=0.01
    )
    goal_speed: float = parameter(
        0.1,
        "The last goal is reached below this speed (m/s, and rad/s).",
        unit="m/s",
        minimum=0.001,
    )


class GoalSequence:
    """The goals that remain; the robot passes through all but the last, where it stops.

    Attributes
    ----------
    index : int
        How many goals were reached.
    """

    def __init__(self, goals: np.ndarray, config: GoalConfig):
        self._goals = np.array(goals, np.float64).reshape(-1, 2)
        if not np.isfinite(self._goals).all():
            raise ValueError("goals must be finite")
        self._config = config
        self.index = 0

    def __len__(self) -> int:
        return len(self._goals)

    @property
    def finished(self) -> bool:
        """Whether the last goal was reached, or there was none."""
        return self.index >= len(self._goals)

    @property
    def current(self) -> np.ndarray | None:
        """The goal to drive to, (2,) float64 in m; None when finished."""
        return None if self.finished else self._goals[self.index]

    def update(self, position: np.ndarray, speed: float) -> bool:
        """Return whether the current goal was reached just now, and go on to the next if so.

        Parameters
        ----------
        position : np.ndarray
            (2,), m, in the goals' frame.
        speed : float
            Largest of the speed in m/s and the turning speed in rad/s, absolute.
        """
        if self.finished:
            return False
        distance = np.hypot(*(self._goals[self.index] - position[:2]))
        is_last = self.index == len(self._goals) - 1
        if distance > self._config.goal_tolerance or (is_last and speed > self._config.goal_speed):
            return False
        self.index += 1
        return True

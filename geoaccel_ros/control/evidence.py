"""Which of several sets of parameters the robot seems to have."""

from collections.abc import Sequence

import numpy as np

from geoaccel_ros.control import delay
from geoaccel_ros.control.systems import System

# Errors below this share of a component's size (of 1 where it is smaller) are rounding.
_RESOLUTION = 1e-6
# No robot moves so far between two states; squares of more are not finite, and never forgotten.
_ABSURD = 1e100


class Evidence:
    """Weights of sets of parameters, by how well each predicted the states that were measured.

    Abraham et al. 2020 (see :mod:`geoaccel_ros.control.randomisation`) weight models by the
    likelihood of what they led to. Here the noise is not known: its variance is, for each component
    of the state and each set, the most likely one, so that n errors e count as the power -n / 2 of
    the sum of their squares. A component that all sets predict as well, or as badly, tells nothing.

    Parameters
    ----------
    system : System
    sets : list of tuple
        M sets of the system's parameters, packed as float64.
    memory : float
        Time constant of forgetting, s.

    Attributes
    ----------
    weights : np.ndarray
        (M,) float64 that sum to one; equal before anything was observed.
    """

    def __init__(self, system: System, sets: list[tuple], memory: float):
        self._system = system
        self._sets = sets
        self._memory = memory
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._last: tuple[np.ndarray, float] | None = None
        self._squares = np.zeros((len(self._sets), len(self._system.state)))
        self._count = 0.0
        self.weights = np.full(len(self._sets), 1.0 / len(self._sets))

    def observe(
        self, state: np.ndarray, stamp: float, commands: Sequence[tuple[float, np.ndarray]]
    ) -> None:
        """Take notice of a measured state.

        Parameters
        ----------
        state : np.ndarray
            (X,) measured at ``stamp``, s. One of the same instant as the last one, or after a gap
            longer than the memory, is only where the next one starts from; one that is none, or not
            finite, is none that was measured.
        commands : sequence of (instant, control)
            In force since the last one, as :func:`geoaccel_ros.control.delay.predict` takes them.
        """
        if state.shape != (len(self._system.state),) or not np.isfinite([*state, stamp]).all():
            return
        last, self._last = self._last, (state, stamp)
        if last is None or not 0.0 < stamp - last[1] <= self._memory:
            return
        predicted = np.array(
            [delay.predict(self._system, p, *last, commands, stamp) for p in self._sets]
        )
        if not np.isfinite(predicted).all():
            return
        kept = np.exp(-(stamp - last[1]) / self._memory)
        errors = predicted - state
        if np.abs(errors).max() > _ABSURD:
            self.reset()
            return
        self._squares = kept * self._squares + errors**2
        self._count = kept * self._count + 1.0
        rounding = self._count * (_RESOLUTION * np.maximum(np.abs(state), 1.0)) ** 2
        likelihood = -0.5 * self._count * np.log(self._squares + rounding).sum(axis=1)
        weights = np.exp(likelihood - likelihood.max())
        self.weights = weights / weights.sum()

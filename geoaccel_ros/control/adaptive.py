"""MPPI with as many samples as fit into a control period."""

import collections
import dataclasses

from geoaccel_ros.config import Configuration
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig

# Of the last so many updates, so many late ones halve the samples.
_LATE_WINDOW = 20
_LATE = 3
# After so many updates of which the slowest leaves room, they are doubled again.
_CALM_WINDOW = 100
# An update of twice the samples takes up to twice as long; that must leave a fifth of the period.
_ROOM = 0.8


class SampleBudget:
    """How many samples updates have, from how long they took.

    Halved when late updates persist, so that one slow moment of the machine changes nothing;
    doubled when all of a longer time would have been fast enough for it.

    Parameters
    ----------
    most, least : int
        Bounds; halving ends above ``least``.
    period : float
        What an update may take, s.

    Attributes
    ----------
    choices : list of int
        All numbers of samples that it may come to, the largest first.
    samples : int
        The present one.
    """

    def __init__(self, most: int, least: int, period: float):
        self.choices = [most]
        while self.choices[-1] // 2 >= least:
            self.choices.append(self.choices[-1] // 2)
        self._period = period
        self._index = 0
        self._took = collections.deque(maxlen=_CALM_WINDOW)

    @property
    def samples(self) -> int:
        return self.choices[self._index]

    def took(self, seconds: float) -> bool:
        """Take notice of an update; return whether the number of samples is another one now."""
        self._took.append(seconds)
        recent = list(self._took)[-_LATE_WINDOW:]
        late = sum(duration > self._period for duration in recent)
        index = self._index
        if late >= _LATE:
            index = min(index + 1, len(self.choices) - 1)
        elif len(self._took) == _CALM_WINDOW and 2.0 * max(self._took) < _ROOM * self._period:
            index = max(index - 1, 0)
        else:
            return False
        self._took.clear()
        changed = index != self._index
        self._index = index
        return changed


class AdaptiveMppi:
    """Controllers of one robot that differ in their number of samples, of which one is in use.

    All are made at once: an engine's arrays, on the CPU or on CUDA, are of its number of samples,
    and making one takes milliseconds once its kernels are compiled.

    Parameters
    ----------
    config : MppiConfig
        Its ``samples`` is the largest number.
    system : str
    parameters : Configuration
    samples_min : int
        Not fewer than this, but for ``config.samples`` itself.
    period : float
        What an update may take, s.

    Attributes
    ----------
    engine : Mppi
        The one in use.

    Raises
    ------
    ConfigurationError, BackendError
        As :class:`Mppi` does.
    """

    def __init__(
        self,
        config: MppiConfig,
        system: str,
        parameters: Configuration,
        samples_min: int,
        period: float,
    ):
        self._budget = SampleBudget(config.samples, samples_min, period)
        self._engines = {
            samples: Mppi(dataclasses.replace(config, samples=samples), system, parameters)
            for samples in self._budget.choices
        }
        self.engine = self._engines[self.samples]

    @property
    def samples(self) -> int:
        """Samples of an update."""
        return self._budget.samples

    @property
    def samples_max(self) -> int:
        """Samples of an update where there is time enough."""
        return self._budget.choices[0]

    def took(self, seconds: float) -> bool:
        """Take notice of what an update took; return whether another engine goes on from here.

        Not to be called while the engine updates.
        """
        if not self._budget.took(seconds):
            return False
        engine = self._engines[self.samples]
        engine.continue_from(self.engine)
        self.engine = engine
        return True

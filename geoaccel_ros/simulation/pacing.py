"""Holds simulated time to the wall clock."""

import time
from collections import deque
from collections.abc import Callable

# A simulation that is this far behind, in seconds of wall time, gives up on catching up: a burst of
# steps without a pause would starve the others and fall behind further.
_MAX_LAG = 0.1
# The measured factor is the mean over this span of wall time, in seconds.
_WINDOW = 2.0


class Pacer:
    """Waits until simulated time is due.

    Deadlines are counted from one origin, so that the error of a single sleep does not add up. When
    the simulation cannot keep up, the origin moves by what was lost (``lag``) and the measured
    factor tells.

    Parameters
    ----------
    realtime_factor : float
        Simulated seconds a second of wall time; 0: as fast as possible.
    clock, sleep : callable
        Wall clock in seconds, and how to wait; tests bring their own.

    Attributes
    ----------
    lag : float
        Wall seconds given up so far.
    """

    def __init__(
        self,
        realtime_factor: float,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], object] = time.sleep,
    ):
        self._target = realtime_factor
        self._clock = clock
        self._sleep = sleep
        self._samples: deque[tuple[float, float]] = deque()
        self._origin: tuple[float, float] | None = None
        self.lag = 0.0

    def start(self, simulated_s: float) -> None:
        """Begin anew from here: wall time since the last call is neither lag nor pace."""
        now = self._clock()
        self._origin = (now, simulated_s)
        self._samples.clear()
        self._samples.append((now, simulated_s))

    def wait(self, simulated_s: float) -> None:
        """Sleep until ``simulated_s``, which must not decrease, is due."""
        if self._origin is None:
            self.start(simulated_s)
        if self._target > 0:
            wall_origin, simulated_origin = self._origin
            due = wall_origin + (simulated_s - simulated_origin) / self._target
            ahead = due - self._clock()
            if ahead > 0:
                self._sleep(ahead)
            elif -ahead > _MAX_LAG:
                self.lag -= ahead
                self._origin = (wall_origin - ahead, simulated_origin)
        now = self._clock()
        self._samples.append((now, simulated_s))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW:
            self._samples.popleft()

    @property
    def measured_factor(self) -> float:
        """Simulated over wall time in the last two seconds of running; 0 before the first step."""
        # A copy: other threads ask while the simulation's appends.
        samples = list(self._samples)
        if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
            return 0.0
        (wall_0, simulated_0), (wall_1, simulated_1) = samples[0], samples[-1]
        return (simulated_1 - simulated_0) / (wall_1 - wall_0)

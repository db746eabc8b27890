"""How long the stages of an update take."""

import time


class Stopwatch:
    """Milliseconds of each stage, by name, in the order in which they ended."""

    def __init__(self):
        self.milliseconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """End a stage that began when the one before ended."""
        now = time.perf_counter()
        self.milliseconds[stage] = 1e3 * (now - self._last)
        self._last = now

    def split(self, stages: dict[str, float]) -> None:
        """End stages that were timed elsewhere; they took all of the time since the one before."""
        self.milliseconds.update(stages)
        self._last = time.perf_counter()

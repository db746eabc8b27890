"""A control loop that keeps its deadlines: commands come in time whatever an update takes."""

import functools
import threading
import time
from collections.abc import Callable


class ControlLoop:
    """Calls ``tick`` once a period on a thread of its own, and works on another.

    The periods are those of a steady clock, whatever the time of ROS does. A tick that comes late
    is not made up for.

    Parameters
    ----------
    period : float or None
        s; None ticks whenever :meth:`wake` is called.
    patience : float
        s; without a period, ``on_silence`` is called after so long without :meth:`wake`.
    tick : callable
        Called with how many periods passed without a tick. Must be short.
    on_silence : callable
    on_error : callable
        Called with an exception of ``tick`` or of the work, inside its ``except``.
    """

    def __init__(
        self,
        period: float | None,
        patience: float,
        tick: Callable[[int], None],
        on_silence: Callable[[], None],
        on_error: Callable[[Exception], None],
    ):
        self._period, self._patience = period, patience
        self._tick, self._on_silence, self._on_error = tick, on_silence, on_error
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._given = threading.Condition()
        self._work: Callable[[], None] | None = None
        self._ticker = threading.Thread(target=self._run, name="control", daemon=True)
        self._worker = threading.Thread(target=self._serve, name="update", daemon=True)

    def start(self) -> None:
        """Begin to tick."""
        self._ticker.start()
        self._worker.start()

    def stop(self) -> None:
        """End the ticks; work goes on to its end, for which :meth:`join` waits."""
        self._stopping.set()
        self._woken.set()
        self._ticker.join()

    def join(self) -> None:
        """Wait until the work is done, after :meth:`stop`."""
        with self._given:
            self._given.notify()
        self._worker.join()

    def wake(self) -> None:
        """Tick now, in a loop without a period."""
        self._woken.set()

    @property
    def busy(self) -> bool:
        """Whether there is work that is not done."""
        return self._work is not None

    def work(self, job: Callable[[], None]) -> None:
        """Do ``job`` on the other thread, which must not be busy."""
        with self._given:
            self._work = job
            self._given.notify()

    def _run(self) -> None:
        if self._period is None:
            self._follow_wakes()
        else:
            self._follow_clock()

    def _follow_clock(self) -> None:
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            skipped = int(max(0.0, time.monotonic() - due) / self._period)
            self._guarded(functools.partial(self._tick, skipped))
            due += (1 + skipped) * self._period

    def _follow_wakes(self) -> None:
        while not self._stopping.is_set():
            woken = self._woken.wait(self._patience)
            self._woken.clear()
            if not self._stopping.is_set():
                self._guarded(functools.partial(self._tick, 0) if woken else self._on_silence)

    def _serve(self) -> None:
        while True:
            with self._given:
                self._given.wait_for(lambda: self._work is not None or self._stopping.is_set())
                if self._stopping.is_set():
                    return
            self._guarded(self._work)
            self._work = None

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._on_error(error)

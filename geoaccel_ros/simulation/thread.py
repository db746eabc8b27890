"""The thread that owns a simulation's physics and holds it to the wall clock."""

import threading
from collections.abc import Callable

from geoaccel_ros.simulation.events import ClockTick, Event
from geoaccel_ros.simulation.pacing import Pacer
from geoaccel_ros.simulation.world import Simulation


class SimulationThread:
    """Steps a simulation at its ``realtime_factor`` and hands its events to a callback.

    While paused, simulated time stands still but is still told at ``clock_rate`` (of wall time), so
    that whoever joins, or waits for a clock, is not stuck. pause, resume and reset return at once
    and take effect between two steps.

    Parameters
    ----------
    simulation : Simulation
        From start to stop nobody else may step or reset it, or read its ``data``.
    on_event : callable
        Called from the thread with each event, in order; its time is the simulation's, so it must
        be quick. What it raises ends the simulation as diverged physics does.
    on_error : callable, optional
        Called from the thread with ``error`` when that has ended it.
    paused : bool, optional
        Whether it starts paused; the configuration's ``start_paused`` if not given.

    Attributes
    ----------
    error : Exception or None
        What ended the thread.
    """

    def __init__(
        self,
        simulation: Simulation,
        on_event: Callable[[Event], None],
        on_error: Callable[[Exception], None] | None = None,
        paused: bool | None = None,
    ):
        self.simulation = simulation
        self.error: Exception | None = None
        self._on_event = on_event
        self._on_error = on_error
        self._stop = threading.Event()
        self._reset = threading.Event()
        self._running = threading.Event()
        if not (simulation.config.start_paused if paused is None else paused):
            self._running.set()
        self._pacer = Pacer(simulation.config.realtime_factor, sleep=self._stop.wait)
        self._thread = threading.Thread(target=self._run, name="simulation", daemon=True)

    def start(self) -> None:
        """Begin to step."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it; nothing is called back afterwards. May be repeated."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def pause(self) -> None:
        """Let simulated time stand still."""
        self._running.clear()

    def resume(self) -> None:
        """Let simulated time go on."""
        self._running.set()

    def reset(self) -> None:
        """Put the robot back to its start before the next step, paused or not."""
        self._reset.set()

    @property
    def paused(self) -> bool:
        return not self._running.is_set()

    @property
    def realtime_factor(self) -> float:
        """Measured: simulated over wall time in the last two seconds; 0 while paused."""
        return 0.0 if self.paused else self._pacer.measured_factor

    @property
    def lag(self) -> float:
        """Seconds of wall time by which the simulation fell behind and that it gave up, in all."""
        return self._pacer.lag

    def _run(self) -> None:
        try:
            simulation = self.simulation
            # A pause is not lag: the pacer begins anew after one, however it ended.
            pacing = False
            while not self._stop.is_set():
                if self._reset.is_set():
                    self._reset.clear()
                    simulation.reset()
                if not self._running.is_set():
                    pacing = False
                    self._hold()
                    continue
                if not pacing:
                    self._pacer.start(simulation.time_ns * 1e-9)
                    pacing = True
                self._pacer.wait((simulation.time_ns + simulation.timestep_ns) * 1e-9)
                for event in simulation.step():
                    self._on_event(event)
        except Exception as error:
            self.error = error
            if self._on_error is not None:
                self._on_error(error)

    def _hold(self) -> None:
        """Tell the time once and wait for one clock period, or less when resumed."""
        self._on_event(ClockTick(self.simulation.time_ns))
        self._running.wait(1 / self.simulation.config.clock_rate)

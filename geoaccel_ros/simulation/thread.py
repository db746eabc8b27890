"""The thread that owns a simulation's physics and holds it to the wall clock."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator

from geoaccel_ros.simulation.events import ClockTick, EpochStart, Event
from geoaccel_ros.simulation.lidar_thread import LidarThread
from geoaccel_ros.simulation.pacing import Pacer
from geoaccel_ros.simulation.world import Simulation, SimulationError

# Commands that may wait to be executed, where each of them advances the time.
_WAITING_MAX = 100


class SimulationThread:
    """Steps a simulation at its ``realtime_factor`` and hands its events to a callback.

    The first event, and that of every reset, is an EpochStart. With ``stepping`` by command time
    stands until :meth:`command` is called, and goes on by ``command_period`` for each call; the
    state is told at the start, at the end of every such period and at a reset, and nothing depends
    on the wall clock. Otherwise the lidar's rays are cast on a thread of their own, so that a sweep
    may come some steps after its end.

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
        self._by_command = simulation.config.stepping == "command"
        self._commands: queue.Queue[tuple[float, ...]] = queue.Queue(_WAITING_MAX)
        if not (simulation.config.start_paused if paused is None else paused):
            self._running.set()
        self._rays: LidarThread | None = None
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

    def command(self, *values: float) -> None:
        """Command the robot as :meth:`Simulation.command` does; any thread may.

        Raises
        ------
        SimulationError
            As there; or when stepping by command and too many wait for their turn.
        """
        if not self._by_command:
            self.simulation.command(*values)
            return
        self.simulation.check_command(*values)
        try:
            self._commands.put_nowait(values)
        except queue.Full:
            raise SimulationError(
                f"{_WAITING_MAX} commands wait: send one for each state, not faster than they are"
                " executed, and none while paused"
            ) from None

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
            with self._rays_beside():
                self._go()
        except Exception as error:
            self.error = error
            if self._on_error is not None:
                self._on_error(error)

    @contextlib.contextmanager
    def _rays_beside(self) -> Iterator[None]:
        """Have a thread cast the lidar's rays, except where events must keep their order."""
        simulation = self.simulation
        if self._by_command or not simulation.has_lidar:
            yield
            return
        simulation.lidar = self._rays = LidarThread(simulation.model, simulation.lidar)
        try:
            yield
        finally:
            simulation.lidar = self._rays.stop()
        # Whoever goes on from here begins with the next sweep.
        self._tell(self._rays.complete())

    def _go(self) -> None:
        """Do what :meth:`start` begins, until told to stop."""
        self._on_event(EpochStart(self.simulation.time_ns, self.simulation.epoch))
        if self._by_command:
            self._tell(self.simulation.state())
        # A pause is not lag: the pacer begins anew after one, however it ended.
        pacing = False
        while not self._stop.is_set():
            if self._reset.is_set():
                self._reset.clear()
                self._start_again()
            if not self._running.is_set():
                pacing = False
                self._hold()
            elif self._by_command:
                self._execute_next()
            else:
                if not pacing:
                    self._pacer.start(self.simulation.time_ns * 1e-9)
                pacing = True
                self._step_on_time()

    def _tell(self, events: Iterable[Event]) -> None:
        for event in events:
            self._on_event(event)

    def _start_again(self) -> None:
        simulation = self.simulation
        simulation.reset()
        with contextlib.suppress(queue.Empty):
            while True:
                self._commands.get_nowait()
        self._on_event(EpochStart(simulation.time_ns, simulation.epoch))
        if self._by_command:
            # Whoever answers states with commands has no other to begin with.
            self._tell(simulation.state())

    def _step_on_time(self) -> None:
        simulation = self.simulation
        self._pacer.wait((simulation.time_ns + simulation.timestep_ns) * 1e-9)
        self._tell(simulation.step())

    def _execute_next(self) -> None:
        """Advance by one command's period, or tell the time when none comes."""
        simulation = self.simulation
        try:
            values = self._commands.get(timeout=1 / simulation.config.clock_rate)
        except queue.Empty:
            self._on_event(ClockTick(simulation.time_ns))
            return
        simulation.command(*values)
        for _ in range(simulation.steps_per_command):
            self._tell(simulation.step())

    def _hold(self) -> None:
        """Tell the time once and wait for one clock period, or less when resumed."""
        if self._rays is not None:
            self._tell(self._rays.complete())
        self._on_event(ClockTick(self.simulation.time_ns))
        self._running.wait(1 / self.simulation.config.clock_rate)

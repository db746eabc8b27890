"""The physics thread: each test waits for events, never for a time."""

import queue
import threading

import numpy as np
import pytest

from geoaccel_ros.simulation.events import ClockTick, TruthState
from geoaccel_ros.simulation.thread import SimulationThread
from geoaccel_ros.simulation.world import Simulation, SimulationConfig, SimulationError

# Seconds after which something hangs; nothing takes a tenth of it.
PATIENCE = 30.0


class Harness:
    """A running thread and its events in a queue."""

    def __init__(self, **values):
        values = {"lidar_rings": 1, "lidar_columns": 2, "realtime_factor": 0.0, **values}
        self.simulation = Simulation(SimulationConfig(**values))
        self.events = queue.SimpleQueue()
        self.thread = SimulationThread(self.simulation, self.events.put)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.stop()

    def next(self, kind, until=lambda event: True):
        """Return the next event of a kind that fulfils the condition."""
        while True:
            event = self.events.get(timeout=PATIENCE)
            if type(event) is kind and until(event):
                return event

    def paused_at(self):
        """Return the time at which the simulation stands, told twice."""
        last = -1
        while (tick := self.next(ClockTick).stamp_ns) != last:
            last = tick
        return last


def test_events_come_in_order_and_nothing_after_stop():
    with Harness() as running:
        stamps = [running.next(ClockTick).stamp_ns for _ in range(100)]
    assert stamps == [10_000_000 * (k + 1) for k in range(100)]
    assert not running.thread._thread.is_alive()
    while not running.events.empty():
        running.events.get()
    assert running.events.empty()
    assert running.thread.error is None
    running.thread.stop()


def test_stop_without_start():
    Harness().thread.stop()


def test_paused_time_stands_and_is_still_told_and_goes_on_without_a_jump():
    with Harness() as running:
        running.next(TruthState)
        running.thread.pause()
        assert running.thread.paused
        standing = running.paused_at()
        assert {running.next(ClockTick).stamp_ns for _ in range(5)} == {standing}
        assert running.thread.realtime_factor == 0
        running.thread.resume()
        following = running.next(ClockTick, lambda tick: tick.stamp_ns > standing)
        assert following.stamp_ns - standing <= 10_000_000
        assert running.next(TruthState).stamp_ns > standing


def test_starts_paused():
    with Harness(start_paused=True) as running:
        assert {running.next(ClockTick).stamp_ns for _ in range(5)} == {0}
        running.thread.resume()
        assert running.next(TruthState).stamp_ns == 20_000_000


@pytest.mark.parametrize("paused", [False, True])
def test_the_caller_may_say_whether_it_starts_paused(paused):
    config = SimulationConfig(lidar_rings=1, lidar_columns=2, start_paused=not paused)
    assert SimulationThread(Simulation(config), print, paused=paused).paused is paused


def test_a_resume_just_after_the_wait_has_timed_out_is_no_lag():
    class ResumedLate(threading.Event):
        def wait(self, timeout=None):
            assert not super().wait(timeout)
            self.set()
            return False

    running = Harness(start_paused=True, realtime_factor=1.0)
    thread, starts = running.thread, []
    thread._running = ResumedLate()
    begin = thread._pacer.start
    thread._pacer.start = lambda simulated_s: (starts.append(thread.paused), begin(simulated_s))
    with running:
        running.next(TruthState)
    assert starts[-1] is False


def test_reset_while_running():
    with Harness() as running:
        before = running.next(TruthState, lambda t: t.stamp_ns >= 100_000_000)
        running.thread.reset()
        after = running.next(TruthState, lambda t: t.epoch == 1)
        assert after.stamp_ns > before.stamp_ns


def test_reset_while_paused():
    with Harness() as running:
        for _ in range(50):
            running.simulation.command(1.0, 0.0)
            running.next(TruthState)
        running.thread.pause()
        standing = running.paused_at()
        running.thread.reset()
        assert {running.next(ClockTick).stamp_ns for _ in range(3)} == {standing}
        running.thread.resume()
        state = running.next(TruthState, lambda t: t.epoch == 1)
        # A step or two after the reset, at its start.
        np.testing.assert_allclose(
            state.T_world_base[:2, 3], running.simulation.T_world_start[:2, 3], atol=0.01
        )


def test_commands_from_another_thread_arrive():
    with Harness() as running:
        done = threading.Event()

        def command():
            while not done.is_set():
                running.simulation.command(0.8, 0.0)

        commander = threading.Thread(target=command)
        commander.start()
        try:
            moving = running.next(TruthState, lambda t: t.linear[0] > 0.75)
        finally:
            done.set()
            commander.join()
        assert moving.linear[0] < 0.85


def test_diverged_physics_ends_the_thread_and_is_told():
    running = Harness()
    running.simulation.data.qvel[0] = np.nan
    with running:
        running.thread._thread.join(PATIENCE)
        assert not running.thread._thread.is_alive()
        assert isinstance(running.thread.error, SimulationError)


def test_what_the_callback_raises_is_told():
    simulation = Simulation(SimulationConfig(lidar_rings=1, lidar_columns=2, realtime_factor=0.0))

    def refuse(event):
        raise RuntimeError("publisher is gone")

    told = []
    thread = SimulationThread(
        simulation, refuse, lambda error: told.append((error, threading.current_thread()))
    )
    thread.start()
    thread._thread.join(PATIENCE)
    assert str(thread.error) == "publisher is gone"
    assert told == [(thread.error, thread._thread)]
    thread.stop()


def test_stop_from_the_callback_does_not_wait_for_itself():
    simulation = Simulation(SimulationConfig(lidar_rings=1, lidar_columns=2, realtime_factor=0.0))
    thread = SimulationThread(simulation, lambda event: thread.stop())
    thread.start()
    thread._thread.join(PATIENCE)
    assert not thread._thread.is_alive()
    assert thread.error is None


@pytest.mark.parametrize("factor", [0.0, 50.0])
def test_the_pace_is_measured(factor):
    with Harness(realtime_factor=factor) as running:
        running.next(ClockTick, lambda tick: tick.stamp_ns >= 1_000_000_000)
        assert running.thread.realtime_factor > 0

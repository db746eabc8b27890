"""The physics thread: each test waits for events, never for a time."""

import queue
import threading

import mujoco
import numpy as np
import pytest

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.simulation.events import (
    ClockTick,
    EpochStart,
    ImuSample,
    JointState,
    Scan,
    TruthState,
)
from geoaccel_ros.simulation.thread import SimulationThread
from geoaccel_ros.simulation.world import (
    Simulation,
    SimulationConfig,
    SimulationError,
    load_model,
)

# Seconds after which something hangs; nothing takes a tenth of it.
PATIENCE = 30.0


def bits(event):
    """Return everything in an event as comparable bytes."""
    return b"".join(
        value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
        for value in vars(event).values()
    )


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


# The lidar's rays, on a thread of their own


def test_every_sweep_is_told_also_the_last_one_before_a_pause():
    with Harness(lidar_columns=64) as running:
        stamps = [running.next(Scan).stamp_ns for _ in range(10)]
        assert stamps == [100_000_000 * k for k in range(10)]
        running.thread.pause()
        standing = running.paused_at()
        complete = standing // 100_000_000
        stamps += [running.next(Scan).stamp_ns for _ in range(len(stamps), complete)]
        assert stamps == [100_000_000 * k for k in range(complete)]


def test_sweeps_go_on_without_a_gap_when_another_thread_takes_over():
    simulation = Simulation(SimulationConfig(lidar_rings=1, lidar_columns=8, realtime_factor=0.0))
    lidar, stamps = simulation.lidar, []
    for last in (5, 10):
        told = threading.Event()

        def note(event, last=last, told=told):
            if type(event) is Scan:
                stamps.append(event.stamp_ns)
            elif event.stamp_ns >= last * 100_000_000:
                told.set()

        thread = SimulationThread(simulation, note)
        thread.start()
        assert told.wait(PATIENCE)
        thread.stop()
        assert simulation.lidar is lidar and thread.error is None
    # Those that were complete when the first thread ended are its last.
    assert set(np.diff(stamps)) == {100_000_000}


# Epochs


def test_epochs_begin_at_the_start_and_at_each_reset():
    with Harness() as running:
        assert running.events.get(timeout=PATIENCE) == EpochStart(0, 0)
        running.next(TruthState)
        running.thread.reset()
        begun = running.next(EpochStart)
        assert begun.epoch == 1 and begun.stamp_ns > 0
        # What follows belongs to it.
        state = running.next(TruthState)
        assert state.epoch == 1 and state.stamp_ns > begun.stamp_ns


# Stepping by command

PENDULUM = {
    "model": "cartpole", "stepping": "command", "command_period": 0.02, "base_body": "",
    "left_wheel": "", "right_wheel": "", "lidar_site": "", "imu_site": "",
    "start_qpos": (0.0, 3.0), "realtime_factor": 1.0,
}  # fmt: skip


def test_each_command_is_one_period_and_one_state():
    with Harness(**PENDULUM) as running:
        assert running.next(JointState).stamp_ns == 0
        for k in range(1, 6):
            running.thread.command(10.0)
            tick = running.next(ClockTick, lambda tick, k=k: tick.stamp_ns == k * 20_000_000)
            assert running.next(JointState).stamp_ns == tick.stamp_ns
        # Nothing moves without a command, but the time is told.
        assert running.paused_at() == 100_000_000
        assert running.simulation.time_ns == 100_000_000


def test_stepping_by_command_is_mujoco_s_own_rollout_whenever_commands_come():
    rng = np.random.default_rng(1)
    controls = rng.uniform(-15, 15, 50)
    with Harness(**PENDULUM) as running:
        states = [running.next(JointState)]
        # All at once, and one after the other.
        for u in controls[:25]:
            running.thread.command(u)
        states += [running.next(JointState) for _ in range(25)]
        for u in controls[25:]:
            running.thread.command(u)
            states.append(running.next(JointState))
    model = load_model("cartpole")
    data = mujoco.MjData(model)
    data.qpos[:] = 0.0, 3.0
    for state, u in zip(states, [*controls, 0.0], strict=True):
        np.testing.assert_array_equal(state.position, data.qpos)
        np.testing.assert_array_equal(state.velocity, data.qvel)
        data.ctrl[:] = u
        mujoco.mj_step(model, data, 10)


def test_a_reset_drops_what_waits_and_tells_the_start():
    with Harness(**PENDULUM, start_paused=True) as running:
        running.next(JointState)
        for _ in range(5):
            running.thread.command(10.0)
        running.thread.reset()
        assert running.next(EpochStart).epoch == 1
        start = running.next(JointState)
        assert (start.stamp_ns, *start.position) == (0, 0.0, 3.0)
        running.thread.resume()
        running.thread.command(-10.0)
        assert running.next(JointState).position[0] < 0.0
        assert running.paused_at() == 20_000_000


def test_too_many_commands_at_once_are_refused():
    with Harness(**PENDULUM, start_paused=True) as running:
        for _ in range(100):
            running.thread.command(1.0)
        with pytest.raises(SimulationError, match="100 commands wait"):
            running.thread.command(1.0)
        running.thread.resume()
        running.next(JointState, lambda state: state.stamp_ns == 2_000_000_000)
        assert running.paused_at() == 2_000_000_000


def test_a_command_that_is_none_is_refused_at_once():
    with Harness(**PENDULUM) as running:
        with pytest.raises(SimulationError, match="not finite"):
            running.thread.command(np.nan)
        with pytest.raises(SimulationError, match="a command of 2 values"):
            running.thread.command(1.0, 2.0)
        assert running.paused_at() == 0


def test_a_robot_with_sensors_is_stepped_to_the_same_bits():
    def run():
        config = {"stepping": "command", "command_period": 0.05, "lidar_columns": 64}
        told = []
        with Harness(**config) as running:
            for k in range(8):
                running.thread.command(0.5, 0.1 * k)
            while not told or told[-1].stamp_ns < 400_000_000 or type(told[-1]) is not TruthState:
                told.append(running.events.get(timeout=PATIENCE))
        # While time stands it is told as often as the wall clock gives.
        kinds = (Scan, ImuSample, JointState, TruthState)
        return [bits(event) for event in told if type(event) in kinds]

    first = run()
    # Four sweeps, of which the last is complete with the last step; 40 samples; 9 states.
    assert len(first) == 4 + 40 + 9 + 9
    assert run() == first


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"command_period": 0.007}, "'command_period' is 0.007, must be a multiple of 0.002"),
        ({"command_period": 0.001}, "'command_period' is 0.001, must be a multiple of 0.002"),
        ({"command_period": 1.0}, r"'command_period' is 1, must be <= 'command_timeout' \(0.5\)"),
    ],
)
def test_a_period_that_cannot_be_stepped_is_refused(values, message):
    with pytest.raises(ConfigurationError, match=message):
        Simulation(SimulationConfig(**{**PENDULUM, **values}))


def test_a_model_that_explodes_ends_the_thread_too(tmp_path):
    with Harness(**{**PENDULUM, "start_qpos": (0.0, 1e9)}) as running:
        running.simulation.data.qvel[1] = 1e200
        running.thread.command(0.0)
        running.thread._thread.join(PATIENCE)
    assert "physics diverged at 0.000 s" in str(running.thread.error)

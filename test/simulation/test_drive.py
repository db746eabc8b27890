"""The closed loop itself; that controllers do their task is tested with each system."""

import math

import numpy as np
import pytest

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.simulation.closed_loop import drive

# A puck on a line, which a force moves.
PUCK = """
from dataclasses import dataclass

from geoaccel_ros.config import Configuration, parameter

STATE = ("x", "v")
CONTROL = ("force",)
GOAL = ("x",)
RUNNING = ("goal", "speed")
TERMINAL = ("goal",)
SAMPLING = {"samples": 64, "horizon": 20, "dt": 0.05, "sigma": (0.5,), "command_delay": 0.0}
TASK = {"start": (1.0, 0.0), "goal": (0.0,), "hold": 0.5}


@dataclass(frozen=True)
class Parameters(Configuration):
    mass: float = parameter(1.0, "Mass.", unit="kg", minimum=0.1)
    goal_weight: float = parameter(1.0, "Cost of a second at a metre; grows as its square.")
    speed_weight: float = parameter(0.1, "Cost of a second at 1 m/s; grows as its square.")
    final_goal_weight: float = parameter(1.0, "Cost of ending at a metre; grows as its square.")


def limits(p):
    return (-2.0,), (2.0,)


def step(x, u, p, dt):
    a = u[0] / p.mass
    return x[0] + dt * (x[1] + 0.5 * dt * a), x[1] + dt * a


def running(x, u, u_before, goal, p):
    return p.goal_weight * (x[0] - goal[0]) * (x[0] - goal[0]), p.speed_weight * x[1] * x[1]


def terminal(x, goal, p):
    return (p.final_goal_weight * (x[0] - goal[0]) * (x[0] - goal[0]),)


def reached(x, goal, p):
    return abs(x[0] - goal[0]) < 0.1
"""


@pytest.fixture
def puck(tmp_path):
    path = tmp_path / "puck.py"
    path.write_text(PUCK, encoding="utf-8")
    return str(path)


def test_the_system_is_its_own_plant_where_it_has_no_model(puck):
    run = drive(puck, seconds=4.0)
    assert run.success
    assert run.states.shape == (81, 2) and run.controls.shape == (80, 1)
    assert len(run.updates) == len(run.update_ms) == 80
    np.testing.assert_array_equal(run.states[0], (1.0, 0.0))
    # Exact for a constant force, however fine the steps.
    change = run.controls[:, 0] * 0.05
    np.testing.assert_allclose(np.diff(run.states[:, 1]), change, atol=1e-12)
    np.testing.assert_allclose(
        np.diff(run.states[:, 0]), 0.05 * (run.states[:-1, 1] + 0.5 * change), atol=1e-12
    )


def test_the_goal_is_reached_when_the_hold_begins(puck):
    run = drive(puck, seconds=4.0)
    near = np.abs(run.states[:, 0]) < 0.1
    begin = round(run.time_to_goal_s / 0.05)
    # 0.5 s are ten periods, so eleven instants.
    assert near[begin : begin + 11].all()
    assert not any(near[i : i + 11].all() for i in range(begin))
    held = run.controls[begin:, 0]
    assert run.jitter()[0] == pytest.approx(np.abs(np.diff(held)).mean())


def test_without_a_hold_there_is_no_success(puck):
    run = drive(puck, seconds=0.5)
    assert not run.success
    assert math.isnan(run.time_to_goal_s) and np.isnan(run.jitter()).all()


def test_a_command_acts_after_the_delay(puck):
    # A period and a half: each period sees two commands, half of it each.
    run = drive(puck, seconds=2.0, delay=0.075)
    sent = np.concatenate((np.zeros(2), run.controls[:, 0]))
    change = 0.025 * (sent[:-2] + sent[1:-1])
    np.testing.assert_allclose(np.diff(run.states[:, 1]), change, atol=1e-12)


def test_a_delay_that_the_controller_knows_is_predicted_exactly(puck):
    seen = []
    config = MppiConfig(
        samples=64, horizon=20, dt=0.05, sigma=(0.5,), command_delay=0.1, backend="cpu"
    )
    run = drive(
        puck, config, 2.0, delay=0.1, observe=lambda now, mppi, update: seen.append(update.plan[0])
    )
    np.testing.assert_allclose(seen[:-2], run.states[2:-1], atol=1e-6)


def test_seeds_are_what_runs_differ_by(puck):
    a, again, other = (drive(puck, seconds=0.5, seed=seed).controls for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, again)
    assert not np.array_equal(a, other)


def test_a_push_changes_the_state_that_it_is_told(puck):
    def push(now, x):
        return x + (0.0, 3.0) if now == pytest.approx(0.5) else x

    run, calm = drive(puck, seconds=1.0, disturb=push), drive(puck, seconds=1.0)
    np.testing.assert_array_equal(run.states[:11], calm.states[:11])
    gain = run.states[11, 1] - run.states[10, 1] - 0.05 * run.controls[10, 0]
    assert gain == pytest.approx(3.0)


def test_goal_and_start_may_be_others(puck):
    run = drive(puck, seconds=4.0, start=(-2.0, 0.0), goal=(-1.0,))
    np.testing.assert_array_equal(run.states[0], (-2.0, 0.0))
    assert run.success and abs(run.states[-1, 0] + 1.0) < 0.1


def test_mujoco_is_the_plant_where_there_is_a_model():
    config = MppiConfig(
        samples=64, horizon=10, dt=0.02, sigma=(5.0,), command_delay=0.0, backend="cpu"
    )
    falling = (0.0, 0.5, 0.0, 0.0)
    light = drive("cartpole", config, 0.1, start=falling)

    def heavier(model):
        model.body("cart").mass *= 1000.0

    heavy = drive("cartpole", config, 0.1, start=falling, model_edit=heavier)
    np.testing.assert_array_equal(light.states[0], falling)
    # The first command is the same, and what it moves is not.
    assert light.controls[0] == heavy.controls[0] != 0.0
    assert abs(heavy.states[1, 2]) < 0.002 * abs(light.states[1, 2])


@pytest.mark.parametrize("seed", range(3))
def test_diff_drive_reaches_its_goal_at_its_own_sampling(seed):
    config = MppiConfig(seed=seed, command_delay=0.0, backend="cpu")
    run = drive("diff_drive", config, 8.0)
    # At 1.2 m/s at most it takes 3.7 s.
    assert 3.7 < run.time_to_goal_s < 6.5
    assert np.hypot(*(run.states[-1, :2] - (4.0, 2.0))) < 0.15


def test_quadruped_stands_at_its_own_sampling():
    run = drive("quadruped", seconds=2.2)
    assert run.success and run.time_to_goal_s < 0.2
    assert all(update.ok for update in run.updates)


def test_what_diverges_is_not_at_its_goal(puck, tmp_path):
    path = tmp_path / "diverging.py"
    growing = "import math\n" + PUCK.replace("a = u[0] / p.mass", "a = math.exp(x[1] * x[1]) - 0.9")
    path.write_text(growing, encoding="utf-8")
    run = drive(str(path), seconds=2.0, start=(0.05, 3.0))
    assert not np.isfinite(run.states[-1]).any() and not run.success


def test_goal_and_start_must_have_the_components_that_are_named(puck):
    with pytest.raises(ConfigurationError, match=r"the goal has the shape \(2,\).* each of x$"):
        drive(puck, goal=(0.0, 1.0))
    with pytest.raises(ConfigurationError, match=r"the start has the shape \(1,\).* of x, v$"):
        drive(puck, start=(0.0,))


def test_a_system_without_a_goal_needs_one(puck, tmp_path):
    path = tmp_path / "aimless.py"
    path.write_text(PUCK.replace("TASK =", "OTHER ="), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="has no TASK with a goal"):
        drive(str(path))
    assert drive(str(path), seconds=0.1, goal=(1.0,)).states[0].tolist() == [0.0, 0.0]


def test_only_a_model_can_be_edited(puck):
    with pytest.raises(ConfigurationError, match="has no MODEL"):
        drive(puck, model_edit=lambda model: None)

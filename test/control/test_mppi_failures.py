"""What an update does where rollouts are not finite, and what it says of them."""

import dataclasses

import numpy as np
import pytest

from geoaccel_ros.control.distance_field import DistanceField, distances_to
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.plan import resample

CONFIG = MppiConfig(backend="cpu", samples=256, horizon=30, plan_hold=0.2)
AT_REST = np.zeros(5)
GOAL = np.array([4.0, 1.0])
# Squared in float32 this is infinite, and so is every cost.
FAR_GOAL = np.array([1e30, 0.0])

# y has a pole where x is p.pole; at rest x stays what it is.
POLE = """
from dataclasses import dataclass

from geoaccel_ros.config import Configuration, parameter

STATE = ("x", "y")
CONTROL = ("v",)
GOAL = ("x",)
RUNNING = ("goal", "y")
TERMINAL = ()


@dataclass(frozen=True)
class Parameters(Configuration):
    pole: float = parameter(3.0, "Where y has a pole.", unit="m")
    goal_weight: float = parameter(1.0, "Of the distance.")
    y_weight: float = parameter(1.0, "Of y.")


def limits(p):
    return (-1.0,), (1.0,)


def step(x, u, p, dt):
    moved = x[0] + dt * u[0]
    return moved, 1e-6 / (moved - p.pole)


def running(x, u, u_before, goal, p):
    off = x[0] - goal[0]
    return p.goal_weight * off * off, p.y_weight * x[1] * x[1]


def terminal(x, goal, p):
    return ()
"""
AT_POLE = np.array([3.0, 0.0])
AT_POLE_TEXT = "rollout 0, step 0: the state's y is inf, from x 3, y 0 under v 0"


@pytest.fixture(scope="module")
def pole(tmp_path_factory):
    path = tmp_path_factory.mktemp("systems") / "pole.py"
    path.write_text(POLE, encoding="utf-8")
    return str(path)


def _pole_config(**values):
    values = {"samples": 64, "horizon": 20, "dt": 0.1, "sigma": (0.2,), "backend": "cpu"} | values
    return MppiConfig(**values)


def _with_a_plan(config=CONFIG):
    """A controller whose last plan is of 0.10 s."""
    mppi = Mppi(config)
    for stamp in (0.0, 0.05, 0.1):
        update = mppi.update(AT_REST, GOAL, stamp)
    assert update.ok and update.command[0] > 0.1
    return mppi, update


def test_the_last_plan_is_followed_for_a_bounded_time_and_then_the_safe_command():
    mppi, update = _with_a_plan()
    plan, before = update.controls, 0.1
    for stamp in (0.15, 0.23, 0.29):
        plan, before = resample(plan, CONFIG.dt, stamp - before), stamp
        update = mppi.update(AT_REST, FAR_GOAL, stamp)
        assert not update.ok and update.held and update.not_finite_fraction == 1.0
        assert update.reason.startswith("no rollout has a finite cost: rollout 0, step 0: ")
        assert update.reason.endswith("only in float32")
        np.testing.assert_allclose(update.controls, plan, atol=1e-12)
        np.testing.assert_array_equal(update.command, update.controls[0])
        assert update.plan.shape == (0, 5) and len(mppi.rollouts(5)[0]) == 0
    for stamp in (0.31, 0.33):
        update = mppi.update(AT_REST, FAR_GOAL, stamp)
        assert not update.ok and not update.held and "no rollout has" in update.reason
        assert (update.controls == 0.0).all() and (update.command == 0.0).all()


def test_what_is_held_is_improved_as_soon_as_costs_are_finite():
    mppi, _ = _with_a_plan()
    assert mppi.update(AT_REST, FAR_GOAL, 0.15).held
    after = mppi.update(AT_REST, GOAL, 0.2)
    assert after.ok and not after.held and after.plan_age == pytest.approx(0.05)
    assert after.command[0] > 0.1
    # And the time that it may be held begins anew.
    assert mppi.update(AT_REST, FAR_GOAL, 0.39).held


@pytest.mark.parametrize("drop", ["reset", "hold", "time", "state"])
def test_nothing_is_held_without_a_plan_of_late(drop):
    mppi, _ = _with_a_plan(dataclasses.replace(CONFIG, plan_hold=0.0 if drop == "hold" else 1.0))
    if drop == "reset":
        mppi.reset()
    if drop == "state":
        mppi.update(np.full(5, np.nan), GOAL, 0.12)
    update = mppi.update(AT_REST, FAR_GOAL, -5.0 if drop == "time" else 0.15)
    assert not update.ok and not update.held and (update.command == 0.0).all()


def test_a_way_that_is_blocked_is_not_driven_on():
    mppi, _ = _with_a_plan(dataclasses.replace(CONFIG, plan_hold=10.0))
    y, x = 0.1 * (np.indices((101, 101)) - 50)
    ring = distances_to(np.hypot(x, y) >= 0.6, 0.1)
    mppi.set_obstacles(DistanceField(ring, np.full(2, -5.0), 0.1, 0.0))
    update = mppi.update(np.array([0.0, 0.0, 0.0, 1.2, 0.0]), GOAL, 0.15)
    assert not update.ok and not update.held and update.reason == "every rollout collides"
    assert (update.command == 0.0).all() and update.not_finite_fraction == 0.0


def test_nothing_is_held_where_some_collide():
    mppi, _ = _with_a_plan(dataclasses.replace(CONFIG, plan_hold=10.0))
    wall = np.zeros((101, 101), bool)
    wall[:, 58:] = True
    mppi.set_obstacles(DistanceField(distances_to(wall, 0.1), np.full(2, -5.0), 0.1, 0.0))
    update = mppi.update(np.array([0.0, 0.0, 0.0, 0.4, 0.0]), FAR_GOAL, 0.15)
    assert 0.0 < update.collided_fraction < 1.0
    assert not update.ok and not update.held and (update.command == 0.0).all()
    assert update.reason.startswith("no rollout that does not collide has a finite cost: ")


def test_where_all_vanish_the_reason_names_rollout_step_and_stage(pole):
    mppi = Mppi(_pole_config(sigma=(0.0,)), pole)
    update = mppi.update(AT_POLE, np.zeros(1), 0.0)
    assert update.reason == f"no rollout has a finite cost: {AT_POLE_TEXT}"
    assert mppi.explain() == AT_POLE_TEXT


def test_what_mujoco_gives_up_is_told():
    config = _pole_config(rollouts="mujoco", horizon=5, dt=0.02, sigma=(5.0,))
    # Finite, but further away than MuJoCo takes for possible.
    update = Mppi(config, "cartpole").update(np.array([2e10, 0.0, 0.0, 0.0]), np.zeros(1), 0.0)
    assert update.reason == (
        "no rollout has a finite cost: rollout 0, whose state diverged: MuJoCo ended it"
    )


@pytest.mark.parametrize("sets", [1, 3])
def test_where_some_vanish_the_others_count_and_the_first_is_explained(pole, sets):
    several = {"parameter_sets": sets, "randomised": ("pole",), "randomised_by": (0.1,)}
    mppi = Mppi(_pole_config(**several if sets > 1 else {}), pole)
    assert mppi.explain() == ""
    update = mppi.update(AT_POLE, np.zeros(1), 0.0)
    # The plan as it is and the safe maneuver, which is zero; at the pole of the first set alone.
    assert update.ok and update.not_finite_fraction == 2 / 64
    assert mppi.explain() == AT_POLE_TEXT
    assert mppi.update(np.array([1.0, 0.0]), np.zeros(1), 0.1).not_finite_fraction == 0.0
    assert mppi.explain() == ""

import math

import numpy as np
import pytest

from geoaccel_ros.control.compiling import device_function
from geoaccel_ros.control.systems import diff_drive, load_system

SYSTEM = load_system("diff_drive")
WEIGHTS = [name for name in diff_drive.Parameters.__annotations__ if name.endswith("_weight")]


def _only(weight, **others):
    """Parameters with that weight 1 and all others 0."""
    values = {name: 0.0 for name in WEIGHTS} | {weight: 1.0} | others
    return SYSTEM.pack(diff_drive.Parameters(**values), np.float64)


def _x(x=0.0, y=0.0, yaw=0.0, v=0.0, w=0.0):
    return tuple(np.float64(value) for value in (x, y, yaw, v, w))


def _integrated(x, u, duration, lag, acceleration, step=1e-5):
    """The lag with limited acceleration and the unicycle, by many small Euler steps."""
    x = np.array(x)
    for _ in range(round(duration / step)):
        change = np.clip((np.array(u) - x[3:]) / lag, -np.array(acceleration), acceleration)
        x += step * np.array([x[3] * math.cos(x[2]), x[3] * math.sin(x[2]), x[4], *change])
    return x


@pytest.mark.parametrize("yaw", np.radians([0.0, 90.0, 179.9, 180.0, -180.0, -179.9, 400.0]))
def test_step_follows_the_differential_equation(yaw):
    parameters = diff_drive.Parameters(v_acceleration=100.0, w_acceleration=100.0, w_lag=0.15)
    start = (1.0, -2.0, yaw, 0.4, -0.3)
    found = SYSTEM.step(_x(*start), (1.0, 0.9), SYSTEM.pack(parameters, np.float64), 0.1)
    expected = _integrated(start, (1.0, 0.9), 0.1, (0.1, 0.15), (100.0, 100.0))
    # Speeds are exact (the reference's step is 1e-5); the pose is of second order in 0.1 s.
    np.testing.assert_allclose(found[3:], expected[3:], atol=1e-4)
    np.testing.assert_allclose(found[:3], expected[:3], atol=4e-3)


def test_acceleration_is_limited():
    parameters = diff_drive.Parameters(v_acceleration=1.5, w_acceleration=3.0)
    p = SYSTEM.pack(parameters, np.float64)
    faster = SYSTEM.step(_x(), (1.2, 1.5), p, 0.1)
    np.testing.assert_allclose(faster[3:], [0.15, 0.3])
    slower = SYSTEM.step(_x(v=1.0, w=1.0), (-0.3, -1.5), p, 0.1)
    np.testing.assert_allclose(slower[3:], [0.85, 0.7])


def test_small_steps_add_up_to_a_large_one():
    p = SYSTEM.pack(diff_drive.Parameters(), np.float64)
    x = _x(yaw=3.1, v=1.0, w=0.5)
    small = x
    for _ in range(10):
        small = SYSTEM.step(small, (1.1, 0.6), p, 0.01)
    large = SYSTEM.step(x, (1.1, 0.6), p, 0.1)
    np.testing.assert_allclose(large[3:], small[3:], atol=1e-12)
    # The mean of a step's first and last speed is its mean up to the second order.
    np.testing.assert_allclose(large[:3], small[:3], atol=1e-3)


@pytest.mark.parametrize(
    ("weight", "x", "arguments", "expected"),
    [
        ("goal_weight", _x(1.0, 2.0), {}, 5.0),
        ("goal_weight", _x(1.0, 2.0), {"detour": 1.5}, 6.5),
        ("heading_weight", _x(1.0, 2.0, math.atan2(4.0, 3.0)), {}, 0.0),
        ("heading_weight", _x(1.0, 2.0, math.atan2(-4.0, -3.0)), {}, 10.0 / 6.0),
        ("heading_weight", _x(4.0, 6.0, 1.0), {}, 0.0),
        ("obstacle_weight", _x(), {"clearance": 0.86}, 0.0),
        ("obstacle_weight", _x(), {"clearance": 0.60}, 0.25),
        ("obstacle_weight", _x(), {"clearance": 0.35}, 1.0),
        ("obstacle_weight", _x(), {"clearance": 0.0}, 1.0),
        ("reverse_weight", _x(v=-0.2), {}, 0.2),
        ("reverse_weight", _x(v=0.2), {}, 0.0),
        ("turn_weight", _x(w=-0.5), {}, 0.25),
        ("change_weight", _x(), {"u": (1.0, -1.0), "u_before": (0.5, 1.0)}, 4.25),
    ],
)
def test_running_cost_of_one_term(weight, x, arguments, expected):
    defaults = {"u": (0.0, 0.0), "u_before": (0.0, 0.0), "clearance": 10.0, "detour": 0.0}
    values = defaults | arguments
    terms = SYSTEM.running(
        x,
        values["u"],
        values["u_before"],
        (4.0, 6.0),
        values["clearance"],
        values["detour"],
        _only(weight, robot_radius=0.35, inflation=0.5),
    )
    expected = [expected if f"{name}_weight" == weight else 0.0 for name in SYSTEM.running_terms]
    assert terms == pytest.approx(tuple(expected), abs=1e-12)


@pytest.mark.parametrize(
    ("weight", "x", "detour", "expected"),
    [
        ("final_goal_weight", _x(1.0, 2.0), 0.5, 5.5),
        ("final_speed_weight", _x(4.0, 6.0, v=1.0, w=-2.0), 0.0, 5.0),
        ("final_speed_weight", _x(1.0, 2.0, v=1.0, w=-2.0), 0.0, 5.0 / 26.0),
    ],
)
def test_final_cost_of_one_term(weight, x, detour, expected):
    terms = SYSTEM.terminal(x, (4.0, 6.0), 10.0, detour, _only(weight))
    names = [f"final_{name}_weight" for name in SYSTEM.terminal_terms]
    expected = [expected if name == weight else 0.0 for name in names]
    assert terms == pytest.approx(tuple(expected), abs=1e-12)


def test_the_first_maneuver_is_a_stop():
    assert SYSTEM.maneuvers(diff_drive.Parameters())[0] == (0.0, 0.0)


_A_HALF = 0.5


def _half_of(value):
    return _A_HALF * value


def _quarter_and_one(value):
    return 0.5 * _half_of(value) + 1.0


def test_a_device_function_computes_in_float32():
    found = device_function(_quarter_and_one)
    found(np.float32(3.0))
    assert [str(s.signature.return_type) for s in found.overloads.values()] == ["float32"]
    assert found(np.float32(3.0)) == 1.75
    # The function itself stays what it was.
    assert _quarter_and_one(3.0) == 1.75 and isinstance(_quarter_and_one(3.0), float)

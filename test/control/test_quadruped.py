import math

import mujoco
import numpy as np
import pytest

from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.systems import load_system, quadruped

SYSTEM = load_system("quadruped")
P = SYSTEM.pack(SYSTEM.parameters(), np.float64)
START = np.array(quadruped.TASK["start"])


def _plant(parameters=None):
    model = SYSTEM.mujoco_model(parameters or SYSTEM.parameters())
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = np.split(START, [model.nq])
    return model, data


def _tilt(data):
    """Return the angle between the trunk's z and the vertical, rad."""
    return math.acos(min(data.body("base_link").xmat[8], 1.0))


def test_the_state_is_the_model_s():
    model, _ = _plant()
    assert [model.joint(i).name for i in range(1, 13)] == list(quadruped.CONTROL)
    assert [model.actuator(i).name for i in range(12)] == list(quadruped.CONTROL)
    np.testing.assert_allclose(model.key("stance").qpos, START[:19])
    np.testing.assert_allclose(model.key("stance").ctrl, quadruped.STANCE)


def test_standing_needs_no_samples():
    model, data = _plant()
    data.ctrl[:] = SYSTEM.tried_controls(SYSTEM.parameters())[0]
    while data.time < 3.0:
        mujoco.mj_step(model, data)
    assert 0.25 < data.qpos[2] < 0.3 and _tilt(data) < 0.05
    assert np.abs(data.qvel).max() < 0.01 and np.abs(data.qpos[:2]).max() < 0.05
    assert quadruped.reached((*data.qpos, *data.qvel), (0.0, 0.0), P)
    assert not quadruped.reached((*data.qpos, *data.qvel), (1.0, 0.0), P)


def test_parameters_are_the_model_s():
    model, _ = _plant(SYSTEM.parameters(trunk_mass=9.0, stiffness=80.0, reach=0.4))
    as_written, _ = _plant()
    trunk = model.body("base_link").id
    assert model.body_mass[trunk] == 9.0
    np.testing.assert_allclose(model.body_inertia[trunk] / 9.0, as_written.body_inertia[trunk] / 7)
    assert (model.actuator_gainprm[:, 0] == 80.0).all()
    assert (model.actuator_biasprm[:, 1] == -80.0).all()
    np.testing.assert_allclose(model.actuator_ctrlrange[1], (0.4, 1.2))


def _state(**values):
    x = START.copy()
    x[2] = 0.28
    for name, value in values.items():
        x[SYSTEM.state.index(name)] = value
    return tuple(x)


HALF = math.sqrt(0.5)


@pytest.mark.parametrize(
    ("term", "values", "cost"),
    [
        # 2 m away it should do 0.5 m/s; a quarter of a metre away half of that.
        ("speed", {}, 4.0 * 0.5**2),
        ("speed", {"vx": 0.5}, 0.0),
        ("speed", {"x": 1.75, "vx": 0.25, "vy": 0.5}, 4.0 * 0.5**2),
        # Sideways, and backwards.
        ("heading", {"qw": HALF, "qz": HALF}, 2.0 / 3.0),
        ("heading", {"qw": 0.0, "qz": 1.0}, 4.0 / 3.0),
        ("heading", {}, 0.0),
        # On its side, and on its back.
        ("tilt", {"qw": HALF, "qx": HALF}, 20.0),
        ("tilt", {"qw": 0.0, "qy": 1.0}, 40.0),
        ("height", {"z": 0.18}, 100.0 * 0.1**2),
        ("posture", {"front_left_hip": 0.5, "rear_right_knee": -1.1}, 0.2 * 0.5),
        ("posture", {"front_right_thigh": 1.3}, 0.2 * 0.25),
        ("w", {"wx": 1.0, "wy": 2.0, "wz": 3.0}, 0.1 * 14.0),
        ("rate", {"front_left_hip_rate": 3.0, "rear_right_knee_rate": -4.0}, 0.001 * 25.0),
        ("effort", {"rear_left_knee": -1.3}, 0.2 * 0.3**2),
    ],
)
def test_running_terms(term, values, cost):
    found = SYSTEM.running(_state(**values), quadruped.STANCE, quadruped.STANCE, (2.0, 0.0), P)
    # Distances are rounded by a centimetre at the goal.
    np.testing.assert_allclose(found[quadruped.RUNNING.index(term)], cost, rtol=1e-3, atol=1e-4)


def test_changes_of_commands_cost():
    u = np.array(quadruped.STANCE)
    u[[0, 11]] += 0.3, -0.4
    found = SYSTEM.running(_state(), tuple(u), quadruped.STANCE, (2.0, 0.0), P)
    np.testing.assert_allclose(found[quadruped.RUNNING.index("change")], 0.2 * 0.25)
    np.testing.assert_allclose(found[quadruped.RUNNING.index("effort")], 0.2 * 0.25)


def test_terminal_terms():
    lying = _state(qw=HALF, qx=HALF, z=0.08)
    np.testing.assert_allclose(SYSTEM.terminal(lying, (0.0, 0.0), P), (10.0, 50.0 * 0.2**2))


def test_a_push_that_fells_it_is_caught_by_sampling():
    push = (0.0, 1.8)  # m/s, to the side
    model, data = _plant()
    data.qvel[:2] += push
    data.ctrl[:] = quadruped.STANCE
    while data.time < 1.0:
        mujoco.mj_step(model, data)
    assert _tilt(data) > 1.0

    config = MppiConfig.for_system(SYSTEM, samples=64, command_delay=0.0, threads=2)
    mppi = Mppi(config, "quadruped")
    model, data = _plant()
    data.qvel[:2] += push
    for i in range(30):
        update = mppi.update(np.concatenate((data.qpos, data.qvel)), np.zeros(2), 0.04 * i)
        assert update.ok
        data.ctrl[:] = update.command
        for _ in range(8):
            mujoco.mj_step(model, data)
    assert _tilt(data) < 0.15 and 0.24 < data.qpos[2] < 0.32
    assert np.abs(data.qvel[:3]).max() < 0.3

import mujoco
import numpy as np
import pytest
from yards import STEP, Plant

from geoaccel_ros.control.delay import predict
from geoaccel_ros.control.systems import load_system

SYSTEM = load_system("diff_drive")
P = SYSTEM.pack(SYSTEM.parameters(v_lag=0.12, w_lag=0.08), np.float64)


def test_without_time_the_state_is_itself():
    state = np.array([1.0, 2.0, 3.0, 0.4, 0.5])
    commands = [(0.0, np.array([1.0, 1.0]))]
    for until in (5.0, 4.0):
        np.testing.assert_array_equal(predict(SYSTEM, P, state, 5.0, commands, until), state)


def test_follows_a_plant_through_changing_commands():
    plant = Plant(np.array([1.0, -2.0, 3.0]), dead_time=0.0)
    rng = np.random.default_rng(1)
    commands, measured = [], None
    for i in range(400):
        if i % 10 == 0:
            u = rng.uniform((0.2, -1.0), (1.0, 1.0))
            commands.append((plant.now, u))
            plant.command(u)
        if i == 300:
            measured = (plant.now, np.array([*plant.pose, plant.v, plant.w]))
        plant.advance()
    truth = np.array([*plant.pose, plant.v, plant.w])
    stamp, state = measured
    found = predict(SYSTEM, P, state, stamp, commands, plant.now)
    assert plant.now - stamp == pytest.approx(100 * STEP)
    # The plant limits its acceleration at every instant, the model over a step of 10 ms.
    np.testing.assert_allclose(found, truth, atol=0.05)
    assert np.abs(found - state).max() > 0.2


def test_commands_hold_from_their_instant_to_the_next():
    state = np.zeros(5)
    commands = [(-9.0, np.array([1.0, 0.0])), (0.2, np.array([0.0, 0.0]))]
    p = SYSTEM.pack(SYSTEM.parameters(v_lag=0.001, v_acceleration=1e4), np.float64)
    # Without lag: 1 m/s for 0.2 s, then it stands (up to half of the first and the last step).
    assert predict(SYSTEM, p, state, 0.0, commands, 1.0)[0] == pytest.approx(0.2, abs=0.026)


def test_without_commands_the_robot_comes_to_rest():
    found = predict(SYSTEM, P, np.array([0.0, 0.0, 0.0, 1.0, 0.0]), 0.0, [], 3.0)
    assert 0.1 < found[0] < 0.6 and abs(found[3]) < 1e-3


@pytest.mark.parametrize(
    ("state", "stamp", "until"),
    [
        ([0.0, np.inf, 0.0, 0.0], 0.0, 0.1),
        ([0.0, 1.0, 0.0, 1e200], 0.0, 0.1),
        ([0.0, 1.0, 0.0, 0.0], np.nan, 0.1),
        ([0.0, 1.0, 0.0, 0.0], 0.0, np.nan),
        # A state of the wall's clock, a time of the simulation's.
        ([0.0, 1.0, 0.0, 0.0], 12.0, 1.7e9),
    ],
)
def test_what_cannot_be_predicted_is_nan(state, stamp, until):
    cartpole = load_system("cartpole")
    p = cartpole.pack(cartpole.parameters(), np.float64)
    with np.errstate(all="ignore"):
        found = predict(cartpole, p, np.array(state), stamp, [], until)
    assert found.shape == (4,) and not np.isfinite(found).all()


def test_a_state_of_another_length_is_left_to_who_looks_at_it():
    assert predict(SYSTEM, P, np.zeros(2), 0.0, [], 0.1).shape == (2,)


@pytest.fixture
def pendulum(tmp_path):
    """Return a pendulum that only MuJoCo rolls out, with a motor at its hinge."""
    (tmp_path / "pendulum.xml").write_text(
        '<mujoco><option timestep="0.004"/><worldbody><body><joint name="hinge" axis="0 1 0"/>'
        '<geom pos="0 0 -0.5" size="0.05"/></body></worldbody>'
        '<actuator><motor joint="hinge"/></actuator></mujoco>',
        encoding="utf-8",
    )
    (tmp_path / "pendulum.py").write_text(
        "from dataclasses import dataclass\n"
        "from geoaccel_ros.config import Configuration, parameter\n"
        'STATE, CONTROL, GOAL = ("angle", "rate"), ("torque",), ("angle",)\n'
        'RUNNING, TERMINAL, MODEL = ("goal",), (), "pendulum.xml"\n'
        "@dataclass(frozen=True)\n"
        "class Parameters(Configuration):\n"
        '    mass: float = parameter(2.0, "Mass.")\n'
        '    goal_weight: float = parameter(1.0, "Weight.")\n'
        "def limits(p):\n    return (-9.0,), (9.0,)\n"
        "def apply(model, p):\n    model.body_mass[1] = p.mass\n"
        "def running(x, u, u_before, goal, p):\n    return (p.goal_weight * abs(x[0]),)\n"
        "def terminal(x, goal, p):\n    return ()\n",
        encoding="utf-8",
    )
    return load_system(str(tmp_path / "pendulum.py"))


def test_without_a_step_it_is_mujoco_s(pendulum):
    p = pendulum.pack(pendulum.parameters(mass=3.0), np.float64)
    model = pendulum.mujoco_model(p)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = 0.3, -1.0
    commands = []
    for i in range(100):
        if i % 20 == 0:
            data.ctrl[:] = (-1) ** (i // 20) * 5.0
            commands.append((7.0 + data.time, data.ctrl.copy()))
        mujoco.mj_step(model, data)
    found = predict(pendulum, p, np.array([0.3, -1.0]), 7.0, commands, 7.4)
    np.testing.assert_allclose(found, [*data.qpos, *data.qvel], atol=1e-9)
    # What lies between two of MuJoCo's steps is reached by shorter ones.
    between = predict(pendulum, p, np.array([0.3, -1.0]), 7.0, commands, 7.3981)
    assert abs(between[0] - found[0]) > 1e-4
    np.testing.assert_allclose(between[0], found[0] - 0.0019 * found[1], atol=1e-4)

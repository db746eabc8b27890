import mujoco
import numpy as np
import pytest

from geoaccel_ros.control.compiling import device_function
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.systems import load_system, quadrotor
from geoaccel_ros.simulation.closed_loop import drive
from geoaccel_ros.simulation.world import load_model

SYSTEM = load_system("quadrotor")
PARAMETERS = quadrotor.Parameters(mass=1.3, inertia_x=0.012, inertia_y=0.017, inertia_z=0.025)
P = SYSTEM.pack(PARAMETERS, np.float64)
WEIGHTS = [name for name in quadrotor.Parameters.__annotations__ if name.endswith("_weight")]


def _plant(parameters, timestep=0.002):
    model = load_model("quadrotor")
    quadrotor.apply(model, parameters)
    model.opt.timestep = timestep
    data = mujoco.MjData(model)
    mujoco.mj_setConst(model, data)
    return model, data


def _set(data, x, u):
    data.qpos[:], data.qvel[:], data.ctrl[:] = x[:7], x[7:], u


def _state(data):
    return np.array([*data.qpos, *data.qvel])


def test_the_model_has_the_names_and_the_default_parameters():
    model = load_model("quadrotor")
    assert tuple(model.actuator(i).name for i in range(model.nu)) == quadrotor.CONTROL
    edited, _ = _plant(SYSTEM.parameters())
    for field in ("body_mass", "body_inertia", "actuator_ctrlrange"):
        np.testing.assert_array_equal(getattr(model, field), getattr(edited, field))


def _random_states(seed, count=200):
    """States with attitudes from all of the rotations."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0.0, 3.0, (count, 13))
    x[:, 3:7] /= np.linalg.norm(x[:, 3:7], axis=1, keepdims=True)
    u = rng.uniform((0.0, -0.5, -0.5, -0.1), (20.0, 0.5, 0.5, 0.1), (count, 4))
    return list(zip(x, u, strict=True))


def _at(x=0.0, y=0.0, z=0.0, v=(0.0, 0.0, 0.0), q=(1.0, 0.0, 0.0, 0.0), w=(0.0, 0.0, 0.0)):
    return (x, y, z, *q, *v, *w)


def test_acceleration_is_mujocos():
    model, data = _plant(PARAMETERS)
    for x, u in _random_states(seed=1):
        _set(data, x, u)
        mujoco.mj_forward(model, data)
        found = quadrotor.acceleration(tuple(x), tuple(u), P)
        np.testing.assert_allclose(found, data.qacc, rtol=1e-6, atol=1e-6)


def test_steps_are_of_second_order():
    model, data = _plant(PARAMETERS, timestep=0.001)
    errors = {0.04: [], 0.02: [], 0.01: []}
    for start, u in _random_states(seed=2, count=20):
        _set(data, start, u)
        mujoco.mj_step(model, data, 200)
        for dt, found in errors.items():
            x = tuple(start)
            for _ in range(round(0.2 / dt)):
                x = SYSTEM.step(x, tuple(u), P, dt)
            found.append(np.abs(x - _state(data)).max())
    coarse, middle, fine = (np.mean(found) for found in errors.values())
    assert fine < 2e-3
    assert 3.5 < coarse / middle < 4.5 and 3.5 < middle / fine < 4.5


def test_the_quaternion_stays_a_unit_one_in_float32():
    step = device_function(SYSTEM.step)
    p = SYSTEM.pack(PARAMETERS)
    rng = np.random.default_rng(3)
    # As measured: off by a percent, which two steps take back.
    x = tuple(np.float32(value) for value in _at(q=(1.01, 0.0, 0.0, 0.0), w=(5.0, -8.0, 3.0)))
    for i in range(2000):
        u = tuple(np.float32(value) for value in rng.normal(0.0, (9.0, 0.2, 0.2, 0.1)))
        x = step(x, u, p, np.float32(0.02))
        assert i < 1 or np.linalg.norm(x[3:7]) == pytest.approx(1.0, abs=1e-6)


def test_turning_at_a_constant_rate_is_exact():
    # About a principal axis nothing precesses: after half a turn about z, however few the steps.
    x = _at(w=(0.0, 0.0, np.pi))
    for _ in range(4):
        x = SYSTEM.step(x, (P.mass * quadrotor.GRAVITY, 0.0, 0.0, 0.0), P, 0.25)
    np.testing.assert_allclose(x, _at(q=(0.0, 0.0, 0.0, 1.0), w=(0.0, 0.0, np.pi)), atol=1e-9)


def test_float32_equals_float64_at_every_attitude():
    step = device_function(SYSTEM.step)
    p = SYSTEM.pack(PARAMETERS)
    for x, u in _random_states(seed=4):
        x, u = x.astype(np.float32), u.astype(np.float32)
        found = step(tuple(x), tuple(u), p, np.float32(0.02))
        expected = SYSTEM.step(tuple(x.astype(float)), tuple(u.astype(float)), P, 0.02)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_hovering_takes_its_weight_and_is_the_safe_command():
    hover = SYSTEM.maneuvers(PARAMETERS)[0]
    assert hover == (pytest.approx(1.3 * 9.81), 0.0, 0.0, 0.0)
    x = _at(1.0, 2.0, 3.0)
    np.testing.assert_allclose(SYSTEM.step(x, hover, P, 0.02), x, atol=1e-12)
    assert SYSTEM.step(x, (0.0, 0.0, 0.0, 0.0), P, 0.02)[9] == pytest.approx(-0.1962)


HALF = np.sqrt(0.5)


@pytest.mark.parametrize(
    ("weight", "x", "u", "expected"),
    [
        ("goal_weight", _at(1.0, 2.0, 3.0), (0.0, 0.0, 0.0, 0.0), 1.0 + 4.0 + 16.0),
        ("v_weight", _at(v=(1.0, -2.0, 3.0)), (0.0, 0.0, 0.0, 0.0), 14.0),
        ("tilt_weight", _at(), (0.0, 0.0, 0.0, 0.0), 0.0),
        ("tilt_weight", _at(q=(HALF, 0.0, 0.0, HALF)), (0.0, 0.0, 0.0, 0.0), 0.0),
        ("tilt_weight", _at(q=(HALF, HALF, 0.0, 0.0)), (0.0, 0.0, 0.0, 0.0), 1.0),
        ("tilt_weight", _at(q=(0.0, 0.0, 1.0, 0.0)), (0.0, 0.0, 0.0, 0.0), 2.0),
        ("w_weight", _at(w=(1.0, -2.0, 3.0)), (0.0, 0.0, 0.0, 0.0), 14.0),
        ("thrust_weight", _at(), (9.81 + 3.0, 0.0, 0.0, 0.0), 9.0),
        ("torque_weight", _at(), (0.0, 0.3, -0.4, 0.1), 0.26),
    ],
)
def test_running_cost_of_one_term(weight, x, u, expected):
    values = {name: 0.0 for name in WEIGHTS} | {weight: 1.0}
    p = SYSTEM.pack(quadrotor.Parameters(**values), np.float64)
    before = (5.0, 1.0, 1.0, 1.0)
    terms = SYSTEM.running(x, u, before, (0.0, 0.0, -1.0), p)
    expected = [expected if f"{name}_weight" == weight else 0.0 for name in SYSTEM.running_terms]
    assert terms == pytest.approx(tuple(expected), abs=1e-12)


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("final_goal_weight", 21.0),
        ("final_v_weight", 5.0),
        ("final_tilt_weight", 1.0),
        ("final_w_weight", 2.0),
    ],
)
def test_final_cost_of_one_term(weight, expected):
    values = {name: 0.0 for name in WEIGHTS} | {weight: 1.0}
    p = SYSTEM.pack(quadrotor.Parameters(**values), np.float64)
    x = _at(1.0, 2.0, 3.0, v=(0.0, 1.0, 2.0), q=(HALF, 0.0, HALF, 0.0), w=(1.0, 0.0, -1.0))
    terms = SYSTEM.terminal(x, (0.0, 0.0, -1.0), p)
    names = [f"final_{name}_weight" for name in SYSTEM.terminal_terms]
    expected = [expected if name == weight else 0.0 for name in names]
    assert terms == pytest.approx(tuple(expected), abs=1e-12)


def test_before_the_first_command_it_is_predicted_to_hover():
    mppi = Mppi(MppiConfig(samples=16, sigma=(1.0, 0.0, 0.0, 0.0), backend="cpu"), "quadrotor")
    x = np.array(_at(1.0, 2.0, 3.0))
    np.testing.assert_allclose(mppi.predict(x, 0.0, [], 1.0), x, atol=1e-6)


def _fly(seed, mass=1.0, **values):
    """Fly 3 m on MuJoCo's plant, of ``mass`` times the model's, at its own sampling."""

    def edit(model):
        model.body_mass *= mass
        model.body_inertia *= mass

    config = MppiConfig.for_system(SYSTEM, seed=seed, backend="cpu", **values)
    return drive("quadrotor", config, 4.5, model_edit=edit)


@pytest.mark.parametrize("seed", range(5))
def test_flies_three_metres_on_mujocos_plant(seed):
    run = _fly(seed)
    np.testing.assert_array_equal(run.states[0], _at())
    # Within 3 s and 5 cm, and it stays there.
    assert run.time_to_goal_s <= 3.0
    assert np.linalg.norm(run.states[150:, :3] - (3.0, 0.0, 0.0), axis=1).max() < 0.03


@pytest.mark.parametrize("mass", [0.7, 1.3])
def test_flies_there_with_a_mass_that_it_has_to_find_out(mass):
    assert not _fly(0, mass).success
    values = {"parameter_sets": 13, "randomised": ("mass",), "randomised_by": (0.4,)}
    for seed in range(2):
        run = _fly(seed, mass, **values, evidence_memory=0.5)
        assert run.time_to_goal_s <= 3.0
        assert run.updates[-1].parameters["mass"] == pytest.approx(mass, abs=0.05)

import math

import mujoco
import numpy as np
import pytest

from geoaccel_ros.control.compiling import device_function
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.systems import cartpole, load_system
from geoaccel_ros.simulation.closed_loop import drive
from geoaccel_ros.simulation.world import load_model

SYSTEM = load_system("cartpole")
P = SYSTEM.pack(SYSTEM.parameters(), np.float64)
WEIGHTS = [name for name in cartpole.Parameters.__annotations__ if name.endswith("_weight")]


def _plant(parameters):
    model = load_model("cartpole")
    cartpole.apply(model, parameters)
    data = mujoco.MjData(model)
    mujoco.mj_setConst(model, data)
    return model, data


def _set(data, x, force):
    data.qpos[:], data.qvel[:], data.ctrl[:] = x[:2], x[2:], force


def test_the_model_has_the_names_and_the_default_parameters():
    model = load_model("cartpole")
    names = [model.joint(i).name for i in range(model.njnt)]
    assert names == ["rail", "hinge"] and model.actuator(0).name == "force"
    edited, _ = _plant(SYSTEM.parameters())
    for field in ("body_mass", "body_ipos", "actuator_ctrlrange"):
        np.testing.assert_array_equal(getattr(model, field), getattr(edited, field))


def _random_states(seed, count=200):
    rng = np.random.default_rng(seed)
    x = rng.uniform((-2.0, -7.0, -5.0, -15.0), (2.0, 7.0, 5.0, 15.0), (count, 4))
    return zip(x, rng.uniform(-20.0, 20.0, count), strict=True)


@pytest.mark.parametrize(
    "masses", [{}, {"cart_mass": 0.7, "pole_mass": 0.4, "length": 0.9}, {"pole_mass": 3.0}]
)
def test_acceleration_is_mujocos(masses):
    parameters = cartpole.Parameters(**masses)
    p = SYSTEM.pack(parameters, np.float64)
    model, data = _plant(parameters)
    for x, force in _random_states(seed=1):
        _set(data, x, force)
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(
            cartpole.acceleration(tuple(x), (force,), p), data.qacc, rtol=1e-6, atol=1e-6
        )


def test_a_step_is_of_second_order():
    model, data = _plant(SYSTEM.parameters())
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    errors = {}
    for dt in (0.02, 0.01, 0.005):
        model.opt.timestep = dt
        for x, force in _random_states(seed=2):
            _set(data, x, force)
            mujoco.mj_step(model, data)
            error = SYSTEM.step(tuple(x), (force,), P, dt) - np.array([*data.qpos, *data.qvel])
            errors.setdefault(dt, []).append(np.abs(error))
    means = np.array([np.mean(found, axis=0) for found in errors.values()])
    # Half the step, an eighth of the error.
    assert (means[:-1] / means[1:] > 6.5).all()
    assert (means[0] < (1e-4, 1e-3, 5e-3, 5e-2)).all()


def test_upright_it_falls_as_fast_as_its_equation_says():
    x = (0.0, 1e-6, 0.0, 0.0)
    angles = []
    for _ in range(1500):
        x = SYSTEM.step(x, (0.0,), P, 0.001)
        angles.append(x[1])
    # theta = theta_0 cosh(r t), r^2 = (mc + mp) g / (l mc); the cart goes the other way.
    assert math.log(angles[1499] / angles[999]) / 0.5 == pytest.approx(4.646, abs=0.003)
    assert x[0] < 0.0


def test_float32_equals_float64_at_every_angle():
    step = device_function(SYSTEM.step)
    p = SYSTEM.pack(SYSTEM.parameters())
    for angle in np.radians(np.arange(-720.0, 721.0, 3.0)).astype(np.float32):
        x = tuple(np.float32(value) for value in (0.7, angle, -1.3, 6.0))
        found = step(x, (np.float32(-13.0),), p, np.float32(0.02))
        expected = SYSTEM.step(tuple(np.float64(value) for value in x), (-13.0,), P, 0.02)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_cost_of_an_angle_is_resolved_near_upright():
    running = device_function(SYSTEM.running)
    values = {name: 0.0 for name in WEIGHTS} | {"angle_weight": 1.0}
    p = SYSTEM.pack(cartpole.Parameters(**values))
    zero = np.float32(0.0)
    cost = running((zero, np.float32(1e-3), zero, zero), (zero,), (zero,), (zero,), p)[0]
    # 1 - cos in float32 has only steps of 6e-8 here.
    assert cost == pytest.approx(5e-7, rel=1e-5)


@pytest.mark.parametrize(
    ("weight", "x", "u", "u_before", "expected"),
    [
        ("angle_weight", (0.0, 0.0, 0.0, 0.0), 0.0, 0.0, 0.0),
        ("angle_weight", (0.0, math.pi / 2, 0.0, 0.0), 0.0, 0.0, 1.0),
        ("angle_weight", (0.0, -math.pi, 0.0, 0.0), 0.0, 0.0, 2.0),
        ("angle_weight", (0.0, 4 * math.pi, 0.0, 0.0), 0.0, 0.0, 0.0),
        ("position_weight", (2.5, 0.0, 0.0, 0.0), 0.0, 0.0, 4.0),
        ("v_weight", (0.0, 0.0, -3.0, 0.0), 0.0, 0.0, 9.0),
        ("w_weight", (0.0, 0.0, 0.0, -3.0), 0.0, 0.0, 9.0),
        ("force_weight", (0.0, 0.0, 0.0, 0.0), -4.0, 9.0, 16.0),
        ("change_weight", (0.0, 0.0, 0.0, 0.0), -4.0, 1.0, 25.0),
        ("rail_weight", (1.9, 0.0, 0.0, 0.0), 0.0, 0.0, 0.0),
        ("rail_weight", (-2.25, 0.0, 0.0, 0.0), 0.0, 0.0, 0.25),
    ],
)
def test_running_cost_of_one_term(weight, x, u, u_before, expected):
    values = {name: 0.0 for name in WEIGHTS} | {weight: 1.0, "rail_half_length": 2.0}
    p = SYSTEM.pack(cartpole.Parameters(**values), np.float64)
    terms = SYSTEM.running(x, (u,), (u_before,), (0.5,), p)
    expected = [expected if f"{name}_weight" == weight else 0.0 for name in SYSTEM.running_terms]
    assert terms == pytest.approx(tuple(expected), abs=1e-12)


def test_final_cost():
    p = SYSTEM.pack(cartpole.Parameters(final_angle_weight=3.0), np.float64)
    terms = SYSTEM.terminal((9.0, math.pi / 3, 9.0, 9.0), (0.5,), p)
    assert SYSTEM.terminal_terms == ("angle",) and terms == pytest.approx((1.5,), abs=1e-12)


def _swing(system, seed, delay=0.0, **values):
    """Swing MuJoCo's pole up for 4 s at the system's own sampling but for ``values``."""
    config = MppiConfig.for_system(
        load_system(system), seed=seed, backend="cpu", command_delay=delay, **values
    )
    return drive(system, config, 4.0, delay=delay)


@pytest.mark.parametrize("delay", [0.0, 0.1])
@pytest.mark.parametrize("horizon", [30, 50, 100])
def test_swings_mujocos_pole_up(horizon, delay):
    for seed in range(5):
        run = _swing("cartpole", seed, delay, horizon=horizon)
        assert run.success and run.time_to_goal_s <= 3.0, seed
        # N, from command to command.
        assert run.jitter()[0] < 1.0
        angles = np.abs(np.remainder(run.states[-50:, 1] + np.pi, 2.0 * np.pi) - np.pi)
        assert angles.max() < 0.1


def test_a_delay_that_it_does_not_know_fells_it():
    config = MppiConfig.for_system(SYSTEM, backend="cpu")
    assert not drive("cartpole", config, 4.0, delay=0.1).success


def test_does_not_swing_it_up_with_the_sign_of_gravity_wrong(tmp_path):
    source = open(cartpole.__file__, encoding="utf-8").read()
    assert source.count("GRAVITY = 9.81") == 1
    wrong = tmp_path / "wrong.py"
    wrong.write_text(source.replace("GRAVITY = 9.81", "GRAVITY = -9.81"), encoding="utf-8")
    for seed in range(3):
        run = _swing(str(wrong), seed)
        assert all(update.ok for update in run.updates) and not run.success

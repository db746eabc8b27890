"""Updates whose rollouts are MuJoCo's, all of them or the best."""

import dataclasses
import math

import mujoco
import numpy as np
import pytest

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.systems import load_system

CONFIG = MppiConfig(
    samples=64,
    horizon=20,
    dt=0.02,
    sigma=(5.0,),
    ess_fraction=0.05,
    command_delay=0.0,
    backend="cpu",
    mujoco_timestep=0.02,
)
HANGING = np.array([0.0, np.pi, 0.0, 0.0])
# How the cart moves is MuJoCo's alone.
STEPLESS = "from geoaccel_ros.control.systems.cartpole import *\ndel step\n"


def _mppi(kind, system="cartpole", **values):
    return Mppi(dataclasses.replace(CONFIG, rollouts=kind, **values), system)


def _updates(mppi, count=3):
    return [mppi.update(HANGING, np.zeros(1), 0.02 * i) for i in range(count)]


@pytest.mark.parametrize("kind", ["mujoco", "hybrid"])
def test_the_model_s_and_mujoco_s_rollouts_find_about_the_same(kind):
    by_model, found = _updates(_mppi("model")), _updates(_mppi(kind))
    assert all(update.ok for update in found)
    for ours, theirs in zip(found, by_model, strict=True):
        np.testing.assert_allclose(ours.min_cost, theirs.min_cost, rtol=0.03)
        np.testing.assert_allclose(ours.command, theirs.command, atol=1.0)
        np.testing.assert_allclose(ours.plan[0], HANGING, atol=1e-6)


def test_a_hybrid_tells_how_well_the_model_orders():
    mppi = _mppi("hybrid", hybrid_share=0.25)
    update = _updates(mppi, 1)[0]
    assert 0.9 < update.rank_correlation <= 1.0
    # The share that counts is one of all samples, not of the 16 that have a cost.
    assert update.ess == pytest.approx(0.05 * 64, rel=0.01)
    assert (mppi.rollouts(64)[1] > 0.0).sum() <= 16
    # What was not looked at is not what is not finite.
    assert update.not_finite_fraction == 0.0
    assert math.isnan(_updates(_mppi("mujoco"), 1)[0].rank_correlation)


def _cost_of_swinging_up(kind, seed):
    """Return what 1.6 s on MuJoCo's plant cost; upright at the end."""
    system = load_system("cartpole")
    p = system.pack(system.parameters(), np.float64)
    mppi = _mppi(kind, samples=128, horizon=30, seed=seed)
    model = system.mujoco_model(p)
    data = mujoco.MjData(model)
    data.qpos[:] = HANGING[:2]
    cost, before = 0.0, (0.0,)
    for i in range(80):
        x = np.concatenate((data.qpos, data.qvel))
        command = mppi.update(x, np.zeros(1), 0.02 * i).command
        data.ctrl[:] = command
        mujoco.mj_step(model, data, 10)
        x = (*data.qpos, *data.qvel)
        cost += 0.02 * sum(system.running(x, tuple(command), before, (0.0,), p))
        before = tuple(command)
    assert abs(math.remainder(data.qpos[1], math.tau)) < 0.1
    return cost


def test_a_hybrid_drives_as_mujoco_s_rollouts_do():
    seeds = (0, 1)
    full = np.array([_cost_of_swinging_up("mujoco", seed) for seed in seeds])
    hybrid = np.array([_cost_of_swinging_up("hybrid", seed) for seed in seeds])
    # Seeds differ by 0.3 of about 7.
    np.testing.assert_allclose(hybrid.mean(), full.mean(), rtol=0.1)


def test_threads_change_no_command():
    commands = [[u.command for u in _updates(_mppi("hybrid", threads=n))] for n in (1, 2)]
    np.testing.assert_array_equal(*commands)


@pytest.fixture
def stepless(tmp_path):
    (tmp_path / "stepless.py").write_text(STEPLESS, encoding="utf-8")
    return str(tmp_path / "stepless.py")


def test_where_there_is_no_step_mujoco_rolls_out(stepless):
    by_mujoco, found = _updates(_mppi("mujoco")), _updates(mppi := _mppi("model", stepless))
    for ours, theirs in zip(found, by_mujoco, strict=True):
        np.testing.assert_array_equal(ours.command, theirs.command)
    # It predicts, too; the model in steps of 10 ms, of first order.
    sent = [(0.0, np.array([3.0]))]
    expected = _mppi("model").predict(HANGING, 0.0, sent, 0.1)
    np.testing.assert_allclose(mppi.predict(HANGING, 0.0, sent, 0.1), expected, atol=0.005)
    assert np.abs(expected - HANGING).max() > 0.2


@pytest.mark.parametrize(
    ("system", "values", "message"),
    [
        ("diff_drive", {"rollouts": "mujoco"}, "rollouts' is mujoco, .*diff_drive' has no MuJoCo"),
        ("diff_drive", {"rollouts": "hybrid"}, "rollouts' is hybrid, .*diff_drive' has no MuJoCo"),
        ("cartpole", {"rollouts": "mujoco", "backend": "cuda"}, "'backend' is cuda, MuJoCo rolls"),
    ],
)
def test_what_cannot_be_rolled_out_is_refused(system, values, message):
    config = dataclasses.replace(CONFIG, **values)
    sigma = (1.0,) * len(load_system(system).control)
    with pytest.raises(ConfigurationError, match=message):
        Mppi(dataclasses.replace(config, sigma=sigma), system)


def test_a_hybrid_without_a_step_is_refused(stepless):
    with pytest.raises(ConfigurationError, match="stepless.py' has no step that could screen"):
        _mppi("hybrid", stepless)

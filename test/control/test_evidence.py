import mujoco
import numpy as np
import pytest

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.control import delay
from geoaccel_ros.control.evidence import Evidence
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.systems import cartpole, load_system, quadrotor
from geoaccel_ros.simulation.world import load_model

SYSTEM = load_system("cartpole")
MASSES = (1.0, 0.7, 1.3, 1.6)


def _p(**parameters):
    return SYSTEM.pack(cartpole.Parameters(**parameters), np.float64)


def _evidence(memory=1.0, sets=None):
    return Evidence(SYSTEM, sets or [_p(cart_mass=mass) for mass in MASSES], memory)


def _watch(evidence, p, periods=25, first=0, noise=0.0, seed=0):
    """Have a cart with parameters ``p`` be pushed at random, and observed every 20 ms."""
    rng = np.random.default_rng(seed)
    state, control = np.array([0.0, 3.0, 0.0, 0.0]), np.zeros(1)
    for i in range(first, first + periods):
        measured = state + noise * rng.normal(size=4)
        evidence.observe(measured, 0.02 * i, [(0.02 * (i - 1), control)])
        control = rng.uniform(-10.0, 10.0, 1)
        state = delay.predict(SYSTEM, p, state, 0.0, [(0.0, control)], 0.02)


def test_nothing_observed_all_equal():
    evidence = _evidence()
    np.testing.assert_array_equal(evidence.weights, np.full(4, 0.25))
    evidence.observe(np.zeros(4), 0.0, [])
    np.testing.assert_array_equal(evidence.weights, np.full(4, 0.25))


@pytest.mark.parametrize("bad", [np.full(4, np.nan), np.array([0.0, 3.0, 1e160, 0.0]), np.ones(3)])
def test_a_state_that_is_none_is_forgotten(bad):
    evidence, p = _evidence(), _p(cart_mass=MASSES[2])
    _watch(evidence, p)
    evidence.observe(bad, 0.02 * 25, [(0.0, np.zeros(1))])
    assert np.isfinite(evidence.weights).all()
    _watch(evidence, p, first=26)
    assert evidence.weights[2] > 0.99


@pytest.mark.parametrize("delayed", [0.0, 0.05])
def test_one_bad_state_does_not_spoil_the_plans_to_come(delayed):
    config = MppiConfig.for_system(
        SYSTEM, samples=64, backend="cpu", parameter_sets=3, randomised=("pole_mass",),
        randomised_by=(0.5,), evidence_memory=1.0, command_delay=delayed,
    )  # fmt: skip
    mppi, good = Mppi(config, "cartpole"), np.array([0.0, 3.0, 0.0, 0.0])
    for i, state in enumerate([good, good, np.array([0.0, 3.0, 1e160, 0.0]), *[good] * 4]):
        update = mppi.update(mppi.predict(state, 0.02 * i, [], 0.02 * i), np.zeros(1), 0.02 * i)
    assert update.ok and update.mean_cost > 0.1
    assert np.isfinite(list(update.parameters.values())).all()


@pytest.mark.parametrize("true", range(4))
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_the_set_that_predicts_gets_the_weight(true, noise):
    evidence = _evidence()
    _watch(evidence, _p(cart_mass=MASSES[true]), noise=noise)
    assert evidence.weights[true] > 0.99 and evidence.weights.sum() == pytest.approx(1.0)


def test_between_two_sets_these_get_it():
    evidence = _evidence()
    _watch(evidence, _p(cart_mass=1.15), noise=3e-3)
    assert evidence.weights[[0, 2]].sum() > 0.99


def test_where_noise_hides_it_nothing_is_decided():
    evidence = _evidence()
    _watch(evidence, _p(cart_mass=1.3), noise=10.0)
    np.testing.assert_allclose(evidence.weights, 0.25, atol=0.05)


def test_rounding_decides_nothing():
    # What these differ by moves nothing.
    sets = [_p(angle_weight=weight) for weight in (1.0, 2.0, 3.0)]
    evidence = _evidence(sets=sets)
    _watch(evidence, _p())
    np.testing.assert_allclose(evidence.weights, 1.0 / 3.0, rtol=1e-6)


def test_what_changes_is_noticed_within_a_few_memories():
    evidence = _evidence(memory=0.2)
    _watch(evidence, _p(cart_mass=0.7), 50)
    assert evidence.weights[1] > 0.99
    evidence.observe(np.zeros(4), 500.0, [])  # After a gap, nothing is concluded.
    assert evidence.weights[1] > 0.99
    _watch(evidence, _p(cart_mass=1.6), 100, first=50)
    assert evidence.weights[3] > 0.99
    evidence.reset()
    np.testing.assert_array_equal(evidence.weights, np.full(4, 0.25))


@pytest.mark.parametrize("stamp", [0.48, 0.40])
def test_the_same_instant_or_an_earlier_one_tells_nothing(stamp):
    evidence = _evidence()
    _watch(evidence, _p(cart_mass=1.3))  # until 0.48 s
    before = evidence.weights
    evidence.observe(np.full(4, 7.0), stamp, [(0.0, np.zeros(1))])
    np.testing.assert_array_equal(evidence.weights, before)


def _distances(mass, delay_periods=0, seed=0, **sampling):
    """Return how far a quadrotor is from a goal 3 m away, every 20 ms of 4 s on MuJoCo's plant.

    It weighs ``mass`` kg; the controller has it that it is 1 kg.
    """
    inertia = {
        f"inertia_{axis}": mass * value
        for axis, value in zip("xyz", (0.01, 0.01, 0.018), strict=True)
    }
    model = load_model("quadrotor")
    quadrotor.apply(model, quadrotor.Parameters(mass=mass, **inertia))
    data = mujoco.MjData(model)
    mujoco.mj_setConst(model, data)
    config = MppiConfig(
        samples=512,
        horizon=30,
        dt=0.02,
        sigma=(2.0, 0.03, 0.03, 0.005),
        sigma_adaptation=0.3,
        sigma_floor=0.2,
        command_delay=0.02 * delay_periods,
        seed=seed,
        backend="cpu",
        **sampling,
    )
    mppi = Mppi(config, "quadrotor")
    goal, sent, distances = np.array([3.0, 0.0, 0.0]), [(-1.0, np.array([9.81, 0.0, 0.0, 0.0]))], []
    for i in range(200):
        now, state = 0.02 * i, np.array([*data.qpos, *data.qvel])
        if delay_periods:
            state = mppi.predict(state, now, sent, now)
        update = mppi.update(state, goal, now)
        sent.append((now, update.command))
        data.ctrl[:] = sent[max(len(sent) - 1 - delay_periods, 0)][1]
        mujoco.mj_step(model, data, 10)
        distances.append(np.linalg.norm(data.qpos[:3] - goal))
    return np.array(distances), update


SETS = {"parameter_sets": 9, "randomised": ("mass",), "randomised_by": (0.35,)}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("mass", [0.7, 1.3])
@pytest.mark.parametrize("delay_periods", [0, 2])
def test_a_quadrotor_of_another_mass_arrives(mass, delay_periods, seed):
    distances, update = _distances(mass, delay_periods, seed, evidence_memory=0.5, **SETS)
    # Within 3 s and 5 cm, and it stays there.
    assert distances[150:].max() < 0.05
    assert update.parameters["mass"] == pytest.approx(mass, abs=0.05)


@pytest.mark.parametrize("mass", [0.7, 1.3])
def test_without_evidence_it_hovers_beside_the_goal(mass):
    for sets in ({}, SETS):
        distances, _ = _distances(mass, **sets)
        assert distances[150:].min() > 0.08


def test_evidence_without_sets_is_refused():
    with pytest.raises(ConfigurationError, match="evidence_memory.* 1 and parameter_sets 1: must"):
        Mppi(MppiConfig(evidence_memory=1.0, backend="cpu"))

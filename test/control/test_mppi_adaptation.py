"""What an update carries over from the one before: sigma, adapted, and the plan."""

import dataclasses
import math

import numpy as np
import pytest

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.plan import resample
from geoaccel_ros.control.samplers import Sampler, knot_basis
from geoaccel_ros.control.systems import load_system

PUCK = '''
"""A puck on a line."""

from dataclasses import dataclass

from geoaccel_ros.config import Configuration, parameter

STATE = ("x", "v")
CONTROL = ("acceleration",)
GOAL = ("x",)
RUNNING = ("goal", "v")
TERMINAL = ()


@dataclass(frozen=True)
class Parameters(Configuration):
    goal_weight: float = parameter(1.0, "Of the distance's square.")
    v_weight: float = parameter(0.3, "Of the speed's square.")


def limits(p):
    return (-4.0,), (4.0,)


def step(x, u, p, dt):
    v = x[1] + dt * u[0]
    return x[0] + dt * v, v


def running(x, u, u_before, goal, p):
    off = x[0] - goal[0]
    return p.goal_weight * off * off, p.v_weight * x[1] * x[1]


def terminal(x, goal, p):
    return ()
'''
CONFIG = MppiConfig(
    samples=256,
    horizon=40,
    dt=0.05,
    sigma=(1.0,),
    sigma_adaptation=0.5,
    sigma_floor=0.1,
    command_delay=0.0,
    backend="cpu",
)
GOAL = np.zeros(1)


@pytest.fixture(scope="module")
def puck(tmp_path_factory):
    path = tmp_path_factory.mktemp("systems") / "puck.py"
    path.write_text(PUCK, encoding="utf-8")
    return str(path)


def _drive(mppi, state, first, updates):
    for i in range(first, first + updates):
        update = mppi.update(state, GOAL, 0.05 * i)
        assert update.ok
        state = mppi.predict(state, 0.0, [(0.0, update.command)], 0.05)
    return state


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("adaptation", "floor", "recovers"), [(0.0, 0.0, True), (0.5, 0.1, True), (0.5, 0.0, False)]
)
def test_after_a_push_at_convergence_it_recovers_unless_sigma_has_no_floor(
    puck, adaptation, floor, recovers, seed
):
    # Ten seconds at the goal: the best samples are always nearer to the plan than most, by a factor
    # at every update. Without a floor nothing is left to explore with when the push comes.
    mppi = Mppi(
        dataclasses.replace(CONFIG, sigma_adaptation=adaptation, sigma_floor=floor, seed=seed), puck
    )
    state = _drive(mppi, np.array([1.0, 0.0]), 0, 200)
    assert abs(state[0]) < 0.02
    state = _drive(mppi, state + (3.0, 0.0), 200, 100)
    assert abs(state[0]) < 0.05 if recovers else state[0] > 2.9


def test_adapted_sigma_is_nearer_to_the_goal(puck):
    def distance(adaptation):
        mppi = Mppi(dataclasses.replace(CONFIG, sigma_adaptation=adaptation), puck)
        state = _drive(mppi, np.array([1.0, 0.0]), 0, 100)
        distances = []
        for i in range(100, 160):
            state = _drive(mppi, state, i, 1)
            distances.append(abs(state[0]))
        return np.mean(distances)

    assert distance(0.5) < 0.5 * distance(0.0)


def test_sigma_falls_to_its_floor_at_rest_and_rises_when_it_must_move(puck):
    mppi = Mppi(dataclasses.replace(CONFIG, sigma_floor=0.25), puck)
    largest = []
    for i in range(80):
        mppi.update(np.array([0.0 if i < 40 else 30.0, 0.0]), GOAL, 0.05 * i)
        assert 0.25 <= mppi._sigma.min() and mppi._sigma.max() <= 1.0
        largest.append(mppi._sigma.max())
    assert largest[39] == 0.25 and max(largest[40:]) > 0.5


def test_sigma_belongs_to_instants_and_moves_with_the_plan(puck):
    mppi = Mppi(dataclasses.replace(CONFIG, sigma_adaptation=0.01), puck)
    _drive(mppi, np.array([1.0, 0.0]), 0, 5)
    mppi._sigma = np.linspace(0.5, 0.9, 40)[:, None]
    drawn_with = []
    search = mppi._search.search
    mppi._search.search = lambda problem, sigma: drawn_with.append(sigma) or search(problem, sigma)
    mppi.update(np.array([1.0, 0.0]), GOAL, 0.2 + 0.125)
    expected = resample(np.linspace(0.5, 0.9, 40)[:, None], 0.05, 0.125)
    np.testing.assert_allclose(drawn_with[0], expected)
    # What has no plan begins with all of it.
    mppi.update(np.array([1.0, 0.0]), GOAL, 100.0)
    np.testing.assert_array_equal(drawn_with[1], np.ones((40, 1)))
    mppi.reset()
    assert (mppi._sigma == 1.0).all()


def test_sigma_is_wide_again_where_there_is_no_plan_and_moves_on_where_one_is_held(puck):
    mppi = Mppi(dataclasses.replace(CONFIG, plan_hold=1.0), puck)
    _drive(mppi, np.array([1.0, 0.0]), 0, 5)
    narrow = np.linspace(0.5, 0.9, 40)[:, None]
    mppi._sigma = narrow
    # Squared in float32, the way to this goal is infinite, and so is every cost.
    assert mppi.update(np.array([1.0, 0.0]), np.array([1e30]), 0.2 + 0.125).held
    np.testing.assert_allclose(mppi._sigma, resample(narrow, 0.05, 0.125))
    mppi.update(np.full(2, np.nan), GOAL, 0.35)
    np.testing.assert_array_equal(mppi._sigma, np.ones((40, 1)))


def test_a_frozen_control_stays_frozen_under_adaptation():
    config = MppiConfig(samples=64, sigma=(0.3, 0.0), sigma_adaptation=0.5, backend="cpu")
    mppi = Mppi(config)
    for i in range(5):
        update = mppi.update(np.zeros(5), np.array([4.0, 1.0]), 0.05 * i)
        assert update.ok and (update.controls[:, 1] == 0.0).all()
    assert update.command[0] > 0.0


def test_noise_is_drawn_with_the_sigma_of_each_instant():
    basis = knot_basis(23, 6, 1)
    sigma = np.linspace(0.0, 2.0, 46).reshape(23, 2)
    unit = Sampler(500, basis, (1.0, 1.0), 1).sample().copy()
    found = Sampler(500, basis, (9.0, 9.0), 1).sample(sigma)
    np.testing.assert_allclose(found, sigma[:, :, None] * unit, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("warm", [True, False])
def test_a_pole_is_swung_up_only_if_updates_build_on_each_other(warm, seed):
    # White noise cancels over the horizon: no sample that starts from nothing swings the pole up.
    # Carried over, each update's gain is where the next one starts.
    mppi = Mppi(
        MppiConfig(
            samples=256,
            horizon=50,
            dt=0.02,
            sigma=(5.0,),
            noise="white",
            command_delay=0.0,
            seed=seed,
            backend="cpu",
        ),
        "cartpole",
    )
    state, stood, stands = np.array([0.0, math.pi, 0.0, 0.0]), 0, False
    for i in range(200):
        # A plan of another time is dropped; the noise goes on.
        update = mppi.update(state, GOAL, 0.02 * i if warm else 1000.0 * i)
        assert math.isnan(update.plan_age) == (not warm or i == 0)
        state = mppi.predict(state, 0.0, [(0.0, update.command)], 0.02)
        stood = stood + 1 if abs(math.remainder(state[1], 2.0 * math.pi)) < 0.1 else 0
        stands |= stood == 50
    assert stands == warm


@pytest.mark.parametrize(
    ("sigma", "expected"),
    [
        ((10.0,), ""),
        ((10.5,), "sigma is more than a quarter of the range of force: 10.5, above 10"),
    ],
)
def test_a_sigma_above_a_quarter_of_the_range_is_warned_of(sigma, expected):
    config = MppiConfig(samples=16, horizon=5, sigma=sigma, backend="cpu")
    assert config.warning(load_system("cartpole"), (-20.0,), (20.0,)) == expected
    assert Mppi(config, "cartpole").warning == expected


def test_every_such_control_is_named():
    found = MppiConfig(sigma=(0.4, 0.7)).warning(load_system("diff_drive"), (-0.3, -1), (1.2, 1))
    assert found == (
        "sigma is more than a quarter of the range of v_command: 0.4, above 0.375; w_command: 0.7, "
        "above 0.5"
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"randomised": ("v_lag",)}, "randomised_by.* 0 values, must have one for each of the 1"),
        (
            {"randomised": ("v_lag", "v_lag"), "randomised_by": (0.1, 0.2), "parameter_sets": 3},
            "each named once",
        ),
        ({"parameter_sets": 3}, "parameter_sets.* 3 and 'randomised' names 0"),
        ({"randomised": ("v_lag",), "randomised_by": (0.1,)}, "parameter_sets.* 1 and 'random.* 1"),
        (
            {"randomised": ("v_lagg",), "randomised_by": (0.1,), "parameter_sets": 2},
            "'randomised': unknown parameter 'v_lagg': did you mean 'v_lag'",
        ),
        ({"risk": "best"}, "risk.*must be one of mean, worst, cvar"),
        ({"sigma_adaptation": 1.5}, "sigma_adaptation.* 1.5, must be 0 to 1"),
    ],
)
def test_what_does_not_fit_is_refused(changed, message):
    with pytest.raises(ConfigurationError, match=message):
        Mppi(MppiConfig(backend="cpu", **changed))

import dataclasses

import numpy as np
import pytest

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.control.randomisation import parameter_sets, risk
from geoaccel_ros.control.systems import cartpole, load_system

SYSTEM = load_system("cartpole")
PARAMETERS = cartpole.Parameters(cart_mass=2.0, pole_mass=0.2)
NAMES, SPREADS = ("cart_mass", "pole_mass"), (0.3, 0.5)


def test_the_first_set_is_the_nominal_one():
    for count in (1, 5):
        sets = parameter_sets(SYSTEM, PARAMETERS, NAMES, SPREADS, count, seed=3)
        assert len(sets) == count and sets[0] == PARAMETERS


def test_each_parameter_takes_one_value_from_each_interval():
    sets = [*map(SYSTEM.pack, parameter_sets(SYSTEM, PARAMETERS, NAMES, SPREADS, 9, seed=3))]
    for name, spread in zip(NAMES, SPREADS, strict=True):
        factors = np.array([getattr(values, name) for values in sets]) / getattr(PARAMETERS, name)
        place = (factors[1:] - (1.0 - spread)) / (2.0 * spread)
        assert sorted(np.floor(8.0 * place)) == list(range(8))
    # Not along a diagonal: the parameters vary apart from each other.
    masses = np.array([[values.cart_mass, values.pole_mass] for values in sets[1:]])
    assert abs(np.corrcoef(masses.T)[0, 1]) < 0.9
    others = [field.name for field in dataclasses.fields(PARAMETERS) if field.name not in NAMES]
    assert all(
        getattr(values, name) == getattr(sets[0], name) for values in sets for name in others
    )


def test_the_seed_decides():
    first, again, other = (
        parameter_sets(SYSTEM, PARAMETERS, NAMES, SPREADS, 5, seed) for seed in (3, 3, 4)
    )
    assert first == again and first[0] == other[0] and first[1] != other[1]


@pytest.mark.parametrize(
    ("names", "parameters", "message"),
    [
        (("cart_mas",), {}, "'randomised': unknown parameter 'cart_mas': did you mean 'cart_mass'"),
        (("v_weight",), {"v_weight": 0.0}, "names v_weight, which is 0.0: only numbers"),
        (("pole_mass",), {"pole_mass": 1e-300}, None),
    ],
)
def test_what_cannot_vary_is_named(names, parameters, message):
    chosen = cartpole.Parameters(**parameters)
    if message is None:
        assert len(parameter_sets(SYSTEM, chosen, names, (0.1,), 3, 0)) == 3
        return
    with pytest.raises(ConfigurationError, match=message):
        parameter_sets(SYSTEM, chosen, names, (0.1,), 3, 0)


def test_a_value_outside_its_own_bounds_is_refused():
    chosen = cartpole.Parameters(cart_mass=0.001)
    with pytest.raises(ConfigurationError, match="'cart_mass' is 0.000.*must be >= 0.001"):
        parameter_sets(SYSTEM, chosen, ("cart_mass",), (0.5,), 5, 0)


COSTS = np.array([[1.0, 5.0], [2.0, -3.0], [7.0, 4.0], [4.0, 0.0]], np.float32)


@pytest.mark.parametrize(
    ("measure", "share", "expected"),
    [
        ("mean", 0.5, [3.5, 1.5]),
        ("worst", 0.5, [7.0, 5.0]),
        ("cvar", 0.5, [5.5, 4.5]),
        # One and a half of four: (7 + 4 / 2) / 1.5 and (5 + 4 / 2) / 1.5.
        ("cvar", 0.375, [6.0, 14.0 / 3.0]),
        ("cvar", 0.01, [7.0, 5.0]),
        ("cvar", 1.0, [3.5, 1.5]),
    ],
)
def test_risk_by_hand(measure, share, expected):
    costs, crashed = risk(COSTS, np.zeros(COSTS.shape, bool), measure, share)
    assert costs.dtype == np.float32 and not crashed.any()
    np.testing.assert_allclose(costs, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("measure", "share", "expected"),
    [
        ("mean", 0.5, [0.4 * 1 + 0.3 * 2 + 0.1 * 7 + 0.2 * 4, 0.4 * 5 - 0.3 * 3 + 0.1 * 4]),
        ("worst", 0.5, [7.0, 5.0]),
        # 7 a fifth, 4 two fifths and 2 the rest of it; of 5 there is enough.
        ("cvar", 0.5, [(0.1 * 7 + 0.2 * 4 + 0.2 * 2) / 0.5, (0.4 * 5 + 0.1 * 4) / 0.5]),
        ("cvar", 0.05, [7.0, 5.0]),
    ],
)
def test_risk_with_weights_by_hand(measure, share, expected):
    weights = 3.0 * np.array([0.4, 0.3, 0.1, 0.2])
    costs, _ = risk(COSTS, np.zeros(COSTS.shape, bool), measure, share, weights)
    np.testing.assert_allclose(costs, expected, rtol=1e-6)


def test_cvar_is_the_mean_of_the_worst_when_sorted():
    costs = np.random.default_rng(2).normal(size=(40, 300)).astype(np.float32)
    found, _ = risk(costs, np.zeros(costs.shape, bool), "cvar", 0.25)
    expected = [np.mean(sorted(column)[-10:]) for column in costs.T]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("measure", ["mean", "worst", "cvar"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_with_one_set_is_not_finite(measure, bad):
    costs = COSTS.copy()
    costs[1, 0] = bad
    found, _ = risk(costs, np.zeros(costs.shape, bool), measure, 0.25)
    assert np.isfinite(found).tolist() == [False, True]


def test_a_crash_with_one_set_is_a_crash():
    crashed = np.zeros((4, 2), bool)
    crashed[2, 1] = True
    assert risk(COSTS, crashed, "mean", 0.25)[1].tolist() == [False, True]

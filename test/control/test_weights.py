import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoaccel_ros.control.weights import elite_weights, importance_weights

costs_of_samples = st.builds(
    lambda seed, samples, scale, offset: (
        np.random.default_rng(seed).gamma(2.0, scale, samples) + offset
    ),
    st.integers(0, 1000),
    st.integers(64, 3000),
    st.floats(1e-3, 1e6),
    st.floats(-1e6, 1e6),
)


def _all(costs):
    return np.ones(len(costs), bool)


# Compiles, which no example's deadline must count.
importance_weights(np.arange(64.0), _all(range(64)), 0.1)


@given(costs=costs_of_samples, fraction=st.floats(0.01, 0.5))
def test_sum_is_one_and_the_effective_sample_size_meets_its_target(costs, fraction):
    found = importance_weights(costs, _all(costs), fraction)
    assert found.values.sum() == pytest.approx(1.0, abs=1e-12)
    assert (found.values >= 0.0).all()
    # At least one sample counts; a target of one is met only in the limit.
    target = max(1.0, fraction * len(costs))
    assert found.at_bound or found.ess == pytest.approx(target, rel=0.01)
    assert target < 2.0 or not found.at_bound
    assert found.ess == pytest.approx(1.0 / np.sum(found.values**2), rel=1e-9)


@given(costs=costs_of_samples, low=st.floats(1e-6, 1e6), ratio=st.floats(1.0, 1e3))
def test_the_temperature_keeps_to_its_bounds_and_says_where_they_hold_it(costs, low, ratio):
    bounds = (low, low * ratio)
    free = importance_weights(costs, _all(costs), 0.1)
    found = importance_weights(costs, _all(costs), 0.1, bounds=bounds)
    assert found.temperature == min(max(free.temperature, bounds[0]), bounds[1])
    assert found.values.sum() == pytest.approx(1.0, abs=1e-12)
    met = found.ess == pytest.approx(0.1 * len(costs), rel=0.01)
    assert found.at_bound != met
    if found.at_bound:
        assert found.temperature in bounds


@given(costs=costs_of_samples, temperature=st.floats(1e-3, 1e6))
def test_a_given_temperature_is_used(costs, temperature):
    found = importance_weights(costs, _all(costs), 0.1, temperature)
    assert found.temperature == temperature and not found.at_bound
    expected = np.exp(-(costs - costs.min()) / temperature)
    np.testing.assert_allclose(found.values, expected / expected.sum(), rtol=1e-9)
    assert found.log_eta == pytest.approx(np.log(expected.sum()), abs=1e-12)
    assert 0.0 <= found.log_eta <= math.log(len(costs)) + 1e-12


def test_weights_of_a_given_temperature_by_hand():
    costs = np.array([10.0, 10.0 + 2.0 * math.log(2.0), 10.0 + 2.0 * math.log(4.0)])
    found = importance_weights(costs, _all(costs), 0.5, temperature=2.0)
    np.testing.assert_allclose(found.values, [4 / 7, 2 / 7, 1 / 7], rtol=1e-12)
    assert found.log_eta == pytest.approx(math.log(1.75), rel=1e-12)
    assert found.ess == pytest.approx(49 / 21, rel=1e-12)


def test_a_low_temperature_far_from_zero_neither_overflows_nor_vanishes():
    costs = np.array([-3e38, -3e38, 3e38], np.float32)
    found = importance_weights(costs, _all(costs), 0.5, temperature=1e-3)
    np.testing.assert_array_equal(found.values, [0.5, 0.5, 0.0])
    assert found.log_eta == pytest.approx(math.log(2.0))


def test_weights_follow_the_formula():
    costs = np.array([1.0, 2.0, 4.0])
    found = importance_weights(costs, _all(costs), 0.5)
    expected = np.exp(-costs / found.temperature)
    np.testing.assert_allclose(found.values, expected / expected.sum(), rtol=1e-9)
    assert found.ess == pytest.approx(1.5, rel=2e-3)


@given(costs=costs_of_samples, constant=st.floats(-1e6, 1e6))
def test_a_constant_added_to_all_costs_changes_nothing(costs, constant):
    # Rounded, so that adding the constant is exact and only the weights are tested.
    costs, constant = np.round(1024.0 * costs) / 1024.0, round(1024.0 * constant) / 1024.0
    for weigh in (
        lambda costs: importance_weights(costs, _all(costs), 0.05),
        lambda costs: importance_weights(costs, _all(costs), 0.05, temperature=3.0),
        lambda costs: elite_weights(costs, _all(costs), 0.1),
    ):
        np.testing.assert_array_equal(weigh(costs).values, weigh(costs + constant).values)


def test_equal_costs_weigh_the_same():
    costs = np.full(50, 7.0)
    found = importance_weights(costs, _all(costs), 0.1)
    np.testing.assert_array_equal(found.values, 1.0 / 50)
    assert (found.ess, found.temperature, found.at_bound) == (50.0, 0.0, False)
    assert found.log_eta == math.log(50.0)
    for other in (
        importance_weights(costs, _all(costs), 0.1, temperature=2.0),
        elite_weights(costs, _all(costs), 0.1),
    ):
        np.testing.assert_array_equal(other.values, 1.0 / 50)


def test_a_target_below_the_number_of_equally_good_samples_is_not_met_and_that_is_said():
    costs = np.repeat([1.0, 2.0], (10, 90))
    found = importance_weights(costs, _all(costs), 0.05)
    np.testing.assert_allclose(found.values[:10], 0.1, atol=1e-12)
    assert found.ess == pytest.approx(10.0) and found.at_bound


@pytest.mark.parametrize(
    "weigh",
    [
        lambda costs, usable: importance_weights(costs, usable, 0.9),
        lambda costs, usable: importance_weights(costs, usable, 0.9, temperature=1.0),
        lambda costs, usable: elite_weights(costs, usable, 0.9),
    ],
    ids=["solved", "fixed", "elites"],
)
def test_bad_samples_get_no_weight(weigh):
    costs = np.array([3.0, np.nan, 1.0, np.inf, -np.inf, 2.0, 0.0], np.float32)
    usable = np.array([1, 1, 1, 1, 1, 1, 0], bool)
    found = weigh(costs, usable)
    assert set(np.flatnonzero(found.values)) == {0, 2, 5}
    assert found.values.argmax() in (0, 2) and found.values[2] == found.values.max()
    assert found.values.sum() == pytest.approx(1.0)
    assert weigh(np.full(8, np.nan), np.ones(8, bool)) is None
    assert weigh(np.zeros(8), np.zeros(8, bool)) is None


def test_one_far_better_sample_takes_all():
    costs = np.full(100, 1e30)
    costs[42] = 0.0
    found = importance_weights(costs, _all(costs), 0.01)
    assert found.values[42] == pytest.approx(1.0)
    assert np.isfinite(found.values).all()


def test_elites_are_the_samples_of_least_cost():
    costs = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 9.0, 8.0, 7.0])
    found = elite_weights(costs, _all(costs), 0.375)
    np.testing.assert_allclose(found.values, np.array([0, 1, 0, 1, 1, 0, 0, 0]) / 3, rtol=1e-12)
    assert (found.ess, found.temperature, found.at_bound) == (3.0, 0.0, False)
    assert found.log_eta == pytest.approx(math.log(3.0))
    # Of five usable samples 0.375 are two; at least one always is.
    usable = np.array([1, 0, 1, 0, 1, 0, 1, 1], bool)
    assert set(np.flatnonzero(elite_weights(costs, usable, 0.375).values)) == {2, 4}
    assert set(np.flatnonzero(elite_weights(costs, usable, 0.001).values)) == {4}


@given(costs=costs_of_samples, fraction=st.floats(0.0001, 1.0))
def test_elites_cost_no_more_than_the_others_and_are_as_many_as_wanted(costs, fraction):
    found = elite_weights(costs, _all(costs), fraction)
    elite = found.values > 0.0
    wanted = max(1, round(fraction * len(costs)))
    assert elite.sum() == np.count_nonzero(costs <= np.sort(costs)[wanted - 1]) >= wanted
    assert costs[elite].max() < costs[~elite].min(initial=np.inf)
    np.testing.assert_allclose(found.values[elite], 1.0 / elite.sum(), rtol=1e-12)


def test_samples_that_cost_the_same_as_the_worst_elite_are_elites_in_any_order():
    costs = np.array([2.0, 1.0, 2.0, 3.0])
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 2, 3, 0]):
        found = elite_weights(costs[order], np.ones(4, bool), 0.5)
        np.testing.assert_allclose(found.values, (costs[order] < 3.0) / 3.0)

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoaccel_ros.control.weights import importance_weights


def _all(costs):
    return np.ones(len(costs), bool)


@given(
    seed=st.integers(0, 1000),
    samples=st.integers(64, 3000),
    scale=st.floats(1e-3, 1e6),
    offset=st.floats(-1e6, 1e6),
    fraction=st.floats(0.01, 0.5),
)
def test_sum_is_one_and_the_effective_sample_size_meets_its_target(
    seed, samples, scale, offset, fraction
):
    costs = np.random.default_rng(seed).gamma(2.0, scale, samples) + offset
    found = importance_weights(costs, _all(costs), fraction)
    assert found.values.sum() == pytest.approx(1.0, abs=1e-12)
    assert (found.values >= 0.0).all()
    # At least one sample counts; a target of one is met only in the limit.
    target = max(1.0, fraction * samples)
    assert found.ess == pytest.approx(target, rel=0.02)
    assert found.ess == pytest.approx(1.0 / np.sum(found.values**2), rel=1e-9)


def test_weights_follow_the_formula():
    costs = np.array([1.0, 2.0, 4.0])
    found = importance_weights(costs, _all(costs), 0.5)
    expected = np.exp(-costs / found.temperature)
    np.testing.assert_allclose(found.values, expected / expected.sum(), rtol=1e-9)
    assert found.ess == pytest.approx(1.5, rel=2e-3)


def test_a_constant_added_to_all_costs_changes_nothing():
    costs = np.random.default_rng(1).uniform(0.0, 1.0, 200)
    np.testing.assert_allclose(
        importance_weights(costs, _all(costs), 0.05).values,
        importance_weights(costs + 1e6, _all(costs), 0.05).values,
        atol=1e-6,  # 1e6 + cost keeps ten digits of the cost
    )


def test_equal_costs_weigh_the_same():
    found = importance_weights(np.full(50, 7.0), np.ones(50, bool), 0.1)
    np.testing.assert_array_equal(found.values, 1.0 / 50)
    assert (found.ess, found.temperature) == (50.0, 0.0)


def test_bad_samples_get_no_weight():
    costs = np.array([3.0, np.nan, 1.0, np.inf, -np.inf, 2.0, 0.0], np.float32)
    usable = np.array([1, 1, 1, 1, 1, 1, 0], bool)
    found = importance_weights(costs, usable, 0.9)
    assert set(np.flatnonzero(found.values)) == {0, 2, 5}
    assert found.values.argmax() == 2
    assert found.values.sum() == pytest.approx(1.0)


def test_nothing_usable_gives_nothing():
    assert importance_weights(np.full(8, np.nan), np.ones(8, bool), 0.1) is None
    assert importance_weights(np.zeros(8), np.zeros(8, bool), 0.1) is None


def test_one_far_better_sample_takes_all():
    costs = np.full(100, 1e30)
    costs[42] = 0.0
    found = importance_weights(costs, _all(costs), 0.01)
    assert found.values[42] == pytest.approx(1.0)
    assert np.isfinite(found.values).all()

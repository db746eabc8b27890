import numpy as np
import pytest

from geoaccel_ros.control.plan import resample, weighted_mean

PLAN = np.array([[0.0, 10.0], [1.0, 20.0], [3.0, 20.0], [4.0, 0.0]])


def test_no_time_passed_leaves_the_plan():
    np.testing.assert_array_equal(resample(PLAN, 0.1, 0.0), PLAN)


def test_one_step_later_is_a_shift_that_holds_the_end():
    expected = [[1.0, 20.0], [3.0, 20.0], [4.0, 0.0], [4.0, 0.0]]
    np.testing.assert_allclose(resample(PLAN, 0.1, 0.1), expected, atol=1e-12)


def test_half_a_step_later_lies_between():
    expected = [[0.5, 15.0], [2.0, 20.0], [3.5, 10.0], [4.0, 0.0]]
    np.testing.assert_allclose(resample(PLAN, 0.1, 0.05), expected, atol=1e-12)


@pytest.mark.parametrize("shift", [0.3, 0.35, 1e6])
def test_beyond_the_end_the_end_is_held(shift):
    np.testing.assert_allclose(resample(PLAN, 0.1, shift), np.tile([4.0, 0.0], (4, 1)), atol=1e-12)


def test_mean_is_of_the_clamped_plans():
    plan = np.array([[0.9], [0.0]], np.float32)
    noise = np.array([[[0.5, -0.4]], [[0.2, -3.0]]], np.float32)
    lower, upper = np.array([-1.0], np.float32), np.array([1.0], np.float32)
    mean = weighted_mean(plan, noise, lower, upper, np.array([0.25, 0.75]))
    # Clamped: 1.0 and 0.5; 0.2 and -1.0. Unclamped noise would give 0.725 and -2.2.
    np.testing.assert_allclose(mean, [[0.625], [-0.7]], atol=1e-6)


def test_mean_equals_numpy():
    rng = np.random.default_rng(1)
    plan = rng.normal(size=(7, 2)).astype(np.float32)
    noise = rng.normal(size=(7, 2, 50)).astype(np.float32)
    weights = rng.uniform(size=50) * (rng.random(50) < 0.5)
    weights /= weights.sum()
    lower, upper = np.array([-1.0, -0.5], np.float32), np.array([0.5, 1.0], np.float32)
    clamped = np.clip(plan[..., None] + noise, lower[:, None], upper[:, None])
    np.testing.assert_allclose(
        weighted_mean(plan, noise, lower, upper, weights), clamped @ weights, atol=1e-6
    )

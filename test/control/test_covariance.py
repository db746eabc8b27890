import numpy as np
import pytest

from geoaccel_ros.control.covariance import adapt, deviation

FREE = np.full(2, -np.inf, np.float32), np.full(2, np.inf, np.float32)


def _samples(seed=1, horizon=7, samples=400):
    rng = np.random.default_rng(seed)
    plan = rng.normal(size=(horizon, 2)).astype(np.float32)
    noise = rng.normal(size=(horizon, 2, samples)).astype(np.float32)
    weights = rng.uniform(size=samples) * (rng.random(samples) < 0.5)
    return plan, noise, weights / weights.sum()


def test_deviation_equals_numpys_weighted_variance():
    plan, noise, weights = _samples()
    mean = np.average(noise, axis=2, weights=weights)
    variance = np.average((noise - mean[..., None]) ** 2, axis=2, weights=weights)
    # Around the plan: the variance and the square of what the mean moves by.
    np.testing.assert_allclose(
        deviation(plan, noise, *FREE, weights) ** 2, variance + mean**2, rtol=1e-5
    )


def test_deviation_is_of_the_clamped_samples():
    plan = np.array([[0.9, 0.0]], np.float32)
    noise = np.array([[[0.5, -0.4], [0.2, -3.0]]], np.float32)
    lower, upper = np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32)
    # Moved by 0.1 and -0.4; by 0.2 and -1.0.
    expected = np.sqrt([[0.25 * 0.01 + 0.75 * 0.16, 0.25 * 0.04 + 0.75]])
    found = deviation(plan, noise, lower, upper, np.array([0.25, 0.75]))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_it_shrinks_where_the_good_samples_are_near_and_grows_where_they_are_on_one_side():
    plan, noise, _ = _samples(samples=4000)
    for good, scale in ((np.abs(noise[3, 0]) < 0.5, 0.28), (noise[3, 0] > 2.0, 2.4)):
        found = deviation(plan, noise, *FREE, good / good.sum())
        assert found[3, 0] == pytest.approx(scale, rel=0.05)
        # Elsewhere chance has selected.
        np.testing.assert_allclose(np.delete(found, 3, axis=0), 1.0, atol=0.3)


def test_the_average_by_hand_with_floor_and_ceiling():
    sigma = np.array([[1.0, 0.5], [0.4, 0.5]])
    found = np.array([[0.2, 0.5], [0.0, 9.0]])
    expected = [[0.8, 0.5], [0.35, 1.0]]
    np.testing.assert_allclose(adapt(sigma, found, 0.25, (0.35, 0.1), (2.0, 1.0)), expected)


def test_a_frozen_control_stays_frozen():
    frozen = np.zeros(1)
    assert adapt(np.zeros((3, 1)), np.zeros((3, 1)), 0.5, 0.1 * frozen, frozen).max() == 0.0

import numpy as np
import pytest

from geoaccel_ros.control.samplers import KnotSampler


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not():
    first = KnotSampler(64, 20, 5, (0.3, 0.7), seed=3)
    second = KnotSampler(64, 20, 5, (0.3, 0.7), seed=3)
    other = KnotSampler(64, 20, 5, (0.3, 0.7), seed=4)
    noise = first.sample().copy()
    np.testing.assert_array_equal(noise, second.sample())
    assert (noise != other.sample()).any()
    assert (noise != first.sample()).any()
    first.reset()
    np.testing.assert_array_equal(noise, first.sample())


def test_standard_deviation_is_sigma_at_every_step():
    noise = KnotSampler(20000, 23, 6, (0.3, 0.7), seed=1).sample()
    assert noise.shape == (23, 2, 20000) and noise.dtype == np.float32
    deviation = noise.std(axis=2)
    # 20,000 samples: a standard deviation is known to 0.5 %; five of these.
    np.testing.assert_allclose(deviation[:, 0], 0.3, rtol=0.025)
    np.testing.assert_allclose(deviation[:, 1], 0.7, rtol=0.025)
    np.testing.assert_allclose(noise.mean(axis=2), 0.0, atol=0.03)


def test_noise_lasts_between_knots_and_is_independent_across_them():
    noise = KnotSampler(20000, 41, 5, (1.0,), seed=1).sample()[:, 0]
    correlation = np.corrcoef(noise)
    # Ten steps lie between knots: neighbours turn by 9 degrees on the circle of the weights.
    assert correlation[10, 11] == pytest.approx(np.cos(np.pi / 20), abs=0.02)
    assert abs(correlation[0, 20]) < 0.03


def test_as_many_knots_as_steps_is_white():
    noise = KnotSampler(20000, 12, 99, (1.0,), seed=1).sample()[:, 0]
    np.testing.assert_allclose(np.corrcoef(noise), np.eye(12), atol=0.04)


def test_sigma_zero_freezes_its_axis_alone():
    noise = KnotSampler(16, 10, 4, (0.0, 1.0), seed=1).sample()
    assert (noise[:, 0] == 0.0).all()
    assert noise[:, 1].std() > 0.5

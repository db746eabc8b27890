import numpy as np
import pytest
import scipy.interpolate
import scipy.signal

from geoaccel_ros.control.philox import philox, two_normals
from geoaccel_ros.control.samplers import Sampler, coloured_basis, knot_basis
from geoaccel_ros.threads import Threads

BASES = {
    "hold": knot_basis(23, 6, 0),
    "linear": knot_basis(23, 6, 1),
    "cubic": knot_basis(23, 6, 3),
    "white": np.eye(23),
    "pink": coloured_basis(23, 1.0),
    "brown": coloured_basis(23, 2.0),
}
every_basis = pytest.mark.parametrize("basis", BASES.values(), ids=BASES.keys())


@every_basis
@pytest.mark.parametrize("antithetic", [False, True])
def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(basis, antithetic):
    def sampler(seed):
        return Sampler(64, basis, (0.3, 0.7), seed, antithetic)

    first = sampler(3)
    noise = first.sample().copy()
    np.testing.assert_array_equal(noise, sampler(3).sample())
    assert (noise != sampler(4).sample()).any()
    assert (noise != first.sample()).any()
    first.reset()
    np.testing.assert_array_equal(noise, first.sample())


def test_numbers_are_those_of_their_counters():
    samples, seed = 10, (3 << 32) + 7
    sampler = Sampler(samples, np.eye(3), (1.0,), seed)
    for draw in range(2):
        numbers = sampler.sample().ravel()
        quarter = -(-numbers.size // 4)
        counters = np.arange(quarter, dtype=np.uint32)
        words = [philox(i, np.uint32(draw), *np.uint32([0, 0, 7, 3])) for i in counters]
        expected = [(*two_normals(a, b), *two_normals(c, d)) for a, b, c, d in words]
        expected = np.transpose(expected).ravel()[: numbers.size]
        np.testing.assert_allclose(numbers, expected, rtol=1e-5, atol=1e-6)


@every_basis
@pytest.mark.parametrize("antithetic", [False, True])
def test_threads_change_no_bit(basis, antithetic):
    samples = 40_001  # enough work for several parts
    alone = Sampler(samples, basis, (0.3, 0.7), 3, antithetic)
    together = Sampler(samples, basis, (0.3, 0.7), 3, antithetic, Threads(3))
    for _ in range(2):
        np.testing.assert_array_equal(alone.sample(), together.sample())


def test_samplers_share_no_state():
    alone = Sampler(32, BASES["linear"], (1.0,), seed=1)
    expected = [alone.sample().copy() for _ in range(3)]
    one = Sampler(32, BASES["linear"], (1.0,), seed=1)
    other = Sampler(32, BASES["linear"], (1.0,), seed=1)
    for noise in expected:
        np.testing.assert_array_equal(one.sample(), noise)
        other.sample()
        other.sample()
        np.testing.assert_array_equal(one.noise, noise)


@every_basis
@pytest.mark.parametrize("antithetic", [False, True])
def test_standard_deviation_is_sigma_at_every_step(basis, antithetic):
    np.testing.assert_allclose(np.linalg.norm(basis, axis=1), 1.0, rtol=1e-12)
    noise = Sampler(20000, basis, (0.3, 0.7), 1, antithetic).sample()
    assert noise.shape == (23, 2, 20000) and noise.dtype == np.float32
    deviation = noise.std(axis=2)
    # 10,000 samples: a standard deviation is known to 0.7 %; four of these.
    np.testing.assert_allclose(deviation[:, 0], 0.3, rtol=0.03)
    np.testing.assert_allclose(deviation[:, 1], 0.7, rtol=0.03)
    np.testing.assert_allclose(noise.mean(axis=2), 0.0, atol=0.03)
    axes = [np.corrcoef(noise[t])[0, 1] for t in range(23)]
    np.testing.assert_allclose(axes, 0.0, atol=0.05)


def test_noise_of_linear_knots_is_the_formula_bit_for_bit():
    horizon, knots, sigma = 50, 8, np.array([0.3, 0.7], np.float32)
    noise = Sampler(1024, knot_basis(horizon, knots, 1), sigma, seed=5).sample()
    # As many numbers as are drawn for the knots, and nothing mixed.
    normals = Sampler(1024, np.eye(knots), (1.0, 1.0), seed=5).sample()
    for t, position in enumerate(np.linspace(0.0, knots - 1.0, horizon)):
        left = min(int(position), knots - 2)
        angle = 0.5 * np.pi * (position - left)
        a, b = (np.float32(w(angle)) * sigma[:, None] for w in (np.cos, np.sin))
        np.testing.assert_array_equal(noise[t], a * normals[left] + b * normals[left + 1])


def test_noise_lasts_between_knots_and_is_independent_across_them():
    noise = Sampler(20000, knot_basis(41, 5, 1), (1.0,), seed=1).sample()[:, 0]
    correlation = np.corrcoef(noise)
    # Ten steps lie between knots: neighbours turn by 9 degrees on the circle of the weights.
    assert correlation[10, 11] == pytest.approx(np.cos(np.pi / 20), abs=0.02)
    assert abs(correlation[0, 20]) < 0.03


def test_knots_of_order_0_hold_their_value_for_equal_shares():
    noise = Sampler(64, knot_basis(10, 3, 0), (1.0,), seed=1).sample()[:, 0]
    begins = [0, 4, 7, 10]
    for begin, end in zip(begins, begins[1:], strict=False):
        np.testing.assert_array_equal(noise[begin:end], np.tile(noise[begin], (end - begin, 1)))
    assert (noise[3] != noise[4]).all() and (noise[6] != noise[7]).all()


@pytest.mark.parametrize("knots", [2, 3, 4, 8])
def test_knots_of_order_3_are_a_natural_spline_of_constant_variance(knots):
    position = np.linspace(0.0, knots - 1.0, 43)
    if knots < 4:
        # Too few for SciPy's B-splines: straight lines, bent by the curvature in the middle.
        spline = np.array([np.interp(position, np.arange(knots), unit) for unit in np.eye(knots)]).T
        if knots == 3:
            from_end = 1.0 - np.abs(position - 1.0)
            spline += np.outer((from_end**3 - from_end) / 6.0, 1.5 * np.array([1.0, -2.0, 1.0]))
    else:
        spline = scipy.interpolate.make_interp_spline(
            np.arange(knots), np.eye(knots), k=3, bc_type="natural"
        )(position)
    expected = spline / np.linalg.norm(spline, axis=1, keepdims=True)
    basis = knot_basis(43, knots, 3)
    np.testing.assert_allclose(basis, expected, atol=1e-12)
    np.testing.assert_allclose(basis[:: 42 // (knots - 1)], np.eye(knots), atol=1e-12)


def test_noise_of_order_3_has_no_kinks():
    kinks = [np.abs(np.diff(knot_basis(71, 8, order), n=2, axis=0)).max() for order in (1, 3)]
    assert kinks[1] < 0.5 * kinks[0]


@pytest.mark.parametrize("order", [0, 1, 3])
def test_as_many_knots_as_steps_is_white(order):
    np.testing.assert_allclose(knot_basis(12, 99, order), np.eye(12), atol=1e-12)


def test_white_noise_is_its_own_at_every_instant():
    noise = Sampler(20000, np.eye(12), (1.0,), seed=1).sample()[:, 0]
    np.testing.assert_allclose(np.corrcoef(noise), np.eye(12), atol=0.04)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_power_of_coloured_noise_falls_with_its_exponent(exponent):
    horizon = 256
    noise = Sampler(4000, coloured_basis(horizon, exponent), (1.0,), seed=1).sample()[:, 0]
    frequency, power = scipy.signal.periodogram(noise, window="hann", detrend=False, axis=0)
    # The window smears the slowest waves; the estimate at the highest frequency counts once.
    middle = slice(4, -1)
    slope, _ = np.polyfit(np.log(frequency[middle]), np.log(power.mean(axis=1)[middle]), 1)
    assert slope == pytest.approx(-exponent, abs=0.05)


def test_coloured_noise_need_not_return_to_its_beginning():
    covariance = coloured_basis(50, 2.0) @ coloured_basis(50, 2.0).T
    # Of noise that repeats after one horizon, the last step would be nearest to the first.
    assert covariance[0, 1] > 0.9
    assert covariance[0].argmin() > 40
    np.testing.assert_allclose(np.diag(covariance), 1.0, rtol=1e-12)


@every_basis
@pytest.mark.parametrize("samples", [64, 65])
def test_antithetic_samples_come_in_pairs_whose_sum_is_zero(basis, samples):
    noise = Sampler(samples, basis, (0.3, 0.7), seed=2, antithetic=True).sample()
    np.testing.assert_array_equal(noise[..., -32:], -noise[..., :32])
    assert len(np.unique(noise[0, 0])) == samples


@every_basis
def test_sigma_zero_freezes_its_axis_alone(basis):
    noise = Sampler(16, basis, (0.0, 1.0), seed=1).sample()
    assert (noise[:, 0] == 0.0).all()
    assert noise[:, 1].std() > 0.5

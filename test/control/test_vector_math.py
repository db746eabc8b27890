"""Float32 functions without the C library, against NumPy's in float64."""

import math

import numba
import numpy as np
import pytest

from geoaccel_ros.control import vector_math
from geoaccel_ros.control.compiling import device_function


def _applied(function, x):
    # The flags of the rollouts: contraction must not lose what the parts of pi / 2 keep.
    @numba.njit(error_model="numpy", fastmath={"contract", "nsz"})
    def apply(x, y):
        for i in range(len(x)):
            y[i] = function(x[i])

    x = np.asarray(x, np.float32)
    y = np.empty_like(x)
    apply(x, y)
    return y


@pytest.mark.parametrize("reach", [1.0, 30.0, 10000.0])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sine_and_cosine_within_a_unit_in_the_last_place_of_one(name, reach):
    x = np.random.default_rng(1).uniform(-reach, reach, 100_000).astype(np.float32)
    found = _applied(getattr(vector_math, name), x)
    np.testing.assert_allclose(found, getattr(np, name)(x.astype(float)), rtol=0, atol=1.2e-7)


def test_sine_of_what_is_small_is_itself():
    x = np.float32([0.0, 1e-30, -1e-10, 1e-4])
    np.testing.assert_allclose(_applied(vector_math.sin, x), np.sin(x.astype(float)), rtol=1.2e-7)


def test_at_multiples_of_a_quarter_turn():
    quarters = np.arange(-9, 10)
    x = (0.5 * math.pi * quarters).astype(np.float32)
    np.testing.assert_allclose(_applied(vector_math.sin, x), np.sin(x.astype(float)), atol=1.2e-7)
    np.testing.assert_allclose(_applied(vector_math.cos, x), np.cos(x.astype(float)), atol=1.2e-7)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angles_beyond_all_resolution_stay_bounded(name):
    found = _applied(getattr(vector_math, name), [1e8, -3e12, 1e30, -3e38])
    assert (np.abs(found) <= 1.0).all()


def test_exponential_within_two_units_in_the_last_place():
    x = np.random.default_rng(1).uniform(-87.0, 88.0, 100_000).astype(np.float32)
    np.testing.assert_allclose(
        _applied(vector_math.exp, x), np.exp(x.astype(float)), rtol=2 * 2.0**-23
    )


def test_exponential_at_the_ends():
    found = _applied(vector_math.exp, [0.0, -0.0, -90.0, -np.inf, 90.0, np.inf])
    np.testing.assert_array_equal(found, [1.0, 1.0, 0.0, 0.0, np.inf, np.inf])


@pytest.mark.parametrize(("least", "most"), [(1e-30, 1.0), (0.5, 2.0), (0.99, 1.01), (1.0, 1e30)])
def test_logarithm_within_two_units_in_the_last_place(least, most):
    x = np.random.default_rng(1).uniform(least, most, 100_000).astype(np.float32)
    found = _applied(vector_math.log, x)
    np.testing.assert_allclose(found, np.log(x.astype(float)), rtol=2 * 2.0**-23)


def test_logarithm_at_the_ends():
    found = _applied(vector_math.log, [1.0, np.inf, 0.0, -1.0, -np.inf])
    np.testing.assert_array_equal(found, [0.0, np.inf, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("name", ["sin", "cos", "exp", "log"])
def test_not_a_number_stays_one(name):
    assert np.isnan(_applied(getattr(vector_math, name), [np.nan, -np.nan])).all()


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_an_infinite_angle_has_no_sine(name):
    assert np.isnan(_applied(getattr(vector_math, name), [np.inf, -np.inf])).all()


def _polar(x):
    return x * math.sin(x) + math.sqrt(x) * math.exp(-x)


def test_takes_the_place_of_math_in_a_device_function():
    x = np.linspace(0.1, 5.0, 100, dtype=np.float32)
    replaced = _applied(device_function(_polar, vector_math.as_math()), x)
    exact = x * np.sin(x.astype(float)) + np.sqrt(x) * np.exp(-x.astype(float))
    np.testing.assert_allclose(replaced, exact, atol=1e-6)

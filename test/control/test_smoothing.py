import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import savgol_filter

from geoaccel_ros.control.smoothing import limit_plan, past_commands, smoothing_matrix


@pytest.mark.parametrize(
    ("horizon", "window", "order"),
    [(50, 9, 2), (50, 5, 3), (30, 21, 4), (7, 13, 2), (2, 3, 1), (20, 3, 0), (10, 1, 0)],
)
def test_smoothing_is_the_filter_of_savitzky_and_golay(horizon, window, order):
    half = window // 2
    commands = np.random.default_rng(window).normal(size=(half + horizon, 2))
    expected = savgol_filter(commands, window, order, axis=0, mode="interp")[half:]
    smoothed = smoothing_matrix(horizon, window, order) @ commands
    np.testing.assert_allclose(smoothed, expected, atol=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_polynomial_of_the_order_is_left_as_it_is(order):
    t = np.arange(-4, 20) / 10.0
    commands = np.polynomial.polynomial.polyval(t, np.arange(1.0, order + 2.0))
    np.testing.assert_allclose(smoothing_matrix(20, 9, order) @ commands, commands[4:], rtol=1e-9)


def test_what_was_sent_counts():
    plan = np.zeros(20)
    smoothed = smoothing_matrix(20, 9, 2) @ np.append(np.ones(4), plan)
    assert smoothed[0] > 0.2
    np.testing.assert_allclose(smoothed[4:], 0.0, atol=1e-12)


def test_past_commands_are_those_at_the_steps_before_now():
    sent = [(1.0, np.array([0.0, 5.0])), (1.1, np.array([1.0, 5.0])), (1.3, np.array([3.0, 7.0]))]
    found = past_commands(sent, 1.4, 0.1, 6)
    expected = [[0, 5], [0, 5], [0, 5], [1, 5], [2, 6], [3, 7]]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_array_equal(past_commands(sent[:1], 9.0, 0.1, 2), [[0.0, 5.0]] * 2)
    np.testing.assert_array_equal(past_commands(sent, 5.0, 0.1, 1), [[3.0, 7.0]])


def _limits(*values):
    return [np.array(value, float) for value in values]


def test_limits_of_value_and_rate_by_hand():
    controls = np.array([[1.0, 9.0], [1.0, 0.0], [-3.0, 0.0], [0.0, -9.0]])
    before, lower, upper, rates = _limits([0.0, 2.0], [-1.0, -4.0], [0.8, 4.0], [5.0, 0.0])
    found = limit_plan(controls, before, lower, upper, rates, 0.04, 0.1)
    # 0.2 in the first 0.04 s, then 0.5 a step; the second control has no limit of rate.
    expected = [[0.2, 4.0], [0.7, 0.0], [0.2, 0.0], [0.0, -4.0]]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_command_before_the_plan_that_breaks_the_limits_does_not_make_the_plan_break_them():
    before, lower, upper, rates = _limits([0.0], [2.0], [3.0], [1.0])
    found = limit_plan(np.full((3, 1), 9.0), before, lower, upper, rates, 0.1, 0.2)
    np.testing.assert_allclose(found, [[2.1], [2.3], [2.5]])


@given(
    seed=st.integers(0, 10000),
    elapsed=st.floats(0.001, 0.5),
    rates=st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 20.0)),
    window=st.sampled_from([1, 3, 9]),
)
def test_limits_hold_after_smoothing_and_what_keeps_them_is_left(seed, elapsed, rates, window):
    rng = np.random.default_rng(seed)
    dt, half = 0.1, window // 2
    lower, upper = -rng.uniform(0.0, 2.0, 2), rng.uniform(0.0, 2.0, 2)
    rates = np.array(rates)
    commands = rng.normal(0.0, 2.0, (half + 20, 2))
    before = rng.uniform(lower, upper)
    smoothed = smoothing_matrix(20, window, min(2, window - 1)) @ commands
    found = limit_plan(smoothed, before, lower, upper, rates, elapsed, dt)
    assert (found >= lower).all() and (found <= upper).all()
    change = np.abs(np.diff(np.vstack((before, found)), axis=0))
    durations = np.append(elapsed, np.full(19, dt))[:, None]
    allowed = np.where(rates > 0.0, rates, np.inf) * durations
    assert (change <= allowed + 1e-12).all()
    again = limit_plan(found, before, lower, upper, rates, elapsed, dt)
    np.testing.assert_allclose(again, found, atol=1e-12)


@given(seed=st.integers(0, 1000))
def test_without_limits_of_rate_values_are_clipped(seed):
    controls = np.random.default_rng(seed).normal(0.0, 2.0, (20, 2))
    before, lower, upper, none = _limits([9.0, 9.0], [-1.0, -0.3], [0.5, 2.0], [0.0, 0.0])
    found = limit_plan(controls, before, lower, upper, none, 0.1, 0.1)
    np.testing.assert_array_equal(found, np.clip(controls, lower, upper))

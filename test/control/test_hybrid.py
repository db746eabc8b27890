"""The model's best samples, rolled out again by MuJoCo."""

import dataclasses
import math

import numpy as np
import pytest
from rollout_problems import free_problem
from scipy.stats import spearmanr

from geoaccel_ros.control.hybrid import HybridRollouts, rank_correlation, screened
from geoaccel_ros.control.rollouts import CpuRollouts
from geoaccel_ros.control.rollouts_mujoco import MujocoRollouts
from geoaccel_ros.control.systems import load_system

SYSTEM = load_system("cartpole")


@pytest.fixture(scope="module")
def mujoco():
    return MujocoRollouts(SYSTEM, SYSTEM.parameters(), 64, 40, 0.02, 1, timestep=0.02)


def _run(rollouts, posed):
    samples = posed.noise.shape[2]
    costs, crashed = np.empty(samples, np.float32), np.empty(samples, bool)
    rollouts.run(posed, costs, crashed)
    return costs, crashed


def test_the_model_s_best_cost_what_mujoco_says_and_the_others_infinitely_much(mujoco):
    posed = free_problem("cartpole", seed=4)
    by_model, _ = _run(CpuRollouts(SYSTEM, 1), posed)
    by_mujoco, _ = _run(mujoco, posed)
    hybrid = HybridRollouts(CpuRollouts(SYSTEM, 1), mujoco, 64, share=0.25)
    costs, crashed = _run(hybrid, posed)
    best = np.argsort(by_model)[:16]
    np.testing.assert_array_equal(costs[best], by_mujoco[best])
    assert np.isinf(np.delete(costs, best)).all() and not crashed.any()
    np.testing.assert_array_equal(np.flatnonzero(~hybrid.left_out), np.sort(best))
    expected = spearmanr(by_model[best], by_mujoco[best]).statistic
    np.testing.assert_allclose(hybrid.rank_correlation, expected)
    assert expected > 0.9


class _Screen:
    """A model that finds these costs."""

    def __init__(self, costs, crashed):
        self._found = costs, crashed

    def run(self, problem, costs, crashed):
        costs[:], crashed[:] = self._found


def test_what_crashes_or_is_not_finite_by_the_model_is_looked_at_last(mujoco):
    posed = free_problem("cartpole", seed=4)
    costs, crashed = np.arange(64, dtype=np.float32), np.zeros(64, bool)
    crashed[0] = True
    costs[[1, 2]] = np.nan, np.inf
    found, met = _run(HybridRollouts(_Screen(costs, crashed), mujoco, 64, share=0.1), posed)
    np.testing.assert_array_equal(np.flatnonzero(np.isfinite(found)), np.arange(3, 9))
    assert met[0]


def test_a_model_that_knows_nothing_is_told_of(mujoco):
    posed = free_problem("cartpole", seed=4)
    by_mujoco, _ = _run(mujoco, posed)
    hybrid = HybridRollouts(_Screen(-by_mujoco, False), mujoco, 64, share=1.0)
    _run(hybrid, posed)
    np.testing.assert_allclose(hybrid.rank_correlation, -1.0)


def test_rank_correlation_is_scipy_s_over_what_is_finite():
    rng = np.random.default_rng(0)
    a = rng.normal(size=50).round(1)  # with ties
    b = (a + rng.normal(size=50)).round(1)
    np.testing.assert_allclose(rank_correlation(a, b), spearmanr(a, b).statistic)
    a[:10], b[5:15] = np.nan, np.inf
    np.testing.assert_allclose(rank_correlation(a, b), spearmanr(a[15:], b[15:]).statistic)


@pytest.mark.parametrize("b", [np.ones(4), np.full(4, np.nan), np.array([1.0, *[np.inf] * 3])])
def test_rank_correlation_says_where_it_knows_nothing(b):
    assert math.isnan(rank_correlation(np.arange(4.0), b))


@pytest.mark.parametrize(
    ("samples", "share", "count"), [(64, 0.1, 6), (16, 0.01, 2), (16, 1.0, 16)]
)
def test_a_share_is_some_samples(samples, share, count):
    assert screened(samples, share) == count


def test_the_same_noise_costs_the_same_again(mujoco):
    posed = free_problem("cartpole", seed=5)
    hybrid = HybridRollouts(CpuRollouts(SYSTEM, 2), mujoco, 64, share=0.2)
    first = _run(hybrid, posed)[0]
    _run(hybrid, dataclasses.replace(posed, start=posed.start[::-1]))
    np.testing.assert_array_equal(first, _run(hybrid, posed)[0])

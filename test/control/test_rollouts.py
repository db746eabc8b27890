"""Compiled float32 rollouts against a float64 reference in NumPy that shares no code with them."""

import dataclasses

import numpy as np
import pytest
from rollout_problems import SYSTEM, free_problem, free_reference, problem, reference

from geoaccel_ros.control.rollouts import CpuRollouts
from geoaccel_ros.control.systems import load_system

ALL_HEADINGS = np.radians(np.arange(-180.0, 181.0, 7.5))


def _run(posed, threads=1):
    samples = posed.noise.shape[2]
    costs, crashed = np.empty(samples, np.float32), np.empty(samples, bool)
    CpuRollouts(SYSTEM, threads).run(posed, costs, crashed)
    return costs, crashed


@pytest.mark.parametrize("yaw", [*ALL_HEADINGS, np.pi, -np.pi, 7.0])
def test_equal_the_reference_at_every_heading(yaw):
    posed = problem(seed=5, yaw=yaw)
    costs, crashed = _run(posed)
    states, expected, expected_crashed, closest = reference(posed)
    # One that grazes the limit by less than float32 resolves may fall on either side.
    clear_cut = np.abs(closest - posed.clearance_limit) > 1e-4
    assert clear_cut.mean() > 0.95
    np.testing.assert_array_equal(crashed[clear_cut], expected_crashed[clear_cut])
    assert 0.0 < expected_crashed.mean() < 1.0
    free = clear_cut & ~expected_crashed
    # 40 float32 steps: 1e-7 each, and costs add up hundreds of terms.
    np.testing.assert_allclose(costs[free], expected[free], rtol=2e-5, atol=2e-4)
    for sample in (0, 17):
        found = CpuRollouts(SYSTEM, 1).states(posed, sample)
        np.testing.assert_allclose(found, states[:, :, sample], atol=2e-5)


def test_every_free_rollout_costs_less_than_every_crashed_one():
    costs, crashed = _run(problem(seed=5, yaw=0.3))
    assert costs[~crashed].max() < costs[crashed].min()


def test_a_later_crash_costs_less():
    posed = problem(seed=5, yaw=0.3)
    costs, crashed = _run(posed)
    states, *_ = reference(posed)
    distances = posed.field.at(states[1:, :2].transpose(0, 2, 1).reshape(-1, 2) + posed.origin)
    first = (distances.reshape(len(states) - 1, -1) < posed.clearance_limit).argmax(axis=0)
    order = first[crashed]
    assert len(set(order)) > 3
    assert np.corrcoef(order, costs[crashed])[0, 1] < -0.99


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_change_nothing(threads):
    posed = problem(seed=1, yaw=1.0)
    alone, together = _run(posed), _run(posed, threads)
    np.testing.assert_array_equal(alone[0], together[0])
    np.testing.assert_array_equal(alone[1], together[1])


def test_terms_add_up_to_the_cost():
    posed = problem(seed=5, yaw=0.3)
    costs, crashed = _run(posed)
    rollouts = CpuRollouts(SYSTEM, 1)
    found = [rollouts.follow(posed, k)[1].sum(dtype=float) for k in np.flatnonzero(~crashed)]
    np.testing.assert_allclose(found, costs[~crashed], rtol=1e-5)


def test_each_term_is_found_by_itself():
    posed = free_problem("quadrotor", seed=3)
    system = load_system("quadrotor")
    _, terms = CpuRollouts(system, 1).follow(posed, 7)
    names = [f"{name}_weight" for name in system.running_terms]
    names += [f"final_{name}_weight" for name in system.terminal_terms]
    weights = [name for name in posed.p._fields if name.endswith("_weight")]
    assert len(terms) == len(names) == len(weights)
    for name, term in zip(names, terms, strict=True):
        others = {weight: np.float32(0.0) for weight in weights if weight != name}
        alone = dataclasses.replace(posed, p=posed.p._replace(**others))
        assert free_reference("quadrotor", alone)[7] == pytest.approx(term, rel=1e-4)


def test_a_rollout_that_is_not_finite_is_seen():
    posed = problem(seed=1, yaw=np.nan)
    costs, _ = _run(posed)
    assert not np.isfinite(costs).any()

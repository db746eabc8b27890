"""Rollouts side by side: a sample's neighbours in its block change nothing."""

import dataclasses

import numpy as np
import pytest
from rollout_problems import SYSTEM, free_problem, problem

from geoaccel_ros.control.distance_field import DistanceField
from geoaccel_ros.control.lanes import LANES
from geoaccel_ros.control.rollouts import CpuRollouts
from geoaccel_ros.control.systems import load_system


def _run(system, posed, samples=slice(None)):
    posed = dataclasses.replace(posed, noise=np.ascontiguousarray(posed.noise[:, :, samples]))
    count = posed.noise.shape[2]
    costs, crashed = np.empty(count, np.float32), np.empty(count, bool)
    CpuRollouts(system, 1).run(posed, costs, crashed)
    return costs, crashed


PROBLEMS = {
    "diff_drive": (SYSTEM, problem(seed=5, yaw=0.3, samples=3 * LANES)),
    "cartpole": (load_system("cartpole"), free_problem("cartpole", seed=2, samples=3 * LANES)),
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(
    "samples", [slice(0, 1), slice(LANES), slice(LANES + 1), slice(7, 2 * LANES - 3)]
)
def test_a_sample_costs_the_same_wherever_it_lies_and_among_however_many(name, samples):
    system, posed = PROBLEMS[name]
    costs, crashed = _run(system, posed)
    some_costs, some_crashed = _run(system, posed, samples)
    np.testing.assert_array_equal(some_costs, costs[samples])
    np.testing.assert_array_equal(some_crashed, crashed[samples])


def test_one_that_is_not_finite_spoils_no_neighbour():
    system, posed = PROBLEMS["cartpole"]
    costs, _ = _run(system, posed)
    noise = posed.noise.copy()
    noise[3, 0, 5] = np.nan
    spoilt, _ = _run(system, dataclasses.replace(posed, noise=noise))
    assert np.isnan(spoilt[5])
    others = np.arange(len(costs)) != 5
    np.testing.assert_array_equal(spoilt[others], costs[others])


def _at_rest(posed, distances):
    """Return the problem of staying at the origin, a step long, for one sample."""
    field = DistanceField(distances, np.array([-0.5, -1.0]), 0.5, 0.0)
    return dataclasses.replace(
        posed,
        start=tuple(np.zeros(5, np.float32)),
        plan=np.zeros((1, 2), np.float32),
        noise=np.zeros((1, 2, 1), np.float32),
        field=field,
        origin=np.zeros(2),
    )


@pytest.mark.parametrize("limit", [0.69, 0.705, 0.72])
def test_clearance_is_interpolated_between_four_cells(limit):
    posed = PROBLEMS["diff_drive"][1]
    # The origin lies a whole cell right of the first column, two above the first row: cell [2, 1].
    distances = np.full((4, 3), 5.0, np.float32)
    distances[2, 1] = 0.7
    posed = dataclasses.replace(_at_rest(posed, distances), clearance_limit=np.float32(limit))
    assert _run(SYSTEM, posed)[1][0] == (0.7 < limit)
    # A quarter of a cell further right and up: 9/16, 3/16, 3/16 and 1/16 of the four.
    distances[2:4, 1:3] = [[0.8, 0.4], [0.6, 1.2]]
    expected = (9 * 0.8 + 3 * 0.4 + 3 * 0.6 + 1.2) / 16  # 0.7125
    posed = dataclasses.replace(posed, start=tuple(np.float32([0.125, 0.125, 0.0, 0.0, 0.0])))
    assert _run(SYSTEM, posed)[1][0] == (expected < limit)

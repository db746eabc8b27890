"""Rollouts by several lanes of a warp; the warp is 32 Python threads in lock-step."""

import dataclasses
import math
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from rollout_problems import SYSTEM, float32_tuple, free_problem, problem

from geoaccel_ros.control import rollouts_lanes
from geoaccel_ros.control.rollouts import CpuRollouts, step_functions
from geoaccel_ros.control.systems import load_system


class Warp:
    """What the rollout uses of numba.cuda, for 32 threads that all call the same."""

    def __init__(self):
        self._lane = threading.local()
        self._barrier = threading.Barrier(rollouts_lanes.WARP, timeout=60.0)
        self._values = [None] * rollouts_lanes.WARP

    @property
    def laneid(self):
        return self._lane.number

    def shfl_sync(self, mask, value, lane):
        return self._exchange(value)[lane]

    def shfl_xor_sync(self, mask, value, offset):
        return self._exchange(value)[self.laneid ^ offset]

    def ballot_sync(self, mask, condition):
        return sum(bool(held) << lane for lane, held in enumerate(self._exchange(condition)))

    def ffs(self, word):
        return (int(word) & -int(word)).bit_length()

    def run(self, function):
        """Return what ``function`` returns to each lane."""
        found = [None] * rollouts_lanes.WARP

        def call(lane):
            self._lane.number = lane
            try:
                found[lane] = function(lane)
            except BaseException:
                self._barrier.abort()
                raise

        threads = [threading.Thread(target=call, args=(lane,)) for lane in range(len(found))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def _exchange(self, value):
        self._values[self.laneid] = value
        self._barrier.wait()
        values = list(self._values)
        self._barrier.wait()
        return values


def _float32_functions(system):
    """Return step_functions whose numbers stay float32: to Python, numba returns float64."""

    def of(function):
        def called(*arguments):
            found = function(*arguments)
            return float32_tuple(found) if isinstance(found, tuple) else np.float32(found)

        return called

    return [of(function) for function in step_functions(system)]


def _cost(warp, monkeypatch, system, posed, lanes):
    """Return costs and crashed (K,) of the first 32 / lanes samples, and that all lanes agree."""
    monkeypatch.setattr(rollouts_lanes, "cuda", warp)
    interpreted = SimpleNamespace(njit=lambda **_: lambda function: function)
    monkeypatch.setattr(rollouts_lanes, "numba", interpreted)
    monkeypatch.setattr(rollouts_lanes, "step_functions", _float32_functions)
    rollouts_lanes.lanes_rollout.cache_clear()
    rollout = rollouts_lanes.lanes_rollout(system, lanes)
    rollouts_lanes.lanes_rollout.cache_clear()
    arrays = posed.plan, posed.noise, posed.field.distances, posed.detour.distances
    found = warp.run(lambda lane: rollout(lane // lanes, *arrays, posed.setup))
    for k in range(0, len(found), lanes):
        assert all(
            crash == found[k][1] and (cost == found[k][0] or math.isnan(cost))
            for cost, crash in found[k : k + lanes]
        )
    return np.array([cost for cost, _ in found[::lanes]]), [crash for _, crash in found[::lanes]]


@pytest.mark.parametrize("lanes", [8, 32])
@pytest.mark.parametrize("name", ["diff_drive", "cartpole"])
def test_costs_what_one_thread_finds(monkeypatch, name, lanes):
    system = load_system(name)
    # Obstacles end some of diff_drive's rollouts, and the last steps do not fill a warp.
    posed = problem(seed=5, yaw=0.4) if name == "diff_drive" else free_problem(name, seed=5)
    count = posed.noise.shape[2]
    costs, crashed = np.empty(count, np.float32), np.empty(count, bool)
    CpuRollouts(system, 1).run(posed, costs, crashed)
    some = np.flatnonzero(crashed)[: 16 // lanes]
    chosen = [*some, *np.flatnonzero(~crashed)[: 32 // lanes - len(some)]]
    part = dataclasses.replace(posed, noise=np.ascontiguousarray(posed.noise[:, :, chosen]))
    found, found_crashed = _cost(Warp(), monkeypatch, system, part, lanes)
    np.testing.assert_array_equal(found_crashed, crashed[chosen])
    if name == "diff_drive" and lanes < 32:
        assert 0 < np.count_nonzero(found_crashed) < len(chosen)
    np.testing.assert_allclose(found, costs[chosen], rtol=2e-5)


def test_a_rollout_that_crashes_ends_there(monkeypatch):
    posed = problem(seed=5, yaw=0.4)
    count = posed.noise.shape[2]
    costs, crashed = np.empty(count, np.float32), np.empty(count, bool)
    CpuRollouts(SYSTEM, 1).run(posed, costs, crashed)
    first = np.flatnonzero(crashed)[:1]
    part = dataclasses.replace(posed, noise=np.ascontiguousarray(posed.noise[:, :, first]))
    found, found_crashed = _cost(Warp(), monkeypatch, SYSTEM, part, 32)
    assert found_crashed == [True]
    np.testing.assert_allclose(found, costs[first], rtol=2e-5)


def test_what_is_not_finite_stays_so(monkeypatch):
    posed = problem(seed=5, yaw=0.4)
    noise = np.ascontiguousarray(posed.noise[:, :, :4])
    noise[7, 0, 2] = np.nan
    posed = dataclasses.replace(posed, noise=noise, clearance_limit=np.float32(-1.0))
    found, crashed = _cost(Warp(), monkeypatch, SYSTEM, posed, 8)
    assert not any(crashed)
    np.testing.assert_array_equal(np.isnan(found), [False, False, True, False])

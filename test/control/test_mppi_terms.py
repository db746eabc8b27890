"""What an update tells of its plan's cost and of its own time; costs over sets of parameters."""

import dataclasses

import numpy as np
import pytest
from rollout_problems import free_problem, problem

from geoaccel_ros.control.distance_field import FAR
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.randomisation import RandomisedRollouts, parameter_sets, risk
from geoaccel_ros.control.rollouts import CpuRollouts
from geoaccel_ros.control.systems import load_system

CONFIG = MppiConfig(backend="cpu", samples=256, horizon=30)
STATE = np.array([10.0, -20.0, 3.0, 0.5, 0.1])
GOAL = np.array([14.0, -21.0])


def test_terms_are_those_of_the_plan_along_its_states():
    # The change of the command, too, which counts from the one before.
    mppi = Mppi(CONFIG, parameters=load_system("diff_drive").parameters(change_weight=10.0))
    before = tuple(mppi.update(STATE, GOAL, 0.0).command)
    update = mppi.update(STATE, GOAL, 0.05)
    assert np.abs(before).max() > 0.1
    assert list(update.terms) == [
        *("goal", "heading", "obstacle", "reverse", "turn", "change"),
        *("final_goal", "final_speed"),
    ]
    system = mppi.system
    p = system.pack(system.parameters(change_weight=10.0), np.float64)
    running = np.zeros(6)
    for x, u in zip(update.plan[1:], update.controls, strict=True):
        running += CONFIG.dt * np.array(system.running(x, u, before, GOAL, FAR, 0.0, p))
        before = u
    final = system.terminal(update.plan[-1], GOAL, FAR, 0.0, p)
    np.testing.assert_allclose(list(update.terms.values()), [*running, *final], rtol=1e-4)
    # The best sample is the plan where the mean costs more than this.
    most = update.min_cost + 6.0 * update.temperature
    assert sum(update.terms.values()) <= most * (1.0 + 1e-5)


def test_without_a_plan_there_are_no_terms():
    update = Mppi(CONFIG).update(np.full(5, np.nan), GOAL, 0.0)
    assert update.terms == {} and update.milliseconds == {}


def test_every_stage_is_timed():
    update = Mppi(CONFIG).update(STATE, GOAL, 0.0)
    stages = ["prepare", "sample", "rollouts", "weights", "mean", "choose"]
    assert list(update.milliseconds) == stages
    assert all(value > 0.0 for value in update.milliseconds.values())


@pytest.mark.parametrize("measure", ["mean", "worst", "cvar"])
@pytest.mark.parametrize("name", ["cartpole", "diff_drive"])
def test_costs_of_all_sets_become_one(name, measure):
    system = load_system(name)
    planar = name == "diff_drive"
    posed = problem(seed=5, yaw=0.3) if planar else free_problem(name, seed=1)
    names = ("v_lag", "w_lag") if planar else ("pole_mass", "length")
    chosen = parameter_sets(system, system.parameters(), names, (0.5, 0.3), 4, seed=1)
    sets = [system.pack(values) for values in chosen]
    rollouts, samples = CpuRollouts(system, 1), posed.noise.shape[2]
    costs, crashed = np.empty((4, samples), np.float32), np.empty((4, samples), bool)
    for i, p in enumerate(sets):
        rollouts.run(dataclasses.replace(posed, p=p), costs[i], crashed[i])
    assert len(np.unique(costs[:, 0])) == 4
    assert planar == (crashed.any(axis=0) != crashed.all(axis=0)).any()
    found, met = np.empty(samples, np.float32), np.empty(samples, bool)
    randomised = RandomisedRollouts(rollouts, sets, measure, 0.5)
    randomised.run(posed, found, met)
    expected, expected_met = risk(costs, crashed, measure, 0.5)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(met, expected_met)
    # Those of no weight are not looked at.
    weights = np.array([1.0, 0.0, 1e-4, 2.0])
    RandomisedRollouts(rollouts, sets, measure, 0.5, lambda: weights).run(posed, found, met)
    expected, expected_met = risk(costs[[0, 3]], crashed[[0, 3]], measure, 0.5, weights[[0, 3]])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(met, expected_met)
    # What is drawn and told is with the model's own parameters.
    np.testing.assert_array_equal(randomised.states(posed, 3), rollouts.states(posed, 3))

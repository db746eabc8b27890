"""The number of samples follows what updates took, and the plan goes on."""

import numpy as np
import pytest

from geoaccel_ros.control.adaptive import AdaptiveMppi, SampleBudget
from geoaccel_ros.control.distance_field import DistanceField
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig

PERIOD = 0.05


def test_halving_ends_at_the_least():
    assert SampleBudget(1000, 100, PERIOD).choices == [1000, 500, 250, 125]
    assert SampleBudget(64, 64, PERIOD).choices == [64]
    assert SampleBudget(32, 64, PERIOD).choices == [32]


def test_one_slow_moment_changes_nothing():
    budget = SampleBudget(1024, 64, PERIOD)
    assert not any(budget.took(took) for took in [0.01, 0.2, 0.2, *[0.01] * 18, 0.2, 0.2])
    assert budget.samples == 1024


def test_late_updates_that_persist_halve_the_samples():
    budget = SampleBudget(1024, 64, PERIOD)
    # As fast as the samples are few: 1024 take 0.15 s.
    changes = [budget.took(budget.samples * 0.15 / 1024) for _ in range(40)]
    assert budget.samples == 256 and sum(changes) == 2
    assert changes[2] and changes[5]


def test_nothing_is_below_the_least():
    budget = SampleBudget(128, 64, PERIOD)
    changes = [budget.took(1.0) for _ in range(20)]
    assert budget.samples == 64 and sum(changes) == 1


@pytest.mark.parametrize(("took", "samples"), [(0.019, 1024), (0.021, 512)])
def test_samples_come_back_where_twice_the_time_fits(took, samples):
    budget = SampleBudget(1024, 64, PERIOD)
    for _ in range(3):
        budget.took(0.2)
    assert budget.samples == 512
    for _ in range(99):
        assert not budget.took(took)
    budget.took(took)
    assert budget.samples == samples


def test_the_plan_goes_on_with_other_samples():
    config = MppiConfig(
        samples=256,
        horizon=20,
        dt=0.05,
        sigma=(5.0,),
        sigma_adaptation=0.5,
        smoothing_window=5,
        command_delay=0.0,
        backend="cpu",
    )
    system = Mppi(config, "cartpole").system
    adaptive = AdaptiveMppi(config, "cartpole", system.parameters(), 64, PERIOD)
    state, goal = np.array([0.0, 3.0, 0.0, 0.0]), np.zeros(1)
    before = [adaptive.engine.update(state, goal, 0.05 * i) for i in range(10)][-1]
    first = adaptive.engine
    assert [adaptive.took(1.0) for _ in range(3)] == [False, False, True]
    assert adaptive.samples == 128 and adaptive.engine is not first
    assert adaptive.samples_max == 256
    assert len(adaptive.engine.samples()[0]) == 0  # of an update that was another's
    after = adaptive.engine.update(state, goal, 0.5)
    assert after.plan_age == pytest.approx(0.05)
    assert len(adaptive.engine.samples()[0]) == 128
    # An engine without that past begins with a plan of nothing, and is elsewhere.
    fresh = Mppi(config, "cartpole").update(state, goal, 0.5)
    distance = np.abs(after.controls[:-1] - before.controls[1:]).mean()
    assert distance < 0.5 * np.abs(fresh.controls[:-1] - before.controls[1:]).mean()


def test_a_plan_goes_on_with_other_parameters():
    config = MppiConfig(samples=256, backend="cpu", command_delay=0.0)
    parameters = Mppi(config).system.parameters
    fast, slow = Mppi(config), Mppi(config, parameters=parameters(v_max=0.5))
    state, goal = np.zeros(5), np.array([5.0, 0.0])
    for i in range(20):
        before = fast.update(state, goal, 0.05 * i)
    assert before.controls[:, 0].max() > 0.8
    slow.continue_from(fast)
    after = slow.update(state, goal, 1.0)
    assert after.plan_age == pytest.approx(0.05)
    assert 0.3 < after.controls[:, 0].mean() and after.controls.max() <= 0.5


def test_obstacles_and_commands_go_along():
    config = MppiConfig(samples=64, backend="cpu", smoothing_window=5)
    one, other = Mppi(config), Mppi(config)
    wall = np.full((100, 100), 5.0, np.float32)
    wall[:, 60:] = 0.0
    one.set_obstacles(DistanceField(wall, np.array([-5.0, -5.0]), 0.1, 0.0))
    state = np.zeros(5)
    for i in range(5):
        one.update(state, np.array([3.0, 0.0]), 0.05 * i)
    other.continue_from(one)
    # With the same samples, smoothing looks back at the same commands.
    one._search.reset()
    a, b = (engine.update(state, np.array([3.0, 0.0]), 0.25) for engine in (one, other))
    np.testing.assert_array_equal(a.controls, b.controls)
    assert a.collided_fraction == b.collided_fraction > 0.0

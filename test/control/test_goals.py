import numpy as np
import pytest

from geoaccel_ros.control.goals import GoalConfig, GoalSequence

CONFIG = GoalConfig(goal_tolerance=0.3, goal_speed=0.1)


def at(position, speed):
    return lambda goal, is_last: CONFIG.reached(goal, is_last, np.array(position), speed)


def test_passes_through_the_first_goals_and_stops_at_the_last():
    goals = GoalSequence([(1.0, 0.0), (2.0, 0.0)])
    np.testing.assert_array_equal(goals.current, [1.0, 0.0])
    assert not goals.update(at([0.6, 0.0], 1.0))
    assert goals.update(at([0.8, 0.0], 1.0))
    np.testing.assert_array_equal(goals.current, [2.0, 0.0])
    assert not goals.update(at([2.0, 0.0], 0.5))
    assert not goals.update(at([2.4, 0.0], 0.0))
    assert goals.update(at([2.1, 0.1], 0.05))
    assert goals.finished and goals.current is None and goals.index == 2
    assert not goals.update(at([2.1, 0.1], 0.05))
    np.testing.assert_array_equal(goals.last, [2.0, 0.0])


def test_no_goals_is_finished():
    goals = GoalSequence(np.zeros((0, 2)))
    assert goals.finished and goals.current is None and len(goals) == 0
    assert goals.last is None


def test_goals_must_be_finite():
    with pytest.raises(ValueError, match="finite"):
        GoalSequence([(0.0, np.nan)])

"""The controller on a plant with lag and dead time, a late and noisy pose, and unseen obstacles."""

import numpy as np
import pytest
from yards import RADIUS, Yard, cluttered, dead_end, drive, gap, slalom, wall_ahead

from geoaccel_ros.control.distance_field import empty_field
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig


@pytest.fixture(scope="module")
def mppi():
    return Mppi(MppiConfig(backend="cpu"))


# About twice what it takes at a mean of 1 m/s.
@pytest.mark.parametrize(
    ("yard", "seed", "pose_delay", "limit"),
    [
        pytest.param(wall_ahead(2.0), 0, 0.10, 18.0, id="wall of 2 m"),
        pytest.param(wall_ahead(3.0), 1, 0.15, 20.0, id="wall of 3 m"),
        pytest.param(gap(1.6), 2, 0.10, 18.0, id="gap of 1.6 m"),
        pytest.param(gap(1.6), 3, 0.15, 18.0, id="gap of 1.6 m, later"),
        pytest.param(dead_end(), 4, 0.12, 25.0, id="dead end"),
        pytest.param(slalom(), 5, 0.12, 35.0, id="slalom"),
        pytest.param(cluttered(0, goals=3), 0, 0.10, 60.0, id="yard 0"),
        pytest.param(cluttered(1, goals=3), 1, 0.12, 60.0, id="yard 1"),
        pytest.param(cluttered(2, goals=3), 2, 0.15, 60.0, id="yard 2"),
    ],
)
def test_reaches_all_goals_without_contact(mppi, yard, seed, pose_delay, limit):
    mppi.set_obstacles(empty_field())
    drove = drive(yard, mppi, seed, limit, pose_delay, linger=1.0)
    assert drove.reached == len(yard.goals), f"{drove.reached} goals in {drove.seconds:.0f} s"
    assert drove.min_clearance > RADIUS
    assert drove.final_distance < 0.3
    assert np.abs(drove.trace[-1, 3:]).max() < 0.01


@pytest.mark.parametrize("yaw", [0.0, 1.5, 3.1])
def test_rests_at_a_goal_without_orbiting(mppi, yaw):
    mppi.set_obstacles(empty_field())
    yard = Yard((0.0, 0.0, yaw), [(3.0, 0.5)])
    drove = drive(yard, mppi, 0, limit=16.0, never_finished=True)
    last = drove.trace[-1200:]  # 6 s
    assert np.hypot(*(last[:, :2] - yard.goals[0]).T).max() < 0.3
    assert np.linalg.norm(np.diff(last[:, :2], axis=0), axis=1).sum() < 0.5
    assert np.abs(last[:, 2] - last[0, 2]).max() < 1.0
    # Turning round first costs a bow, not a tour.
    assert drove.path < 1.5 * np.hypot(3.0, 0.5)


@pytest.mark.parametrize("period", [0.035, 0.1])
def test_the_control_period_is_free(mppi, period):
    mppi.set_obstacles(empty_field())
    drove = drive(gap(1.6), mppi, 0, limit=20.0, period=period)
    assert drove.finished and drove.min_clearance > RADIUS

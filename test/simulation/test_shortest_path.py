"""Shortest paths against lengths worked out by hand: a line, tangents and arcs around a box."""

import math

import numpy as np
import pytest

from geoaccel_ros.simulation.floorplan import goals, obstacle_footprints
from geoaccel_ros.simulation.model import load_model
from geoaccel_ros.simulation.shortest_path import shortest_path


def box(x, y, half_x, half_y):
    return np.array(
        [
            (x - half_x, y - half_y),
            (x + half_x, y - half_y),
            (x + half_x, y + half_y),
            (x - half_x, y + half_y),
        ]
    )


def length(path):
    return np.linalg.norm(np.diff(path, axis=0), axis=1).sum()


def test_a_straight_line_ends_where_the_goal_counts_as_reached():
    path = shortest_path(np.zeros(2), np.array([[3.0, 4.0]]), 0.25, [], 0.4)
    # Places around the goal are 11 degrees apart, so the line may miss the nearest by half of that.
    assert length(path) == pytest.approx(4.75, abs=0.25 * (1 - math.cos(math.pi / 32)))
    far = shortest_path(np.zeros(2), np.array([[3.0, 4.0]]), 0.25, [box(-5, 0, 1, 1)], 0.4)
    np.testing.assert_allclose(far, path)


def test_a_goal_on_the_way_to_the_next_costs_nothing():
    path = shortest_path(np.zeros(2), np.array([[3.0, 0.2], [6.0, 0.0]]), 0.25, [], 0.4)
    assert length(path) == pytest.approx(5.75, abs=0.01)


def test_around_a_box():
    # From (-4, 0) to (4, 0) around a box of 2 x 2 m with 0.5 m to spare: a tangent to the circle
    # around the corner (-1, 1), its arc up to the top, 2 m along the top, and all that mirrored.
    clearance, d = 0.5, math.hypot(3.0, 1.0)
    tangent = math.sqrt(d**2 - clearance**2)
    # The tangent's slope: that of the line to the corner and the angle that the circle takes there.
    slope = math.atan2(1.0, 3.0) + math.asin(clearance / d)
    expected = 2 * (tangent + clearance * slope) + 2.0
    path = shortest_path(
        np.array([-4.0, 0.0]), np.array([[4.0, 0.0]]), 1e-6, [box(0, 0, 1, 1)], clearance
    )
    # Tangents in place of the arc make it longer, by at most 0.4 % of the arc.
    assert 0.0 <= length(path) - expected < 0.004 * 2 * clearance * slope + 1e-5


def test_the_shorter_side_of_a_wall_that_is_far_from_the_straight_line():
    wall = box(2.0, 3.0, 0.1, 4.0)  # from y = -1 to 7
    path = shortest_path(np.zeros(2), np.array([[4.0, 2.0]]), 0.1, [wall], 0.3)
    assert path[:, 1].min() == pytest.approx(-1.3, abs=0.01)


def test_a_gap_counts_only_where_the_robot_fits():
    walls = [box(2.0, 5.3, 0.1, 5.0), box(2.0, -5.3, 0.1, 5.0)]  # 0.6 m between them
    start, goal = np.zeros(2), np.array([[4.0, 0.0]])
    assert length(shortest_path(start, goal, 0.1, walls, 0.29)) == pytest.approx(3.9, abs=1e-3)
    assert length(shortest_path(start, goal, 0.1, walls, 0.31)) > 20.0


def test_no_path_out_of_a_closed_room_nor_to_a_goal_in_a_wall():
    room = [box(0, 2, 2.1, 0.1), box(0, -2, 2.1, 0.1), box(2, 0, 0.1, 2.1), box(-2, 0, 0.1, 2.1)]
    assert shortest_path(np.zeros(2), np.array([[5.0, 0.0]]), 0.2, room, 0.3) is None
    big = [box(5.0, 0.0, 2.0, 2.0)]
    assert shortest_path(np.zeros(2), np.array([[5.0, 0.0]]), 0.2, big, 0.3) is None


def test_through_the_yard_it_keeps_its_distance_and_is_little_longer_than_the_lines():
    model = load_model("yard")
    obstacles = obstacle_footprints(model, with_ground=False)
    positions = goals(model)
    path = shortest_path(np.zeros(2), positions, 0.25, obstacles, 0.43)
    straight = length(np.vstack([[0.0, 0.0], positions]))
    # Each goal may be missed by the tolerance; on five legs something stands in the way.
    assert straight - 6 * 2 * 0.25 < length(path) < 1.05 * straight
    dense = np.concatenate([a + np.linspace(0, 1, 200)[:, None] * (b - a)
                            for a, b in zip(path[:-1], path[1:], strict=True)])  # fmt: skip
    for polygon in obstacles:
        for a, b in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
            t = np.clip((dense - a) @ (b - a) / ((b - a) @ (b - a)), 0, 1)
            assert np.linalg.norm(dense - a - t[:, None] * (b - a), axis=1).min() > 0.43 - 1e-5
    for goal in positions:
        assert np.linalg.norm(dense - goal, axis=1).min() < 0.25 + 1e-6

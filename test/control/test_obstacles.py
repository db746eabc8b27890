import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoaccel_ros.control.distance_field import FAR, DistanceField, distances_to, empty_field
from geoaccel_ros.control.obstacles import ObstacleConfig, ObstacleMap, occupied_cells
from geoaccel_ros.registration.frames import mount_matrix

CONFIG = ObstacleConfig(
    obstacle_resolution=0.1, obstacle_window=4.0, obstacle_memory=2.0, obstacle_sightings=1
)


@given(seed=st.integers(0, 1000), count=st.integers(1, 30))
def test_distances_equal_brute_force(seed, count):
    rng = np.random.default_rng(seed)
    occupied = np.zeros((17, 23), bool)
    occupied[rng.integers(0, 17, count), rng.integers(0, 23, count)] = True
    cells = np.argwhere(occupied)
    every = np.stack(np.indices(occupied.shape), -1)
    gaps = np.linalg.norm(every[:, :, None] - cells, axis=-1)
    expected = 0.25 * gaps.min(axis=2)
    np.testing.assert_allclose(distances_to(occupied, 0.25), expected, rtol=1e-6)


def test_no_obstacle_is_far():
    assert (distances_to(np.zeros((4, 5), bool), 0.1) == FAR).all()
    assert empty_field().at(np.array([[3.0, -2.0]]))[0] == FAR


def test_lookup_interpolates_between_cells_and_is_far_outside():
    values = np.array([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]], np.float32)
    field = DistanceField(values, np.array([5.0, -3.0]), 0.5, 0.0)
    points = np.array([[5.0, -3.0], [5.25, -3.0], [5.75, -2.75], [4.9, -3.0], [5.0, -2.4]])
    np.testing.assert_allclose(field.at(points), [0.0, 0.5, 6.5, FAR, FAR], atol=1e-6)


@pytest.mark.parametrize("center", [(0.0, 0.0), (-7.33, 12.87), (1e5 + 0.05, -1e5)])
def test_field_measures_to_the_points_wherever_the_window_is(center):
    center = np.array(center)
    points = center + np.array([[0.7, 0.31], [-1.2, -0.9], [-0.4, 1.5]])
    obstacles = ObstacleMap(CONFIG)
    obstacles.add(points, 1.0)
    field = obstacles.distance_field(center, 1.0)
    asked = center + np.random.default_rng(2).uniform(-1.8, 1.8, (200, 2))
    expected = np.linalg.norm(asked[:, None] - points, axis=2).min(axis=1)
    # A point lies up to 0.071 m from the centre of its cell; interpolation of a cone adds a little.
    np.testing.assert_allclose(field.at(asked), expected, atol=0.071 + 0.03)


def test_an_obstacle_keeps_its_cell_when_the_robot_moves():
    obstacles = ObstacleMap(CONFIG)
    obstacles.add(np.array([[0.52, 0.13]]), 0.0)
    first = obstacles.distance_field(np.array([0.0, 0.0]), 0.0)
    second = obstacles.distance_field(np.array([0.333, -0.21]), 0.0)
    at = np.array([[0.8, 0.4]])
    assert first.at(at)[0] == pytest.approx(second.at(at)[0], abs=1e-6)


def test_obstacles_are_forgotten_after_the_memory_and_seen_again():
    obstacles = ObstacleMap(CONFIG)
    obstacles.add(np.array([[1.0, 0.0]]), 0.0)
    obstacles.add(np.array([[-1.0, 0.0]]), 1.5)
    near_first = np.array([[1.0, 0.0]])
    assert obstacles.distance_field(np.zeros(2), 2.0).at(near_first)[0] < 0.1
    assert obstacles.distance_field(np.zeros(2), 2.1).at(near_first)[0] > 1.8
    obstacles.add(near_first, 2.2)
    assert obstacles.distance_field(np.zeros(2), 2.2).at(near_first)[0] < 0.1


def test_a_cell_must_be_seen_by_as_many_clouds_as_asked_for():
    obstacles = ObstacleMap(dataclasses.replace(CONFIG, obstacle_sightings=2))
    once, twice = np.array([[1.0, 0.0]]), np.array([[-1.0, 0.0]])

    def clearances():
        return obstacles.distance_field(np.zeros(2), 0.2).at(np.vstack((once, twice)))

    # The first cloud has no other to agree with.
    obstacles.add(np.vstack((once, once + 0.01, twice)), 0.0)
    assert (clearances() < 0.1).all()
    obstacles.add(twice, 0.1)
    assert clearances()[0] > 1.8 and clearances()[1] < 0.1
    obstacles.add(once, 0.2)
    assert (clearances() < 0.1).all()


def test_time_that_goes_back_forgets_the_future():
    obstacles = ObstacleMap(CONFIG)
    obstacles.add(np.array([[1.0, 0.0]]), 100.0)
    obstacles.add(np.array([[-1.0, 0.0]]), 1.0)
    field = obstacles.distance_field(np.zeros(2), 1.0)
    assert field.at(np.array([[1.0, 0.0]]))[0] > 1.8


def test_outside_the_window_and_broken_points_do_not_count():
    obstacles = ObstacleMap(CONFIG)
    obstacles.add(np.array([[2.5, 0.0], [np.nan, 0.0], [0.0, math.inf]]), 0.0)
    assert (obstacles.distance_field(np.zeros(2), 0.0).distances == FAR).all()
    obstacles.add(np.zeros((0, 2)), 0.1)
    assert (obstacles.distance_field(np.zeros(2), 0.1).distances == FAR).all()


def test_field_has_the_dtype_that_the_rollouts_are_compiled_for():
    obstacles = ObstacleMap(CONFIG)
    for points in (np.zeros((0, 2)), np.ones((1, 2))):
        obstacles.add(points, 0.0)
        distances = obstacles.distance_field(np.zeros(2), 0.0).distances
        assert distances.dtype == np.float32 and distances.flags.c_contiguous


@pytest.mark.parametrize("side", [0.05, 0.1, 0.35])
@pytest.mark.parametrize("turn", [0.0, math.pi / 4, 2.0])
def test_a_map_s_cells_are_covered_and_little_else(side, turn):
    rng = np.random.default_rng(3)
    occupied = rng.random((12, 9)) < 0.3
    T_odom_map = mount_matrix([5.03, -7.77, 0.0, 0.0, 0.0, turn])
    found = occupied_cells(occupied, side, T_odom_map, 0.1)
    rows, columns = np.nonzero(occupied)
    # The centres of the map's cells lie in cells that are occupied.
    centers = np.stack([columns + 0.5, rows + 0.5, np.zeros(len(rows))], axis=1) * [side, side, 1]
    centers = (centers @ T_odom_map[:3, :3].T + T_odom_map[:3, 3])[:, :2]
    index = np.floor(centers / 0.1).astype(int) - found.first
    assert found.occupied[index[:, 1], index[:, 0]].all()
    # Nothing is further from all of them than the corners of both cells are from their centres,
    # and a cell of the grid that lies in one of the map is never left out.
    y, x = np.indices(found.occupied.shape)
    cells = (np.stack([x, y], axis=-1) + found.first + 0.5) * 0.1
    gaps = np.linalg.norm(cells[:, :, None] - centers, axis=-1).min(axis=2)
    assert gaps[found.occupied].max() <= (side + 0.1) * math.sqrt(0.5) + 1e-9
    if side > 0.1:
        assert found.occupied[gaps < (side - 0.1 * math.sqrt(2)) / 2].all()


def test_a_map_s_obstacles_stay_and_move_through_the_window():
    # A wall of one row, 10 m long, at y = 1.
    wall = occupied_cells(
        np.ones((1, 100), bool), 0.1, mount_matrix([-5.0, 1.0, 0.0, 0.0, 0.0, 0.0]), 0.1
    )
    obstacles = ObstacleMap(CONFIG)
    obstacles.fixed = wall
    obstacles.add(np.array([[0.05, -1.05]]), 0.0)
    for x, stamp in ((0.0, 0.0), (4.0, 100.0)):
        field = obstacles.distance_field(np.array([x, 0.0]), stamp)
        assert field.at([[x + 0.05, 0.05]])[0] == pytest.approx(1.0, abs=1e-6)
    # Beyond its end, at x = 5, and far from it; the cloud's point is long forgotten.
    assert field.at([[5.95, 1.05]])[0] == pytest.approx(1.0, abs=1e-6)
    away = obstacles.distance_field(np.array([0.0, 50.0]), 100.0)
    assert away.at([[0.0, 50.0]])[0] == FAR
    obstacles.fixed = occupied_cells(np.zeros((3, 3), bool), 0.1, np.eye(4), 0.1)
    assert obstacles.distance_field(np.zeros(2), 100.0).at([[0.0, 0.0]])[0] == FAR


def test_a_map_that_takes_too_much_memory_is_refused():
    with pytest.raises(ValueError, match="occupied cells of 100 m are too many"):
        occupied_cells(np.ones((10, 10), bool), 100.0, np.eye(4), 0.01)
    corners = np.zeros((1000, 1000), bool)
    corners[0, 0] = corners[-1, -1] = True
    with pytest.raises(ValueError, match="span 10000 x 10000 cells of 0.1 m"):
        occupied_cells(corners, 1.0, np.eye(4), 0.1)

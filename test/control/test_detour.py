import numpy as np

from geoaccel_ros.control.detour import detour
from geoaccel_ros.control.distance_field import DistanceField, distances_to, empty_field


def _field(occupied):
    """A field of 0.1 m cells around (0, 0)."""
    rows, columns = occupied.shape
    origin = np.array([-0.05 * (columns - 1), -0.05 * (rows - 1)])
    return DistanceField(distances_to(occupied, 0.1), origin, 0.1, 0.0)


def test_nothing_in_the_way_is_no_detour():
    around = detour(_field(np.zeros((120, 120), bool)), np.array([3.0, 2.0]), 0.4)
    # The scheme is of first order: its error grows with the way, towards the diagonals.
    assert around.distances.max() < 0.3
    assert detour(empty_field(), np.array([3.0, 2.0]), 0.4).distances.max() == 0.0


def test_way_around_a_wall_has_the_length_that_geometry_says():
    occupied = np.zeros((121, 121), bool)
    occupied[40:81, 60] = True  # x = 0, y from -2 to 2
    limit = 0.4
    around = detour(_field(occupied), np.array([3.0, 0.0]), limit)
    # Straight to the circle of the limit around the wall's end, along it, and straight on.
    to_end = np.hypot(3.0, 2.0)
    tangent = np.sqrt(to_end**2 - limit**2)
    turned = np.pi - 2.0 * (np.arccos(limit / to_end) - np.arctan2(2.0, 3.0))
    expected = 2.0 * tangent + limit * turned - 6.0
    found = around.at(np.array([[-3.0, 0.0]]))[0]
    # Cells of 0.2 m round the wall up by as much; the scheme's first order adds 3 %; and the last
    # ROOM beside the wall counts up to TIGHT times, for about twice its width.
    assert expected - 0.1 < found < expected + 0.5 + 0.4
    # From the goal's own side no detour.
    assert around.at(np.array([[1.0, 1.0]]))[0] < 0.2


def test_following_it_leads_out_of_a_dead_end():
    occupied = np.zeros((121, 121), bool)
    occupied[40:81, 80] = True  # a U, open to the left, the goal behind its bottom
    occupied[40, 40:81] = True
    occupied[80, 40:81] = True
    goal = np.array([4.0, 0.0])
    around = detour(_field(occupied), goal, 0.4)
    place = np.array([1.0, 0.0])
    angles = np.linspace(-np.pi, np.pi, 32, endpoint=False)
    ring = 0.3 * np.column_stack((np.cos(angles), np.sin(angles)))
    path = [place]
    for _ in range(80):
        options = path[-1] + ring
        total = np.linalg.norm(options - goal, axis=1) + around.at(options)
        path.append(options[np.argmin(total)])
        if np.linalg.norm(path[-1] - goal) < 0.4:
            break
    path = np.array(path)
    assert np.linalg.norm(path[-1] - goal) < 0.4
    assert path[:, 0].min() < -1.8  # it left by the opening
    assert _field(occupied).at(path).min() > 0.2


def test_goal_outside_is_approached_by_the_border():
    occupied = np.zeros((121, 121), bool)
    occupied[:80, 90] = True
    around = detour(_field(occupied), np.array([20.0, 0.0]), 0.4)
    assert np.isfinite(around.distances).all()
    straight_on = around.at(np.array([[2.5, -1.0]]))[0]
    over_the_top = around.at(np.array([[2.5, 4.0]]))[0]
    assert straight_on > 1.0 and over_the_top < 0.3


def test_a_robot_or_a_goal_where_there_is_no_room_still_has_a_way():
    occupied = np.zeros((121, 121), bool)
    occupied[55:66, 55:66] = True
    for goal in ((0.0, 0.0), (3.0, 0.0)):
        around = detour(_field(occupied), np.array(goal), 0.4)
        assert np.isfinite(around.distances).all()
        assert around.distances.max() < 100.0

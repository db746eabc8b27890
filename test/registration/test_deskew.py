import numpy as np
import pytest

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.deskew import deskew


@pytest.mark.parametrize("rate", [0.0, 1e-7, 0.5, 4.0])
def test_deskew_undoes_a_known_motion_exactly(rate):
    rng = np.random.default_rng(1)
    twist = np.array([3.0, -1.0, 0.5, 0.2 * rate, -0.1 * rate, rate])
    T_world_start = se3.exp(np.array([5.0, -2.0, 1.0, 0.1, 0.2, 2.0]))
    times = rng.uniform(0.0, 0.1, 500)
    world = rng.uniform(-20, 20, (500, 3))
    # What the sensor sees of each world point at its own time.
    seen = np.empty_like(world)
    for i, t in enumerate(times):
        pose = se3.inverse(T_world_start @ se3.exp(twist * t))
        seen[i] = pose[:3, :3] @ world[i] + pose[:3, 3]
    instant = 0.1
    at_end = se3.inverse(T_world_start @ se3.exp(twist * instant))
    expected = world @ at_end[:3, :3].T + at_end[:3, 3]
    np.testing.assert_allclose(deskew(seen, times, twist, instant), expected, atol=1e-9)


def test_deskew_over_a_large_turn():
    twist = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 8.0])
    points, times = np.array([[1.0, 2.0, 3.0]] * 3), np.array([-1.0, 0.0, 0.7])
    expected = [(se3.exp(twist * t) @ [1, 2, 3, 1])[:3] for t in times]
    np.testing.assert_allclose(deskew(points, times, twist, 0.0), expected, atol=1e-12)


def test_deskew_without_motion_changes_nothing():
    points = np.random.default_rng(2).normal(size=(10, 3)).astype(np.float32)
    moved = deskew(points, np.linspace(0, 0.1, 10), np.zeros(6), 0.1)
    np.testing.assert_array_equal(moved, points.astype(float))

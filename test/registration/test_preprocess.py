import numpy as np
import pytest

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.preprocess import deskew, voxel_filter


def _expected(xyz, voxel, min_range=0.0, max_range=np.inf):
    seen, kept = set(), []
    for i, point in enumerate(xyz):
        if not np.all(np.isfinite(point)):
            continue
        if not min_range <= np.linalg.norm(point) <= max_range:
            continue
        key = tuple(np.floor(point / voxel).astype(int))
        if key not in seen:
            seen.add(key)
            kept.append(i)
    return kept


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_keeps_the_first_point_of_each_voxel(dtype):
    xyz = np.random.default_rng(0).normal(0.0, 3.0, (3000, 3)).astype(dtype)
    # A power of two: the product with its inverse rounds as the division does.
    kept = voxel_filter(xyz, 0.5)
    assert kept.tolist() == _expected(xyz.astype(float), 0.5)


def test_drops_what_is_out_of_range_or_not_finite():
    xyz = np.array(
        [
            [0, 0, 0],
            [np.nan, 1, 1],
            [1, np.inf, 1],
            [1, -np.inf, 1],
            [1, 1, 1],
            [50, 0, 0],
            [9, 0, 0],
        ]
    )
    assert voxel_filter(xyz, 0.25, 0.5, 20.0).tolist() == [4, 6]
    # Without bounds: still only finite ones.
    assert voxel_filter(xyz, 0.25).tolist() == [0, 4, 5, 6]


def test_half_zeros_and_duplicates_end():
    xyz = np.vstack([np.zeros((50_000, 3)), np.ones((50_000, 3))])
    assert voxel_filter(xyz, 0.25, 0.5).tolist() == [50_000]


def test_takes_views_read_only_arrays_and_none_at_all():
    table = np.random.default_rng(0).normal(0.0, 3.0, (100, 5)).astype(np.float32)
    view = table[:, 1:4]
    view.flags.writeable = False
    assert voxel_filter(view, 0.5).tolist() == voxel_filter(view.astype(float), 0.5).tolist()
    assert voxel_filter(np.empty((0, 3)), 0.5).tolist() == []


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

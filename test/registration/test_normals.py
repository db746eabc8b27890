import numpy as np
import pytest

from geoaccel_ros.registration.kdtree.tree import KdTree
from geoaccel_ros.registration.local_frame import frame_of, to_local, usable
from geoaccel_ros.registration.normals import NEIGHBOURS, estimate_normals
from geoaccel_ros.registration.voxels import voxel_means
from geoaccel_ros.threads import Threads


def normals_of(points, threads=1):
    """Normals in the order of the points."""
    tree = KdTree(points)
    normals = np.empty((len(points), 3))
    normals[tree.order] = estimate_normals(tree, Threads(threads)).T
    return normals


def test_equal_those_of_an_eigenvalue_routine():
    points = np.random.default_rng(0).normal(size=(2000, 3)) * [1.0, 2.0, 0.7]
    found = normals_of(points, 2)
    _, neighbours = KdTree(points).neighbours(points, NEIGHBOURS[0])
    indices, _ = KdTree(points).neighbours(points, NEIGHBOURS[0])
    group = points[indices] - points[indices].mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(group.transpose(0, 2, 1) @ group)
    # Where the two thinnest directions are nearly alike, or the points nearly on a line, either
    # answer is right.
    clear = (values[:, 0] < 0.9 * values[:, 1]) & (values[:, 1] > 0.21 * values[:, 2])
    assert clear.mean() > 0.7
    cosines = np.abs(np.sum(found * vectors[:, :, 0], axis=1))[clear]
    np.testing.assert_allclose(cosines, 1.0, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-6)


def test_plane_and_ball():
    rng = np.random.default_rng(1)
    plane = np.column_stack([rng.uniform(-5, 5, (3000, 2)), np.full(3000, 2.0)])
    np.testing.assert_allclose(np.abs(normals_of(plane)[:, 2]), 1.0, atol=1e-6)
    ball = rng.normal(size=(20_000, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    cosines = np.abs(np.sum(normals_of(ball) * ball, axis=1))
    # The patch of 20 of 20,000 points on a unit ball is 0.06 wide.
    assert np.percentile(cosines, 1) > 0.998


def test_rings_of_a_lidar_do_not_lie():
    """Rings 0.5 m apart on the floor with points 0.02 m apart: 20 neighbours are one ring's."""
    rng = np.random.default_rng(2)
    rings = []
    for radius in (5.0, 5.3, 5.6):
        angle = np.arange(0, 0.7, 0.02 / radius)
        rings.append(np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]))
    flat = np.vstack(rings)
    points = np.column_stack([flat, np.full(len(flat), -1.7)]) + rng.normal(
        0, 0.005, (len(flat), 3)
    )
    cosines = np.abs(normals_of(points)[:, 2])
    assert np.median(cosines) > 0.99


@pytest.mark.parametrize("count", [1, 2, 3, 19, 25])
def test_few_points_give_unit_vectors(count):
    points = np.random.default_rng(3).normal(size=(count, 3))
    found = normals_of(points)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-6)
    same = normals_of(np.ones((count, 3)))
    np.testing.assert_allclose(np.linalg.norm(same, axis=1), 1.0, atol=1e-6)


def test_frame_and_local_points_at_utm_coordinates():
    offset = np.array([512_700.0, 5_403_548.0, 300.0])
    points = np.random.default_rng(4).normal(0, 10, (10_000, 3)) + offset
    origin, radius = frame_of(points)
    assert np.linalg.norm(origin - offset) < 1.0
    assert radius == pytest.approx(10 * np.sqrt(3), rel=0.05)
    local = to_local(points, origin, Threads(3))
    assert local.dtype == np.float32 and local.shape == (3, 10_000)
    # Half a step of float32 below 64 m.
    np.testing.assert_allclose(local.T.astype(float) + origin, points, atol=2e-6)
    assert frame_of(np.empty((0, 3))).radius == 0.0


def test_usable_leaves_out_what_is_not_finite_and_repeated_zeros():
    points = np.arange(30.0).reshape(10, 3)
    assert usable(points, "cloud") is points
    # One point at zero is a point.
    points[4] = 0.0
    assert len(usable(points, "cloud")) == 10
    points[5] = 0.0
    np.testing.assert_array_equal(usable(points, "cloud"), np.delete(points, [4, 5], axis=0))
    points[0, 1], points[9, 2] = np.nan, -np.inf
    np.testing.assert_array_equal(usable(points, "cloud"), np.delete(points, [0, 4, 5, 9], axis=0))
    assert usable(np.zeros((0, 3)), "cloud").shape == (0, 3)
    assert len(usable(np.ones((3, 3), int), "cloud")) == 3
    with pytest.raises(ValueError, match=r"cloud has shape \(3,\)"):
        usable(np.zeros(3), "cloud")
    with pytest.raises(ValueError, match="cloud is of <U1, must be numbers"):
        usable(np.full((2, 3), "a"), "cloud")


def test_voxel_means_by_hand_and_against_numpy():
    points = np.array([[0.1, 0.1, 0.1], [0.9, 0.5, 0.3], [-0.1, 0.0, 0.0], [1.5, 0.0, 0.0]])
    means = voxel_means(points, 1.0)
    np.testing.assert_allclose(means, [[0.5, 0.3, 0.2], [-0.1, 0, 0], [1.5, 0, 0]])
    offset = np.array([512_700.0, 5_403_548.0, 300.0])
    cloud = np.random.default_rng(5).uniform(-5, 5, (5000, 3)) + offset
    keys, place = np.unique(np.floor(cloud / 0.7), axis=0, return_inverse=True)
    expected = np.array([cloud[place.ravel() == k].mean(axis=0) for k in range(len(keys))])
    found = voxel_means(cloud, 0.7)
    np.testing.assert_allclose(
        found[np.lexsort(found.T)], expected[np.lexsort(expected.T)], atol=1e-8
    )
    assert voxel_means(np.empty((0, 3)), 1.0).shape == (0, 3)

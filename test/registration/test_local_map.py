import numpy as np
import pytest

from geoaccel_ros.registration.local_map import (
    LINE,
    NONE,
    PLANE,
    POINT,
    LocalMap,
    smallest_eigenvector,
)
from geoaccel_ros.threads import Threads

VOXEL = 0.5


def make(radius=100.0, capacity=10_000, origin=(0.0, 0.0, 0.0)):
    return LocalMap(VOXEL, radius, capacity, np.array(origin))


def by_voxel(points):
    groups = {}
    for point in points:
        groups.setdefault(tuple(np.floor(point / VOXEL).astype(int)), []).append(point)
    return {key: np.array(group) for key, group in groups.items()}


def keys_of(local):
    return [tuple(key) for key in np.floor(local.means / VOXEL).astype(int)]


def test_gaussians_equal_brute_force_over_several_additions():
    rng = np.random.default_rng(0)
    parts = [rng.normal(0.0, 1.0, (2000, 3)) for _ in range(3)]
    local = make()
    for part in parts:
        local.add(part, np.zeros(3))
    groups = by_voxel(np.vstack(parts))
    assert local.size == len(groups)
    for i, key in enumerate(keys_of(local)):
        group = groups[key]
        if len(group) > 100:
            continue  # beyond the cap old points count less
        assert local.counts[i] == len(group)
        np.testing.assert_allclose(local.means[i], group.mean(axis=0), atol=1e-12)
        covariance = np.cov(group.T, bias=True) if len(group) > 1 else np.zeros((3, 3))
        np.testing.assert_allclose(local.covariances[i], covariance, atol=1e-12)


def test_a_voxel_forgets_slowly_once_it_is_full():
    local = make()
    local.add(np.full((1000, 3), 0.1), np.zeros(3))
    local.add(np.full((300, 3), 0.3), np.zeros(3))
    assert local.counts[0] == 100.0
    # (99/100)^300 = 0.05 of the old mean is left.
    np.testing.assert_allclose(local.means[0], 0.3 - 0.2 * 0.99**300, atol=1e-9)


def test_planes_lines_and_what_is_neither():
    rng = np.random.default_rng(1)
    normal = np.array([1.0, 2.0, 3.0]) / np.sqrt(14.0)
    basis = np.linalg.svd(normal[None])[2][1:]
    plane = rng.uniform(-3, 3, (8000, 2)) @ basis + rng.normal(0, 0.01, (8000, 1)) * normal
    along = np.array([0.6, 0.8, 0.0])
    ring = np.array([20.0, 0, 0]) + rng.uniform(-3, 3, (2000, 1)) * along
    pole = np.array([40.0, 0, 0]) + rng.uniform(-3, 3, (2000, 1)) * [0.1, 0.0, 1.0]
    lines = np.vstack([ring, pole]) + rng.normal(0, 0.005, (4000, 3))
    ball = np.array([-20.0, 0, 0]) + rng.uniform(-1.5, 1.5, (20_000, 3))
    local = make(capacity=40_000)
    local.add(np.vstack([plane, lines, ball]), np.zeros(3))
    x = local.means[:, 0]
    on_plane, on_ring, on_pole = np.abs(x) < 5.0, np.abs(x - 20) < 5.0, x > 30.0
    assert np.mean(local.kinds[on_plane] == PLANE) > 0.98
    cosines = np.abs(local.normals[on_plane & (local.kinds == PLANE)] @ normal)
    assert np.degrees(np.arccos(np.minimum(cosines, 1.0))).max() < 5.0
    assert np.mean(local.kinds[on_ring] == LINE) > 0.9
    cosines = np.abs(local.normals[on_ring & (local.kinds == LINE)] @ along)
    assert np.degrees(np.arccos(np.minimum(cosines, 1.0))).max() < 5.0
    assert np.mean(local.kinds[on_pole] == POINT) > 0.9
    assert np.abs(local.normals[on_pole & (local.kinds == POINT), 2]).min() > 0.98
    in_ball = np.linalg.norm(local.means + [20.0, 0, 0], axis=1) < 1.0
    assert np.mean(local.kinds[in_ball] == POINT) > 0.9 and not local.normals[in_ball].any()


def test_in_the_plane_a_line_has_a_normal_across_it():
    rng = np.random.default_rng(1)
    along, across = np.array([0.6, 0.8, 0.0]), np.array([-0.8, 0.6, 0.0])
    line = rng.uniform(-5, 5, (3000, 1)) * along + rng.normal(0, 0.01, (3000, 1)) * across
    heap = np.array([20.0, 0, 0]) + rng.uniform(-1.5, 1.5, (5000, 3)) * [1, 1, 0]
    local = LocalMap(VOXEL, 100.0, 10_000, np.zeros(3), planar=True)
    local.add(np.vstack([line, heap]), np.zeros(3))
    on_line = local.means[:, 0] < 10.0
    np.testing.assert_allclose(np.abs(local.normals[on_line] @ across), 1.0, atol=0.01)
    assert np.mean(local.kinds[~on_line] == POINT) > 0.9


# The first two by the hash, the others by the tree.
@pytest.mark.parametrize("radius", [0.1, 0.9, 1.1, 6.0])
def test_nearest_mean_equals_brute_force(radius):
    rng = np.random.default_rng(5)
    local = LocalMap(VOXEL, 100.0, 10_000, np.array([7.0, -3.0, 90.0]), threads=Threads(2))
    queries = rng.uniform(-6, 6, (3000, 3))
    indices = np.full(3000, -1, np.int64)
    for _ in range(2):  # also once it has grown, from the former matches
        local.add(rng.normal(0.0, 2.0, (1500, 3)) + local.origin, local.origin)
        local.nearest(queries, radius, indices)
        distances = np.linalg.norm(local.means[None] - queries[:, None], axis=2)
        nearest = distances.min(axis=1)
        assert ((indices >= 0) == (nearest <= radius)).all()
        found = indices >= 0
        # The tree compares in float32.
        np.testing.assert_allclose(
            distances[np.flatnonzero(found), indices[found]], nearest[found], atol=1e-5
        )


def test_a_few_points_have_no_normal():
    local = make()
    local.add(np.array([[0.1, 0.1, 0.1], [0.2, 0.1, 0.1], [0.1, 0.2, 0.1]]), np.zeros(3))
    assert local.size == 1 and local.kinds[0] == NONE and not local.normals.any()


# An origin as far from zero as the centre then moves from it, and one of UTM size.
@pytest.mark.parametrize("origin", [0.0, 12.0, 512_700.0])
def test_forgets_beyond_the_radius(origin):
    origin = np.array([origin, 0.0, 0.0])
    local = make(radius=10.0, origin=origin)
    local.add(origin + [[0.1, 0, 0], [9.0, 0, 0]], origin)
    local.add(origin + [[20.0, 0, 0]], origin + [12.0, 0.0, 0.0])
    assert sorted(local.points()[:, 0] - origin[0]) == [9.0, 20.0]
    # What was kept is still found: a second point in its voxel does not make a new one.
    local.add(origin + [[9.1, 0.1, 0.1]], origin + [12.0, 0.0, 0.0])
    assert local.size == 2


def test_capacity_is_kept_and_the_nearest_stay():
    rng = np.random.default_rng(2)
    local = make(capacity=1000)
    for _ in range(20):
        local.add(rng.uniform(-50, 50, (400, 3)), np.zeros(3))
        assert local.size <= 1000
    # Far voxels made room: what is left is nearer than chance would have it.
    assert np.linalg.norm(local.means, axis=1).mean() < 40.0
    local.add(rng.uniform(-50, 50, (3000, 3)), np.zeros(3))
    assert local.size <= 1000


def test_coordinates_of_utm_size_lose_nothing():
    origin = np.array([512_700.0, 5_403_548.0, 300.0])
    points = np.random.default_rng(3).normal(0.0, 2.0, (500, 3))
    near, far = make(), make(origin=origin)
    near.add(points, np.zeros(3))
    far.add(points + origin, origin)
    # One part in 2^52 of 5.4e6 m is 1e-9 m.
    np.testing.assert_allclose(far.means, near.means, atol=1e-8)
    np.testing.assert_allclose(far.points(), near.means + origin, atol=1e-8)


def test_no_points_change_nothing():
    local = make()
    local.add(np.empty((0, 3)), np.zeros(3))
    assert local.size == 0 and local.points().shape == (0, 3)


@pytest.mark.parametrize("scales", [(1e-4, 1.0, 2.0), (0.0, 1.0, 1.0), (1e-6, 1e-3, 1.0)])
def test_smallest_eigenvector_equals_lapack(scales):
    rng = np.random.default_rng(4)
    for _ in range(50):
        rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        matrix = rotation @ np.diag(scales) @ rotation.T
        vector = np.empty(3)
        values = smallest_eigenvector(
            matrix[0, 0],
            matrix[0, 1],
            matrix[0, 2],
            matrix[1, 1],
            matrix[1, 2],
            matrix[2, 2],
            vector,
        )
        np.testing.assert_allclose(values, scales, atol=1e-7)
        assert abs(vector @ rotation[:, 0]) > 1.0 - 1e-6


def test_smallest_eigenvector_of_a_sphere_is_a_unit_vector():
    vector = np.empty(3)
    assert smallest_eigenvector(2.0, 0.0, 0.0, 2.0, 0.0, 2.0, vector) == (2.0, 2.0, 2.0)
    assert np.linalg.norm(vector) == 1.0

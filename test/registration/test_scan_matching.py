import numpy as np
import pytest

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.deskew import deskew
from geoaccel_ros.registration.local_map import NONE, PLANE, LocalMap
from geoaccel_ros.registration.scan_matching import ScanMatcher
from geoaccel_ros.threads import Threads

ORIGIN = np.array([400_000.0, -20.0, 3.0])


def room():
    """A map of a floor, two walls and twigs without a surface, and points near them."""
    rng = np.random.default_rng(0)
    u, v = rng.uniform(-5, 5, (2, 6000))
    flat = np.zeros(6000)
    twigs = rng.uniform(-4, 4, (60, 3))
    world = np.vstack([np.c_[u, v, flat], np.c_[u, flat + 5, v], np.c_[flat - 5, u, v], twigs])
    local_map = LocalMap(0.5, 100.0, 20_000, ORIGIN)
    local_map.add(world + ORIGIN, ORIGIN)
    points = world[::15] + rng.normal(0, 0.03, (len(world[::15]), 3))
    return local_map, points, rng.uniform(-0.05, 0.05, len(points))


def matcher(local_map, points, ages, tolerance=0.1, least_deviation=0.02, threads=1):
    return ScanMatcher(local_map, points, ages, tolerance, least_deviation, Threads(threads))


def brute_force(local_map, moved, radius):
    distances = np.linalg.norm(local_map.means[None] - moved[:, None], axis=2)
    matches = distances.argmin(axis=1)
    matches[distances.min(axis=1) > radius] = -1
    return matches


POSE = se3.exp(np.array([0.01, -0.02, 0.01, 0.002, 0.001, -0.003]))
POSE[:3, 3] += ORIGIN
TWIST = np.array([0.3, 0.1, 0.0, 0.1, -0.2, 0.3])


@pytest.mark.parametrize("radius", [0.4, 3.0])
def test_gradient_is_the_cost_s_derivative_for_pose_and_twist(radius):
    local_map, points, ages = room()
    planar = local_map.kinds == PLANE

    def moved_by(pose, twist):
        return se3.apply(pose, deskew(points, ages, twist, 0.0)) - ORIGIN

    matches = brute_force(local_map, moved_by(POSE, TWIST), radius)
    matched = (matches >= 0) & (local_map.kinds[matches] != NONE)
    assert planar[matches[matched]].sum() > 500 and (~planar[matches[matched]]).sum() > 20

    def cost(step):
        turned = np.concatenate([POSE[:3, :3].T @ step[6:9], POSE[:3, :3].T @ step[9:]])
        moved = moved_by(se3.perturbed(POSE, step[:6]), TWIST + turned)
        errors = (moved - local_map.means[matches])[matched]
        # Along a plane's normal; across what is long.
        along = np.sum(errors * local_map.normals[matches[matched]], axis=1)
        plane, across = along, np.sum(errors**2, axis=1) - along**2
        # A width so large that the kernel is 1: 0.5 sum of squares, with 0.01 off planes.
        off_plane = 0.01 * across
        return 0.5 * np.sum(np.where(planar[matches[matched]], plane**2, off_plane))

    found = matcher(local_map, points, ages, least_deviation=1e6).linearise(POSE, TWIST, radius)
    steps = 1e-4 * np.eye(12)
    numeric = np.array([(cost(s) - cost(-s)) / 2e-4 for s in steps])
    # Coordinates of the UTM size are rounded to 6e-11 m, which the differences divide by 2e-4.
    np.testing.assert_allclose(found.gradient[:6], numeric[:6], rtol=1e-4, atol=1e-3)
    # The twist turns points about where they are, not where the pose's axes have them: second
    # order in age times rate, 0.02 here.
    np.testing.assert_allclose(found.gradient[6:], numeric[6:], atol=0.03 * abs(numeric[6:]).max())
    np.testing.assert_allclose(found.hessian, found.hessian.T)
    assert np.linalg.eigvalsh(found.hessian).min() > 0.0


def test_hessian_is_the_sum_over_its_rows():
    local_map, points, ages = room()
    found = matcher(local_map, points, ages, least_deviation=1e6).linearise(POSE, TWIST, 0.4)
    moved = se3.apply(POSE, deskew(points, ages, TWIST, 0.0)) - ORIGIN
    levers = moved - (POSE[:3, 3] - ORIGIN)
    matches = brute_force(local_map, moved, 0.4)
    expected = np.zeros((12, 12))
    for lever, age, match in zip(levers, ages, matches, strict=True):
        if match < 0 or local_map.kinds[match] == NONE:
            continue
        normal = local_map.normals[match]
        across = np.eye(3) - np.outer(normal, normal)
        axes, weight = ([normal], 1.0) if local_map.kinds[match] == PLANE else (across, 0.01)
        for axis in axes:
            row = np.concatenate([axis, np.cross(lever, axis)])
            row = np.concatenate([row, age * row])
            expected += weight * np.outer(row, row)
    np.testing.assert_allclose(found.hessian, expected, rtol=1e-6, atol=1e-6)


def test_matches_are_kept_until_asked_for_anew():
    local_map, points, ages = room()
    scan = matcher(local_map, points, ages)
    near = scan.linearise(POSE, TWIST, 0.4)
    away = POSE.copy()
    away[:3, 3] += [0.0, 0.0, 30.0]
    # With the old matches every point is too far off; searched anew there are none.
    kept = scan.linearise(away, TWIST, None)
    assert near.inliers > 500 and kept.inliers < near.inliers and kept.hessian.any()
    assert not scan.linearise(away, TWIST, 0.4).hessian.any()


def test_a_scan_that_is_not_bent_says_nothing_of_the_twist():
    local_map, points, ages = room()
    found = matcher(local_map, points, ages).linearise(POSE, TWIST, 0.4, bent=False)
    assert found.hessian[:6, :6].any() and not found.hessian[6:].any()
    assert not found.gradient[6:].any()


def test_threads_change_nothing_but_the_order_of_sums():
    local_map, points, ages = room()
    points, ages = np.tile(points, (4, 1)), np.tile(ages, 4)
    one = matcher(local_map, points, ages).linearise(POSE, TWIST, 0.4)
    three = matcher(local_map, points, ages, threads=3).linearise(POSE, TWIST, 0.4)
    np.testing.assert_allclose(three.hessian, one.hessian, rtol=1e-12, atol=1e-9)
    assert (three.inliers, three.deviation) == (one.inliers, one.deviation)


def test_counts_overlap_and_rmse():
    local_map = LocalMap(1.0, 100.0, 1000, np.zeros(3))
    # A floor whose normals are exact, and a single point far away that has none.
    grid = np.stack(np.meshgrid(np.arange(0.25, 8, 0.5), np.arange(0.25, 8, 0.5)), -1)
    floor = np.c_[grid.reshape(-1, 2), np.full(256, 0.5)]
    local_map.add(np.vstack([floor, [[50.5, 0.5, 0.5]]]), np.zeros(3))
    points = np.array(
        [[4.4, 4.4, 0.51], [3.3, 4.5, 0.47], [4.5, 3.4, 0.9], [50.6, 0.5, 0.5], [20, 20, 20.0]]
    )
    found = matcher(local_map, points, np.zeros(5)).linearise(np.eye(4), np.zeros(6), 0.8)
    assert found.inliers == 2
    # On planes or without a match: four points; the one beside a voxel without a plane is neither.
    assert found.overlap == pytest.approx(0.5)
    assert found.rmse == pytest.approx(np.sqrt((0.01**2 + 0.03**2) / 2))
    assert found.deviation == pytest.approx(1.4826 * 0.03)


def test_no_matches_give_nothing():
    local_map = LocalMap(0.5, 100.0, 1000, np.zeros(3))
    for radius in (0.5, 5.0):
        scan = matcher(local_map, np.ones((3, 3)), np.zeros(3))
        found = scan.linearise(np.eye(4), np.zeros(6), radius)
        assert found.inliers == 0 and found.overlap == 0.0 and not found.hessian.any()
        assert found.deviation == 0.02

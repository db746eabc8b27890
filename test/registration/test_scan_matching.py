import numpy as np
import pytest

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.deskew import move_along
from geoaccel_ros.registration.scan_matching import linearise


def _problem():
    rng = np.random.default_rng(0)
    points = rng.uniform(-10, 10, (200, 3))
    ages = rng.uniform(-0.05, 0.05, 200)
    means = points + rng.normal(0, 0.05, points.shape)
    normals = rng.normal(size=points.shape)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    planar = rng.random(200) < 0.8
    matches = np.arange(200)
    matches[:20] = -1
    return points, ages, means, normals, planar, matches


def test_gradient_is_the_cost_s_derivative_for_pose_and_twist():
    points, ages, means, normals, planar, matches = _problem()
    pose = se3.exp(np.array([0.01, -0.02, 0.01, 0.002, 0.001, -0.003]))
    twist = np.array([0.3, 0.1, 0.0, 0.1, -0.2, 0.3])

    def cost(step):
        moved = np.empty_like(points)
        turned = np.concatenate([pose[:3, :3].T @ step[6:9], pose[:3, :3].T @ step[9:]])
        move_along(points, ages, twist + turned, se3.perturbed(pose, step[:6]), moved)
        errors = moved - means
        plane = np.sum(errors * normals, axis=1)
        # A width so large that the kernel is 1: 0.5 sum of squares, with 0.01 off planes.
        squares = np.where(planar, plane**2, 0.01 * np.sum(errors**2, axis=1))
        return 0.5 * np.sum(squares[matches >= 0])

    moved = np.empty_like(points)
    move_along(points, ages, twist, pose, moved)
    found = linearise(moved, ages, pose[:3, 3], matches, means, normals, planar, 0.1, 1e6)
    steps = 1e-6 * np.eye(12)
    numeric = np.array([(cost(s) - cost(-s)) / 2e-6 for s in steps])
    # The twist turns points about where they are, not where the pose's axes have them: second
    # order in age times rate, 0.02 here.
    np.testing.assert_allclose(found.gradient[:6], numeric[:6], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.gradient[6:], numeric[6:], atol=0.03 * abs(numeric[6:]).max())
    np.testing.assert_allclose(found.hessian, found.hessian.T)
    assert np.linalg.eigvalsh(found.hessian).min() > 0.0


def test_counts_overlap_and_rmse():
    means = np.zeros((4, 3))
    normals = np.array([[0.0, 0, 1]] * 4)
    planar = np.array([True, True, True, False])
    moved = np.array([[0.3, 0, 0.01], [0, 0.2, -0.03], [0, 0, 0.5], [0.1, 0, 0], [9, 9, 9.0]])
    matches = np.array([0, 1, 2, 3, -1])
    found = linearise(moved, np.zeros(5), np.zeros(3), matches, means, normals, planar, 0.1, 0.02)
    assert found.inliers == 2
    # On planes or without a match: four points; the one beside a voxel without a plane is neither.
    assert found.overlap == pytest.approx(0.5)
    assert found.rmse == pytest.approx(np.sqrt((0.01**2 + 0.03**2) / 2))
    assert found.deviation == pytest.approx(1.4826 * 0.03)


def test_no_matches_give_nothing():
    found = linearise(
        np.ones((3, 3)),
        np.zeros(3),
        np.zeros(3),
        np.full(3, -1),
        np.empty((0, 3)),
        np.empty((0, 3)),
        np.empty(0, bool),
        0.1,
        0.02,
    )
    assert found.inliers == 0 and found.overlap == 0.0 and not found.hessian.any()
    assert found.deviation == 0.02

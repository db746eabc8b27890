import numpy as np
import pytest

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.metrics import (
    absolute_trajectory_error,
    interpolate_poses,
    kitti_error,
    path_length,
    relative_pose_error,
)


def line(steps, x=1.0):
    """Poses one after another along x."""
    poses = np.tile(np.eye(4), (steps, 1, 1))
    poses[:, 0, 3] = x * np.arange(steps)
    return poses


def test_path_length():
    poses = line(4)
    poses[3, :3, 3] = [2.0, 3.0, 4.0]
    assert path_length(poses) == pytest.approx(1.0 + 1.0 + 5.0)
    assert path_length(poses[:1]) == 0.0


def test_absolute_error_by_hand():
    truth = line(3)
    estimate = truth.copy()
    estimate[1, 1, 3], estimate[2, 2, 3] = 3.0, 4.0
    assert absolute_trajectory_error(estimate, truth) == pytest.approx(np.sqrt((9 + 16) / 3))


def test_alignment():
    truth = line(5)
    truth[:, 1, 3] = [0.0, 1.0, 0.0, 2.0, 0.0]
    T = se3.exp(np.array([5.0, 1.0, 0.0, 0.0, 0.0, 1.0]))
    estimate = T @ truth
    assert absolute_trajectory_error(estimate, truth, "none") > 1.0
    assert absolute_trajectory_error(estimate, truth) == pytest.approx(0.0, abs=1e-12)
    assert absolute_trajectory_error(estimate, truth, "se3") == pytest.approx(0.0, abs=1e-12)
    # A wrong first heading: alignment at the start keeps it, over all it vanishes.
    estimate = truth.copy()
    estimate[0, :3, :3] = se3.exp_rotation(np.array([0.0, 0.0, np.pi / 2]))
    assert absolute_trajectory_error(estimate, truth, "se3") == pytest.approx(0.0, abs=1e-12)
    assert absolute_trajectory_error(estimate, truth) > 1.0


def test_relative_error_by_hand():
    # The estimate covers 1.1 m for each metre: 0.1 m a frame, 0.2 m over two.
    translation, rotation = relative_pose_error(line(10, 1.1), line(10), 2)
    assert translation == pytest.approx(0.2)
    assert rotation == pytest.approx(0.0)
    turning = line(10)
    for k in range(10):
        turning[k, :3, :3] = se3.exp_rotation(np.array([0.0, 0.0, 0.01 * k]))
    assert relative_pose_error(turning, line(10), 2)[1] == pytest.approx(0.02)


def test_kitti_error_by_hand():
    found = kitti_error(line(301, 1.01), line(301))
    # Lengths of 100, 200 and 300 m, every time 1 %, over the poses between: the first beyond it.
    assert found[0] == pytest.approx(0.01, rel=0.02)
    assert found[1] == 0.0
    assert kitti_error(line(50), line(50)) is None


def test_interpolation():
    poses = np.stack([np.eye(4), se3.exp(np.array([2.0, 0, 0, 0, 0, 1.0]))])
    stamps = np.array([10.0, 12.0])
    found = interpolate_poses(stamps, poses, np.array([9.0, 10.0, 11.0, 12.0, 13.0]))
    np.testing.assert_allclose(found[[0, 1]], poses[[0, 0]])
    np.testing.assert_allclose(found[2], se3.exp(np.array([1.0, 0, 0, 0, 0, 0.5])), atol=1e-12)
    np.testing.assert_allclose(found[[3, 4]], poses[[1, 1]])


def test_wrong_use():
    with pytest.raises(ValueError, match="shapes"):
        absolute_trajectory_error(line(3), line(4))
    with pytest.raises(ValueError, match="empty"):
        absolute_trajectory_error(line(0), line(0))
    with pytest.raises(ValueError, match="align 'x'"):
        absolute_trajectory_error(line(3), line(3), "x")
    with pytest.raises(ValueError, match="too few"):
        relative_pose_error(line(3), line(3), 3)

"""Trajectory files, and the truth beside the poses found."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.trajectories import read_trajectory, write_kitti_poses, write_tum_poses
from geoaccel_ros.cli.trajectory_picture import Surroundings
from geoaccel_ros.cli.truth import Comparison, Estimate, Truth
from geoaccel_ros.registration import se3

STAMP = 1_635_236_489_123_456_789
TWIST = np.array([2.0, 0.1, 0.05, 0.02, -0.01, 0.3])


def pose(seconds):
    return se3.exp(seconds * TWIST)


def poses_at(seconds):
    return np.array([pose(s) for s in seconds])


def estimate_at(seconds):
    stamps = [STAMP + round(1e9 * s) for s in seconds]
    return Estimate(poses_at(seconds), stamps, np.arange(len(stamps)))


def write_truth(file, seconds):
    write_tum_poses(file, [STAMP + round(1e9 * s) for s in seconds], poses_at(seconds))


def test_kitti_poses_read_back_to_the_last_bit(tmp_path):
    poses = poses_at(np.linspace(0.0, 700_000.0, 7))
    write_kitti_poses(tmp_path / "a.txt", poses)
    found = read_trajectory(tmp_path / "a.txt")
    assert found.stamps_ns is None and np.array_equal(found.poses, poses)


def test_tum_poses_read_back_with_their_nanoseconds(tmp_path):
    poses, stamps = poses_at([0.0, 1.0, 2.0]), [STAMP, STAMP + 1, STAMP + 10**9]
    write_tum_poses(tmp_path / "a.txt", stamps, poses)
    first = (tmp_path / "a.txt").read_text().splitlines()[0].split()
    assert first[0] == "1635236489.123456789" and first[1:] == ["0"] * 6 + ["1"]
    found = read_trajectory(tmp_path / "a.txt")
    assert found.stamps_ns == stamps
    assert np.array_equal(found.poses[:, :3, 3], poses[:, :3, 3])
    np.testing.assert_allclose(found.poses, poses, atol=1e-15)


def test_tum_quaternions_are_x_y_z_w(tmp_path):
    (tmp_path / "a.txt").write_text("# stamp x y z qx qy qz qw\n1.5 1 2 3 0 0 0.6 0.8\n")
    found = read_trajectory(tmp_path / "a.txt")
    assert found.stamps_ns == [1_500_000_000]
    expected = Rotation.from_euler("z", 2 * np.arctan2(0.6, 0.8)).as_matrix()
    np.testing.assert_allclose(found.poses[0, :3, :3], expected, atol=1e-15)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "0 numbers on its first line; poses have 12"),
        ("1 2 3\n", "3 numbers on its first line"),
        ("1 0 0 0 0 0 0 1\n2 0 0 0 0 0 0\n", "8 numbers on its first line"),
        ("1 0 0 0 0 0 0 1\n1 0 0 0 0 0 0 1\n", "its stamps do not rise"),
        ("1 0 0 0 0 0 0 2\n", "a quaternion's norm is not 1"),
        ("1 nan 0 0 0 0 0 1\n", "a number that is not finite"),
        ("now 0 0 0 0 0 0 1\n", "could not convert"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, text, reason):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(UserError, match=reason) as caught:
        read_trajectory(tmp_path / "a.txt")
    assert str(tmp_path / "a.txt") in str(caught.value)


def test_truth_by_stamps_is_interpolated(tmp_path):
    # True poses at 5 Hz, from 0.5 s on; found ones at 10 Hz, from 0 to 3 s, between them.
    write_truth(tmp_path / "t.txt", 0.5 + 0.2 * np.arange(10))
    seconds = 0.03 + 0.1 * np.arange(30)
    found = Truth(tmp_path / "t.txt").compare(estimate_at(seconds))
    within = (seconds >= 0.5) & (seconds <= 2.3)
    assert len(found.truth) == np.count_nonzero(within) == 18
    # The motion is one of constant twist, which interpolation at constant twist meets exactly.
    np.testing.assert_allclose(found.truth, poses_at(seconds[within]), atol=1e-9)
    assert np.array_equal(found.estimate, poses_at(seconds[within]))


def test_truth_with_a_gap_tells_nothing_there(tmp_path):
    write_truth(tmp_path / "t.txt", [0.0, 0.5, 1.0, 4.0, 4.5])
    found = Truth(tmp_path / "t.txt").compare(estimate_at([0.2, 0.9, 1.5, 3.9, 4.2]))
    np.testing.assert_allclose(found.truth, poses_at([0.2, 0.9, 4.2]), atol=1e-9)


def test_truth_of_another_time_is_refused(tmp_path):
    write_truth(tmp_path / "t.txt", [10.0, 10.1])
    with pytest.raises(UserError, match="covers 1635236499.123 to 1635236499.223 s, the clouds"):
        Truth(tmp_path / "t.txt").compare(estimate_at([0.0, 0.1]))


def test_truth_by_lines_goes_by_the_number_of_the_cloud(tmp_path):
    write_kitti_poses(tmp_path / "t.txt", poses_at(np.arange(5.0)))
    truth = Truth(tmp_path / "t.txt")
    truth.check(5)
    with pytest.raises(UserError, match="5 poses for 6 clouds"):
        truth.check(6)
    # Cloud 1 was dropped.
    found = truth.compare(Estimate(poses_at([0.0, 2.0]), [0, 1], np.array([0, 2])))
    np.testing.assert_allclose(found.truth, poses_at([0.0, 2.0]), atol=1e-12)


def test_kitti_s_own_truth_is_its_camera_s(tmp_path):
    """Z is forward, x right, as KITTI's camera 0 is; the lidar's x is forward."""
    T_camera_lidar = np.eye(4)
    T_camera_lidar[:3] = [[0, -1, 0, 0.1], [0, 0, -1, -0.2], [1, 0, 0, -0.3]]
    lidar = poses_at(np.arange(4.0))
    write_kitti_poses(tmp_path / "t.txt", T_camera_lidar @ lidar @ np.linalg.inv(T_camera_lidar))
    numbers = " ".join(f"{value:.12e}" for value in T_camera_lidar[:3].ravel())
    (tmp_path / "calib.txt").write_text(f"P0: 1 0 0 0 0 1 0 0 0 0 1 0\nTr: {numbers}\n")
    truth = Truth(tmp_path / "t.txt", tmp_path / "calib.txt")
    found = truth.compare(Estimate(lidar, [0, 1, 2, 3], np.arange(4)))
    np.testing.assert_allclose(found.truth, lidar, atol=1e-9)
    (tmp_path / "calib.txt").write_text("P0: 1\n")
    with pytest.raises(UserError, match="no line 'Tr:' with 12 numbers"):
        Truth(tmp_path / "t.txt", tmp_path / "calib.txt")


def test_errors_follow_kitti_where_the_path_is_long_enough():
    # 1 % too long a way, straight on: 1 % of every length, no rotation.
    truth = np.tile(np.eye(4), (301, 1, 1))
    truth[:, 0, 3] = np.arange(301.0)
    estimate = truth.copy()
    estimate[:, 0, 3] *= 1.01
    errors = Comparison(estimate, truth).errors()
    # KITTI's segments end at the first pose beyond their length, which is a metre late here.
    assert errors["rpe_trans_percent"] == pytest.approx(1.0, rel=0.02)
    assert errors["rpe_rot_deg_per_100m"] == 0.0 and "rpe_10_frames_m" not in errors
    errors = Comparison(estimate[:50], truth[:50]).errors()
    assert errors["rpe_10_frames_m"] == pytest.approx(0.1) and "rpe_trans_percent" not in errors
    assert errors["ate_rmse_m"] == pytest.approx(np.sqrt(np.mean((0.01 * np.arange(50)) ** 2)))
    assert errors["truth_path_m"] == pytest.approx(49.0)


def test_the_picture_s_ground_plan_counts_what_is_seen_above_each_other():
    surroundings = Surroundings(0.5)
    floor = np.array([[0.1, 0.1, 0.0], [0.3, 0.2, 0.1], [-0.9, 0.1, 0.0]])
    wall = np.column_stack([np.full(8, 1.2), np.full(8, -0.3), 0.1 + 0.5 * np.arange(8)])
    shift = np.eye(4)
    shift[:3, 3] = 0.0, 1.0, 0.0
    for _ in range(2):
        surroundings.add(np.eye(4), floor)
        surroundings.add(shift, wall)
    surroundings.add(np.eye(4), np.array([[1e7, 0.0, 0.0]]))
    found = surroundings.columns(np.array([-1.0, 0.0]), np.array([1.5, 1.0]))
    # Rows along y from 0, columns along x from -1; the wall stands at x 1.2, y 0.7.
    assert found.tolist() == [[1, 0, 1, 0, 0], [0, 0, 0, 0, 8]]

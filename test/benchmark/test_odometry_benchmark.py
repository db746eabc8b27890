"""Drives, their truth, and the measures of the benchmarks of odometry and latency."""

import math

import numpy as np
import pytest

from geoaccel_ros.benchmark.courtyard import (
    ACCELERATION_TIME,
    PATH_LENGTH,
    SPEED,
    CourtyardPath,
    drive_courtyard,
    stand_in_courtyard,
)
from geoaccel_ros.benchmark.drives import Drive, Sweep, read_drive
from geoaccel_ros.benchmark.errors import BenchmarkError
from geoaccel_ros.benchmark.latency import forth_and_back
from geoaccel_ros.benchmark.odometry_errors import drift_rate, errors, typical_pass
from geoaccel_ros.pointcloud.files import from_xyz, write_points
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.metrics import path_length

_HEIGHT = 1.2
_NOISE = 0.01


@pytest.fixture(scope="module")
def at_speed():
    return drive_courtyard(from_rest=False, scans=3)


def in_world(sweep, path):
    """Points (N, 3) in the world, each moved by the path's pose at its own instant."""
    poses = path.poses(sweep.stamp + sweep.times)
    return np.einsum("nij,nj->ni", poses[:, :3, :3], sweep.xyz) + poses[:, :3, 3]


@pytest.mark.parametrize("from_rest", [False, True])
def test_the_path_is_60_m_long_and_5_m_s_fast(from_rest):
    path = CourtyardPath(from_rest)
    t = np.linspace(0.0, path.duration, 20001)
    poses = path.poses(t)
    speeds = np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1) / np.diff(t)
    assert path_length(poses) == pytest.approx(PATH_LENGTH, abs=1e-4) == 60.0
    assert speeds.max() == pytest.approx(SPEED, abs=1e-3) == 5.0
    assert speeds[0] == pytest.approx(0.0 if from_rest else SPEED, abs=1e-3)
    # Never faster forward than along the heading: the sensor does not slip sideways.
    velocities = np.einsum("nji,nj->ni", poses[:-1, :3, :3], np.diff(poses[:, :3, 3], axis=0))
    assert np.abs(velocities[:, 1:]).max() < 1e-5


def test_it_turns_left_and_right_by_half_a_radian_a_second():
    t = np.linspace(0.0, 12.0, 12001)
    poses = CourtyardPath(from_rest=False).poses(t)
    heading = np.unwrap(np.arctan2(poses[:, 1, 0], poses[:, 0, 0]))
    rates = np.gradient(heading, t)
    # Curvature times speed.
    assert rates.max() == pytest.approx(0.5, abs=0.01)
    assert rates.min() == pytest.approx(-0.5, abs=0.01)


def test_the_acceleration_from_rest_is_smooth_and_over_in_time():
    path = CourtyardPath(from_rest=True)
    t = np.linspace(0.0, ACCELERATION_TIME + 1.0, 6001)
    speed = np.gradient(path.distance(t), t)
    acceleration = np.gradient(speed, t)
    # Half a cosine: v pi / (2 T) at most, in its middle.
    assert acceleration.max() == pytest.approx(SPEED * math.pi / (2 * ACCELERATION_TIME), rel=1e-3)
    assert np.abs(np.diff(acceleration)).max() < 0.01
    assert np.allclose(speed[t > ACCELERATION_TIME + 0.01], SPEED)


def test_the_ground_is_flat_once_the_true_motion_is_undone(at_speed):
    path = CourtyardPath(from_rest=False)
    for sweep in at_speed.sweeps:
        world = in_world(sweep, path)
        ground = world[world[:, 2] < 0.1]
        # Rings on the ground are half of the points; a few others are at the feet of things on it.
        # The noise is along the rays, and seen from aside here.
        assert len(ground) > 0.4 * len(world)
        assert abs(np.median(ground[:, 2])) < 1e-4
        assert np.percentile(np.abs(ground[:, 2]), 98) < 2 * _NOISE
        assert world[:, 2].min() > -6 * _NOISE


def test_walls_stand_where_they_were_built(at_speed):
    world = in_world(at_speed.sweeps[2], CourtyardPath(from_rest=False))
    # The west wall's inner face; near it is nothing else above head height.
    west = world[(world[:, 0] < -31.0) & (world[:, 2] > 2.5) & (np.abs(world[:, 1]) < 15.0)]
    assert len(west) > 1000
    assert np.median(west[:, 0]) == pytest.approx(-32.8, abs=2e-3)
    assert np.std(west[:, 0]) < 1.5 * _NOISE
    # Taken as one rigid scan, the sweep is bent by the half metre that the sensor moved.
    rigid = se3.apply(at_speed.truth([at_speed.sweeps[2].stamp])[0], at_speed.sweeps[2].xyz)
    bent = rigid[(rigid[:, 0] < -31.0) & (rigid[:, 2] > 2.5) & (np.abs(rigid[:, 1]) < 15.0)]
    assert np.abs(bent[:, 0] + 32.8).max() > 0.1


def test_the_truth_is_the_path(at_speed):
    instants = np.array([0.0, 0.12345, 0.2999])
    expected = CourtyardPath(from_rest=False).poses(instants)
    assert np.allclose(at_speed.truth(instants), expected, atol=1e-5)
    assert expected[0, 2, 3] == _HEIGHT


def test_sweeps_follow_on_each_other(at_speed):
    assert [sweep.stamp for sweep in at_speed.sweeps] == pytest.approx([0.0, 0.1, 0.2])
    for sweep in at_speed.sweeps:
        assert 50_000 < len(sweep.xyz) < 62_000
        assert sweep.times.min() == 0.0 and 0.099 < sweep.end - sweep.stamp < 0.1


def test_standing_still_every_scan_has_its_own_noise():
    drive = stand_in_courtyard(5)
    first, second = drive.sweeps[0], drive.sweeps[1]
    assert len(drive.sweeps) == 5 and second.stamp == pytest.approx(0.1)
    assert np.array_equal(drive.poses[0], drive.poses[-1])
    assert not np.array_equal(first.xyz[:100], second.xyz[:100])
    for sweep in (first, second):
        ground = sweep.xyz[sweep.xyz[:, 2] < -_HEIGHT + 0.1]
        # A ray at that slope meets the ground at a known range.
        noise = np.linalg.norm(ground, axis=1) * (1.0 + _HEIGHT / ground[:, 2])
        # Median, as a few are at the feet of things; 0.6745 sigma is that of a normal distribution.
        assert abs(np.median(noise)) < 5e-4
        assert np.median(np.abs(noise)) == pytest.approx(0.6745 * _NOISE, rel=0.05)
    assert np.array_equal(drive.sweeps[0].xyz, first.xyz), "asked again, the same scan"


def test_six_thousand_scans_take_no_memory():
    drive = stand_in_courtyard(6000)
    assert len(drive.sweeps) == 6000 and drive.sweeps[5999].stamp == pytest.approx(599.9)


def poses_along_x(positions):
    poses = np.tile(np.eye(4), (len(positions), 1, 1))
    poses[:, 0, 3] = positions
    return poses


def test_errors_of_a_trajectory_with_one_bad_step():
    truth = poses_along_x(np.arange(12.0))
    found = poses_along_x(np.r_[np.arange(6.0), np.arange(6.0, 12.0) + 0.6])
    row = errors(found, truth)
    assert row["ate_rmse_m"] == pytest.approx(0.6 * math.sqrt(0.5))
    # Both windows of ten frames hold the step; one of eleven steps is off.
    assert row["over_10_m"] == pytest.approx(0.6)
    assert row["step_m"] == pytest.approx(0.6 / 11) and row["step_max_m"] == pytest.approx(0.6)
    assert row["over_10_deg"] == row["step_deg"] == row["step_max_deg"] == pytest.approx(0.0)


def test_errors_of_rotation_are_in_degrees():
    truth = np.tile(np.eye(4), (3, 1, 1))
    found = truth.copy()
    found[2] = se3.exp(np.array([0, 0, 0, 0, 0, math.radians(3.0)]))
    row = errors(found, truth)
    assert row["step_deg"] == pytest.approx(1.5) and row["step_max_deg"] == pytest.approx(3.0)
    assert row["over_10_m"] is None and row["over_10_deg"] is None


def test_one_pose_has_no_steps():
    row = errors(np.eye(4)[None], np.eye(4)[None])
    assert row["ate_rmse_m"] == 0.0 and row["step_m"] is row["step_max_deg"] is None


@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_the_instant_of_a_pose_is_found(fraction):
    stamps = np.linspace(0.0, 2.0, 201)
    # Accelerated: at a constant speed all instants fit alike, from the first pose on.
    drive = Drive(
        "",
        [Sweep(0.1 * i, np.zeros((2, 3)), np.array([0.0, 0.1])) for i in range(20)],
        stamps,
        poses_along_x(stamps**2),
    )
    instants = 0.1 * np.arange(20) + 0.1 * fraction
    found = np.linalg.inv(drive.truth(instants)[0]) @ drive.truth(instants)
    bad = poses_along_x(np.full(20, 9.0) * np.arange(20))
    for passes in ([found], [bad, found, found], [bad, found]):
        poses, at = typical_pass(passes, drive, (0.0, 0.5, 1.0))
        assert at == fraction and np.array_equal(poses, found)
    assert np.array_equal(typical_pass([bad, bad, found], drive, (0.0, 0.5))[0], bad)


def test_drift_is_a_slope_and_noise_is_none():
    minutes = np.linspace(1.0, 10.0, 901)
    wobble = 0.005 * np.where(np.arange(901) % 2, 1.0, -1.0)
    still = np.stack([wobble, 0 * wobble, wobble], axis=1)
    assert drift_rate(minutes, still) < 1e-4
    moving = still + minutes[:, None] * [0.003, 0.004, 0.0]
    assert drift_rate(minutes, moving) == pytest.approx(0.005, abs=1e-4)


def test_forth_and_back_is_a_turn_without_a_jump():
    """Four sweeps at 1 m/s become six, at twice the rate."""
    stamps = np.linspace(0.0, 0.4, 41)
    sweeps = [
        Sweep(0.1 * i, np.array([[i, 0.0, 0], [i, 1.0, 0]]), np.array([0.0, 0.08]))
        for i in range(4)
    ]
    turn = forth_and_back(Drive("line", sweeps, stamps, poses_along_x(stamps)), period=0.05)
    assert [sweep.xyz[0, 0] for sweep in turn.sweeps] == [0, 1, 2, 3, 2, 1]
    assert [sweep.stamp for sweep in turn.sweeps] == pytest.approx(0.05 * np.arange(6))
    for sweep in turn.sweeps:
        assert sweep.times == pytest.approx([0.0, 0.04])
    # Back, what was seen last is seen first, and the sweep ends where it began.
    assert [sweep.xyz[0, 1] for sweep in turn.sweeps] == [0, 0, 0, 0, 1, 1]
    assert turn.poses[:, 0, 3] == pytest.approx([0.08, 0.18, 0.28, 0.38, 0.2, 0.1])
    assert turn.stamps == pytest.approx(0.05 * np.arange(6) + 0.04)


def kitti_folder(path, scans=3, poses=3):
    (path / "velodyne").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for index in range(scans):
        xyz = rng.uniform(-5, 5, (10 + index, 3)).astype(np.float32)
        write_points(path / "velodyne" / f"{index:06}.bin", from_xyz(xyz, np.zeros(len(xyz))))
    (path / "times.txt").write_text("".join(f"{7 + 0.1 * i:.3f}\n" for i in range(scans)))
    np.savetxt(path / "poses.txt", poses_along_x(np.arange(poses))[:, :3].reshape(-1, 12))
    return path


def test_a_recorded_drive(tmp_path):
    drive = read_drive(kitti_folder(tmp_path / "07"))
    assert drive.name == "07"
    assert [len(sweep.xyz) for sweep in drive.sweeps] == [10, 11, 12]
    assert drive.stamps == pytest.approx([0.0, 0.1, 0.2])
    assert all(sweep.times is None and sweep.end == sweep.stamp for sweep in drive.sweeps)
    assert drive.truth(drive.stamps)[:, 0, 3] == pytest.approx([0, 1, 2])
    assert len(read_drive(tmp_path / "07", scans=2).sweeps) == 2


def test_a_drive_that_cannot_be_used_is_refused(tmp_path):
    with pytest.raises(BenchmarkError, match="is no folder"):
        read_drive(tmp_path / "absent")
    with pytest.raises(BenchmarkError, match="2 poses for 3 scans"):
        read_drive(kitti_folder(tmp_path / "few", poses=2))
    (kitti_folder(tmp_path / "none") / "poses.txt").unlink()
    with pytest.raises(BenchmarkError, match=r"has no poses\.txt"):
        read_drive(tmp_path / "none")
    (kitti_folder(tmp_path / "torn") / "velodyne" / "000001.bin").write_bytes(b"12345")
    with pytest.raises(BenchmarkError, match=r"000001\.bin"):
        read_drive(tmp_path / "torn")

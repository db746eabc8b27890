"""Clouds as odometry takes them, and where sensors sit."""

import subprocess
import sys

import numpy as np
import pytest

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.pointcloud.layout import LayoutError
from geoaccel_ros.pointcloud.times import PointTimesConfig
from geoaccel_ros.registration.frames import mount_matrix
from geoaccel_ros.registration.scans import ScanReader

STAMP_NS = 1_635_236_489_123_456_789
POINT = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("t", "<u4")])


def cloud():
    points = np.zeros(3, POINT)
    points["x"], points["y"], points["z"] = [1, 0, 0], [0, 2, 0], [0, 0, 3]
    points["t"] = [0, 50_000_000, 100_000_000]
    return points


def test_points_come_into_the_base_frame_with_their_times():
    # Quarter turn about z, then 10 m along x and 5 m up.
    T_base_lidar = mount_matrix([10.0, 0.0, 5.0, 0.0, 0.0, np.pi / 2])
    scan = ScanReader(PointTimesConfig()).read(cloud(), STAMP_NS, T_base_lidar)
    np.testing.assert_allclose(scan.xyz, [[10, 1, 5], [8, 0, 5], [10, 0, 8]], atol=1e-12)
    np.testing.assert_allclose(scan.point_times.times, [0.0, 0.05, 0.1], atol=1e-12)
    assert scan.stamp == 0.0


def test_roll_pitch_and_yaw_turn_about_fixed_axes():
    # Roll takes z to -y, then pitch leaves y alone, then yaw takes y to -x: z ends at x.
    mount = mount_matrix([0.0, 0.0, 0.0, np.pi / 2, np.pi / 2, np.pi / 2])
    np.testing.assert_allclose(mount[:3, :3] @ [0.0, 0.0, 1.0], [1.0, 0.0, 0.0], atol=1e-12)


def test_a_mount_of_no_numbers_is_none_and_of_five_is_refused():
    assert mount_matrix(()) is None
    with pytest.raises(ConfigurationError, match="'lidar_mount' has 5 numbers"):
        mount_matrix((1.0, 2.0, 3.0, 4.0, 5.0))
    for far in (1.1e7, -1e300, np.nan):
        with pytest.raises(ConfigurationError, match=r"'lidar_mount': position .* within 1e\+07 m"):
            mount_matrix((0.0, far, 0.0, 0.0, 0.0, 0.0))


def test_stamps_keep_their_nanoseconds():
    reader = ScanReader(PointTimesConfig())
    reader.read(cloud(), STAMP_NS, np.eye(4))
    # Sixty days later, one nanosecond off a multiple of anything that float64 prefers.
    later = STAMP_NS + 60 * 86_400 * 10**9 + 1
    scan = reader.read(cloud(), later, np.eye(4))
    assert reader.nanoseconds(scan.stamp) == later
    assert reader.nanoseconds(reader.seconds(STAMP_NS - 7)) == STAMP_NS - 7


def test_a_configuration_of_times_is_honoured():
    reader = ScanReader(PointTimesConfig(time_reference="last"))
    scan = reader.read(cloud(), STAMP_NS, np.eye(4))
    np.testing.assert_allclose(scan.point_times.times, [-0.1, -0.05, 0.0], atol=1e-12)


def test_a_cloud_without_z_is_refused_by_name():
    with pytest.raises(LayoutError, match="no field z; the cloud has x y"):
        ScanReader(PointTimesConfig()).read(
            np.zeros(2, [("x", "f4"), ("y", "f4")]), STAMP_NS, np.eye(4)
        )


def test_scans_and_frames_need_no_ros():
    program = (
        "import sys; import geoaccel_ros.registration.scans, geoaccel_ros.registration.frames; "
        "sys.exit('rclpy' in sys.modules or 'tf2_msgs' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0

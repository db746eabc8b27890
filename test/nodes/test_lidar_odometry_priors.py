"""lidar_odometry with another sensor's motion as its prediction, and with a 2D lidar."""

import numpy as np
import pytest
from geometry_msgs.msg import Vector3
from nav_msgs.msg import Odometry
from registration.ray_cast_yard import drive
from ros_harness import wait_for
from sensor_msgs.msg import Imu, PointCloud2
from std_msgs.msg import Header
from tf2_msgs.msg import TFMessage
from yard_clouds import EPOCH_NS, SECOND_NS, cloud, header, registered_here, stamp_ns, sweep

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.frames import mount_matrix
from geoaccel_ros.registration.priors import Gyroscope, WheelOdometry
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.transforms import matrix_from_pose, set_pose, stamped_transform

# Clouds come at these times: half a second of the curve is missing.
BEGINS = [1.0 + 0.1 * k for k in (*range(15), *range(20, 25))]
RATE = 0.02


def turn_rate(t):
    return 1.5 * np.sin(1.1 * t) * min(t, 1.0)


@pytest.fixture(scope="module")
def curve_at():
    return drive(lambda t: (min(t, 1.0) * 1.2, turn_rate(t)), 8.0)


def ring(points):
    """The ring of a 2D lidar: one of those near the horizon."""
    elevation = np.degrees(np.arctan2(points["z"], np.hypot(points["x"], points["y"])))
    return points[np.abs(elevation - 1.0) < 0.5]


def stamped(seconds, frame):
    return header(EPOCH_NS + round(seconds * SECOND_NS), frame)


def seconds_since_the_first(seconds):
    return seconds - BEGINS[0]


def play(probe, messages, clouds, topic, publisher, player, odometry):
    """Send the other sensor's messages, then the clouds: nothing is then late."""
    for message in messages:
        publisher.publish(message)
    probe.wait_for_count("lidar_odometry", f"{topic} in", len(messages))
    for message in clouds:
        player.publish(message)
    wait_for(lambda: len(odometry) == len(clouds), what="a pose for each cloud")
    return np.array([matrix_from_pose(answer.pose.pose) for answer in odometry])


# 30. In the plane, at the height where it began; wheels tell of what no cloud saw.
def test_wheel_odometry_carries_a_2d_lidar_over_a_gap(nodes, probe, curve_at):
    nodes.start(
        "lidar_odometry", "-p", "lossless:=true", "-p", "planar:=true", "-p", "min_range:=0.3",
        "-p", "prior:=wheel_odometry",
    )  # fmt: skip
    odometry = probe.listen(Odometry, "/odom", qos.reliable(100))
    wheels = probe.speak(Odometry, "/wheel_odometry", qos.reliable(1000))
    player = probe.speak(PointCloud2, "/points", qos.KEEP_ALL)
    probe.wait_for_connections("lidar_odometry", subscribers_of_odom=1)
    # Of the axle, 0.3 m behind base_link and turned, in a frame of its own.
    T_base_axle = mount_matrix([-0.3, 0.0, 0.1, 0.0, 0.0, 0.5])
    T_wheels_world = mount_matrix([5.0, 6.0, 0.0, 0.0, 0.0, 1.0])
    mounts = probe.speak(TFMessage, "/tf_static", qos.LATCHED)
    edge = stamped_transform(Header().stamp, "base_link", "axle", T_base_axle)
    mounts.publish(TFMessage(transforms=[edge]))

    prior, messages = WheelOdometry(), []
    for at in np.arange(0.9, 3.6, RATE):
        T_wheels_base = T_wheels_world @ curve_at(at)
        prior.add(seconds_since_the_first(at), T_wheels_base)
        message = Odometry(header=stamped(at, "wheels"), child_frame_id="axle")
        set_pose(message.pose.pose, T_wheels_base @ T_base_axle)
        messages.append(message)
    # Before time 0 nothing happened.
    messages.insert(50, Odometry(header=header(-3 * SECOND_NS, "wheels"), child_frame_id="axle"))
    clouds = [cloud(ring(sweep(curve_at, at, seed=k)), at) for k, at in enumerate(BEGINS)]
    found = play(probe, messages, clouds, "wheel_odometry", wheels, player, odometry)

    said = probe.diagnostics("lidar_odometry")
    assert said["dropped: wheel_odometry"] == "1" and "exceptions" not in said
    assert said["newest reason"] == "wheel_odometry: its stamp, -3 s, lies before time 0"
    parameters = {"planar": True, "min_range": 0.3}
    expected, _ = registered_here(clouds, prior=prior, **parameters)
    np.testing.assert_allclose(found, [r.T_odom_base for r in expected], atol=1e-6)
    blind, _ = registered_here(clouds, **parameters)
    assert np.abs(found - [r.T_odom_base for r in blind]).max() > 1e-4
    true = [curve_at((stamp_ns(answer) - EPOCH_NS) / SECOND_NS) for answer in odometry]
    true = se3.inverse(true[0]) @ np.array(true)
    np.testing.assert_allclose(found[:, :2, 3], true[:, :2, 3], atol=0.08)
    # In the plane, but for roundings.
    np.testing.assert_allclose(
        found[:, 2], np.tile([0.0, 0.0, 1.0, 0.0], (len(found), 1)), atol=1e-9
    )


def test_clouds_in_a_burst_do_not_leave_the_wheels_behind(nodes, probe, curve_at):
    """Played faster than they are registered, with ten messages of the wheels for each of them."""
    nodes.start(
        "lidar_odometry", "-p", "lossless:=true", "-p", "planar:=true", "-p", "min_range:=0.3",
        "-p", "prior:=wheel_odometry", "-p", "lidar_mount:=[0.0, 0.0, 0.0, 0.0, 0.0, 0.0]",
    )  # fmt: skip
    odometry = probe.listen(Odometry, "/odom", qos.reliable(100))
    wheels = probe.speak(Odometry, "/wheel_odometry", qos.reliable(1000))
    player = probe.speak(PointCloud2, "/points", qos.KEEP_ALL)
    probe.wait_for_connections("lidar_odometry", subscribers_of_odom=1)
    prior, told = WheelOdometry(), 0.9
    clouds = [cloud(ring(sweep(curve_at, at, seed=k)), at) for k, at in enumerate(BEGINS)]
    for begin, scan in zip(BEGINS, clouds, strict=True):
        while told < begin + 0.13:
            prior.add(seconds_since_the_first(told), curve_at(told))
            message = Odometry(header=stamped(told, "wheels"), child_frame_id="base_link")
            set_pose(message.pose.pose, curve_at(told))
            wheels.publish(message)
            told += 0.01
        player.publish(scan)
    wait_for(lambda: len(odometry) == len(clouds), what="a pose for each cloud")
    found = np.array([matrix_from_pose(answer.pose.pose) for answer in odometry])
    expected, _ = registered_here(clouds, prior=prior, planar=True, min_range=0.3)
    np.testing.assert_allclose(found, [r.T_odom_base for r in expected], atol=1e-6)


def test_a_gyroscope_is_turned_into_the_base_frame(nodes, probe, curve_at):
    process = nodes.start("lidar_odometry", "-p", "lossless:=true", "-p", "prior:=imu")
    odometry = probe.listen(Odometry, "/odom", qos.reliable(100))
    imu = probe.speak(Imu, "/imu", qos.reliable(1000))
    player = probe.speak(PointCloud2, "/points", qos.KEEP_ALL)
    probe.wait_for_connections("lidar_odometry", subscribers_of_odom=1)
    T_base_imu = mount_matrix([0.1, 0.0, 0.2, np.pi / 2, 0.0, 0.3])
    mounts = probe.speak(TFMessage, "/tf_static", qos.LATCHED)
    edge = stamped_transform(Header().stamp, "base_link", "imu_link", T_base_imu)
    mounts.publish(TFMessage(transforms=[edge]))

    prior, messages = Gyroscope(), []
    for at in np.arange(0.9, 3.6, RATE):
        in_base = np.array([0.0, 0.0, turn_rate(at)])
        prior.add(seconds_since_the_first(at), in_base)
        x, y, z = map(float, T_base_imu[:3, :3].T @ in_base)
        message = Imu(header=stamped(at, "/imu_link"), angular_velocity=Vector3(x=x, y=y, z=z))
        messages.append(message)
    # One that says of itself that it knows no angular velocity, and would be far off.
    messages.insert(50, Imu(header=stamped(1.9, "imu_link"), angular_velocity=Vector3(x=9.0)))
    messages[50].angular_velocity_covariance[0] = -1.0
    messages.insert(51, Imu(header=header(-3 * SECOND_NS, "imu_link")))
    clouds = [cloud(sweep(curve_at, at, seed=k), at) for k, at in enumerate(BEGINS)]
    found = play(probe, messages, clouds, "imu", imu, player, odometry)

    expected, _ = registered_here(clouds, prior=prior)
    np.testing.assert_allclose(found, [r.T_odom_base for r in expected], atol=1e-6)
    blind, _ = registered_here(clouds)
    assert np.abs(found - [r.T_odom_base for r in blind]).max() > 1e-4
    said = probe.diagnostics("lidar_odometry")
    assert said["dropped: imu"] == "2" and "exceptions" not in said
    assert process.output.count("dropped, imu: ") == 1 and "Traceback" not in process.output

"""The node, lossless, and geoaccel odometry give the same numbers for the same bag."""

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.serialization import deserialize_message
from registration.ray_cast_yard import PERIOD, drive, scan
from ros_harness import wait_for
from rosbags.rosbag2 import Reader
from sensor_msgs.msg import PointCloud2
from tf2_msgs.msg import TFMessage
from written_bags import CLOUD, TRANSFORMS, WrittenBag

from geoaccel_ros.cli.main import main
from geoaccel_ros.pointcloud.layout import packed_dtype
from geoaccel_ros.pointcloud.stamps import format_stamp
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.frames import mount_matrix
from geoaccel_ros.ros import qos

EPOCH_NS = 1_700_000_000_123_456_789
CLOUDS = 20
XYZT = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("t", "u4")])


def write_drive(folder):
    """A bag of a drive on a curve with a tilted lidar; the 6th cloud is cut off, the 9th empty."""
    pose_at = drive(lambda t: (min(t, 1.0) * 1.2, 1.5 * np.sin(1.1 * t) * min(t, 1.0)), 4.0)
    T_base_lidar = mount_matrix((0.3, -0.1, 0.2, 0.1, -0.05, 2.0))
    with WrittenBag(folder, "mcap") as bag:
        bag.static_transform("base_link", "lidar", T_base_lidar, EPOCH_NS)
        for k in range(CLOUDS):
            xyz, times = scan(pose_at, k * PERIOD, seed=k)
            xyz = se3.apply(se3.inverse(T_base_lidar), xyz)
            points = np.empty(len(xyz), XYZT)
            points["x"], points["y"], points["z"] = xyz.T
            points["t"] = np.round(1e9 * times)
            stamp = EPOCH_NS + round(1e9 * k * PERIOD)
            if k == 6:
                bag.cloud(points, stamp, width=len(points) + 1)
            else:
                bag.cloud(points[:0] if k == 9 else points, stamp)
    return bag.path


def test_the_same_numbers_as_the_command(tmp_path, nodes, probe):
    bag = write_drive(tmp_path)
    out = tmp_path / "out"
    assert main(["odometry", str(bag), "--output", str(out), "--json", "-"]) == 0
    expected = (out / "poses_tum.txt").read_text().splitlines()
    assert len(expected) == CLOUDS - 2

    nodes.start("lidar_odometry", "--params-file", str(out / "config.yaml"), "-p", "lossless:=true")
    odometry = probe.listen(Odometry, "/odom", qos.reliable(1000))
    transforms = probe.speak(TFMessage, "/tf_static", qos.LATCHED)
    player = probe.speak(PointCloud2, "/points", qos.KEEP_ALL)
    probe.wait_for_connections("lidar_odometry", subscribers_of_odom=1)
    with Reader(bag) as reader:
        messages = [(connection.msgtype, raw) for connection, _, raw in reader.messages()]
    for msgtype, raw in messages:
        if msgtype == TRANSFORMS:
            transforms.publish(deserialize_message(raw, TFMessage))
    clouds = [deserialize_message(raw, PointCloud2) for kind, raw in messages if kind == CLOUD]
    empty = PointCloud2(header=clouds[0].header, fields=clouds[0].fields, point_step=16)

    def mount_is_known():
        # A cloud of no points changes nothing, and is counted as such once its frame is known.
        player.publish(empty)
        return int(probe.diagnostics("lidar_odometry").get("dropped: empty", 0)) > 0

    wait_for(mount_is_known, what="the mount from /tf_static")
    for cloud in clouds:
        player.publish(cloud)
    wait_for(lambda: len(odometry) >= CLOUDS - 2, what=lambda: f"{len(odometry)} poses")

    for message, line in zip(odometry, expected, strict=True):
        stamp, *numbers = line.split()
        header = message.header.stamp
        assert format_stamp(header.sec * 10**9 + header.nanosec) == stamp
        p, q = message.pose.pose.position, message.pose.pose.orientation
        # To the last bit: the same code has made the same scans of the same bytes.
        assert [p.x, p.y, p.z, q.x, q.y, q.z, q.w] == [float(number) for number in numbers]

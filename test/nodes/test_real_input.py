"""A real sequence of 123,000 points a cloud, played at 10 Hz through odometry and codec."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest
from nav_msgs.msg import Odometry
from rclpy.serialization import deserialize_message
from ros_harness import wait_for
from rosbags.rosbag2 import Reader
from scipy.spatial import cKDTree
from sensor_msgs.msg import PointCloud2

from geoaccel_ros.pointcloud.layout import coordinates
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.pointcloud2 import points_from_message
from geoaccel_ros.ros.transforms import matrix_from_pose

TOOLS = Path(__file__).resolve().parents[3] / "shared" / "tools"
FRAMES = 30
STEP = 0.02

pytestmark = pytest.mark.skipif(not TOOLS.exists(), reason="the real sequence lies in ../shared")


@pytest.fixture(scope="module")
def lidar_data():
    sys.path.insert(0, str(TOOLS))
    import lidar_data

    yield lidar_data
    sys.path.remove(str(TOOLS))


@pytest.fixture(scope="module")
def clouds(lidar_data, tmp_path_factory):
    """The sequence as serialized PointCloud2 messages, from a bag."""
    folder = tmp_path_factory.mktemp("sequence") / "bag"
    lidar_data.export_bag(folder, frames=FRAMES)
    with Reader(folder) as reader:
        return [data for _, _, data in reader.messages()]


@pytest.fixture(scope="module")
def truth(lidar_data):
    return np.array([pose for _, _, _, pose in lidar_data.sequence("kitti_raw_0005")][:FRAMES])


def test_nothing_is_lost_and_the_pose_moves_with_the_car(nodes, probe, clouds, truth):
    nodes.start(
        "lidar_odometry", "-p", "lidar_mount:=[0.0,0.0,0.0,0.0,0.0,0.0]", "-p", "lossless:=true"
    )
    nodes.start("cloud_encoder", "-p", f"step:={STEP}", "-p", "threads:=1", "-p", "queue:=100")
    nodes.start("cloud_decoder", "-p", "threads:=1")
    odometry = probe.listen(Odometry, "/odom", qos.reliable(100))
    decoded = probe.listen(PointCloud2, "/points/decompressed", qos.reliable(100))
    player = probe.speak(PointCloud2, "/points", qos.KEEP_ALL, subscribers=2)
    probe.wait_for_connections("lidar_odometry", publishers_of_points=1, subscribers_of_odom=1)
    probe.wait_for_connections(
        "cloud_encoder", publishers_of_points=1, subscribers_of_points__compressed=1
    )
    probe.wait_for_connections(
        "cloud_decoder",
        publishers_of_points__compressed=1,
        subscribers_of_points__decompressed=1,
    )

    due = time.monotonic()
    for cloud in clouds:
        time.sleep(max(0.0, due - time.monotonic()))
        player.publish(cloud)
        due += 0.1
    wait_for(
        lambda: len(odometry) == FRAMES and len(decoded) == FRAMES,
        30.0,
        lambda: f"{FRAMES} clouds; {len(odometry)} poses, {len(decoded)} decoded; {counts(probe)}",
    )

    for original, received in zip(clouds, decoded, strict=True):
        original = deserialize_message(original, PointCloud2)
        assert received.header == original.header
        assert received.fields == original.fields
        assert received.is_dense == original.is_dense
        assert_within(points_from_message(original), points_from_message(received), STEP / 2)

    poses = np.array([matrix_from_pose(message.pose.pose) for message in odometry])
    stamps = [message.header.stamp for message in odometry]
    assert stamps == [deserialize_message(c, PointCloud2).header.stamp for c in clouds]
    assert np.isfinite(poses).all()
    assert path(poses) == pytest.approx(path(truth), rel=0.1)
    # Not only as far, but there: the reference is good to 0.3 m.
    moved = np.linalg.inv(poses[0]) @ poses[-1]
    expected = np.linalg.inv(truth[0]) @ truth[-1]
    assert np.linalg.norm(moved[:3, 3] - expected[:3, 3]) < 1.0


def counts(probe):
    """What the nodes say of what they received and of what became of it."""
    names = ("lidar_odometry", "cloud_encoder", "cloud_decoder")
    return {name: probe.diagnostics(name) for name in names}


def assert_within(original, decoded, bound):
    """Every point has its decoded self within ``bound`` in each coordinate, and none is added."""
    assert len(decoded) == len(original)
    a, b = coordinates(original).astype(float), coordinates(decoded).astype(float)
    # A coordinate of up to 120 m is a float32: half a unit in its last place comes on top.
    bound += 4e-6
    assert cKDTree(b).query(a, p=np.inf)[0].max() <= bound
    assert cKDTree(a).query(b, p=np.inf)[0].max() <= bound
    assert np.array_equal(np.sort(original["intensity"]), np.sort(decoded["intensity"]))


def path(poses):
    return np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1).sum()

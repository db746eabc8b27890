"""What the codec nodes do with clouds that they cannot use: drop, count, say why, go on."""

import numpy as np
from point_cloud_interfaces.msg import CompressedPointCloud2
from ros_harness import wait_for
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from geoaccel_ros.pointcloud.layout import packed_dtype
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.pointcloud2 import bytes_for_message, message_from_points

XYZ = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])


def room(seconds, frame="lidar", count=3000):
    """A cloud of the inside of a box of 10 x 8 x 4 m, seen from its middle."""
    rng = np.random.default_rng(0)
    faces = rng.uniform(-1, 1, (count, 3))
    axis = rng.integers(0, 3, count)
    faces[np.arange(count), axis] = np.sign(faces[np.arange(count), axis])
    points = np.ascontiguousarray(faces * [5, 4, 2], np.float32).view(XYZ).reshape(-1)
    header = Header(frame_id=frame)
    header.stamp.sec, header.stamp.nanosec = int(seconds), round(seconds % 1 * 1e9)
    return message_from_points(header, points)


def shortened(cloud):
    cloud.data = cloud.data[:-1]
    return cloud


def of_unknown_type(cloud):
    cloud.fields[1].datatype = 0
    return cloud


def without_z(cloud):
    cloud.fields[2].name = "height"
    return cloud


def emptied(cloud):
    cloud.width = cloud.row_step = 0
    cloud.data = []
    return cloud


def test_the_encoder_refuses_a_bad_cloud_and_goes_on(nodes, probe):
    process = nodes.start("cloud_encoder", "-p", "threads:=1", "-p", "queue:=10")
    compressed = probe.listen(CompressedPointCloud2, "/points/compressed", qos.RELIABLE)
    player = probe.speak(PointCloud2, "/points", qos.RELIABLE)
    wait_for(lambda: probe.node.count_publishers("/points/compressed"), what="the encoder")
    far = room(1.0)
    far.data = bytes_for_message(np.full(9000, 1e30, np.float32))
    for bad in (shortened(room(1.0)), of_unknown_type(room(1.0)), without_z(room(1.0)), far):
        player.publish(bad)
    player.publish(room(2.0))
    wait_for(lambda: len(compressed) == 1, what="the good cloud")
    assert compressed[0].header.stamp.sec == 2
    probe.wait_for_count("cloud_encoder", "refused", 4)
    assert "Traceback" not in process.output


def test_an_empty_cloud_passes_through_the_codec(nodes, probe):
    nodes.start("cloud_encoder", "-p", "threads:=1")
    nodes.start("cloud_decoder", "-p", "threads:=1")
    decoded = probe.listen(PointCloud2, "/points/decompressed", qos.RELIABLE)
    player = probe.speak(PointCloud2, "/points", qos.RELIABLE)
    wait_for(lambda: probe.node.count_publishers("/points/decompressed"), what="the decoder")
    wait_for(lambda: probe.node.count_subscribers("/points/compressed"), what="the decoder")

    def answered():
        player.publish(emptied(room(3.0)))
        return len(decoded)

    wait_for(answered, what="the empty cloud")
    assert (decoded[0].width, len(decoded[0].data), decoded[0].header.stamp.sec) == (0, 0, 3)
    assert [f.name for f in decoded[0].fields] == ["x", "y", "z"]


def test_the_encoder_works_only_while_somebody_listens(nodes, probe):
    nodes.start("cloud_encoder", "-p", "threads:=1")
    player = probe.speak(PointCloud2, "/points", qos.RELIABLE)
    for _ in range(3):
        player.publish(room(1.0))
    probe.wait_for_count("cloud_encoder", "not subscribed", 3)
    assert probe.diagnostics("cloud_encoder")["encode count"] == "0"

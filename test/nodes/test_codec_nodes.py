"""What comes back of a cloud through cloud_encoder and cloud_decoder, in each mode."""

import numpy as np
from point_cloud_interfaces.msg import CompressedPointCloud2
from ros_harness import wait_for
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from geoaccel_ros.pointcloud.layout import packed_dtype
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.pointcloud2 import (
    message_from_points,
    points_from_message,
)

DTYPE = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("ring", "u2"), ("time", "f4")])
ROWS, COLUMNS = 16, 200


def organised():
    """A sweep of 16 rings, a row each, a few of its points without a return."""
    points = np.zeros(ROWS * COLUMNS, DTYPE)
    ring, column = np.divmod(np.arange(len(points)), COLUMNS)
    azimuth = 2 * np.pi * column / COLUMNS
    ranges = 6 + np.sin(3 * azimuth)
    points["x"], points["y"] = ranges * np.cos(azimuth), ranges * np.sin(azimuth)
    points["z"] = ranges * np.tan(np.radians(2.0 * ring - 15))
    points["ring"], points["time"] = ring, 0.0999 * column / COLUMNS
    points["x"][::97] = np.nan
    message = message_from_points(Header(frame_id="lidar"), points)
    message.height, message.width = ROWS, COLUMNS
    message.row_step = COLUMNS * DTYPE.itemsize
    message.is_dense = False
    return message, points


def through_both(nodes, probe, *parameters):
    """Return the compressed message and the decoded one."""
    options = [word for parameter in parameters for word in ("-p", parameter)]
    nodes.start("cloud_encoder", "-p", "threads:=1", *options)
    nodes.start("cloud_decoder", "-p", "threads:=1")
    compressed = probe.listen(CompressedPointCloud2, "/points/compressed", qos.RELIABLE)
    decoded = probe.listen(PointCloud2, "/points/decompressed", qos.RELIABLE)
    player = probe.speak(PointCloud2, "/points", qos.RELIABLE)
    probe.wait_for_connections(
        "cloud_encoder", publishers_of_points=1, subscribers_of_points__compressed=2
    )
    probe.wait_for_connections(
        "cloud_decoder", publishers_of_points__compressed=1, subscribers_of_points__decompressed=1
    )
    player.publish(organised()[0])
    wait_for(lambda: len(compressed) and len(decoded), what="the cloud")
    return compressed[0], decoded[0]


def test_a_scan_comes_back_in_its_rows_and_order(nodes, probe):
    compressed, decoded = through_both(nodes, probe, "mode:=scan", "step:=0.02")
    assert compressed.format == "geoaccel/2"
    original, points = organised()
    for message in compressed, decoded:
        assert (message.height, message.width) == (ROWS, COLUMNS)
        assert message.fields == original.fields
        assert (message.point_step, message.row_step) == (original.point_step, original.row_step)
        assert message.is_dense is False
    back = points_from_message(decoded)
    assert np.array_equal(back["ring"], points["ring"])
    assert np.array_equal(np.isnan(back["x"]), np.isnan(points["x"]))
    assert np.nanmax(np.abs(back["x"] - points["x"])) <= 0.01001
    # A microsecond is the default of times.
    assert 0 < np.abs(back["time"] - points["time"]).max() <= 0.51e-6
    probe.wait_for_count("cloud_encoder", "clouds in mode scan", 1)
    said = probe.diagnostics("cloud_encoder")
    assert (said["clouds in mode octree"], said["clouds in mode lossless"]) == ("0", "0")
    assert said["step [m]"] == "0.02"


def test_an_octree_comes_back_as_one_row(nodes, probe):
    compressed, decoded = through_both(nodes, probe, "mode:=octree", "lossless:=[time]")
    assert (compressed.height, compressed.width) == (ROWS, COLUMNS)
    assert (decoded.height, decoded.width) == (1, ROWS * COLUMNS)
    assert decoded.row_step == ROWS * COLUMNS * decoded.point_step == len(decoded.data)
    back, points = points_from_message(decoded), organised()[1]
    assert sorted(back["time"]) == sorted(points["time"])
    probe.wait_for_count("cloud_encoder", "clouds in mode octree", 1)


def test_merged_points_leave_a_narrower_cloud(nodes, probe):
    compressed, decoded = through_both(nodes, probe, "duplicates:=merge", "step:=0.5")
    assert (compressed.height, compressed.width) == (ROWS, COLUMNS)
    assert decoded.height == 1
    assert 100 < decoded.width < ROWS * COLUMNS / 2
    assert decoded.row_step == decoded.width * decoded.point_step == len(decoded.data)
    cells = np.round(np.stack([points_from_message(decoded)[a] for a in "xyz"]) / 0.5)
    cells = cells[:, np.isfinite(cells).all(axis=0)]
    assert len(np.unique(cells, axis=1).T) == cells.shape[1]

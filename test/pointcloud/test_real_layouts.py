"""Clouds of real sensors, read bit for bit; each oracle reads the bytes on its own."""

import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rosbags.rosbag1 import Reader

from geoaccel_ros.pointcloud.files import read_points
from geoaccel_ros.pointcloud.layout import PointField, coordinates
from geoaccel_ros.pointcloud.messages import points_from_message
from geoaccel_ros.pointcloud.recordings import open_recording
from geoaccel_ros.pointcloud.sensors import LAYOUTS, sensor_of
from geoaccel_ros.pointcloud.times import point_times

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason="real clouds lie in ../shared")

SIZES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 8: 8}


def parse_ros1(raw):
    """Read a serialised sensor_msgs/PointCloud2 of ROS 1 by its definition, with struct alone."""
    at = 0

    def take(code):
        nonlocal at
        values = struct.unpack_from("<" + code, raw, at)
        at += struct.calcsize("<" + code)
        return values if len(values) > 1 else values[0]

    def text():
        nonlocal at
        length = take("I")
        at += length
        return raw[at - length : at].decode()

    _, seconds, nanoseconds = take("III")
    frame = text()
    height, width = take("II")
    fields = [(text(), *take("IBI")) for _ in range(take("I"))]
    big, step, _, length = take("BIII")
    data = np.frombuffer(raw, np.uint8, length, at).reshape(height * width, step)
    assert not big
    return seconds * 10**9 + nanoseconds, frame, fields, data


@pytest.mark.parametrize(
    ("bag", "topic", "sensor", "messages"),
    [
        ("luminar_pointcloud_ros1.bag", "/luminar_pointcloud", "Luminar", 5),
        ("sick_lms_rms_ros1.bag", "/cloud", "SICK, KITTI and others", 89),
        ("sick_lms_rms_ros1.bag", "/cloud_radar_track", "", 108),
        ("sick_lms_rms_ros1.bag", "/cloud_radar_rawtarget", "", 139),
    ],
)
def test_clouds_of_a_bag(bag, topic, sensor, messages):
    path = DATA / "rosbags_pointcloud2" / bag
    with Reader(path) as reader:
        connections = [c for c in reader.connections if c.topic == topic]
        expected = [parse_ros1(raw) for _, _, raw in reader.messages(connections)]
    with open_recording(path, topic) as recording:
        found = list(recording.clouds())
        assert len(recording) == len(found) == len(expected) == messages
    for cloud, (stamp_ns, frame, fields, data) in zip(found, expected, strict=True):
        assert (cloud.stamp_ns, cloud.frame_id, cloud.problem) == (stamp_ns, frame, "")
        assert list(cloud.points.dtype.names) == [name for name, *_ in fields]
        for name, offset, datatype, _ in fields:
            column = np.ascontiguousarray(data[:, offset : offset + SIZES[datatype]])
            assert cloud.points[name].tobytes() == column.tobytes(), name
        assert sensor_of(cloud.points.dtype) == sensor


def test_luminar_times_are_absolute_and_in_two_fields():
    with open_recording(DATA / "rosbags_pointcloud2" / "luminar_pointcloud_ros1.bag") as recording:
        for cloud in recording.clouds():
            found = point_times(cloud.points, 1e-9 * cloud.stamp_ns)
            seconds = cloud.points["time_sec"].astype(object) * 10**9 + cloud.points["time_nsec"]
            expected = np.array([1e-9 * (int(t) - cloud.stamp_ns) for t in seconds])
            np.testing.assert_allclose(found.times, expected, atol=3e-7)
            assert found.reference == "absolute" and 0.05 < np.ptp(expected) < 0.11


def lzf_decompress(packed):
    """LZF as its author describes it: a byte at a time."""
    out, at = bytearray(), 0
    while at < len(packed):
        control = packed[at]
        at += 1
        if control < 32:
            out += packed[at : at + control + 1]
            at += control + 1
            continue
        length, distance = control >> 5, (control & 31) << 8
        if length == 7:
            length += packed[at]
            at += 1
        distance += packed[at] + 1
        at += 1
        start = len(out) - distance
        for k in range(length + 2):
            out.append(out[start + k])
    return bytes(out)


@pytest.mark.parametrize(
    ("file", "number", "types"),
    [
        (
            "pcd_layouts/opencalib_top_ring_timestampF64_lzf.pcd",
            80787,
            {"x": "<f4", "y": "<f4", "z": "<f4", "intensity": "<f4", "ring": "<u2",
             "timestamp": "<f8"},
        ),
        (
            "varied_clouds/kinect_mosd_learn0.pcd",
            307200,
            {"label": "<u4", "x": "<f4", "y": "<f4", "z": "<f4", "rgba": "<u4"},
        ),
        ("varied_clouds/airborne_utm_samp11.pcd", 38010, {"x": "<f4", "y": "<f4", "z": "<f4"}),
    ],
)  # fmt: skip
def test_compressed_pcd(file, number, types):
    points = read_points(DATA / file)
    body = (DATA / file).read_bytes().split(b"DATA binary_compressed\n", 1)[1]
    packed_size, size = struct.unpack_from("<II", body)
    raw = lzf_decompress(body[8 : 8 + packed_size])
    assert len(raw) == size and len(points) == number and list(points.dtype.names) == list(types)
    start = 0
    for name, code in types.items():
        end = start + number * np.dtype(code).itemsize
        assert points[name].tobytes() == raw[start:end], name
        start = end


def test_a_depth_camera_s_cloud_organised_with_padded_rows():
    pixels = read_points(DATA / "varied_clouds" / "kinect_mosd_learn0.pcd")
    height, width, step, padding = 480, 640, 32, 24
    rows = np.full((height, width * step + padding), 0xBB, np.uint8)
    cells = rows[:, : width * step].reshape(height, width, step)
    for offset, name in ((0, "x"), (4, "y"), (8, "z"), (16, "rgba")):
        raw = np.ascontiguousarray(pixels[name]).view(np.uint8)
        cells[..., offset : offset + 4] = raw.reshape(height, width, 4)
    message = SimpleNamespace(
        fields=[PointField("x", 0, 7), PointField("y", 4, 7), PointField("z", 8, 7),
                PointField("rgb", 16, 7)],
        height=height, width=width, point_step=step, row_step=width * step + padding,
        is_bigendian=False, is_dense=True, data=rows.tobytes(),
    )  # fmt: skip
    points = points_from_message(message)
    assert sensor_of(points.dtype) == "depth camera with colour"
    assert points["rgb"].tobytes() == pixels["rgba"].tobytes()
    xyz = coordinates(points)
    assert np.count_nonzero(np.isnan(xyz[:, 0])) == 124_908
    for column, axis in enumerate("xyz"):
        assert xyz[:, column].tobytes() == pixels[axis].tobytes()


def test_an_ouster_frame_as_its_driver_sends_it():
    with np.load(DATA / "ouster_os1_128" / "frame0.npz") as frame:
        frame = {name: frame[name] for name in frame.files}
    rings, columns = frame["range_mm"].shape
    layout = next(layout for layout in LAYOUTS if layout.sensor == "Ouster")
    since_first = (frame["column_timestamp_ns"] - frame["column_timestamp_ns"][0]).astype("<u4")
    values = {
        "x": frame["xyz"][..., 0], "y": frame["xyz"][..., 1], "z": frame["xyz"][..., 2],
        "intensity": frame["reflectivity"].astype("<f4"),
        "t": np.broadcast_to(since_first, (rings, columns)),
        "reflectivity": frame["reflectivity"],
        "ring": np.broadcast_to(np.arange(rings, dtype="<u2")[:, None], (rings, columns)),
        "ambient": frame["near_ir"], "range": frame["range_mm"],
    }  # fmt: skip
    data = np.full((rings, columns, layout.point_step), 0xAA, np.uint8)
    for field in layout.fields:
        raw = np.ascontiguousarray(values[field.name]).view(np.uint8).reshape(rings, columns, -1)
        assert raw.shape[-1] == SIZES[field.datatype]
        data[..., field.offset : field.offset + SIZES[field.datatype]] = raw
    message = SimpleNamespace(
        fields=layout.fields, height=rings, width=columns, point_step=layout.point_step,
        row_step=layout.point_step * columns, is_bigendian=False, data=data.tobytes(),
    )  # fmt: skip
    points = points_from_message(message)
    for name, written in values.items():
        assert points[name].tobytes() == np.ascontiguousarray(written).tobytes(), name
    assert np.array_equal(coordinates(points), frame["xyz"].reshape(-1, 3))
    # The driver's stamp is the first column's time.
    found = point_times(points, 1e-9 * int(frame["column_timestamp_ns"][0]))
    assert (found.field, found.unit, found.reference) == ("t", "ns", "header")
    np.testing.assert_allclose(found.times, np.tile(1e-9 * since_first, rings), atol=1e-15)

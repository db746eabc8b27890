import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensor_msgs.msg import PointCloud2, PointField
from std_msgs.msg import Header

from geoaccel_ros.pointcloud.layout import LayoutError, packed_dtype
from geoaccel_ros.ros.pointcloud2 import message_from_points, points_from_message

XYZ_RING = [("x", 0, 7), ("y", 4, 7), ("z", 8, 7), ("ring", 16, 4)]


def cloud(rows, fields=XYZ_RING, step=20, big=False, row_padding=0, height=1):
    """Build a message byte by byte, without the code under test."""
    order = ">" if big else "<"
    codes = {2: "u1", 4: "u2", 7: "f4", 8: "f8"}
    width = len(rows) // height
    data = bytearray()
    for row in range(height):
        for values in rows[row * width : (row + 1) * width]:
            point = bytearray(b"\xaa" * step)
            for (_, offset, datatype), value in zip(fields, values, strict=True):
                raw = np.array(value, order + codes[datatype]).tobytes()
                point[offset : offset + len(raw)] = raw
            data += point
        data += b"\xbb" * row_padding
    message = PointCloud2(
        height=height, width=width, point_step=step, row_step=width * step + row_padding,
        is_bigendian=big, is_dense=True,
        fields=[PointField(name=n, offset=o, datatype=d, count=1) for n, o, d in fields],
    )  # fmt: skip
    message.data = bytes(data)
    return message


ROWS = [(1.0, 2.0, 3.0, 4), (-1.5, 0.25, 1e-3, 65535), (np.inf, -0.0, 7.0, 0), (8.0, 9.0, 10.0, 1)]


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("row_padding", [0, 7])
@pytest.mark.parametrize("height", [1, 2])
def test_every_layout_gives_the_values_that_were_written(big, row_padding, height):
    message = cloud(ROWS, big=big, row_padding=row_padding, height=height)
    before = bytes(message.data)
    points = points_from_message(message)
    assert [tuple(p) for p in points] == ROWS
    assert bytes(message.data) == before, "the message must not be changed by reading it"


def test_a_plain_cloud_is_not_copied():
    message = cloud(ROWS)
    points = points_from_message(message)
    assert np.shares_memory(points, np.frombuffer(message.data, np.uint8))


@pytest.mark.parametrize("row_step", [0, 1, 10_000_000])
def test_row_step_of_a_single_row_does_not_matter(row_step):
    message = cloud(ROWS)
    message.row_step = row_step
    assert [tuple(p) for p in points_from_message(message)] == ROWS


def test_fields_may_come_in_any_order():
    fields = [("ring", 0, 4), ("z", 2, 7), ("x", 6, 7), ("y", 10, 7)]
    message = cloud([(5, 3.0, 1.0, 2.0)], fields, step=14)
    points = points_from_message(message)
    assert points["x"] == 1.0 and points["y"] == 2.0 and points["z"] == 3.0 and points["ring"] == 5


def test_a_cloud_without_points_has_none():
    assert len(points_from_message(cloud([]))) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: setattr(m, "data", bytes(m.data)[:-1]), "80 bytes in all, but carries 79"),
        (lambda m: setattr(m, "width", 2**31), "but carries 80"),
        (lambda m: setattr(m.fields[0], "datatype", 9), "'x' has the unknown datatype 9"),
        (
            lambda m: setattr(m.fields[3], "offset", 19),
            "'ring' ends at byte 21, beyond point_step 20",
        ),
        (lambda m: setattr(m.fields[3], "count", 2**32 - 1), "beyond point_step"),
        (lambda m: setattr(m, "point_step", 0), "beyond point_step 0"),
        (lambda m: setattr(m, "point_step", 2**31), "point_step 2147483648 is too long"),
        (lambda m: setattr(m, "fields", []), "declares no fields"),
    ],
)
def test_a_contradiction_is_refused_by_name(change, message):
    bad = cloud(ROWS)
    change(bad)
    with pytest.raises(LayoutError, match=message):
        points_from_message(bad)


def test_a_written_cloud_reads_back():
    dtype = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("t", "f8"), ("rgb", "u4")])
    points = np.zeros(5, dtype)
    points["t"], points["rgb"] = np.linspace(0, 1, 5), np.arange(5)
    message = message_from_points(Header(frame_id="lidar"), points)
    assert (message.height, message.width, message.point_step, message.row_step) == (1, 5, 24, 120)
    assert [(f.name, f.offset, f.datatype, f.count) for f in message.fields] == [
        ("x", 0, 7, 1), ("y", 4, 7, 1), ("z", 8, 7, 1), ("t", 12, 8, 1), ("rgb", 20, 6, 1)
    ]  # fmt: skip
    assert np.array_equal(points_from_message(message), points)


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(
        st.tuples(
            st.floats(width=32), st.floats(width=32), st.floats(width=32), st.integers(0, 65535)
        ),
        max_size=20,
    ),
    step=st.integers(18, 40),
)
def test_the_distribution_s_reader_gives_the_same(values, step):
    reader = pytest.importorskip("sensor_msgs_py.point_cloud2", reason="no sensor_msgs_py here")
    message = cloud(values, step=step)
    own = points_from_message(message)
    theirs = reader.read_points(message)
    assert own.dtype == theirs.dtype and own.tobytes() == theirs.tobytes()

"""Readers and writers of point files."""

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from geoaccel_ros.pointcloud.files import (
    PointFileError,
    from_xyz,
    losses,
    read_height,
    read_points,
    write_points,
)
from geoaccel_ros.pointcloud.layout import coordinates
from geoaccel_ros.pointcloud.times import point_times

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="real clouds lie in ../shared")


def sample(count=50):
    """Every type that a PointCloud2 may hold, with padding between."""
    dtype = np.dtype(
        {
            "names": ["x", "y", "z", "intensity", "ring", "t", "flag", "label", "timestamp"],
            "formats": ["<f4", "<f4", "<f4", "<f4", "<u2", "<u4", "i1", "<i4", "<f8"],
            "offsets": [0, 4, 8, 16, 20, 24, 28, 32, 40],
            "itemsize": 48,
        }
    )
    rng = np.random.default_rng(0)
    points = np.zeros(count, dtype)
    for name in "xyz":
        points[name] = rng.normal(0, 10, count)
    points["x"][0] = np.nan
    for name in ("ring", "t", "flag", "label"):
        limits = np.iinfo(dtype[name])
        points[name] = rng.integers(limits.min, limits.max, count, endpoint=True)
    points["intensity"], points["timestamp"] = rng.random(count), 1.6e9 + rng.random(count)
    return points


def assert_same_fields(found, expected):
    for name in found.dtype.names:
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize("suffix", [".npy", ".pcd", ".ply", ".PCD", ".NPY"])
def test_everything_survives(tmp_path, suffix):
    points = sample()
    write_points(tmp_path / f"cloud{suffix}", points)
    found = read_points(tmp_path / f"cloud{suffix}")
    assert found.dtype.names == points.dtype.names
    assert_same_fields(found, points)
    for name in found.dtype.names:
        assert found.dtype[name] == points.dtype[name]


def test_bin_keeps_four_floats(tmp_path):
    write_points(tmp_path / "cloud.bin", sample())
    found = read_points(tmp_path / "cloud.bin")
    assert found.dtype.names == ("x", "y", "z", "intensity") and found.dtype.itemsize == 16
    assert_same_fields(found, sample())
    write_points(tmp_path / "xyz.bin", from_xyz(np.ones((3, 3))))
    assert read_points(tmp_path / "xyz.bin")["intensity"].tolist() == [0.0] * 3


def test_what_a_bin_loses_is_told():
    points = np.zeros(3, [("x", "f8"), ("y", "f8"), ("z", "f4"), ("intensity", "u4"), ("t", "u4")])
    # There float32 counts in halves, and 2**24 + 1 is no float32.
    points["x"] = [5_403_548.125, np.nan, 1.0]
    points["intensity"] = 2**24 + 1
    assert losses("a.bin", points) == ["no t", "x is up to 0.12 off", "intensity is up to 1 off"]
    assert losses("a.pcd", points) == losses("a.npy", points) == losses("a.ply", points) == []
    assert losses("a.BIN", from_xyz(np.ones((3, 3)))) == []


def test_rows_of_an_organised_pcd(tmp_path):
    path = tmp_path / "cloud.pcd"
    write_points(path, sample(50), 5)
    assert b"\nWIDTH 10\nHEIGHT 5\n" in path.read_bytes()
    assert read_height(path) == 5
    assert_same_fields(read_points(path), sample(50))
    write_points(path, sample(50))
    assert b"\nWIDTH 50\nHEIGHT 1\n" in path.read_bytes()
    assert read_height(path) == 1
    for suffix in (".npy", ".ply", ".bin"):
        write_points(tmp_path / f"cloud{suffix}", sample(50), 5)
        assert read_height(tmp_path / f"cloud{suffix}") == 1


@pytest.mark.parametrize(
    ("size", "height"),
    [
        (b"WIDTH 10\nHEIGHT 5", 5),
        (b"WIDTH 10\nHEIGHT 4", 1),
        (b"WIDTH 10\nHEIGHT 0", 1),
        (b"WIDTH -10\nHEIGHT -5", 1),
        (b"WIDTH 10\nHEIGHT five", 1),
        (b"WIDTH 10\nHEIGHT", 1),
        (b"VERSION 0.7", 1),
    ],
)
def test_rows_that_do_not_give_the_points_are_one(tmp_path, size, height):
    path = tmp_path / "cloud.pcd"
    write_points(path, sample(50))
    path.write_bytes(path.read_bytes().replace(b"WIDTH 50\nHEIGHT 1", size))
    assert read_height(path) == height
    assert len(read_points(path)) == 50


def test_big_endian_is_written_little_endian(tmp_path):
    points = sample()
    big = points.astype(
        np.dtype([(n, points.dtype[n].newbyteorder(">")) for n in points.dtype.names])
    )
    for suffix in (".pcd", ".ply"):
        write_points(tmp_path / f"cloud{suffix}", big)
        assert_same_fields(read_points(tmp_path / f"cloud{suffix}"), points)


@pytest.mark.parametrize("columns", [3, 4])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_plain_arrays(tmp_path, columns, dtype):
    table = np.random.default_rng(1).normal(size=(20, columns)).astype(dtype)
    np.save(tmp_path / "cloud.npy", table)
    found = read_points(tmp_path / "cloud.npy")
    assert found.dtype["x"] == dtype
    for column, name in enumerate(("x", "y", "z", "intensity")[:columns]):
        np.testing.assert_array_equal(
            found[name], table[:, column].astype("f4" if column == 3 else dtype)
        )


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("f2", 0.5),
        ("f4", np.float32(0.1)),
        ("f8", 5_403_548.123),
        (">f8", 5_403_548.123),
        ("i2", -30_000),
        ("i4", 2**31 - 7),
        ("u4", 2**32 - 5),
        ("i8", 2**40 + 1),
    ],
)
def test_coordinates_keep_every_digit(tmp_path, code, value):
    plain = np.full((2, 3), value, code)
    fields = np.full(2, value, code).repeat(3).view([(axis, code) for axis in "xyz"])
    for array in plain, fields:
        np.save(tmp_path / "cloud.npy", array)
        found = coordinates(read_points(tmp_path / "cloud.npy"))
        assert found.shape == (2, 3) and found.dtype in (np.float32, np.float64)
        assert found.tolist() == [[value] * 3] * 2


PCD = """# comment
VERSION 0.7
FIELDS {fields}
SIZE {sizes}
TYPE {types}
COUNT {counts}
WIDTH 3
HEIGHT 1
VIEWPOINT 0 0 0 1 0 0 0
POINTS {points}
DATA {data}
"""


def pcd(**changes):
    header = {"fields": "x y z _ ring normal", "sizes": "4 4 8 1 2 4", "types": "F F F U U F",
              "counts": "1 1 1 4 1 3", "points": 3, "data": "ascii"}  # fmt: skip
    return PCD.format(**(header | changes)).encode()


def test_ascii_pcd(tmp_path):
    rows = (
        b"1 2 3 0 0 0 0 7 .1 .2 .3\nnan -2.5e-1 3e2 0 0 0 0 65535 1 2 3\n\n4 5 6 0 0 0 0 0 0 0 0\n"
    )
    (tmp_path / "cloud.pcd").write_bytes(pcd() + rows)
    found = read_points(tmp_path / "cloud.pcd")
    assert found.dtype.names == ("x", "y", "z", "ring", "normal")
    np.testing.assert_array_equal(found["x"], np.array([1, np.nan, 4], "f4"))
    assert found["z"].tolist() == [3.0, 300.0, 6.0] and found["z"].dtype == np.float64
    assert found["ring"].tolist() == [7, 65535, 0] and found["normal"].shape == (3, 3)


def test_compressed_pcd_with_copies_that_overlap(tmp_path):
    # x: a literal float, then 8 bytes from 4 back; y, z: zeros by copies that overlap.
    literal = bytes([3]) + struct.pack("<f", 1.5)
    packed = literal + bytes([(6 << 5), 3]) + bytes([0, 0]) + bytes([(7 << 5), 23 - 9, 0])
    body = struct.pack("<II", len(packed), 36) + packed
    header = pcd(
        fields="x y z", sizes="4 4 4", types="F F F", counts="1 1 1", data="binary_compressed"
    )
    (tmp_path / "cloud.pcd").write_bytes(header + body)
    found = read_points(tmp_path / "cloud.pcd")
    assert (
        found["x"].tolist() == [1.5] * 3 and found["y"].tolist() == found["z"].tolist() == [0.0] * 3
    )


PLY = "ply\nformat {format} 1.0\ncomment made by hand\nelement vertex 2\nproperty float x\n" \
      "property double y\nproperty float z\nproperty uchar red\nelement face 1\n" \
      "property list uchar int vertex_indices\nend_header\n"  # fmt: skip


def test_ply_of_all_formats(tmp_path):
    rows = [(1.5, 2.5, -3.0, 255), (4.0, 5.0, 6.0, 0)]
    bodies = {
        "ascii": b"1.5 2.5 -3 255\n4 5 6 0\n3 0 1 1\n",
        "binary_little_endian": b"".join(struct.pack("<fdfB", *row) for row in rows) + b"\x03",
        "binary_big_endian": b"".join(struct.pack(">fdfB", *row) for row in rows) + b"\x03",
    }
    for name, body in bodies.items():
        (tmp_path / "cloud.ply").write_bytes(PLY.format(format=name).encode() + body)
        found = read_points(tmp_path / "cloud.ply")
        assert [tuple(point) for point in found.tolist()] == rows, name
        assert found.dtype["y"] == np.float64 and found.dtype["red"] == np.uint8


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.bin", b"1234567", "7 bytes, not a multiple of the 16"),
        ("a.bin", b"", "no points"),
        ("a.pcd.bin", b"x" * 16, "not a multiple of the 20"),
        ("a.npy", b"hello", "not a NumPy array"),
        ("a.pcd", b"hello", "header does not end"),
        ("a.pcd", b"hello\nDATA ascii\n", "no FIELDS in its header"),
        ("a.pcd", pcd(points="many"), "a number of its header is not a number"),
        ("a.pcd", pcd(sizes="4 4"), "differ in length"),
        ("a.pcd", pcd(types="F F F U U Q"), "field 'normal' has the unknown type Q"),
        ("a.pcd", pcd(fields="x x z _ ring normal"), "two fields are called 'x'"),
        ("a.pcd", pcd(data="zipped"), "unknown DATA 'zipped'"),
        ("a.pcd", pcd() + b"1 2 3 0 0 0 0 7 1 2 3\n", "1 lines of points, its header declares 3"),
        ("a.pcd", pcd(points=1) + b"1 2\n", "line 12: 11 values expected, found 2"),
        (
            "a.pcd",
            pcd(points=1) + b"1 2 u 0 0 0 0 7 1 2 3\n",
            "line 12: z is 'u', which is no number",
        ),
        (
            "a.pcd",
            pcd(points=1) + b"1 2 3 0 0 0 0 65536 1 2 3\n",
            "line 12: ring is '65536', which is no uint16",
        ),
        ("a.pcd", pcd(points=-1, data="binary"), "declares -1 points"),
        ("a.pcd", pcd(counts="1 1 1 4 1 99999"), "declares 100007 values a point"),
        ("a.pcd", pcd(data="binary") + b"123", "3 bytes of points, its header declares 102"),
        ("a.pcd", pcd(data="binary_compressed") + b"123", "shorter than its header declares"),
        (
            "a.pcd",
            pcd(data="binary_compressed") + struct.pack("<II", 3, 102) + b"\xe0\xff\xff",
            "compressed data is damaged",
        ),
        ("a.pcd", pcd(fields="a b c _ ring normal", data="binary") + b"0" * 102, "no x, y, z"),
        ("a.pcd", pcd(points=0, data="binary"), "no points"),
        ("a.ply", b"plyx", "no complete header"),
        ("a.ply", b"ply\nformat ascii 1.0\nelement face 1\nend_header\n", "first element"),
        (
            "a.ply",
            b"ply\nformat ascii 1.0\nelement vertex 1\nproperty list uchar int x\nend_header\n",
            "unsupported property",
        ),
        (
            "a.ply",
            b"ply\nformat morse 1.0\nelement vertex 1\nproperty float x\nend_header\n",
            "unknown format 'morse'",
        ),
        (
            "a.ply",
            "ply\nformat ascii 1.0\nelement vertex \u00b2\nend_header\n".encode("latin-1"),
            "the number of vertices is no number",
        ),
        (
            "a.ply",
            PLY.format(format="ascii").encode() + b"1 2 3 4\n5 6 7 256\n",
            "line 13: red is '256', which is no uint8",
        ),
        ("a.obj", b"", "unknown kind of file '.obj' (known: .bin, .csv, .las"),
        ("a", b"", "unknown kind of file ''"),
    ],
)
def test_a_line_that_names_file_and_reason(tmp_path, name, content, reason):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PointFileError, match=re.escape(reason)) as raised:
        read_points(tmp_path / name)
    assert str(raised.value).startswith(str(tmp_path / name)) and "\n" not in str(raised.value)


def test_arrays_that_are_no_clouds(tmp_path):
    for array in (np.zeros((4, 2)), np.zeros(7), np.zeros((3, 3), complex), np.zeros((2, 2, 3))):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(PointFileError, match="an array of shape"):
            read_points(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.zeros(2, [("x", "U3"), ("y", "f4"), ("z", "f4")]))
    with pytest.raises(PointFileError, match="x is no number but <U3"):
        read_points(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(PointFileError, match="not a NumPy array"):
        read_points(tmp_path / "a.npy")
    np.savez(tmp_path / "a.npz", np.zeros((3, 3)))
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(PointFileError, match="not a NumPy array"):
        read_points(tmp_path / "a.npy")


def test_absent_files_and_folders(tmp_path):
    with pytest.raises(PointFileError, match="No such file"):
        read_points(tmp_path / "absent.pcd")
    (tmp_path / "folder.pcd").mkdir()
    with pytest.raises(PointFileError, match="Is a directory"):
        read_points(tmp_path / "folder.pcd")
    with pytest.raises(PointFileError, match="No such file"):
        write_points(tmp_path / "absent" / "a.pcd", sample())
    with pytest.raises(PointFileError, match=r"as '.txt' \(can be written: .bin, .npy, .pcd, .ply"):
        write_points(tmp_path / "a.txt", sample())


def test_ply_refuses_what_it_has_no_type_for(tmp_path):
    points = np.zeros(2, [("x", "f4"), ("y", "f4"), ("z", "f4"), ("normal", "f4", (3,))])
    with pytest.raises(PointFileError, match="no type for field 'normal'"):
        write_points(tmp_path / "a.ply", points)
    write_points(tmp_path / "a.pcd", points)
    assert read_points(tmp_path / "a.pcd")["normal"].shape == (2, 3)


@pytest.mark.parametrize("suffix", [".pcd", ".ply"])
@pytest.mark.parametrize("name", ["echo width", "returns#", "größe"])
def test_names_that_a_header_cannot_hold(tmp_path, suffix, name):
    points = np.zeros(2, [("x", "f4"), ("y", "f4"), ("z", "f4"), (name, "f4")])
    with pytest.raises(PointFileError, match=f"cannot hold a field called '{name}'; .npy can"):
        write_points(tmp_path / f"a{suffix}", points)
    write_points(tmp_path / "a.npy", points)
    assert read_points(tmp_path / "a.npy").dtype.names[3] == name


def test_padding_is_no_name_for_a_field_of_pcd(tmp_path):
    points = np.zeros(2, [("x", "f4"), ("y", "f4"), ("z", "f4"), ("_", "f4")])
    with pytest.raises(PointFileError, match="a field is called _"):
        write_points(tmp_path / "a.pcd", points)


@needs_data
@pytest.mark.parametrize(
    ("name", "count"), [("velodyne_hdl32_pad32.pcd", 58072), ("velodyne_vlp16_pad32.pcd", 26926)]
)
def test_real_padded_pcd_is_read_bit_by_bit(name, count):
    path = DATA / "pcd_layouts" / name
    found = read_points(path)
    assert len(found) == count and found.dtype.itemsize == 32
    body = path.read_bytes().split(b"DATA binary\n", 1)[1]
    raw = np.frombuffer(body[: count * 32], np.uint8).reshape(count, 32)
    for field, offset, dtype in (
        ("x", 0, "<f4"),
        ("z", 8, "<f4"),
        ("intensity", 16, "<f4"),
        ("ring", 20, "<u2"),
    ):
        width = np.dtype(dtype).itemsize
        expected = raw[:, offset : offset + width].copy().view(dtype)[:, 0]
        assert found[field].tobytes() == expected.tobytes()
    assert found["ring"].max() == (31 if count > 50_000 else 15)


@needs_data
def test_real_compressed_pcd_with_absolute_times():
    found = read_points(DATA / "pcd_layouts" / "opencalib_top_ring_timestampF64_lzf.pcd")
    assert len(found) == 80787 and found.dtype.itemsize == 26
    assert set(np.unique(found["ring"])) <= set(range(64))
    stamp = float(found["timestamp"].min())
    times = point_times(found, stamp).times
    assert times.min() == 0.0 and 0.09 < times.max() < 0.11


@needs_data
def test_real_nuscenes_bin():
    path = DATA / "pcd_layouts" / "nuscenes_LIDAR_TOP_xyzi_ring_f32x5.pcd.bin"
    found = read_points(path)
    assert len(found) == 34688 and found.tobytes() == path.read_bytes()
    assert sorted(np.unique(found["ring"])) == list(range(32))


@needs_data
def test_real_organised_compressed_pcd():
    found = read_points(DATA / "varied_clouds" / "kinect_mosd_learn0.pcd")
    assert read_height(DATA / "varied_clouds" / "kinect_mosd_learn0.pcd") == 480
    assert len(found) == 307200 and int(np.isnan(found["x"]).sum()) == 124908
    assert found["rgba"].dtype == np.uint32


@needs_data
def test_real_ascii_or_binary_pcd_of_utm_size_and_ply():
    found = read_points(DATA / "varied_clouds" / "airborne_utm_samp11.pcd")
    assert len(found) == 38010 and 295 <= found["z"].min() and found["z"].max() < 405
    assert len(read_points(DATA / "gicp_pair" / "source.ply")) == 69792

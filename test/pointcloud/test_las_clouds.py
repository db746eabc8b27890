"""LAS and LAZ, written by laspy: coordinates, dimensions, bit fields, and what is refused."""

import io
import struct
import sys

import laspy
import lazrs
import numpy as np
import pytest

from geoaccel_ros.pointcloud.files import PointFileError, read_points, write_points

# LASzip's chunks are of 50000 points: one that is not full, two that are, three.
COUNTS = [1, 100_000, 120_001]


def made(point_format=3, version="1.4", count=3, extra=()):
    """Return points in UTM coordinates, every dimension filled to its limits."""
    header = laspy.LasHeader(point_format=point_format, version=version)
    header.scales, header.offsets = [0.001, 0.01, 0.5], [500_000.0, 5_400_000.0, -10.0]
    header.add_extra_dims(list(extra))
    las = laspy.LasData(header)
    rng = np.random.default_rng(point_format)
    las.X, las.Y, las.Z = (rng.integers(-(10**6), 10**6, count) for _ in range(3))
    for dimension in las.point_format.dimensions:
        if dimension.name not in ("X", "Y", "Z") and dimension.is_standard:
            if dimension.kind == laspy.point.dims.DimensionKind.FloatingPoint:
                las[dimension.name] = rng.normal(0, 1e5, count)
            else:
                low, high = dimension.min, dimension.max
                las[dimension.name] = rng.integers(low, high, count, dtype=f"{'iu'[low == 0]}8")
    if point_format in (9, 10):
        # lazrs 0.8.2 writes or reads wrong wave packets where the scanner channel changes.
        las.scanner_channel[:] = 2
    return las


def encoded(las, compressed):
    stream = io.BytesIO()
    las.write(stream, do_compress=compressed)
    return bytearray(stream.getvalue())


def test_values_by_hand(tmp_path):
    las = made(6, extra=[laspy.ExtraBytesParams("echo width", "f4")])
    las.X, las.Y, las.Z = [0, 1, -2_147_483_648], [123, -123, 7], [1, 2, 3]
    las.intensity, las.classification = [0, 1, 65535], [2, 6, 255]
    las.return_number, las.number_of_returns = [1, 2, 15], [15, 2, 15]
    las.overlap, las.scanner_channel = [0, 1, 0], [3, 0, 1]
    las.scan_angle, las.gps_time = [-30000, 0, 30000], [0.5, 1e9, 1.25]
    las["echo width"] = [0.25, 0.5, 0.75]
    for suffix in (".las", ".laz", ".LAZ"):
        las.write(tmp_path / f"a{suffix}", do_compress=suffix != ".las")
        found = read_points(tmp_path / f"a{suffix}")
        assert found.dtype.names[:4] == ("x", "y", "z", "intensity")
        assert found["x"].dtype == np.float64
        assert found["x"].tolist() == [500_000.0, 500_000.001, 500_000.0 - 2_147_483.648]
        assert found["y"].tolist() == [5_400_001.23, 5_399_998.77, 5_400_000.07]
        assert found["z"].tolist() == [-9.5, -9.0, -8.5]
        assert found["intensity"].dtype == np.uint16
        assert found["intensity"].tolist() == [0, 1, 65535]
        assert found["classification"].tolist() == [2, 6, 255]
        assert found["return_number"].dtype == np.uint8
        assert found["return_number"].tolist() == [1, 2, 15]
        assert found["number_of_returns"].tolist() == [15, 2, 15]
        assert found["overlap"].tolist() == [0, 1, 0]
        assert found["scanner_channel"].tolist() == [3, 0, 1]
        assert found["scan_angle"].tolist() == [-30000, 0, 30000]
        assert found["gps_time"].tolist() == [0.5, 1e9, 1.25]
        assert found["echo width"].dtype == np.float32
        assert found["echo width"].tolist() == [0.25, 0.5, 0.75]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("version", "point_format"),
    [("1.2", 0), ("1.2", 3), *(("1.4", point_format) for point_format in range(11))],
)
def test_every_point_format(tmp_path, version, point_format, compressed):
    las = made(point_format, version, 50)
    (tmp_path / "a.las").write_bytes(encoded(las, compressed))
    found = read_points(tmp_path / "a.las")
    names = [name for name in las.point_format.dimension_names if name not in ("X", "Y", "Z")]
    assert list(found.dtype.names) == ["x", "y", "z", *names]
    for name in found.dtype.names:
        np.testing.assert_array_equal(found[name], np.asarray(las[name]))
        assert found.dtype[name] == np.asarray(las[name]).dtype


@pytest.mark.parametrize("point_format", [1, 7])
@pytest.mark.parametrize("count", COUNTS)
def test_chunks_of_laz(tmp_path, point_format, count):
    las = made(point_format, count=count)
    las.write(tmp_path / "a.laz")
    found = read_points(tmp_path / "a.laz")
    assert len(found) == count
    for name in ("x", "intensity", "gps_time"):
        np.testing.assert_array_equal(found[name], np.asarray(las[name]))


@pytest.mark.parametrize("point_format", [1, 7])
def test_laz_of_chunks_that_vary(tmp_path, point_format):
    """As in a COPC file, whose chunks are the nodes of an octree."""
    las = made(point_format, count=300)
    record = lazrs.LazVlr.new_for_compression(point_format, 0, use_variable_size_chunks=True)
    las.header.vlrs.append(laspy.VLR("laszip encoded", 22204, "", record.record_data()))
    header = encoded(las, False)
    header = header[: struct.unpack_from("<I", header, 96)[0]]
    header[104] |= 0x80
    stream = io.BytesIO(header)
    stream.seek(0, io.SEEK_END)
    compressor = lazrs.LasZipCompressor(stream, record)
    raw = np.frombuffer(las.points.array, np.uint8)
    size = las.point_format.size
    compressor.compress_chunks([raw[: 10 * size], raw[10 * size : 210 * size], raw[210 * size :]])
    compressor.done()
    (tmp_path / "a.laz").write_bytes(stream.getvalue())
    found = read_points(tmp_path / "a.laz")
    for name in ("x", "intensity", "gps_time"):
        np.testing.assert_array_equal(found[name], np.asarray(las[name]))


def test_extra_dimensions(tmp_path):
    las = made(
        extra=[
            laspy.ExtraBytesParams("height", "i2", offsets=np.array([5.0]), scales=np.array([0.5])),
            laspy.ExtraBytesParams("normal", "3f8"),
            laspy.ExtraBytesParams("label", "u8"),
        ]
    )
    las.height, las.label = [5.0, -7.5, 100.0], [0, 1, 2**64 - 1]
    las.normal = np.arange(9.0).reshape(3, 3)
    for suffix in (".las", ".laz"):
        las.write(tmp_path / f"a{suffix}")
        found = read_points(tmp_path / f"a{suffix}")
        assert found["height"].tolist() == [5.0, -7.5, 100.0]
        assert found["label"].tolist() == [0, 1, 2**64 - 1]
        assert found["normal"].tolist() == np.arange(9.0).reshape(3, 3).tolist()


def test_what_was_read_can_be_written(tmp_path):
    las = made(7, count=20)
    las.write(tmp_path / "a.laz")
    found = read_points(tmp_path / "a.laz")
    write_points(tmp_path / "a.pcd", found)
    again = read_points(tmp_path / "a.pcd")
    assert again.dtype.names == found.dtype.names and again.tolist() == found.tolist()


@pytest.mark.parametrize(("name", "package"), [("a.las", "laspy"), ("a.laz", "lazrs")])
def test_without_the_optional_packages(tmp_path, monkeypatch, name, package):
    made().write(tmp_path / name)
    if package == "laspy":
        monkeypatch.setitem(sys.modules, "laspy", None)
    else:
        # What laspy has where the import failed.
        monkeypatch.setattr("laspy._compression.lazrsbackend.lazrs", None)
    with pytest.raises(PointFileError, match=rf"need {package}: pip install 'geoaccel_ros\[las\]'"):
        read_points(tmp_path / name)


HEADER_FIELDS = {
    # Where they lie in a header of version 1.4, and their types.
    "points_at": (96, "<I"),
    "records": (100, "<I"),
    "point_format": (104, "<B"),
    "point_size": (105, "<H"),
    "scale": (131, "<d"),
    "offset": (155, "<d"),
    "count": (247, "<Q"),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("points_at", 2**32 - 1, "its points begin outside of it"),
        ("points_at", 100, "its points begin outside of it"),
        ("records", 2**32 - 1, "4294967295 records do not fit"),
        ("point_size", 2**16 - 1, "a damaged LAZ file|too few for the 3"),
        ("point_size", 3, "a damaged LAS file"),
        ("scale", float("nan"), "its scales or offsets are no numbers"),
        ("offset", float("inf"), "its scales or offsets are no numbers"),
        ("scale", 1e308, "its scales or offsets are no numbers"),
        ("count", 0, "no points"),
        ("count", 4, "points"),
        ("count", 2**40, "too few for the 1099511627776 that its header declares"),
        ("count", 2**64 - 1, "too few for the 18446744073709551615 that its header declares"),
    ],
)
def test_headers_that_lie(tmp_path, capfd, compressed, field, value, reason):
    raw = encoded(made(7), compressed)
    offset, code = HEADER_FIELDS[field]
    struct.pack_into(code, raw, offset, value)
    (tmp_path / "a.laz").write_bytes(raw)
    with pytest.raises(PointFileError, match=reason) as raised:
        read_points(tmp_path / "a.laz")
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


# Within LASzip's own record, its header of 54 bytes included.
IDENTIFIER, COMPRESSOR, NUMBER_OF_ITEMS, ITEM_TYPE, ITEM_SIZE = 2, 54, 86, 88, 90
POINT_SIZE = 40  # of format 7 with 4 extra bytes
LAYERS_AT = 8 + POINT_SIZE + 4


@pytest.mark.parametrize(
    ("part", "offset", "code", "value", "reason"),
    [
        ("record", IDENTIFIER, "<B", 0, "does not say how it is compressed"),
        ("record", COMPRESSOR, "<H", 9, "a damaged LAS file"),
        ("record", NUMBER_OF_ITEMS, "<H", 2, "not the items of point format 7"),
        ("record", NUMBER_OF_ITEMS, "<H", 65535, "a damaged LAS file"),
        ("record", ITEM_TYPE, "<H", 6, "not the items of point format 7"),
        ("record", ITEM_TYPE, "<H", 60_000, "a damaged LAS file"),
        ("record", ITEM_SIZE, "<H", 60_000, "not the items of point format 7"),
        ("points", 0, "<q", 2**62, "ends before its table of chunks"),
        ("points", 0, "<q", 1, "ends before its table of chunks"),
        ("points", 8 + POINT_SIZE, "<I", 2**31, "2147483648 points, its header declares 3"),
        ("points", LAYERS_AT, "<I", 2**32 - 1, "a layer ends beyond its chunk"),
        ("table", 4, "<I", 2**32 - 1, "4294967295 chunks in"),
        ("table", 4, "<I", 0, "0 points, its header declares 3"),
    ],
)
def test_compression_that_lies(tmp_path, part, offset, code, value, reason):
    raw = encoded(made(7, extra=[laspy.ExtraBytesParams("w", "f4")]), True)
    (points_at,) = struct.unpack_from("<I", raw, 96)
    (table_at,) = struct.unpack_from("<q", raw, points_at)
    record_at = raw.index(b"laszip encoded") - 2
    start = {"record": record_at, "points": points_at, "table": table_at}[part]
    struct.pack_into(code, raw, start + offset, value)
    (tmp_path / "a.laz").write_bytes(raw)
    with pytest.raises(PointFileError, match=reason):
        read_points(tmp_path / "a.laz")


def test_fewer_points_than_declared_in_full_chunks(tmp_path):
    raw = encoded(made(1, count=100_000), True)
    for count in (50_000, 100_001, 150_000):
        struct.pack_into("<Q", raw, HEADER_FIELDS["count"][0], count)
        (tmp_path / "a.laz").write_bytes(raw)
        with pytest.raises(PointFileError, match=f"its header declares {count}"):
            read_points(tmp_path / "a.laz")

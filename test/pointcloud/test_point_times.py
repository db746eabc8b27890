"""Point times as the drivers of the world send them."""

import numpy as np
import pytest

from geoaccel_ros.pointcloud.times import TIME_FIELDS, point_times

STAMP = 1_635_236_489.25
OFFSETS = np.linspace(0.0, 0.1, 101)


def cloud(values, name="t", dtype=None):
    values = np.asarray(values)
    points = np.ones(
        len(values), [("x", "f4"), ("y", "f4"), ("z", "f4"), (name, dtype or values.dtype)]
    )
    points[name] = values
    return points


@pytest.mark.parametrize(
    ("name", "values", "tolerance"),
    [
        # float32 seconds relative to the stamp: steps of 7e-9 s at 0.1 s.
        ("time", OFFSETS.astype("f4"), 1e-8),
        ("t", (OFFSETS * 1e9).astype("u4"), 1e-9),
        # float64 seconds since 1970 have steps of 2.4e-7 s, nanoseconds of 256 ns.
        ("timestamp", STAMP + OFFSETS, 3e-7),
        ("timestamp", (STAMP + OFFSETS) * 1e9, 6e-7),
        ("offset_time", (OFFSETS * 1e9).astype("u4"), 1e-9),
        ("time_offset", (OFFSETS * 1e6).astype("i4"), 1e-6),
        ("stamps", (OFFSETS * 1e3).astype("u2"), 1e-3),
        ("timestamps", (OFFSETS * 1e3).astype("u1"), 1e-3),
        ("time_stamp", (OFFSETS * 1e3).astype("i1"), 1e-3),
        ("t", (OFFSETS * 1e3).astype("i2"), 1e-3),
        ("t", (1e9 * STAMP + OFFSETS * 1e9).astype("u8"), 3e-7),
    ],
    ids=[
        "Velodyne", "Ouster", "Hesai", "Livox", "u4 ns", "i4 us", "u2 ms", "u1 ms", "i1 ms",
        "i2 ms", "u8 ns since 1970",
    ],
)  # fmt: skip
def test_unit_follows_from_type_and_sweep(name, values, tolerance):
    found = point_times(cloud(values, name), STAMP)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, OFFSETS, atol=tolerance)


@pytest.mark.parametrize("name", [*TIME_FIELDS, "timeStamp", "Time", "OFFSET_TIME", "T"])
def test_every_name_in_any_case(name):
    np.testing.assert_allclose(point_times(cloud(OFFSETS, name), STAMP), OFFSETS)


def test_seconds_and_nanoseconds_in_two_fields():
    points = np.ones(
        101, [("x", "f4"), ("y", "f4"), ("z", "f4"), ("time_sec", "u4"), ("time_nsec", "u4")]
    )
    ticks = np.round((STAMP % 1 + 0.7 + OFFSETS) * 1e9).astype(np.int64)
    points["time_sec"] = int(STAMP) + ticks // 10**9
    points["time_nsec"] = ticks % 10**9
    np.testing.assert_allclose(point_times(points, STAMP), 0.7 + OFFSETS, atol=3e-7)


def test_relative_to_the_sweep_s_end():
    offsets = np.linspace(-0.099, 0.0006, 50)
    np.testing.assert_allclose(
        point_times(cloud(offsets.astype("f4"), "time"), STAMP), offsets, atol=1e-8
    )


@pytest.mark.parametrize("first", [-0.099, 0.0, 0.02, 1.5])
def test_absolute_times_keep_their_distance_to_the_stamp(first):
    found = point_times(cloud(STAMP + first + OFFSETS, "timestamp"), STAMP)
    np.testing.assert_allclose(found, first + OFFSETS, atol=5e-7)


def test_time_since_the_sensor_s_start_is_put_at_the_stamp():
    # 5000 s after its start, in float64 nanoseconds, while the header counts from 1970.
    found = point_times(cloud((5000.0 + OFFSETS) * 1e9, "t"), STAMP)
    np.testing.assert_allclose(found, OFFSETS, atol=1e-6)


def test_simulated_time():
    np.testing.assert_allclose(point_times(cloud(12.3 + OFFSETS), 12.3), OFFSETS, atol=1e-12)
    # In the first second relative is taken.
    np.testing.assert_allclose(point_times(cloud(OFFSETS), 0.05), OFFSETS)


def test_minimum_is_subtracted_before_scaling():
    """Steps of 10 us survive in nanoseconds since 1970, though scaled first they would blur."""
    ticks = np.int64(1_635_236_489_250_000_000) + np.arange(1000, dtype=np.int64) * 10_000
    found = point_times(cloud(ticks), STAMP)
    np.testing.assert_allclose(np.diff(found), 1e-5, atol=1e-15)


def test_order_of_the_points_does_not_matter():
    shuffled = np.random.default_rng(0).permutation(OFFSETS)
    np.testing.assert_allclose(point_times(cloud(shuffled), STAMP), shuffled)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(50),
        np.full(50, STAMP),
        np.append(OFFSETS, np.nan),
        np.append(OFFSETS, np.inf),
        # float32 seconds since 1970: steps of 128 s, all equal or minutes apart.
        (STAMP + OFFSETS).astype("f4"),
        np.array([0.0, 5e9]),
        np.array([0.0, 1e-12]),
        np.array([3.0]),
        np.array([], dtype=float),
    ],
    ids=[
        "zeros", "equal", "nan", "infinity", "float32 since 1970", "5 s in ns", "picoseconds",
        "one", "none",
    ],
)  # fmt: skip
def test_no_usable_time(values):
    assert point_times(cloud(values), STAMP) is None


def test_clouds_without_a_time_field():
    assert point_times(cloud(OFFSETS, "intensity"), STAMP) is None
    points = np.zeros(10, [("x", "f4"), ("y", "f4"), ("z", "f4"), ("t", "u4", (2,))])
    assert point_times(points, STAMP) is None


def test_points_without_a_return_do_not_count():
    """Drivers write zeros, or NaN, for a ray that met nothing: its time too."""
    points = cloud(np.append(STAMP + OFFSETS, [0.0, np.nan]), "timestamp")
    for axis in "xyz":
        points[axis][-2], points[axis][-1] = 0.0, np.nan
    found = point_times(points, STAMP)
    np.testing.assert_allclose(found[:-2], OFFSETS, atol=3e-7)


def test_big_endian():
    found = point_times(cloud((OFFSETS * 1e9).astype(">u4"), "t"), STAMP)
    np.testing.assert_allclose(found, OFFSETS, atol=1e-9)

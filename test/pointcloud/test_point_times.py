"""Point times as the drivers of the world send them."""

import numpy as np
import pytest

from geoaccel_ros.pointcloud.times import TIME_FIELDS, PointTimesConfig, point_times

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
    found = point_times(cloud(values, name), STAMP).times
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, OFFSETS, atol=tolerance)


@pytest.mark.parametrize("name", [*TIME_FIELDS, "timeStamp", "Time", "OFFSET_TIME", "T"])
def test_every_name_in_any_case(name):
    np.testing.assert_allclose(point_times(cloud(OFFSETS, name), STAMP).times, OFFSETS)


def test_seconds_and_nanoseconds_in_two_fields():
    points = np.ones(
        101, [("x", "f4"), ("y", "f4"), ("z", "f4"), ("time_sec", "u4"), ("time_nsec", "u4")]
    )
    ticks = np.round((STAMP % 1 + 0.7 + OFFSETS) * 1e9).astype(np.int64)
    points["time_sec"] = int(STAMP) + ticks // 10**9
    points["time_nsec"] = ticks % 10**9
    np.testing.assert_allclose(point_times(points, STAMP).times, 0.7 + OFFSETS, atol=3e-7)


def test_relative_to_the_sweep_s_end():
    offsets = np.linspace(-0.099, 0.0006, 50)
    np.testing.assert_allclose(
        point_times(cloud(offsets.astype("f4"), "time"), STAMP).times, offsets, atol=1e-8
    )


@pytest.mark.parametrize("first", [-0.099, 0.0, 0.02, 1.5])
def test_absolute_times_keep_their_distance_to_the_stamp(first):
    found = point_times(cloud(STAMP + first + OFFSETS, "timestamp"), STAMP).times
    np.testing.assert_allclose(found, first + OFFSETS, atol=5e-7)


def test_time_since_the_sensor_s_start_is_put_at_the_stamp():
    # 5000 s after its start, in float64 nanoseconds, while the header counts from 1970.
    found = point_times(cloud((5000.0 + OFFSETS) * 1e9, "t"), STAMP).times
    np.testing.assert_allclose(found, OFFSETS, atol=1e-6)


def test_simulated_time():
    np.testing.assert_allclose(point_times(cloud(12.3 + OFFSETS), 12.3).times, OFFSETS, atol=1e-12)
    # In the first second relative is taken.
    np.testing.assert_allclose(point_times(cloud(OFFSETS), 0.05).times, OFFSETS)


def test_minimum_is_subtracted_before_scaling():
    """Steps of 10 us survive in nanoseconds since 1970, though scaled first they would blur."""
    ticks = np.int64(1_635_236_489_250_000_000) + np.arange(1000, dtype=np.int64) * 10_000
    found = point_times(cloud(ticks), STAMP).times
    np.testing.assert_allclose(np.diff(found), 1e-5, atol=1e-15)


def test_order_of_the_points_does_not_matter():
    shuffled = np.random.default_rng(0).permutation(OFFSETS)
    np.testing.assert_allclose(point_times(cloud(shuffled), STAMP).times, shuffled)


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
    assert point_times(cloud(values), STAMP).times is None


def test_clouds_without_a_time_field():
    assert point_times(cloud(OFFSETS, "intensity"), STAMP).times is None
    points = np.zeros(10, [("x", "f4"), ("y", "f4"), ("z", "f4"), ("t", "u4", (2,))])
    assert point_times(points, STAMP).times is None


def test_points_without_a_return_do_not_count():
    """Drivers write zeros, or NaN, for a ray that met nothing: its time too."""
    points = cloud(np.append(STAMP + OFFSETS, [0.0, np.nan]), "timestamp")
    for axis in "xyz":
        points[axis][-2], points[axis][-1] = 0.0, np.nan
    found = point_times(points, STAMP).times
    np.testing.assert_allclose(found[:-2], OFFSETS, atol=3e-7)


def test_big_endian():
    found = point_times(cloud((OFFSETS * 1e9).astype(">u4"), "t"), STAMP).times
    np.testing.assert_allclose(found, OFFSETS, atol=1e-9)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.zeros(50), "field 't': all 50 times are equal (0)"),
        (np.full(50, STAMP), f"field 't': all 50 times are equal ({STAMP})"),
        (np.append(OFFSETS, np.nan), "field 't': 1 of 102 times are not finite"),
        (
            np.array([0.0, 5e9]),
            "field 't': from 0 to 5000000000 is no sweep of 1 ms to 1 s in s, ms, us, ns",
        ),
        (np.array([], dtype=float), "field 't': no point has a return"),
    ],
    ids=["zeros", "equal", "nan", "5 s in ns", "none"],
)
def test_the_reason_names_the_field_and_what_is_wrong_with_it(values, reason):
    assert point_times(cloud(values), STAMP).reason == reason


def test_the_reason_names_the_fields_present():
    found = point_times(cloud(OFFSETS, "intensity"), STAMP)
    assert found.reason == "no field of times among x y z intensity"
    found = point_times(cloud(OFFSETS), STAMP, PointTimesConfig(time_field="when"))
    assert found.times is None and found.reason == "no field 'when', a number, among x y z t"


def test_what_was_found_out_is_told():
    found = point_times(cloud((OFFSETS * 1e9).astype("u4")), STAMP)
    assert (found.field, found.unit, found.reference, found.reason) == ("t", "ns", "header", "")
    assert point_times(cloud(STAMP + OFFSETS), STAMP).reference == "absolute"
    assert point_times(cloud(5000.0 + OFFSETS), STAMP).reference == "first"


def test_a_field_of_any_name():
    points = np.ones(101, [("x", "f4"), ("y", "f4"), ("z", "f4"), ("t", "f4"), ("When", "f4")])
    points["t"], points["When"] = 2.0 * OFFSETS, OFFSETS
    found = point_times(points, STAMP, PointTimesConfig(time_field="when"))
    np.testing.assert_allclose(found.times, OFFSETS, atol=1e-8)
    assert found.field == "When"


def test_a_field_without_usable_times_yields_to_the_next():
    points = np.ones(101, [("x", "f4"), ("y", "f4"), ("z", "f4"), ("t", "u4"), ("timestamp", "f8")])
    points["timestamp"] = STAMP + OFFSETS
    found = point_times(points, STAMP)
    assert found.field == "timestamp"
    np.testing.assert_allclose(found.times, OFFSETS, atol=3e-7)


@pytest.mark.parametrize(("unit", "scale"), [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)])
def test_a_unit_given(unit, scale):
    """A sweep of 1 ms in microseconds is one of 1 s in milliseconds: only the driver knows."""
    sweep = {"s": 1, "ms": 1000, "us": 1000, "ns": 1_000_000}[unit]
    config = PointTimesConfig(time_unit=unit)
    found = point_times(cloud(np.array([0, sweep], "u8")), STAMP, config)
    assert found.unit == unit
    np.testing.assert_allclose(found.times, [0.0, scale * sweep], rtol=1e-12)
    wrong = point_times(cloud(np.array([0, 5_000 * sweep], "u8")), STAMP, config)
    assert wrong.reason.endswith(f"is no sweep of 1 ms to 1 s in {unit}")


@pytest.mark.parametrize(
    ("reference", "first"),
    [("header", 12.3), ("absolute", 12.3 - 0.5), ("first", 0.0), ("last", -0.1)],
)
def test_a_reference_given(reference, first):
    config = PointTimesConfig(time_reference=reference)
    found = point_times(cloud(12.3 + OFFSETS), 0.5, config)
    assert found.reference == reference
    np.testing.assert_allclose(found.times, first + OFFSETS, atol=1e-12)


def test_absolute_times_in_a_simulation_s_first_second():
    config = PointTimesConfig(time_reference="absolute")
    found = point_times(cloud(0.05 + OFFSETS), 0.05, config)
    np.testing.assert_allclose(found.times, OFFSETS, atol=1e-12)

"""The layouts of known sensors: read byte for byte, and their times understood."""

import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from geoaccel_ros.pointcloud.layout import coordinates
from geoaccel_ros.pointcloud.messages import points_from_message
from geoaccel_ros.pointcloud.sensors import LAYOUTS, describe, sensor_of
from geoaccel_ros.pointcloud.times import point_times

STAMP = 1_635_236_489
SWEEP = np.linspace(0.0, 0.099, 20)
CODES = {2: "B", 4: "H", 6: "I", 7: "f", 8: "d"}
DOCS = Path(__file__).resolve().parents[2] / "docs" / "point_layouts.md"


def time_of(layout, field, k):
    """Return what the driver writes for a point 0.099 s k/19 after the header's stamp."""
    if field == "time_sec":
        return STAMP
    if field == "time_nsec":
        return round(1e9 * SWEEP[k])
    scale = {"s": 1.0, "ns": 1e9}[layout.time_unit]
    base = STAMP if layout.time_reference == "absolute" else 0
    return base * scale + SWEEP[k] * scale


def message_of(layout, big):
    """Build a message with struct, every byte that is no field's set to 0xAA."""
    order = ">" if big else "<"
    rng = np.random.default_rng(3)
    data, values = bytearray(), []
    for k in range(len(SWEEP)):
        point, row = bytearray(b"\xaa" * layout.point_step), []
        for field in layout.fields:
            code = CODES[field.datatype]
            value = rng.uniform(1.0, 50.0) if code in "fd" else int(rng.integers(0, 200))
            if field.name in layout.time_field.split(" + "):
                value = time_of(layout, field.name, k)
            if code not in "fd":
                value = round(value)
            struct.pack_into(order + code, point, field.offset, value)
            row += struct.unpack_from(order + code, point, field.offset)
        data += point
        values.append(tuple(row))
    message = SimpleNamespace(
        fields=layout.fields, point_step=layout.point_step, is_bigendian=big, height=1,
        width=len(values), row_step=layout.point_step * len(values), data=bytes(data),
    )  # fmt: skip
    return message, values


@pytest.mark.parametrize("big", [False, True], ids=["little", "big"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=[layout.sensor for layout in LAYOUTS])
def test_every_layout_reads_as_it_was_written(layout, big):
    message, values = message_of(layout, big)
    points = points_from_message(message)
    names = [field.name for field in layout.fields]
    assert list(zip(*(points[name].tolist() for name in names), strict=True)) == values
    assert np.array_equal(coordinates(points), np.array([row[:3] for row in values], np.float32))
    assert sensor_of(points.dtype) == layout.sensor


@pytest.mark.parametrize("layout", LAYOUTS, ids=[layout.sensor for layout in LAYOUTS])
def test_every_layout_s_times_are_understood(layout):
    points = points_from_message(message_of(layout, big=False)[0])
    found = point_times(points, STAMP)
    if not layout.time_field:
        assert found.times is None and "no field of times among x y z" in found.reason
        return
    assert (found.field, found.unit, found.reference) == (
        layout.time_field, layout.time_unit, layout.time_reference
    )  # fmt: skip
    # float64 nanoseconds since 1970 have steps of 256 ns.
    np.testing.assert_allclose(found.times, SWEEP, atol=6e-7)


def test_a_layout_is_known_whatever_its_order_and_padding():
    dtype = np.dtype(
        {
            "names": ["timestamp", "ring", "intensity", "z", "y", "x"],
            "formats": ["<f8", "<u2", "<f4", "<f4", "<f4", "<f4"],
            "offsets": [0, 8, 12, 16, 20, 24],
            "itemsize": 64,
        }
    )
    assert sensor_of(dtype) == "Hesai or RoboSense"
    assert sensor_of(np.dtype([("x", "f4"), ("y", "f4")])) == ""


def test_a_description_names_fields_and_sensor():
    assert describe(np.dtype([("x", "f4"), ("snr", "u2")])) == "x:f4 snr:u2"
    dtype = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])
    assert describe(dtype) == "depth camera (x:f4 y:f4 z:f4)"


@pytest.mark.parametrize("layout", LAYOUTS, ids=[layout.sensor for layout in LAYOUTS])
def test_the_documented_table_is_the_code_s(layout):
    types = {2: "u1", 4: "u2", 6: "u4", 7: "f4", 8: "f8"}
    fields = " ".join(f"{f.name}:{types[f.datatype]}@{f.offset}" for f in layout.fields)
    times = f"{layout.time_field}, {layout.time_unit}, {layout.time_reference}"
    times = times if layout.time_field else "none"
    row = f"| {layout.sensor} | {layout.driver} | {fields} | {layout.point_step} | {times} |"
    assert row in DOCS.read_text(encoding="utf-8").splitlines()

"""compression/lines.py: the coding order is found, stored and read back."""

import numpy as np
import pytest

from geoaccel_ros.compression import lines
from geoaccel_ros.compression.errors import CodecError


def rings_by_column(columns=400, rings=16):
    """Cells and ring of a spinning lidar that sends a column of all rings at a time."""
    azimuth, ring = np.divmod(np.arange(columns * rings), rings)
    # Interleaved lasers, as real ones: no two of a column follow each other in elevation.
    ring = ring * 7 % rings
    radius = 500 + 100 * ring
    angle = azimuth * 2 * np.pi / columns
    xyz = np.stack([radius * np.cos(angle), radius * np.sin(angle), 50 * ring])
    return np.rint(xyz).astype(np.int32), ring.astype(np.uint16)


def restored(found, count, keys):
    again = lines.read(memoryview(found.stored), count, keys)
    assert (again.order == found.order).all()
    assert (again.line == found.line).all()
    return again


def test_a_ring_field_orders_the_points_by_ring_and_then_as_they_came():
    cells, ring = rings_by_column()
    found = lines.find(cells, {"ring": ring})
    assert found.order.tolist() == sorted(range(len(ring)), key=lambda i: (ring[i], i))
    assert (found.line == ring[found.order]).all()
    assert found.count == 16
    restored(found, len(ring), {"ring": ring})


def test_lines_are_numbered_without_gaps_whatever_the_values_of_the_key():
    cells, ring = rings_by_column()
    key = ring.astype(np.int64) * -(10**12)
    found = lines.find(cells, {"ring": key})
    assert np.unique(found.line).tolist() == list(range(16))
    assert (np.diff(key[found.order]) >= 0).all()
    restored(found, len(ring), {"ring": key})


def test_without_a_ring_field_the_lag_of_the_columns_is_found():
    cells, _ = rings_by_column()
    count = cells.shape[1]
    found = lines.find(cells, {})
    assert found.count == 16
    assert found.order[:3].tolist() == [0, 16, 32]
    assert sorted(found.order) == list(range(count))
    assert found.stored == bytes([1, 16, 0])
    restored(found, count, {})


def test_an_order_that_is_best_as_it_is_stays_and_a_key_that_pays_nothing_is_ignored():
    cells, ring = rings_by_column()
    order = np.argsort(ring, kind="stable")
    rng = np.random.default_rng(1)
    found = lines.find(cells[:, order], {"ring": rng.integers(0, 16, len(ring))})
    assert found.order.tolist() == list(range(len(ring)))
    assert found.count == 1
    assert found.stored == b"\x00"


def test_a_key_that_the_order_follows_tells_the_lines():
    cells, ring = rings_by_column()
    order = np.argsort(ring, kind="stable")
    found = lines.find(cells[:, order], {"ring": ring[order]})
    assert found.order.tolist() == list(range(len(ring)))
    assert (found.line == ring[order]).all()
    restored(found, len(ring), {"ring": ring[order]})


def test_the_better_of_two_keys_is_taken():
    cells, ring = rings_by_column()
    row = np.random.default_rng(2).integers(0, 16, len(ring))
    found = lines.find(cells, {"row": row, "ring": ring})
    assert (found.line == ring[found.order]).all()
    restored(found, len(ring), {"row": row, "ring": ring})


def test_a_key_of_too_many_values_is_no_line():
    cells, ring = rings_by_column()
    found = lines.find(cells, {"ring": np.arange(len(ring))})
    assert found.count == 16  # by the lag


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 33])
def test_few_points(count):
    cells = np.random.default_rng(3).integers(-(2**31), 2**31, (3, count))
    keys = {"ring": np.arange(count) % 2}
    found = lines.find(cells, keys)
    assert sorted(found.order) == list(range(count))
    restored(found, count, keys)


def test_cells_at_the_ends_of_their_type():
    cells = np.tile(np.array([[-(2**31), 2**31 - 1]] * 3, np.int32), 100)
    assert lines.find(cells, {}).count == 2


@pytest.mark.parametrize(
    "stored", ["", "00 00", "01", "01 01 00", "01 00 00", "01 01 01", "02", "03", "04", "ff"]
)
def test_bytes_that_are_no_order_are_refused(stored):
    keys = {"row": np.zeros(9, np.int64)}  # not of ten points
    with pytest.raises(CodecError, match="order of the points"):
        lines.read(memoryview(bytes.fromhex(stored)), 10, keys)


def test_coordinates_tell_what_their_cells_do():
    cells, ring = rings_by_column()
    inside = np.random.default_rng(3).uniform(-0.4, 0.4, cells.shape)
    points = (0.02 * (cells + inside)).astype(np.float32)
    found, expected = lines.find(points, {"ring": ring}, 0.02), lines.find(cells, {"ring": ring})
    assert found.stored == expected.stored
    assert found.roughness == expected.roughness > 0


def test_how_rough_an_order_is_are_the_bits_of_its_differences():
    steps = np.array([[3], [-7], [0]])
    cells = (steps * np.arange(1000)).astype(np.int32)
    found = lines.find(cells, {})
    assert found.stored == b"\0"
    assert found.roughness == pytest.approx(np.log2(4 * 8 * 1))

"""compression/fields.py: columns of every type survive in every order; rings, times are small."""

import numpy as np
import pytest

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.fields import FieldCoder, Places, sequences_of
from geoaccel_ros.compression.positions import Positions
from geoaccel_ros.compression.rans import EntropyCoder


@pytest.fixture(scope="module")
def coder(device):
    return FieldCoder(device, EntropyCoder(device))


def spinning(rings=16, columns=300, seed=1):
    """Return ring, column and cells (1 cm) of a spinning lidar's points, column by column."""
    rng = np.random.default_rng(seed)
    ring, column = np.tile(np.arange(rings), columns), np.repeat(np.arange(columns), rings)
    azimuth, elevation = 2 * np.pi * column / columns, np.radians(2.0 * (ring - rings / 2))
    flat = 20 + 5 * np.sin(3 * azimuth) + rng.uniform(0, 0.1, ring.size)
    xyz = np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), flat * np.tan(elevation)])
    return ring, column, np.rint(xyz / 0.01).astype(np.int64)


def places_of(ring, cells):
    """All that may be known of the points: nothing, an order, positions in it, or as they are."""
    order = np.argsort(ring, kind="stable")
    yield Places(ring.size)
    yield Places(ring.size, order)
    yield Places(ring.size, order, Positions(cells[:, order]))
    yield Places(ring.size, None, Positions(cells))


def assert_survives(coder, column, places, name="field"):
    section = coder.encode(sequences_of(name, column, 0.0), places)
    back = np.zeros_like(column)
    coder.decode(name, memoryview(section), back, places)
    assert back.tobytes() == column.tobytes()
    return 8 * len(section) / len(column)


@pytest.mark.parametrize(
    "code", ["i1", "u1", "<i2", ">u2", "<i4", ">u4", "<f4", ">f4", "<f8", ">f8"]
)
def test_columns_of_every_type_survive_in_every_order(coder, code):
    ring, column, cells = spinning()
    values = (ring + 16 * column % 97).astype(code)
    noise = np.random.default_rng(2).bytes(values.nbytes)
    for places in places_of(ring, cells):
        assert_survives(coder, values, places)
        assert_survives(coder, np.frombuffer(noise, code), places)
        assert_survives(coder, np.full(ring.size, 3, code), places)


def test_columns_of_a_cloud_are_read_and_written_in_place(coder):
    """Padding, byte orders and neighbouring fields of a structured array."""
    ring, column, cells = spinning()
    dtype = np.dtype(
        {
            "names": ["ring", "pair", "late"],
            "formats": ["<u2", (">f4", (2,)), "<f8"],
            "offsets": [1, 5, 20],
            "itemsize": 32,
        }
    )
    points = np.zeros(ring.size, dtype)
    points["ring"], points["pair"][:, 0], points["late"] = ring, column / 100, 0.1 * ring
    points["pair"][:, 1] = -0.0
    back = np.zeros(len(points), dtype)
    places = Places(ring.size, None, Positions(cells))
    for name in dtype.names:
        section = coder.encode(sequences_of(name, points[name], 0.0), places)
        coder.decode(name, memoryview(section), back[name], places)
    assert back.tobytes() == points.tobytes()


@pytest.mark.parametrize("name", ["rgb", "RGBA"])
@pytest.mark.parametrize("code", ["<f4", ">u4"])
def test_colours_are_coded_byte_by_byte(coder, name, code):
    ring, column, cells = spinning()
    rng = np.random.default_rng(6)
    green = rng.integers(20, 200, ring.size)
    red, blue = green + rng.integers(0, 8, ring.size), green - rng.integers(0, 4, ring.size)
    # The highest byte of a float makes it one of its NaNs.
    bits = (255 << 24 | red << 16 | green << 8 | blue).astype(np.uint32)
    values = bits.astype(code[0] + "u4").view(code)
    places = Places(ring.size, None, Positions(cells))
    # Noise of 7.5, 3 and 2 bits.
    assert assert_survives(coder, values, places, name) < 14.5
    assert assert_survives(coder, values, places) > 20
    noise = np.frombuffer(np.random.default_rng(3).bytes(4 * ring.size), code)
    assert_survives(coder, noise, places, name)


def test_a_step_bounds_the_error_and_makes_it_smaller(coder):
    ring, column, cells = spinning()
    noise = np.random.default_rng(7).normal(size=ring.size)
    values = (50 + 30 * np.sin(column / 9) + noise).astype(np.float32)
    places = Places(ring.size, None, Positions(cells))
    exact = coder.encode(sequences_of("intensity", values, 0.0), places)
    section = coder.encode(sequences_of("intensity", values, 0.5), places)
    back = np.zeros_like(values)
    coder.decode("intensity", memoryview(section), back, places)
    assert np.abs(back - values).max() <= 0.25
    assert len(section) < 0.5 * len(exact)


def test_rings_cost_next_to_nothing_where_positions_are_known(coder):
    ring, _, cells = spinning()
    shuffled = np.random.default_rng(4).permutation(ring.size)
    places = Places(ring.size, None, Positions(cells[:, shuffled]))
    assert assert_survives(coder, ring[shuffled].astype(np.uint16), places) < 0.2


def test_times_are_coded_in_the_order_of_the_cloud_where_that_is_cheaper(coder):
    ring, column, cells = spinning()
    order = np.argsort(ring, kind="stable")
    times = (1.7e9 + column // 12 * 333e-6).astype(np.float64)
    places = Places(ring.size, order, Positions(cells[:, order]))
    section = coder.encode(sequences_of("timestamp", times, 1e-6), places)
    back = np.zeros_like(times)
    coder.decode("timestamp", memoryview(section), back, places)
    assert np.abs(back - times).max() <= 0.5e-6 + np.spacing(1.7e9)
    assert 8 * len(section) / ring.size < 0.3


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 2048, 2049])
def test_few_points(coder, count):
    values = np.random.default_rng(count).integers(0, 1000, count).astype(np.uint16)
    cells = np.arange(3 * count).reshape(3, count)
    assert_survives(coder, values, Places(count, None, Positions(cells)))
    assert_survives(coder, values, Places(count, np.arange(count)[::-1], Positions(cells)))


def test_no_points_are_no_bytes(coder):
    for shape in ((0,), (0, 3)):
        column = np.empty(shape, np.float32)
        assert coder.encode(sequences_of("a", column, 0.0), Places(0)) == b""
        coder.decode("a", memoryview(b""), column, Places(0))
    with pytest.raises(CodecError, match="'a' does not end right"):
        coder.decode("a", memoryview(b"\0"), column, Places(0))


def test_damage_is_told_or_does_no_harm(coder):
    ring, column, cells = spinning(columns=100)
    order = np.argsort(ring, kind="stable")
    places = Places(ring.size, order, Positions(cells[:, order]))
    columns = {
        "ring": ring.astype(np.uint16),
        "intensity": (column % 100 / 100).astype(np.float32),
        "rgb": (column * 65793).astype(np.uint32),
        "range": np.rint(10 * np.sqrt((cells**2.0).sum(axis=0))).astype(np.uint32),
        "time": 1.7e9 + column // 12 * 333e-6,
    }
    rng = np.random.default_rng(5)
    for name, values in columns.items():
        section = coder.encode(sequences_of(name, values, 1e-6 if name == "time" else 0.0), places)
        for _ in range(60):
            damaged = bytearray(section)
            damaged[rng.integers(min(len(damaged), 60))] ^= 1 << rng.integers(8)
            damaged = damaged[: len(damaged) - int(rng.integers(0, 2))]
            try:
                coder.decode(name, memoryview(damaged), np.zeros_like(values), places)
            except CodecError as error:
                assert str(error).startswith("damaged stream")

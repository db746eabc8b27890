"""compression/bases.py: what positions tell of rings and ranges."""

import struct

import numpy as np
import pytest

from geoaccel_ros.compression.arranged import Arranged
from geoaccel_ros.compression.bases import best_basis, read_basis
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.positions import Positions

NONE, ELEVATION, DISTANCE, AZIMUTH = range(4)
STEP = 0.01


def sweep(rings=16, columns=500, seed=1):
    """Return cells and rings of a spinning lidar's sweep; elevations 2 degrees apart."""
    rng = np.random.default_rng(seed)
    ring = np.tile(np.arange(rings), columns)
    azimuth = np.repeat(np.linspace(0, 2 * np.pi, columns, endpoint=False), rings)
    elevation = np.radians(2.0 * (ring - rings / 2))
    distance = rng.uniform(2, 60, ring.size)
    flat = distance * np.cos(elevation)
    xyz = np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), distance * np.sin(elevation)])
    return np.rint(xyz / STEP).astype(np.int64), ring, distance


def rest_of(values, cells):
    """Return the basis found, what it leaves, checked to be what a decoder subtracts."""
    content, rest = best_basis(Arranged(values), Positions(cells))
    rest = rest.all()
    basis, end = read_basis(memoryview(b"?" + content + b"?"), 1)
    assert end == 1 + len(content)
    told = 0 if basis is None else basis.values(cells)
    assert (told + rest == values).all()
    return content, rest


def test_rings_follow_from_elevations():
    cells, ring, _ = sweep()
    content, rest = rest_of(ring, cells)
    assert content[0] == ELEVATION
    assert np.count_nonzero(rest) < len(rest) / 100
    # Two or three bytes for each of 16 rings.
    assert len(content) < 64


def test_rings_numbered_in_any_way_do_so_too():
    cells, ring, _ = sweep()
    content, rest = rest_of(7 * ring % 16 - 3, cells)
    assert content[0] == ELEVATION
    assert np.count_nonzero(rest) < len(rest) / 100


def test_ranges_follow_from_distances():
    cells, _, distance = sweep()
    millimetres = np.rint(1000 * distance).astype(np.int64)
    content, rest = rest_of(millimetres, cells)
    assert content[0] == DISTANCE
    # Each coordinate is half a cell off at most.
    assert np.abs(rest - np.median(rest)).max() <= 5 * np.sqrt(3) + 2


@pytest.mark.parametrize("is_reversed", [False, True])
def test_times_follow_from_azimuths(is_reversed):
    """A sweep that begins anywhere, with beams that each look some way ahead."""
    cells, ring, _ = sweep(columns=1000)
    order = np.random.default_rng(3).permutation(ring.size)
    cells, ring = cells[:, order], ring[order]
    angle = np.arctan2(cells[1], cells[0]) / (2 * np.pi)
    ahead = np.array([0.0, 0.02, -0.01, 0.03])[ring // 4]
    turned = (-angle if is_reversed else angle) + ahead + 0.3
    times = np.floor(10_000 * (turned % 1.0)).astype(np.int64)
    content, rest = rest_of(times, cells)
    assert content[0] == AZIMUTH
    # What cells of 1 cm leave of an angle at 2 m; 4 % of the times lie beyond the sweep's ends.
    assert np.percentile(np.abs(rest), 90) < 8
    assert len(content) < 600


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sign", [1, -1])
def test_values_of_more_bits_than_nodes_have(sign):
    """The bits of doubles that grow with the azimuth."""
    cells, _, _ = sweep(columns=1000)
    turned = np.arctan2(cells[1], cells[0]) / (2 * np.pi) % 1.0
    content, _ = rest_of(sign * (2**62 + np.floor(1e6 * turned).astype(np.int64)), cells)
    assert content[0] != AZIMUTH


def test_noise_has_no_basis():
    cells, ring, _ = sweep()
    noise = np.random.default_rng(2).integers(0, 100, ring.size)
    content, rest = rest_of(noise, cells)
    assert content == bytes([NONE])
    assert (rest == noise).all()


def test_far_and_few_cells_are_no_trouble():
    for cells in (
        np.full((3, 5), 2**53),
        np.full((3, 5), -(2**53)),
        np.zeros((3, 5), np.int64),
        np.zeros((3, 1), np.int64),
    ):
        rest_of(np.arange(cells.shape[1]), cells)
        rest_of(np.arange(cells.shape[1]) * 2**60, cells)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\4",
        b"\3",
        b"\3" + bytes(130),
        b"\3" + bytes(131),
        b"\1",
        b"\1\0",
        b"\1\x81\x20" + bytes(9000),
        b"\1\2\0\0\0",
        b"\2" + bytes(7),
        b"\2" + bytes(8),
        b"\2" + struct.pack("<d", -1.0),
        b"\2" + struct.pack("<d", np.nan),
        b"\2" + struct.pack("<d", 1e300),
    ],
)
def test_damaged_bases_are_refused(content):
    with pytest.raises(CodecError, match="damaged stream"):
        read_basis(memoryview(content), 0)


def test_any_table_gives_values():
    # Begins that do not ascend, values that wrap.
    content = b"\1\2" + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\1" * 2 + b"\xfe" * 9 + b"\1\2"
    basis, _ = read_basis(memoryview(content), 0)
    assert basis.values(np.ones((3, 4), np.int64)).shape == (4,)

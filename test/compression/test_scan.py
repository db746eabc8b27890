"""compression/scan.py: cells come back exactly, whatever they are; beams make them small."""

import zlib
from pathlib import Path

import numpy as np
import pytest

from geoaccel_ros.compression import lines
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.rans import EntropyCoder
from geoaccel_ros.compression.scan import (
    CHUNK,
    LINEAR,
    LINEAR_CONTEXTS,
    SPIN,
    SPIN_CONTEXTS,
    Scan,
    priced,
    sines,
)
from geoaccel_ros.pointcloud.files import read_points

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="real scans lie in ../shared")
STEP = 0.01


@pytest.fixture(scope="module")
def scan(device):
    return Scan(device, EntropyCoder(device))


def encoded(scan, xyz, keys, step=STEP):
    """Return the section of coordinates in metres, their cells and lines."""
    points = np.asarray(xyz, np.float64) / step
    cells = np.rint(points).astype(np.int32)
    found = lines.find(cells, keys)
    return scan.encode(scan.plan(cells, points, found, step)), cells, found


def round_trip(scan, xyz, keys=None, step=STEP):
    section, cells, found = encoded(scan, xyz, keys or {}, step)
    decoded = scan.decode(memoryview(section), found)
    assert decoded.dtype == np.int32
    assert (decoded == cells).all()
    return section


class SpinAlone(Scan):
    """Takes the spin model where the other would be cheaper."""

    def _cost(self, model, *arguments):
        return super()._cost(model, *arguments) + 1e9 * (model == LINEAR)


def spinning_scan(columns=1500, rings=8, walls=7, offset=0.0, clockwise=False, seed=1):
    """A room of uneven walls, seen by beams that may pass the axis at a distance; and the ring."""
    rng = np.random.default_rng(seed)
    azimuth = np.tile(np.arange(columns) * (2 * np.pi / columns), rings)
    ring = np.repeat(np.arange(rings), columns)
    depth = 3 * np.sign(np.sin(walls * azimuth)) * np.abs(np.cos(azimuth / 2))
    range_ = 8 + depth + 0.01 * rng.normal(size=azimuth.shape)
    side = offset * (-1.0) ** ring
    x = range_ * np.cos(azimuth) - side * np.sin(azimuth)
    y = range_ * np.sin(azimuth) + side * np.cos(azimuth)
    z = np.tan(np.radians(ring - rings / 2)) * range_ + 0.02 * ring
    return np.stack([x, -y if clockwise else y, z]), ring


@pytest.mark.parametrize("clockwise", [False, True])
def test_a_spinning_lidar_costs_little_more_than_its_range_noise(scan, clockwise):
    xyz, ring = spinning_scan(clockwise=clockwise)
    section = round_trip(scan, xyz, {"ring": ring})
    assert section[0] == SPIN
    # Noise of one cell has log2(sqrt(2 pi e)) = 2.05 bits; a beam crosses 1.3 to 1.4 cells for one
    # of length: 0.45 bits more.
    assert 8 * len(section) / len(ring) < 3.6


def test_lines_without_a_ring_field_are_turns_about_the_axis(scan):
    xyz, ring = spinning_scan()
    section = round_trip(scan, xyz)
    with_ring = round_trip(scan, xyz, {"ring": ring})
    assert section[0] == SPIN
    assert section[1] == 8  # starts
    # In this order the ring field says nothing new: it may only save the starts.
    assert abs(len(section) - len(with_ring)) < 64


def test_beams_that_pass_the_axis_at_a_distance_are_known(scan):
    centred, ring = spinning_scan(walls=29)
    beside, _ = spinning_scan(walls=29, offset=0.026)
    sections = [round_trip(scan, xyz, {"ring": ring}) for xyz in (centred, beside)]
    assert len(sections[1]) < 1.03 * len(sections[0]) + 16


def test_a_cloud_that_was_corrected_for_the_motion_of_the_sweep_costs_as_before(scan):
    xyz, ring = spinning_scan(rings=16)
    # Of a sweep that begins behind the sensor, at 8 m/s and 0.2 s, pitching, and tilted.
    turned = np.arctan2(xyz[1], xyz[0]) / (2 * np.pi)
    moved = xyz + np.outer([1.6, 0.1, -0.02], turned)
    moved[2] += xyz[0] * (0.002 * turned + 0.01)
    sections = [round_trip(scan, each, {"ring": ring}) for each in (xyz, moved)]
    assert len(sections[1]) < 1.04 * len(sections[0]) + 40


def test_beams_without_a_return_are_known_where_a_correction_has_moved_them(scan):
    xyz, ring = spinning_scan(rings=16)
    turned = np.arctan2(xyz[1], xyz[0]) / (2 * np.pi)
    # Some beams alone, some in a row.
    unreturned = np.random.default_rng(7).random(len(ring)) < 0.1
    unreturned[5200:5500] = True
    holes = np.where(unreturned, 0, xyz)
    moved = holes + np.outer([1.6, 0.1, -0.02], turned)
    sections = [round_trip(scan, each, {"ring": ring}) for each in (holes, moved)]
    assert [section[0] for section in sections] == [3, 3]
    assert len(sections[1]) < 1.04 * len(sections[0]) + 400


@pytest.mark.parametrize("kind", ["rings", "noise"])
def test_a_plan_tells_what_its_section_takes(scan, kind):
    xyz, ring = spinning_scan(rings=16)
    if kind == "noise":
        xyz = np.random.default_rng(9).normal(0, 10, xyz.shape)
    points = xyz / STEP
    cells = np.rint(points).astype(np.int32)
    found = lines.find(cells, {"ring": ring})
    plan = scan.plan(cells, points, found, STEP)
    assert plan.model == SPIN or kind == "noise"
    assert plan.bits == pytest.approx(8 * len(scan.encode(plan)), rel=0.1)


def test_a_few_pieces_tell_what_a_map_takes(scan):
    rng = np.random.default_rng(10)
    cells = np.cumsum(rng.normal(0, 5, (3, 60_000)), axis=1).astype(np.int32)
    found = lines.find(cells, {})
    chosen = priced(found.order)
    assert len(chosen) == 32 * 256 and len(np.unique(chosen // CHUNK)) == 32
    section = scan.encode(scan.plan(cells, cells.astype(float), found, STEP))
    assert section[0] == LINEAR
    bits = scan.price(cells[:, chosen], cells.shape[1])
    assert bits == pytest.approx(8 * len(section), rel=0.05)


def test_rings_that_come_by_column_are_coded_ring_by_ring(scan):
    xyz, ring = spinning_scan()
    by_column = np.arange(len(ring)).reshape(8, -1).T.ravel()
    section = round_trip(scan, xyz[:, by_column], {"ring": ring[by_column]})
    assert abs(len(section) - len(round_trip(scan, xyz, {"ring": ring}))) < 16


def test_beams_without_a_return_cost_next_to_nothing(scan):
    xyz, ring = spinning_scan()
    holes = xyz.copy()
    holes[:, 3000:6000] = 0
    section, whole = (round_trip(scan, each, {"ring": ring}) for each in (holes, xyz))
    assert len(section) < 0.8 * len(whole)
    assert round_trip(scan, np.zeros((3, 3000)))[0] & 1 == LINEAR


def test_lines_without_any_return_come_back(scan):
    xyz, ring = spinning_scan()
    xyz[:, (ring == 3) | (ring > 5)] = 0
    assert round_trip(scan, xyz, {"ring": ring})[0] == 3


@pytest.mark.parametrize("step", [1e-7, 4e-6, 3e-5, 1.5, 3.1])
def test_steps_of_azimuth_that_no_sensor_has_come_back(device, step):
    azimuth = np.arange(3000) * step
    section = round_trip(
        SpinAlone(device, EntropyCoder(device)),
        np.stack([20 * np.cos(azimuth), 20 * np.sin(azimuth), np.ones(3000)]),
    )
    assert section[0] in (LINEAR, SPIN)


def test_a_map_is_coded_by_the_linear_model(scan):
    rng = np.random.default_rng(4)
    xyz = np.cumsum(rng.normal(scale=0.03, size=(3, 5000)), axis=1)
    section = round_trip(scan, xyz)
    assert section[0] == LINEAR
    # Steps of 3 cells: three times log2(3 sqrt(2 pi e)) = 11 bits.
    assert 8 * len(section) / 5000 < 12.5


def test_points_on_a_line_cost_nothing(scan):
    assert len(round_trip(scan, np.linspace([0, 0, 5], [40, 30, 5], 4001).T)) < 4001 / 8


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50, CHUNK, CHUNK + 1])
def test_any_number_of_points(scan, count):
    xyz, ring = spinning_scan()
    round_trip(scan, xyz[:, :count], {"ring": ring[:count]})


def test_cells_at_the_ends_of_their_type(scan):
    rng = np.random.default_rng(5)
    cells = rng.integers(-(2**31), 2**31, (3, 3000))
    cells[:, :4] = [[-(2**31), 2**31 - 1, 0, -(2**31)]] * 3
    assert round_trip(scan, cells * 1.0, step=1.0)[0] == LINEAR


@pytest.mark.parametrize("seed", range(3))
def test_a_spinning_lidar_gone_mad_comes_back_too(device, seed):
    # Every state of the model at its bounds: far and near points at random among good ones.
    scan = SpinAlone(device, EntropyCoder(device))
    rng = np.random.default_rng(seed)
    xyz, ring = spinning_scan()
    mad = rng.random(len(ring)) < 0.02
    xyz[:, mad] *= 10 ** rng.uniform(-5, 3, mad.sum())
    xyz[2, rng.random(len(ring)) < 0.01] = rng.uniform(-4e4, 4e4)
    assert round_trip(scan, xyz, {"ring": ring})[0] & 1 == SPIN


def test_chunks_are_decoded_alone(scan):
    xyz, ring = spinning_scan()
    by_column = np.arange(len(ring)).reshape(8, -1).T.ravel()
    section, cells, found = encoded(scan, xyz[:, by_column], {"ring": ring[by_column]})
    coded = cells[:, found.order]
    for first, end in ((0, 1), (3, 5), (11, 12), (2, 2)):
        part = scan.decode_chunks(memoryview(section), found, first, end)
        assert (part == coded[:, first * CHUNK : end * CHUNK]).all()


def test_the_same_bytes_whatever_was_coded_before(scan, device):
    xyz, ring = spinning_scan()
    first = encoded(scan, xyz, {"ring": ring})[0]
    round_trip(scan, xyz[:, ::-1] * 3)
    other = Scan(device, EntropyCoder(device))
    assert encoded(scan, xyz, {"ring": ring})[0] == first
    assert encoded(other, xyz, {"ring": ring})[0] == first


def test_sines_are_those_of_every_machine():
    table = sines().astype(np.int64)
    assert zlib.crc32(table.astype("<i4").tobytes()) == 0xA3025176
    # Between two entries a chord lies below the arc by (2 pi / 4096)^2 / 8.
    angle = np.linspace(0, 2 * np.pi, 10_007)[:-1]
    position = angle / (2 * np.pi) * 4096
    i = position.astype(int)
    chord = table[i] + (table[i + 1] - table[i]) * (position - i)
    assert np.abs(chord / 2**30 - np.sin(angle)).max() < 3.0e-7


def test_damaged_sections_end_in_an_error_or_in_cells(scan):
    xyz, ring = spinning_scan(rings=3)
    section, cells, found = encoded(scan, xyz, {})
    rng = np.random.default_rng(6)
    refused = 0
    for _ in range(300):
        damaged = bytearray(section)
        kind = rng.integers(3)
        if kind == 0:
            damaged[rng.integers(min(len(damaged), 80))] ^= 1 << rng.integers(8)
        elif kind == 1:
            damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
        else:
            del damaged[rng.integers(len(damaged)) :]
        try:
            assert scan.decode(memoryview(damaged), found).shape == cells.shape
        except CodecError as error:
            refused += str(error).startswith("damaged stream: ")
    # All but a few bits of the beams and of tables, which only the container's checksum tells.
    assert refused > 200


@pytest.mark.parametrize(
    "head",
    [
        "",
        "04",
        "01",
        "01 00",
        "01 00 00 10 00 00 01 00 05 09",
        "01 00 ff 0f 00 00 01 00 05 09 00 00 00",  # a step that is none
        "01 00 00 00 00 40 01 00 05 09 00 00 00",  # a step of a quarter turn
        "01 00 00 10 00 00 00 00 05 09 00 00 00",  # no usual multiple
        "01 00 00 10 00 00 01 11 05 09 00 00 00",  # multiples longer ago than are remembered
        "01 00 00 10 00 00 01 00 15 09 00 00 00",  # shifts beyond a number
        "01 00 00 10 00 00 01 00 05 09 04 00 00",
        "01 02 00 00 10 00 00 01 00 05 09 00 00 00 00 00",  # a line without points
        "01 02 0a 00 10 00 00 01 00 05 09 00 00 00 00 00",  # a line behind the last point
        "01 81 08 00 10 00 00 01 00 05 09 00 00 00",  # 1025 lines
        "01 00 00 10 00 00 01 00 05 09 00 ff ff ff ff 0f 00",  # a slope beyond all
        "01 00 00 10 00 00 01 00 05 09 02 80 80 80 80 20" + 11 * " 00",  # a seam of two turns
        "01 00 00 10 00 00 01 00 05 09 02 00 82 80 80 80 01" + 10 * " 00",  # a place far away
    ],
)
def test_heads_that_cannot_be_are_refused(scan, head):
    found = lines.find(np.zeros((3, 10), np.int32), {})
    with pytest.raises(CodecError, match="damaged stream"):
        scan.decode(memoryview(bytes.fromhex(head)), found)


def test_the_contexts_of_both_sides_agree(scan, device):
    source = '#define EMIT\n#include "scan.cl"\nkernel void contexts(global uint *counts)'
    source += "{ counts[0] = SPIN_CONTEXTS; counts[1] = LINEAR_CONTEXTS; }"
    counts = device.buffer("contexts of scan.cl", 8)
    device.launch_groups(device.build(source).contexts, 1, 1, counts)
    assert device.download(counts, 2, "u4").tolist() == [SPIN_CONTEXTS, LINEAR_CONTEXTS]


@needs_data
@pytest.mark.parametrize("step, most", [(0.01, 6.2), (0.02, 5.0)])
def test_a_real_scan_takes_two_thirds_of_what_laz_takes(scan, step, most):
    # LAZ: 8.84 bits a point at 1 cm, 6.81 at 2 cm.
    points = read_points(DATA / "kitti_odom_00_pairs" / "000094.bin")
    xyz = np.stack([points[axis] for axis in "xyz"])
    section = round_trip(scan, xyz, step=step)
    assert 8 * len(section) / len(points) < most

"""compression/octree.py against a recursive octree, and against trees that are none."""

import dataclasses

import numpy as np
import pytest

from geoaccel_ros.compression.beams import Beams
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.octree import Octree, kind_of


def occupancy_reference(leaves, depth):
    """Return the occupancy bytes by walking the tree level by level with Python sets."""
    occupancy = []
    for level in range(depth):
        children = {}
        for leaf in leaves:
            digits = int(leaf) >> 3 * (depth - level - 1)
            children.setdefault(digits >> 3, set()).add(digits & 7)
        occupancy += [sum(1 << digit for digit in children[node]) for node in sorted(children)]
    return occupancy


def random_leaves(seed, depth, count, spread):
    """Return distinct ascending codes, more crowded the smaller ``spread`` is."""
    rng = np.random.default_rng(seed)
    codes = (8.0**depth * rng.random(count) ** spread).astype(np.uint64)
    return np.unique(np.minimum(codes, np.uint64(8**depth - 1)))


@pytest.fixture(params=["as a CPU", "as a GPU"], scope="module")
def octree(device, request):
    # How nodes are divided among work-items depends on the kind of device; the bytes must not.
    return Octree(dataclasses.replace(device, is_cpu=request.param == "as a CPU"))


def built(octree, leaves, depth):
    """Return the occupancy bytes that the kernels make of leaves."""
    device, count = octree._device, len(leaves)
    occupancy, starts = octree._build_levels(device.upload("codes", leaves), count, depth)
    first, end = int(starts[0]), int(starts[-1])
    return device.download(occupancy, end - first, "u1", first)


@pytest.mark.parametrize("depth", [1, 2, 3, 7, 14, 21])
@pytest.mark.parametrize("count", [1, 2, 17, 500, 5000])
@pytest.mark.parametrize("spread", [1, 8])
def test_occupancy_is_that_of_a_walk_through_the_tree(octree, depth, count, spread):
    leaves = random_leaves(depth * count, depth, count, spread)
    occupancy = built(octree, leaves, depth)
    assert occupancy.tolist() == occupancy_reference(leaves, depth)


def test_a_full_tree(octree):
    leaves = np.arange(8**5, dtype=np.uint64)
    occupancy = built(octree, leaves, 5)
    assert (occupancy == 255).all()
    assert len(occupancy) == (8**5 - 1) // 7


def test_the_outermost_corners_at_full_depth(octree):
    leaves = np.array([0, 8**21 - 1], np.uint64)
    occupancy = built(octree, leaves, 21)
    assert occupancy.tolist() == [0b10000001] + [1, 128] * 20


def test_many_leaves_use_the_buffers_again(octree):
    big, small = random_leaves(1, 14, 200_000, 2), random_leaves(2, 9, 300, 1)
    for leaves, depth in ((small, 9), (big, 14), (small, 9)):
        occupancy = built(octree, leaves, depth)
    assert occupancy.tolist() == occupancy_reference(small, 9)


BEAMS = Beams(
    np.array([-40000, -9000, 300, 12000]),
    np.array([30, -20, 0, 75]),
    np.arange(17) * 40 - 300,
    np.arange(17) * -3 + 20,
    np.arange(17) % 5 * 900 - 2000,
)
ORIGIN = (-300, -70, -25)


def encode(octree, leaves, multiplicity, depth, beams=None):
    device = octree._device
    codes, starts = device.upload("test leaves", leaves), None
    if multiplicity is not None:
        ends = np.append(0, np.cumsum(multiplicity)).astype(np.uint32)
        starts = device.upload("test starts", ends)
    return octree.encode(codes, len(leaves), starts, depth, ORIGIN, beams)


def decode(octree, sections, points, cells, depth, beams=None, levels=None):
    views = {name: memoryview(content) for name, content in sections.items()}
    device = octree._device
    codes, count, starts = octree.decode(views, points, cells, depth, ORIGIN, beams, levels)
    multiplicity = None
    if starts is not None:
        multiplicity = np.diff(device.download(starts, count + 1, "u4"))
    return device.download(codes, count, "u8"), multiplicity


@pytest.mark.parametrize("beams", [None, BEAMS], ids=["without beams", "with beams"])
@pytest.mark.parametrize("depth", [1, 2, 3, 9, 14, 21])
@pytest.mark.parametrize("count", [1, 2, 17, 5000])
@pytest.mark.parametrize("spread", [1, 8])
def test_a_tree_comes_back(octree, depth, count, spread, beams):
    leaves = random_leaves(depth * count, depth, count, spread)
    sections = encode(octree, leaves, None, depth, beams)
    assert sections["multiplicity"] == b""
    decoded, multiplicity = decode(octree, sections, len(leaves), len(leaves), depth, beams)
    assert (decoded == leaves).all()
    assert multiplicity is None


def test_multiplicities_come_back(octree):
    leaves = random_leaves(5, 10, 6000, 2)
    multiplicity = np.random.default_rng(1).geometric(0.7, len(leaves)).astype(np.uint32)
    multiplicity[[0, 40, -1]] = 2**31, 5107, 70000
    sections = encode(octree, leaves, multiplicity, 10)
    points = int(multiplicity.sum(dtype=np.int64))
    decoded, again = decode(octree, sections, points, len(leaves), 10)
    assert (decoded == leaves).all()
    assert (again == multiplicity).all()
    with pytest.raises(CodecError, match="number of points"):
        decode(octree, sections, points + 1, len(leaves), 10)
    with pytest.raises(CodecError, match="does not fit"):
        decode(octree, sections, len(leaves), len(leaves), 10)


def test_full_trees_and_the_outermost_corners_come_back(octree):
    for leaves, depth in (
        (np.arange(8**5, dtype=np.uint64), 5),
        (np.array([0, 8**21 - 1], np.uint64), 21),
    ):
        sections = encode(octree, leaves, None, depth, BEAMS)
        assert (decode(octree, sections, len(leaves), len(leaves), depth, BEAMS)[0] == leaves).all()


def test_fewer_levels_are_a_coarser_tree(octree):
    leaves = random_leaves(3, 12, 9000, 3)
    sections = encode(octree, leaves, None, 12, BEAMS)
    for levels in (0, 1, 5, 11, 12, 15):
        decoded, _ = decode(octree, sections, len(leaves), len(leaves), 12, BEAMS, levels)
        assert (decoded == np.unique(leaves >> np.uint64(3 * max(0, 12 - levels)))).all()


@pytest.mark.parametrize("count", [0, 1])
def test_trees_without_levels_take_no_bytes(octree, count):
    sections = encode(octree, np.zeros(count, np.uint64), None, 0)
    assert set(sections.values()) == {b""}
    assert decode(octree, sections, count, count, 0)[0].tolist() == [0] * count


def test_the_bytes_do_not_depend_on_the_kind_of_device(device):
    leaves = random_leaves(8, 14, 20_000, 3)
    multiplicity = np.where(np.arange(len(leaves)) % 7 == 0, 2, 1).astype(np.uint32)
    first, second = (
        encode(Octree(dataclasses.replace(device, is_cpu=is_cpu)), leaves, multiplicity, 14, BEAMS)
        for is_cpu in (True, False)
    )
    assert first == second


def test_the_events_of_every_byte_are_counted(device):
    bytes_ = np.arange(1, 256)
    digits = np.flatnonzero(bytes_[:, None] >> np.arange(8) & 1).astype(np.uint64)
    leaves = (digits >> np.uint64(3)) + np.uint64(1) << np.uint64(3) | digits & np.uint64(7)
    found = []
    for is_cpu in (True, False):
        octree = Octree(dataclasses.replace(device, is_cpu=is_cpu))
        leaves_there = device.upload("codes", leaves)
        events, starts, _ = octree.occupancy_events(leaves_there, len(leaves), 4, (0, 0, 0), None)
        found.append(device.download(events, int(starts[-1]), "u2"))
    counted, roomy = found
    # What a GPU's work-items have room for and do not use is skipped; a CPU's have no more room.
    assert counted.tolist() == roomy[roomy != 0xFFFF].tolist()


def test_isolated_points_on_a_cone_cost_little_height(octree):
    # On one cone of slope 1/4, far apart: with its beam, z is known from x and y.
    rng = np.random.default_rng(4)
    x, y = rng.integers(-8000, 8000, (2, 4000))
    cells = np.stack([x, y, np.rint(np.hypot(x, y) / 4).astype(int)]) - np.array([[-8192]] * 3)
    codes = np.zeros(4000, np.uint64)
    for axis in range(3):
        for bit in range(14):
            codes |= (cells[axis].astype(np.uint64) >> np.uint64(bit) & np.uint64(1)) << np.uint64(
                3 * bit + axis
            )
    leaves = octree._device.upload("test leaves", np.unique(codes))
    beam = Beams(np.array([2**15]), np.zeros(1, int), *np.zeros((3, 17), int))
    arguments = leaves, len(np.unique(codes)), None, 14, (-8192,) * 3
    without = len(octree.encode(*arguments, None)["occupancy"])
    with_beam = len(octree.encode(*arguments, beam)["occupancy"])
    assert 8 * (without - with_beam) > 5 * 4000


@pytest.mark.parametrize(
    ("beams", "sizes", "kind"),
    [
        (None, [1, 2, 4, 8, 10], 0),
        (None, [1, 2, 9, 10, 10], 0),
        (None, [1, 5, 9, 10, 6], 1),
        (BEAMS, [1, 2, 9, 10, 10], 2),
        (BEAMS, [1, 9, 9, 10, 10], 3),
        (dataclasses.replace(BEAMS, slopes=np.zeros(1, int)), [1, 2], 4),
        (dataclasses.replace(BEAMS, slopes=np.zeros(1, int)), [1, 9, 9, 10, 10], 5),
    ],
)
def test_the_kind_of_a_tree(beams, sizes, kind):
    assert kind_of(np.array(sizes), beams) == kind


def test_beams_of_a_sensor_far_away_are_refused(octree):
    leaves = random_leaves(2, 11, 300, 3)
    sections = encode(octree, leaves, None, 11, BEAMS)
    views = {name: memoryview(content) for name, content in sections.items()}
    for origin in ((2**23, 0, 0), (0, -(2**40), 0), (0, 0, 2**62)):
        with pytest.raises(CodecError, match="too far away"):
            octree.decode(views, len(leaves), len(leaves), 11, origin, BEAMS)


def mutations(section):
    rng = np.random.default_rng(len(section))
    for position in np.unique(np.append(np.arange(40), rng.integers(0, len(section), 200))):
        damaged = bytearray(section)
        damaged[position] ^= 1 << rng.integers(8)
        yield bytes(damaged)
    for end in rng.integers(0, len(section), 20):
        yield section[:end]
    yield section + b"\0\0"


@pytest.mark.parametrize("beams", [None, BEAMS], ids=["without beams", "with beams"])
def test_damaged_sections_are_refused_or_hold_what_was_stated(octree, beams):
    """Checksums are the stream's; sections must do no harm, and tell most damage themselves."""
    leaves = random_leaves(2, 11, 3000, 3)
    multiplicity = np.where(np.arange(len(leaves)) % 5 == 0, 2, 1).astype(np.uint32)
    points = int(multiplicity.sum())
    sections = encode(octree, leaves, multiplicity, 11, beams)
    refused = tried = 0
    for name, section in sections.items():
        for damaged in mutations(section):
            tried += 1
            try:
                found, of_each = decode(
                    octree, sections | {name: damaged}, points, len(leaves), 11, beams
                )
            except CodecError:
                refused += 1
                continue
            assert len(found) == len(leaves) and found[-1] < 8**11
            assert (np.diff(found.astype(np.int64)) > 0).all()
            assert of_each.min() > 0 and int(of_each.sum()) == points
    assert refused > 0.9 * tried


def test_a_damaged_tree_decodes_to_something_or_is_refused_when_stated_otherwise(octree):
    leaves = random_leaves(2, 11, 3000, 3)
    sections = encode(octree, leaves, None, 11)
    for cells in (0, 1, 7, len(leaves) - 1, len(leaves) + 1, 2**31 - 1):
        with pytest.raises(CodecError):
            decode(octree, sections, cells, cells, 11)
    for depth in (0, 1, 10, 12, 21):
        with pytest.raises(CodecError):
            decode(octree, sections, len(leaves), len(leaves), depth)


def test_beams_of_a_sensor_too_far_away_are_refused(octree):
    leaves = random_leaves(2, 11, 300, 3)
    sections = encode(octree, leaves, None, 11, BEAMS)
    views = {name: memoryview(content) for name, content in sections.items()}
    for first in (2**23 - 2**11 + 1, -(2**23) - 1, 2**31, -(2**52)):
        with pytest.raises(CodecError, match="too far away"):
            octree.decode(views, len(leaves), len(leaves), 11, (0, first, 0), BEAMS)

"""docs/bitstream.md: a decoder written from it reads every kind of stream to the same bytes.

What its streams have in them is asserted too, so that no case tests less than it did.
"""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import reference_decoder

from geoaccel_ros.compression.codec import Codec, CodecConfig


@pytest.fixture(scope="module")
def exact():
    """Return a codec that keeps coordinates bit for bit, and rounds other fields."""
    quantise = ("intensity=0.5", "level=10")
    return Codec(CodecConfig(lossless=("x", "y", "z"), quantise=quantise))


@pytest.fixture(scope="module")
def merged():
    return Codec(CodecConfig(duplicates="merge", max_depth=6))


def cloud(xyz, types="<f4 <f4 <f4", **fields):
    """Return a cloud of coordinates (3, N) and other fields."""
    dtype = [*zip("xyz", types.split(), strict=True)]
    dtype += [(name, column.dtype, column.shape[1:]) for name, column in fields.items()]
    points = np.zeros(xyz.shape[1], dtype)
    for name, column in [*zip("xyz", xyz, strict=True), *fields.items()]:
        points[name] = column
    return points


def spinning(rings=8, columns=140, offset=0.0, motion=0.0, noise=0.01, steepness=2):
    """Return what a lidar sees in a room of uneven walls, (3, N), and the ring of each point.

    ``offset``: how far its beams pass the axis; ``motion``: how far it went in the turn;
    ``steepness``: degrees between rings.
    """
    rng = np.random.default_rng(1)
    azimuth = np.tile((np.arange(columns) + 0.3) * (2 * np.pi / columns), rings)
    ring = np.repeat(np.arange(rings), columns)
    walls = 3 * np.sign(np.sin(7 * azimuth)) * np.abs(np.cos(azimuth / 2))
    range_ = 8 + walls + noise * rng.normal(size=azimuth.shape)
    side = offset * (-1.0) ** ring
    x = range_ * np.cos(azimuth) - side * np.sin(azimuth)
    y = range_ * np.sin(azimuth) + side * np.cos(azimuth)
    z = np.tan(np.radians(steepness * (ring - rings / 2))) * range_ + 0.02 * ring
    x += motion * (turn_of(np.stack([x, y]), 0.5) - 1)
    return np.stack([x, y, z]), ring


def turn_of(xyz, begin=-0.25):
    """Return the part of a turn that a beam has made since it began."""
    return np.mod(np.arctan2(xyz[1], xyz[0]) / (2 * np.pi) - begin, 1)


def fields_of(xyz, ring):
    """Return fields that become sequences of every kind, form and basis."""
    rng = np.random.default_rng(5)
    count, index = len(ring), np.arange(len(ring))
    squares = np.cumsum(np.arange(40) ** 2) * 7 + 1000
    scattered = np.cumsum(np.tile([100, 20_000], 20))
    odd = rng.normal(size=count).astype("<f4")
    odd[::97] = np.nan
    odd[5] = -0.0
    return {
        "ring": ring.astype("<u2"),
        "time": 0.1 * turn_of(xyz),
        "stamp": np.rint(1e5 * turn_of(xyz)).astype(">u4"),
        "intensity": (np.rint(1000 * np.sin(xyz[0]) + 3000) / 100).astype("<f4"),
        "range": np.floor(10 * np.linalg.norm(xyz, axis=0)).astype("<u4"),
        "level": (100 * rng.normal(size=count)).astype("<i2"),
        "odd": odd,
        "index": index.astype("<i4") * 3 - 500,
        "bent": squares[rng.integers(0, 40, count)].astype(">i4"),
        "palette": scattered[rng.integers(0, 40, count)].astype("<i4"),
        "constant": np.full(count, -7, "<i1"),
        "rgb": (index // 16 * 65793 & 0xFFFFFF).astype("<u4").view("<f4"),
        "normal": np.stack([np.sin(xyz[0]), np.cos(xyz[1])], axis=1).astype("<f4"),
    }


def by_column(rings, columns):
    """Return the indices of points that are sent column after column, a tenth of them missing."""
    index = np.arange(rings * columns).reshape(rings, columns).T.ravel()
    return index[np.random.default_rng(3).random(len(index)) < 0.9]


@pytest.fixture
def seen(monkeypatch):
    """Return what the second decoder meets in fields."""
    met = {"kind": set(), "form": set(), "basis": set(), "prediction": set()}

    def spy(name, look):
        function = getattr(reference_decoder, name)

        def spied(section, *arguments):
            first = section.content[section.at]
            result = function(section, *arguments)
            look(first, result)
            return result

        monkeypatch.setattr(reference_decoder, name, spied)

    def look_at_head(_, head):
        met["kind"].add(head["kind"])
        met["form"].add(head["form"])

    spy("read_head", look_at_head)
    spy("read_basis", lambda kind, _: met["basis"].add(kind))
    spy("decode_attribute", lambda predictor, _: met["prediction"].add(predictor))
    return met


def check(codec, points, height=1):
    """Check that both decoders agree, and return the header and the sections."""
    stream = codec.encode(points, height)
    expected, expected_height = codec.decode(stream)
    decoded, decoded_height = reference_decoder.decode(stream)
    assert decoded.dtype == expected.dtype
    assert decoded.tobytes() == expected.tobytes()
    assert decoded_height == expected_height
    header, _, sections = reference_decoder.unpack(stream)
    return header, {name: section.content for name, section in sections.items()}


def test_clouds_of_no_and_one_point(octree, scan, exact):
    for codec in octree, scan, exact:
        for xyz in np.zeros((3, 0)), np.ones((3, 1)), np.full((3, 2), np.nan):
            columns = {"intensity": "<f4", "level": "<i2", "odd": ">f8"}
            fields = {name: np.full(xyz.shape[1], 7, type) for name, type in columns.items()}
            check(codec, cloud(xyz, **fields))


@pytest.mark.parametrize("types", ["<f4 <f4 <f4", ">f8 <f4 >f8"])
def test_an_octree_of_scattered_points(octree, types):
    # As many at any height: there is no ground.
    xyz = np.random.default_rng(0).uniform(-20, 20, (3, 400))
    xyz[:, 350:] = xyz[:, :50]
    xyz[1, ::40] = np.inf
    header, sections = check(octree, cloud(xyz, types))
    assert header["nonfinite"] == 10
    assert not sections["beams"]
    assert sections["multiplicity"]


@pytest.mark.parametrize("motion", [0.0, 0.8])
def test_an_octree_with_rings(octree, motion):
    xyz, ring = spinning(motion=motion)
    times = np.random.default_rng(0).choice([1, 1, 1, 2, 3, 4, 5, 40], len(ring))
    xyz, ring = np.repeat(xyz, times, axis=1), np.repeat(ring, times)
    _, sections = check(octree, cloud(xyz, ring=ring.astype("<u2")))
    assert sections["beams"][0] == 8
    # Knots make most of the section.
    assert (len(sections["beams"]) > 64) == (motion > 0)
    assert sections["multiplicity"]


def test_an_octree_with_the_ground(octree):
    rng = np.random.default_rng(0)
    xyz = rng.uniform(-10, 10, (3, 1200))
    xyz[2] = 0.01 * rng.normal(size=1200) - 1.7
    _, sections = check(octree, cloud(xyz))
    assert sections["beams"][0] == 1


def test_an_octree_of_several_chunks(octree):
    x, y = np.mgrid[:92, :92].reshape(2, -1)
    # Far away, where no beams are looked for: a node of each cell's own in the level above.
    xyz = np.stack([x, y, x * y // 40]) * 0.02 + 1e6
    xyz = np.concatenate([xyz, xyz[:, ::3]], axis=1)
    header, sections = check(octree, cloud(xyz, "<f8 <f8 <f8"))
    assert not sections["beams"]
    chunk_nodes = 1 << sections["occupancy"][0]
    assert chunk_nodes < header["cells"] == 92**2
    assert sections["multiplicity"]


def test_an_octree_of_merged_points(merged):
    xyz, _ = spinning()
    header, _ = check(merged, cloud(xyz))
    assert header["depth"] <= 6
    assert header["points"] < header["source_points"]


@pytest.mark.parametrize("types", ["<f4 <f4 <f4", ">f8 <f4 >f8"])
def test_a_scan_of_other_sensors(scan, types):
    xyz = np.cumsum(np.random.default_rng(0).normal(size=(3, 1200)), axis=1)
    # Beams without a return.
    xyz[:, 100:400] = 0
    xyz[2, ::100] = np.nan
    header, sections = check(scan, cloud(xyz, types), 40)
    assert (header["height"], header["nonfinite"]) == (40, 12)
    assert sections["geometry"][0] == 2


def test_a_scan_whose_columns_follow_each_other(scan):
    xyz, _ = spinning(rings=16, columns=70)
    _, sections = check(scan, cloud(xyz))
    assert sections["lines"][0] == 1


def test_a_scan_far_from_the_frames_origin(scan):
    xyz = np.random.default_rng(0).normal(size=(3, 300)) + np.array([[5e8], [5.4e9], [100]])
    header, _ = check(scan, cloud(xyz, "<f8 <f8 <f4"))
    assert header["origin"][1] > 2**31


def test_a_field_of_a_scan_of_more_cells_than_neighbours_are_told_by(scan, seen):
    rng = np.random.default_rng(0)
    place = rng.integers(0, 8, 1300).repeat(2)
    # Places that are 10 km apart in the first chunk, and near each other in the second.
    x = place * np.where(np.arange(2600) < 2048, 1e4, 1.0)
    xyz = np.stack([x, *rng.uniform(-40, 40, (2, 2600))])
    level = 10_000 * place + rng.integers(0, 200, 2600)
    check(scan, cloud(xyz, "<f8 <f8 <f8", level=level.astype("<i4")))
    assert seen["prediction"] == {reference_decoder.NEAREST}


@pytest.mark.parametrize("offset", [0.0, 0.026])
@pytest.mark.parametrize("has_ring", [True, False])
def test_a_scan_of_a_spinning_lidar(scan, offset, has_ring):
    xyz, ring = spinning(offset=offset, columns=300, steepness=4)
    _, sections = check(scan, cloud(xyz, **{"ring": ring.astype("<u1")} if has_ring else {}))
    assert sections["geometry"][0] == 1
    assert sections["lines"][0] == (2 if has_ring else 0)
    # Starts of lines that the order does not have.
    assert sections["geometry"][1] == (0 if has_ring else 8)


@pytest.mark.parametrize("clockwise", [True, False])
def test_a_scan_that_was_corrected_for_motion_with_beams_without_a_return(scan, clockwise):
    xyz, ring = spinning(rings=16, motion=1.2)
    turn = turn_of(xyz, 0.5)
    is_lost = np.random.default_rng(2).random(len(ring)) < 0.1
    xyz[:, is_lost] = 0
    xyz[0, is_lost] = 1.2 * (turn[is_lost] - 1)
    xyz[1] *= -1 if clockwise else 1
    _, sections = check(scan, cloud(xyz, ring=ring.astype("<u1")))
    assert sections["geometry"][0] == 3


def test_a_scan_whose_columns_come_in_another_order(scan):
    xyz, ring = spinning(columns=400, noise=0.003)
    columns = np.arange(400).reshape(-1, 4)[:, [0, 2, 1, 3]].ravel()
    index = (np.arange(8)[:, None] * 400 + columns).ravel()
    _, sections = check(scan, cloud(xyz[:, index], ring=ring[index].astype("<u1")))
    # Model, no starts, step, usual multiple, repetition.
    assert sections["geometry"][0] == 1
    assert sections["geometry"][7] == 4


def test_fields_of_every_kind_form_prediction_and_basis(octree, scan, exact, seen):
    xyz, ring = spinning(rings=16, columns=150)
    points = cloud(xyz, **fields_of(xyz, ring))
    points["x"][::200] = np.nan
    for codec in octree, scan, exact:
        check(codec, points)
    xyz, _ = spinning(columns=300, noise=1)
    check(octree, cloud(xyz, time=0.1 * turn_of(xyz)))
    xyz, ring = spinning(rings=4, columns=600, steepness=8)
    index = by_column(4, 600)
    for ring_type in "<u1", ">f4":
        _, sections = check(scan, cloud(xyz[:, index], ring=ring[index].astype(ring_type)))
        # Lines go by the ring, which is in the order of the cloud.
        assert sections["lines"] == b"\2"
    assert seen == {
        "kind": {0, 1, 2, 3},
        "form": {0, 1, 2, 3},
        "basis": {0, 1, 2, 3},
        "prediction": {0, 1, 2, 3, 4},
    }


def test_the_documents_numbers():
    text = (Path(__file__).resolve().parents[2] / "docs" / "bitstream.md").read_text()
    tables = re.findall(r"`(\w+)\.bin` \| ([\d,x ]+) \|", text)
    assert len(tables) == len(list(reference_decoder.TABLES.glob("*.bin"))) == 5
    for name, contexts in tables:
        size = math.prod(int(number) for number in contexts.replace(",", "").split(" x "))
        assert size == (reference_decoder.TABLES / f"{name}.bin").stat().st_size
    # Tables of constants: a row of names, and one of numbers.
    rows = re.findall(r"\| ([A-Z_| ]+) \|\n\|[-|]+\|\n\| ([\d,| ]+) \|\n", text)
    stated = {
        name: int(number.replace(",", ""))
        for names, numbers in rows
        for name, number in zip(names.split(" | "), numbers.split(" | "), strict=True)
    }
    assert len(stated) == 14
    for name, number in stated.items():
        assert number == getattr(reference_decoder, name), name

"""Points of a stream in scan order without the others: the same as of the whole."""

import numpy as np
import pytest

from geoaccel_ros.compression import bitstream
from geoaccel_ros.compression.codec import Codec, CodecConfig, CodecError, inspect

pytestmark = pytest.mark.filterwarnings("error")

DTYPE = np.dtype(
    [("x", "<f4"), ("y", "<f4"), ("z", "<f8"), ("ring", "<u2"), ("time", "<f4"),
     ("intensity", ">f4"), ("rgb", "<f4"), ("normal", "i1", (3,)), ("label", "u1")]
)  # fmt: skip
COUNT = 9000


def columns_of_rings():
    """A spinning lidar's columns of 16 rings each, so that lines are not in the cloud's order."""
    rng = np.random.default_rng(3)
    points = np.zeros(COUNT, DTYPE)
    column, ring = np.divmod(np.arange(COUNT), 16)
    azimuth = 2 * np.pi * column / (COUNT / 16)
    # Interleaved lasers: no two of a column follow each other in elevation.
    elevation = np.radians(2.0 * (ring * 7 % 16) - 15)
    ranges = 10 + 3 * np.sin(5 * azimuth) + rng.normal(0, 0.01, COUNT)
    points["x"], points["y"] = ranges * np.cos(azimuth), ranges * np.sin(azimuth)
    points["z"] = ranges * np.tan(elevation)
    points["ring"], points["time"] = ring, 0.1 * column / column[-1]
    # What only neighbours tell: a level for each stretch, and noise.
    points["intensity"] = np.round(20 * ranges + rng.integers(0, 3, COUNT)) / 255
    points["rgb"].view(np.uint32)[:] = rng.integers(0, 2**24, COUNT)
    points["normal"] = rng.integers(-3, 3, (COUNT, 3))
    points["label"] = 7
    return points


def clouds():
    lidar = columns_of_rings()
    yield "by ring", lidar
    holes = lidar.copy()
    holes["y"][::5] = np.nan
    holes["z"][np.flatnonzero(np.isnan(holes["y"]))[::2]] = -np.inf
    yield "with holes", holes
    yield (
        "by lag",
        lidar[["x", "y", "z", "intensity", "label"]].astype(
            [("x", "<f4"), ("y", "<f4"), ("z", "<f8"), ("intensity", "<f4"), ("label", "u1")]
        ),
    )
    rng = np.random.default_rng(4)
    walk = np.zeros(COUNT, [*((axis, "<f8") for axis in "xyz"), ("value", "<i4")])
    for axis in "xyz":
        walk[axis] = np.cumsum(rng.normal(0, 200, COUNT))
    # Farther apart than 2^21 cells: positions are coarser for the search of neighbours.
    walk["x"][4500:] += 5e6
    walk["value"] = walk["x"] / 10
    yield "far apart", walk


CODINGS = {
    "scan": {"mode": "scan"},
    "lossless": {"lossless": ("x", "y", "z")},
}
RANGES = [
    (0, 0), (0, 1), (0, 1024), (1, 2047), (1023, 1025), (2047, 2049), (2048, 4096), (3000, 7777),
    (7000, 7500), (8191, 8193), (8999, 9000), (8000, 9000), (9000, 9000), (0, 9000),
]  # fmt: skip


@pytest.fixture(scope="module", params=CODINGS)
def codec(request):
    return Codec(CodecConfig(**CODINGS[request.param]))


@pytest.mark.parametrize(("name", "points"), list(clouds()), ids=[name for name, _ in clouds()])
def test_ranges_are_those_of_the_whole(codec, name, points):
    stream = codec.encode(points)
    whole, _ = codec.decode(stream)
    _, order = codec.decode_range(stream, 0, COUNT)
    assert np.array_equal(np.sort(order), np.arange(COUNT))
    for first, end in RANGES:
        part, indices = codec.decode_range(stream, first, end)
        assert part.dtype == points.dtype and indices.dtype == np.int64
        assert np.array_equal(indices, order[first:end])
        assert part.tobytes() == whole[indices].tobytes(), (first, end)
    if name == "by ring":
        assert (np.diff(points["ring"][order].astype(int)) >= 0).all()


def test_points_that_are_not_finite_come_last(codec):
    points = dict(clouds())["with holes"]
    stream = codec.encode(points)
    _, order = codec.decode_range(stream, 0, COUNT)
    finite = np.isfinite(points["y"])[order]
    if inspect(stream).mode == "scan":
        assert (np.diff(finite.astype(int)) <= 0).all()
        part, _ = codec.decode_range(stream, COUNT - 1800, COUNT)
        assert np.isnan(part["y"]).all() and np.isneginf(part["z"]).sum() == 900


def test_damage_elsewhere_does_not_matter(codec):
    # Line by line, so that every field is coded in the order of the lines.
    points = np.sort(columns_of_rings(), order=["ring", "time"])
    stream = codec.encode(points)
    whole, _ = codec.decode(stream)
    taken = bitstream.unpack(memoryview(stream))
    sections = {name: bytes(section) for name, section in taken.sections.items()}
    name = "geometry" if "geometry" in sections else "field x"
    # The words of the last chunk are at the section's end.
    damaged = sections[name][:-1] + bytes([sections[name][-1] ^ 1])
    stream = bitstream.pack(taken.header, sections | {name: damaged})
    part, order = codec.decode_range(stream, 100, 6000)
    assert part.tobytes() == whole[order].tobytes()
    for first, end in (100, COUNT), (COUNT - 1, COUNT):
        with pytest.raises(CodecError, match="damaged stream"):
            codec.decode_range(stream, first, end)
    with pytest.raises(CodecError, match="damaged stream"):
        codec.decode(stream)


def test_an_empty_cloud_has_an_empty_range(codec):
    stream = codec.encode(np.zeros(0, DTYPE))
    part, order = codec.decode_range(stream, 0, 0)
    assert len(part) == len(order) == 0 and part.dtype == DTYPE


def test_ranges_that_there_are_not_are_refused(codec):
    stream = codec.encode(columns_of_rings()[:100])
    for first, end in (0, 101), (-1, 5), (7, 6), (101, 101):
        message = f"points {first} to {end} of a stream whose points are 0 to 100"
        with pytest.raises(CodecError, match=message):
            codec.decode_range(stream, first, end)
    octree = Codec(CodecConfig(mode="octree")).encode(columns_of_rings()[:100])
    with pytest.raises(CodecError, match="where one of mode scan or lossless is needed"):
        codec.decode_range(octree, 0, 1)

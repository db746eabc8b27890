"""Bytes made to break the decoder: each ends in CodecError or in a cloud within the limit."""

import struct
import zlib

import numpy as np
import pytest

from geoaccel_ros.compression import bitstream
from geoaccel_ros.compression.bitstream import Header, Section
from geoaccel_ros.compression.codec import Codec, CodecConfig, CodecError, inspect
from geoaccel_ros.compression.entropy import compress
from geoaccel_ros.compression.grid import Grid

pytestmark = pytest.mark.filterwarnings("error")

DTYPE = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f8"), ("intensity", "<f4"), ("ring", ">u2")])
HEADER_SIZE = 64
LIMIT_MIB = 4


@pytest.fixture(scope="module")
def small_codec():
    return Codec(CodecConfig(step=0.01, max_decoded_mib=LIMIT_MIB))


@pytest.fixture(scope="module")
def stream(small_codec):
    rng = np.random.default_rng(1)
    points = np.zeros(40, DTYPE)
    for axis in "xyz":
        points[axis] = rng.normal(0, 1, 40)
    points[20:24] = points[0]
    points["intensity"] = rng.integers(0, 4, 40)
    points["x"][5] = np.nan
    return small_codec.encode(points)


def sealed(body):
    """Return the bytes with the right checksum, as an attacker would send them."""
    return bytes(body) + struct.pack("<I", zlib.crc32(body))


def outcome(codec, data):
    """Return whether a cloud came out; anything but a cloud or CodecError fails."""
    try:
        points, height = codec.decode(data)
    except CodecError as error:
        assert str(error) and "\n" not in str(error)
        return False
    assert points.nbytes <= LIMIT_MIB * 2**20 and height == 1
    return True


def test_every_truncation_is_refused(small_codec, stream):
    for length in range(len(stream)):
        with pytest.raises(CodecError):
            small_codec.decode(stream[:length])
    for length in range(len(stream) - 4):
        assert not outcome(small_codec, sealed(stream[:length]))
    with pytest.raises(CodecError, match="checksum"):
        inspect(stream[:-1])


def test_every_change_of_one_byte_is_refused(small_codec, stream):
    for position in range(len(stream)):
        for change in 0x01, 0x80, 0xFF:
            damaged = bytearray(stream)
            damaged[position] ^= change
            with pytest.raises(CodecError):
                small_codec.decode(damaged)


def test_bytes_appended_are_refused(small_codec, stream):
    for tail in b"\0", stream:
        assert not outcome(small_codec, stream + tail)
        assert not outcome(small_codec, sealed(stream[:-4] + tail))


def test_random_changes_under_a_right_checksum(small_codec, stream):
    rng = np.random.default_rng(2)
    body = stream[:-4]
    survived = 0
    for _ in range(3000):
        damaged = bytearray(body)
        for _ in range(rng.integers(1, 4)):
            damaged[rng.integers(5, len(body))] = rng.integers(256)
        survived += outcome(small_codec, sealed(damaged))
    # Changes of values in fields and of the origin do survive: that is what the checksum is for.
    assert 0 < survived < 3000


def test_extreme_numbers_anywhere_in_the_header(small_codec, stream):
    body, header_size = stream[:-4], inspect(stream).bytes_by_section["header"]
    extremes = [0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
    for position in range(5, header_size):
        for number in extremes:
            for width in (4, 8) if number < 2**32 else (8,):
                damaged = bytearray(body)
                damaged[position : position + width] = number.to_bytes(width, "little")
                outcome(small_codec, sealed(damaged))


def test_sections_of_other_streams_spliced_in(small_codec, stream):
    rng = np.random.default_rng(3)
    other_points = np.zeros(40, DTYPE)
    for axis in "xyz":
        other_points[axis] = rng.normal(0, 2, 40)
    other = small_codec.encode(other_points)
    for _ in range(500):
        cut, paste = rng.integers(HEADER_SIZE, len(stream) - 4), rng.integers(4, len(other) - 4)
        outcome(small_codec, sealed(stream[:cut] + other[paste:-4]))


def test_noise(small_codec):
    rng = np.random.default_rng(4)
    for length in range(1, 300):
        noise = rng.integers(0, 256, length, dtype=np.uint8).tobytes()
        assert not outcome(small_codec, noise)
        assert not outcome(small_codec, sealed(b"GAPC\x01\x01" + noise))


# A cloud of three points in two cells, coded by hand: every part can be replaced by a wrong one.
TWO_CELLS = {
    "points": 3,
    "nonfinite": 0,
    "cells": 2,
    "height": 1,
    "mode": 1,
    "depth": 1,
    "step": 0.5,
    "origin": (0, 0, 0),
    "occupancy": bytes([0b11]),
    "multiplicity": bytes([1, 0, 0, 0, 0, 0, 0, 0]),
    "ring": bytes([0, 7, 8, 9, 0, 0, 0]),
    "rest": b"",
}
TWO_CELLS_DTYPE = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("ring", "<u2")])


def by_hand(**changes):
    part = TWO_CELLS | changes
    header = Header(
        part["mode"],
        part["height"],
        part["points"],
        part["nonfinite"],
        part["cells"],
        Grid(part["step"], part["origin"], part["depth"]),
        TWO_CELLS_DTYPE,
    )
    contents = [part[name] for name in ("occupancy", "multiplicity", "ring", "rest")]
    return bitstream.pack(header, [Section(compress(c, 1), len(c)) for c in contents])


def test_the_cloud_by_hand_is_valid(small_codec):
    points, _ = small_codec.decode(by_hand())
    assert points.tolist() == [(0, 0, 0, 7), (0, 0, 0, 8), (0.5, 0, 0, 9)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": 2}, "unknown mode 2"),
        ({"height": 0}, "rows in a mode"),
        ({"height": 3}, "rows in a mode"),
        ({"nonfinite": 4}, "more non-finite points than points"),
        ({"points": 1}, "number of cells does not fit"),
        ({"cells": 0}, "number of cells does not fit"),
        ({"cells": 3}, "does not fit its number of cells"),
        ({"points": 0, "cells": 0}, "larger than its points need"),
        ({"points": 4}, "do not add up"),
        ({"points": 2**32 - 1}, "more than max_decoded_mib"),
        ({"points": 2**32 - 1, "cells": 2**32 - 1, "depth": 21}, "more than max_decoded_mib"),
        ({"depth": 0}, "depth does not fit"),
        ({"depth": 22}, "depth does not fit"),
        ({"depth": 2**32 - 1}, "depth does not fit"),
        ({"depth": 2}, "ends within a level"),
        ({"step": 0.0}, "step is not a positive number"),
        ({"step": -1.0}, "step is not a positive number"),
        ({"step": float("nan")}, "step is not a positive number"),
        ({"step": float("inf")}, "step is not a positive number"),
        ({"step": 1e300}, "beyond their type's range"),
        ({"origin": (0, -(2**63), 0)}, "beyond their type's range"),
        ({"origin": (0, 0, 2**63 - 1)}, "beyond their type's range"),
        ({"occupancy": b""}, "ends within a level"),
        ({"occupancy": bytes([0])}, "without children"),
        ({"occupancy": bytes([0b111])}, "does not fit its number of cells"),
        ({"occupancy": bytes([3, 1, 1])}, "'occupancy' is larger"),
        ({"multiplicity": b""}, "do not add up"),
        ({"multiplicity": bytes(7)}, "does not fit the number of points"),
        ({"multiplicity": bytes(9)}, "'multiplicity' is larger"),
        ({"multiplicity": bytes([255] * 8)}, "do not add up"),
        ({"ring": b""}, "unknown coding"),
        ({"ring": bytes([2, 7, 8, 9, 0, 0, 0])}, "unknown coding"),
        ({"ring": bytes(6)}, "does not fit the number of points"),
        ({"ring": bytes(8)}, "'field ring' is larger"),
        ({"ring": bytes([1, 0, 0, 7, 0])}, "does not fit the number of points"),
        ({"rest": bytes(1)}, "'nonfinite' is larger"),
        ({"points": 4, "nonfinite": 1}, "do not fill their section"),
        ({"points": 4, "nonfinite": 1, "rest": bytes(13)}, "do not fill their section"),
    ],
)
def test_parts_that_contradict_each_other(small_codec, changes, message):
    with pytest.raises(CodecError, match=message):
        small_codec.decode(by_hand(**changes))


def test_a_section_with_another_size_than_stated(small_codec):
    data = by_hand()
    at = data.index(struct.pack("<QQ", 8, len(compress(TWO_CELLS["multiplicity"], 1))))
    for size in 0, 4, 7:
        body = bytearray(data[:-4])
        body[at : at + 8] = struct.pack("<Q", size)
        with pytest.raises(CodecError, match="another size than stated"):
            small_codec.decode(sealed(body))


def test_a_bomb_is_refused_by_its_size(small_codec):
    # A few kilobytes that would become a gigabyte: points of one cell, padded to a huge point_step.
    dtype = np.dtype({"names": list("xyz"), "formats": ["<f4"] * 3, "itemsize": 2**30})
    header = Header(1, 1, 1, 0, 1, Grid(0.5, (0, 0, 0), 0), dtype)
    data = bitstream.pack(header, [Section(b"", 0)] * 3)
    with pytest.raises(CodecError, match="more than max_decoded_mib"):
        small_codec.decode(data)
    assert inspect(data).point_step == 2**30

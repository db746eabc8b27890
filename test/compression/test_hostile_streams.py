"""Bytes made to break the decoder: each ends in CodecError or in a cloud within the limit."""

import dataclasses
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from geoaccel_ros.compression import bitstream
from geoaccel_ros.compression.bitstream import MODE_LOSSLESS, MODE_OCTREE, MODE_SCAN, Header
from geoaccel_ros.compression.codec import Codec, CodecConfig, CodecError, inspect
from geoaccel_ros.compression.grid import Grid

pytestmark = pytest.mark.filterwarnings("error")

FUZZER = Path(__file__).resolve().parents[2] / "tools" / "fuzz_codec.py"
DTYPE = np.dtype(
    [("x", "<f4"), ("y", "<f4"), ("z", "<f8"), ("intensity", "<f4"), ("ring", ">u2"),
     ("rgb", "<f4"), ("normal", "<i1", (2,))]
)  # fmt: skip
XYZ = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4")])
MODES = ("octree", "scan", "lossless")
LIMIT_MIB = 4
LIMIT = LIMIT_MIB * 2**20
EXTREMES = [0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
# Length and checksum of a section in the table.
ROW = 12


def config(mode, **changes):
    told = {"lossless": ("x", "y", "z")} if mode == "lossless" else {"mode": mode}
    return CodecConfig(max_decoded_mib=LIMIT_MIB, **told, **changes)


def small_cloud(seed=1, count=120):
    rng = np.random.default_rng(seed)
    points = np.zeros(count, DTYPE)
    for axis in "xyz":
        points[axis] = rng.normal(0, 1, count)
    points[20:24] = points[0]
    points["intensity"] = rng.integers(0, 4, count)
    points["ring"] = np.arange(count) % 4
    points["rgb"].view(np.uint32)[:] = rng.integers(0, 2**24, count)
    points["normal"] = rng.integers(-9, 9, (count, 2))
    points["x"][5] = np.nan
    return points


@pytest.fixture(scope="module")
def decoder():
    return Codec(config("octree"))


@pytest.fixture(scope="module")
def streams():
    """Return two streams of each mode."""
    codecs = {mode: Codec(config(mode)) for mode in MODES}
    return {
        mode: [codec.encode(small_cloud(seed)) for seed in (1, 2)] for mode, codec in codecs.items()
    }


@pytest.fixture(params=MODES)
def stream(request, streams):
    return streams[request.param][0]


def outcome(decoder, data):
    """Return whether a cloud came out; anything but a cloud or CodecError fails."""
    try:
        points, height = decoder.decode(data)
    except CodecError as error:
        assert str(error) and "\n" not in str(error)
        return False
    assert points.nbytes <= LIMIT
    assert len(points) % height == 0 if height else len(points) == 0
    return True


def taken_apart(stream):
    taken = bitstream.unpack(memoryview(stream))
    return taken.header, {name: bytes(section) for name, section in taken.sections.items()}


def sealed(data, header_size, lengths):
    """Return the bytes with right checksums, as an attacker would send them."""
    data = bytearray(data)
    position, row = header_size, header_size - 4 - ROW * len(lengths)
    for length in lengths:
        checksum = google_crc32c.value(bytes(data[position : position + length]))
        struct.pack_into("<I", data, row + 8, checksum)
        position, row = position + length, row + ROW
    head = bytes(data[: header_size - 4])
    struct.pack_into("<I", data, header_size - 4, google_crc32c.value(head))
    return bytes(data)


def resealed(data, original):
    """Return ``data`` with the checksums that its bytes need; ``original`` tells where they are."""
    header_size, *lengths = inspect(original).bytes_by_section.values()
    return sealed(data, header_size, lengths)


def test_every_truncation_is_refused(decoder, stream):
    for length in range(len(stream)):
        with pytest.raises(CodecError):
            decoder.decode(stream[:length])
        with pytest.raises(CodecError):
            inspect(stream[:length])


def test_every_change_of_one_byte_is_refused(decoder, stream):
    for position in range(len(stream)):
        for change in 0x01, 0x80, 0xFF:
            damaged = bytearray(stream)
            damaged[position] ^= change
            with pytest.raises(CodecError):
                decoder.decode(damaged)


def test_bytes_appended_are_refused(decoder, stream):
    for tail in b"\0", stream:
        with pytest.raises(CodecError, match="its sections do not fill it"):
            decoder.decode(stream + tail)


def test_changes_of_single_bytes_under_right_checksums(decoder, stream):
    header_size = inspect(stream).bytes_by_section["header"]
    rng = np.random.default_rng(2)
    survived = 0
    for position in [*range(5, header_size), *range(header_size, len(stream), 11)]:
        damaged = bytearray(stream)
        damaged[position] ^= rng.integers(1, 256)
        survived += outcome(decoder, resealed(damaged, stream))
    # Changes of names, of the origin and the like do survive: checksums are for those.
    assert 0 < survived < header_size + len(stream) // 8


def test_extreme_numbers_anywhere_in_the_header(decoder, stream):
    header_size = inspect(stream).bytes_by_section["header"]
    # Every byte of the header proper; of names and tables, which repeat themselves, every third.
    for position in [*range(5, 76), *range(76, header_size - 4, 3)]:
        for number in EXTREMES:
            for width in (4,) if number < 2**32 else (8,):
                damaged = bytearray(stream)
                damaged[position : position + width] = number.to_bytes(width, "little")
                outcome(decoder, resealed(damaged, stream))


def test_extreme_numbers_at_the_heads_of_sections(decoder, stream):
    header, sections = taken_apart(stream)
    for name, section in sections.items():
        for position in range(min(len(section), 12)):
            for number in 0, 2**31, 2**64 - 1:
                for width in 1, 8:
                    head = (number % 2 ** (8 * width)).to_bytes(width, "little")
                    mutant = section[:position] + head + section[position + width :]
                    outcome(decoder, bitstream.pack(header, sections | {name: mutant}))


def test_sections_cut_short_under_right_checksums(decoder, stream):
    header, sections = taken_apart(stream)
    for name, section in sections.items():
        for length in {*range(min(len(section), 40)), len(section) // 2, len(section) - 1}:
            if 0 <= length < len(section):
                with pytest.raises(CodecError):
                    decoder.decode(bitstream.pack(header, sections | {name: section[:length]}))


def test_sections_made_longer_are_refused(decoder, stream):
    header, sections = taken_apart(stream)
    for name, section in sections.items():
        for tail in b"\0", b"\1\2", bytes(1000):
            with pytest.raises(CodecError):
                decoder.decode(bitstream.pack(header, sections | {name: section + tail}))


def test_sections_of_other_streams_spliced_in(decoder, streams):
    whole = [taken_apart(first) for first, _ in streams.values()]
    donors = [taken_apart(second)[1] for _, second in streams.values()]
    survived = 0
    for header, sections in whole:
        for name in sections:
            for others in donors:
                for other in others.values():
                    mutant = bitstream.pack(header, sections | {name: other})
                    survived += outcome(decoder, mutant)
    # A field of another cloud of as many points does.
    assert survived > 0


def test_tables_of_sections_of_other_streams(decoder, streams):
    whole = [taken_apart(stream) for pair in streams.values() for stream in pair]
    for header, sections in whole:
        for other, others in whole:
            changed = dataclasses.replace(header, dtype=other.dtype, mode=other.mode)
            outcome(decoder, bitstream.pack(changed, others))
            outcome(decoder, bitstream.pack(changed, sections))
            outcome(decoder, bitstream.pack(other, sections))


def test_noise(decoder):
    rng = np.random.default_rng(4)
    for length in range(1, 300):
        noise = rng.integers(0, 256, length, dtype=np.uint8).tobytes()
        assert not outcome(decoder, noise)
        for mode in 1, 2, 3:
            assert not outcome(decoder, b"GAPC\x02" + bytes([mode]) + noise)


def test_levels_of_damaged_streams(decoder, streams):
    header, sections = taken_apart(streams["octree"][0])
    rng = np.random.default_rng(5)
    decoded = 0
    for _ in range(300):
        damaged = bytearray(sections["occupancy"])
        damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
        stream = bitstream.pack(header, sections | {"occupancy": bytes(damaged)})
        try:
            decoded += len(decoder.decode_level(stream, 3)) <= 8**3
        except CodecError as error:
            assert "\n" not in str(error)
    # Damage below the third level is not seen.
    assert 0 < decoded < 300


def test_two_thousand_mutations_end_in_an_error_or_a_cloud():
    command = [sys.executable, str(FUZZER), "--mutations", "2000", "--processes", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "2000 mutations: no crash, no hang" in result.stdout


# A cloud of three points in two cells, of which every part can be replaced by a wrong one.
@pytest.fixture(scope="module")
def three():
    """Return header and sections of the three points, by mode."""
    points = np.zeros(3, [*((axis, "<f4") for axis in "xyz"), ("ring", "<u2")])
    points["x"], points["ring"] = [0, 0, 0.5], [7, 8, 10]
    steps = {"octree": {"step": 0.5}, "scan": {"step": 0.5}, "lossless": {}}
    return {mode: taken_apart(Codec(config(mode, **steps[mode])).encode(points)) for mode in MODES}


def changed(taken, numbers, sections):
    """Return a stream with numbers of its header and its grid, and sections, replaced."""
    header, contents = taken
    told = {name: numbers[name] for name in ("step", "origin", "depth") if name in numbers}
    numbers = {name: value for name, value in numbers.items() if name not in told}
    grid = dataclasses.replace(header.grid, **told)
    return bitstream.pack(dataclasses.replace(header, **numbers, grid=grid), contents | sections)


@pytest.mark.parametrize("mode", MODES)
def test_the_three_points_are_valid(decoder, three, mode):
    points, _ = decoder.decode(changed(three[mode], {}, {}))
    assert points.tolist() == [(0, 0, 0, 7), (0, 0, 0, 8), (0.5, 0, 0, 10)]


def refused(decoder, taken, numbers, sections, message):
    with pytest.raises(CodecError, match=message) as caught:
        decoder.decode(changed(taken, numbers, sections))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"height": 0}, "rows in a mode"),
        ({"height": 3}, "rows in a mode"),
        ({"nonfinite": 4}, "more non-finite points than points"),
        ({"nonfinite": 1}, "does not fit its number of cells"),
        ({"nonfinite": 2}, "number of cells does not fit"),
        ({"points": 1}, "number of cells does not fit"),
        ({"points": 2}, "does not fit its number of cells"),
        ({"points": 0, "cells": 0}, "fewer points encoded than decoded"),
        ({"points": 4}, "fewer points encoded than decoded"),
        ({"points": 0, "source_points": 0, "cells": 0}, "does not fit its number of cells"),
        ({"points": 4, "source_points": 4}, "do not hold the number of points"),
        ({"points": 2**18, "source_points": 2**18}, "do not hold the number of points"),
        ({"points": 2**32 - 1, "source_points": 2**32 - 1}, "more than max_decoded_mib"),
        ({"points": 2**18, "source_points": 2**18, "cells": 2**18}, "depth does not fit"),
        ({"cells": 0}, "number of cells does not fit"),
        ({"cells": 1}, "as many as stated|do not end where"),
        ({"cells": 3}, "as many as stated|do not end where"),
        ({"cells": 4}, "number of cells does not fit"),
        ({"depth": 0}, "depth does not fit"),
        ({"depth": 22}, "depth does not fit"),
        ({"depth": 2**32 - 1}, "depth does not fit"),
        ({"step": 0.0}, "step is not a positive number"),
        ({"step": -1.0}, "step is not a positive number"),
        ({"step": float("nan")}, "step is not a positive number"),
        ({"step": float("inf")}, "step is not a positive number"),
        ({"step": 1e300}, "beyond their type's range"),
        ({"origin": (0, -(2**63), 0)}, "beyond their type's range"),
        ({"origin": (0, 0, 2**63 - 1)}, "beyond their type's range"),
    ],
)
def test_numbers_of_an_octree_that_contradict_each_other(decoder, three, numbers, message):
    refused(decoder, three["octree"], numbers, {}, message)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"height": 0}, "do not fill their rows"),
        ({"height": 2}, "do not fill their rows"),
        ({"height": 2**32 - 1}, "do not fill their rows"),
        ({"points": 2}, "cells of an octree in a scan"),
        ({"points": 4}, "fewer points encoded than decoded"),
        ({"source_points": 0}, "fewer points encoded than decoded"),
        ({"source_points": 4}, "cells of an octree in a scan"),
        ({"cells": 1}, "cells of an octree in a scan"),
        ({"depth": 1}, "cells of an octree in a scan"),
        ({"points": 2**32 - 1, "source_points": 2**32 - 1}, "more than max_decoded_mib"),
    ],
)
@pytest.mark.parametrize("mode", ["scan", "lossless"])
def test_numbers_of_a_scan_that_contradict_each_other(decoder, three, mode, numbers, message):
    refused(decoder, three[mode], numbers, {}, message)


@pytest.mark.parametrize(
    ("mode", "numbers", "message"),
    [
        ("scan", {"nonfinite": 4}, "more non-finite points than points"),
        ("scan", {"nonfinite": 1}, "damaged stream"),
        ("scan", {"step": 0.0}, "step is not a positive number"),
        ("scan", {"step": 1e300}, "beyond their type's range"),
        ("scan", {"origin": (0, 2**53, 0)}, "beyond their type's range"),
        ("scan", {"points": 2**18, "source_points": 2**18}, "ends within its numbers"),
        ("lossless", {"nonfinite": 1}, "a step of coordinates that are bit-exact"),
        ("lossless", {"step": 0.5}, "a step of coordinates that are bit-exact"),
        ("lossless", {"points": 2**18, "source_points": 2**18}, "ends within its numbers"),
    ],
)
def test_numbers_that_one_mode_does_not_have(decoder, three, mode, numbers, message):
    refused(decoder, three[mode], numbers, {}, message)


RING = "field ring"


@pytest.mark.parametrize(
    ("mode", "section", "content", "message"),
    [
        ("octree", "beams", b"\0", "beams that no sensor has"),
        ("octree", "beams", b"\1\0", "ends within its numbers"),
        ("octree", "occupancy", b"", "without the size of its chunks"),
        ("octree", "occupancy", b"\5", "without the size of its chunks"),
        ("octree", "occupancy", b"\x19", "without the size of its chunks"),
        ("octree", "occupancy", b"\x0c", "ends before its table"),
        ("octree", "occupancy", b"\x0c\0\0", "ends within its numbers"),
        ("octree", "occupancy", b"\x0c\0\0\0\1", "do not end where its words do"),
        ("octree", "occupancy", b"\x0c\0\0\0\2", "do not fill their section"),
        ("octree", "occupancy", b"\x0c\xff\xff\0\1", "ends within its numbers"),
        ("octree", "multiplicity", b"", "ends before its table"),
        ("octree", "multiplicity", b"\0\0\0\1", "do not end where its words do"),
        ("octree", RING, b"", "ends within its numbers"),
        ("octree", RING, bytes(1), "unknown coding of a field"),
        ("octree", RING, bytes([3, 0, 3, 0, 0]), "section of field 'ring' does not end right"),
        ("octree", RING, bytes([4, 0, 3, 0, 0]), "a constant field has values"),
        ("octree", RING, bytes([3, 4, 0, 0]), "unknown coding of a field"),
        ("octree", RING, bytes([3, 0, 4, 0]), "unknown coding of a field"),
        ("octree", RING, bytes([4, 1, 0, 3, 0]), "divided by a number that is not used"),
        ("octree", RING, bytes([5, 1, 200, 1, 3, 0]), "field of integers is coded as floats"),
        ("octree", RING, bytes([11, 3, *bytes(8), 3, 0]), "step is not a positive number"),
        ("octree", RING, bytes([4, 0, 1, 4, 0]), "more different values than points"),
        ("octree", RING, bytes([4, 0, 1, 0, 0]), "more different values than points"),
        ("octree", RING, bytes([5, 0, 0, 0, 1, 2]), "unknown order of a field"),
        ("octree", "nonfinite", bytes(1), "section of points that there are not"),
        ("scan", "lines", b"", "unknown order of the points"),
        ("scan", "lines", b"\4", "unknown order of the points"),
        ("scan", "lines", b"\0\0", "unknown order of the points"),
        ("scan", "lines", b"\1\1\0", "unknown order of the points"),
        ("scan", "lines", b"\1\1\1", "unknown order of the points"),
        ("scan", "lines", b"\3", "unknown order of the points"),
        ("lossless", "lines", b"\3", "unknown order of the points"),
        ("scan", "geometry", b"", "unknown model of the scan"),
        ("scan", "geometry", b"\4", "unknown model of the scan"),
        ("scan", "geometry", b"\0", "ends before its table"),
        ("scan", "geometry", b"\0\0\0\0\1", "do not end where its words do"),
        ("scan", "geometry", b"\1\0", "unknown model of the scan"),
        ("scan", RING, bytes([3, 0, 3, 0, 0]), "section of field 'ring' does not end right"),
        ("lossless", "field x", b"", "ends within its numbers"),
    ],
)
def test_sections_that_are_none(decoder, three, mode, section, content, message):
    refused(decoder, three[mode], {}, {section: content}, message)


def test_a_field_of_one_value_takes_no_more_than_its_head(decoder, three):
    points, _ = decoder.decode(changed(three["octree"], {}, {RING: bytes([3, 0, 3, 10])}))
    assert points["ring"].tolist() == [5, 5, 5]


def test_merged_points_are_counted_by_the_source_alone(decoder, three):
    stream = changed(three["octree"], {"source_points": 2**32 - 1}, {})
    assert len(decoder.decode(stream)[0]) == 3
    assert inspect(stream).source_points == 2**32 - 1


def traced_peak(decode):
    """Return the bytes that NumPy and Python held at most during a call."""
    tracemalloc.start()
    try:
        decode()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def header(mode, points, dtype=XYZ, **numbers):
    step = 0.0 if mode == MODE_LOSSLESS else 0.5
    told = {"height": 1, "source_points": points, "nonfinite": 0, "cells": 0} | numbers
    depth = told.pop("depth", 0)
    grid = Grid(step, (0, 0, 0), depth)
    return Header(mode=mode, points=points, grid=grid, dtype=dtype, **told)


# A point of few bytes whose fields share them.
OVERLAPPING = np.dtype(
    {
        "names": [*"xyz", *map(str, range(400))],
        "formats": ["<f4"] * 3 + [("u1", (2**14,))] * 400,
        "offsets": [0, 4, 8] + [0] * 400,
        "itemsize": 2**14,
    }
)
HUGE = [
    header(MODE_OCTREE, 2**32 - 1, cells=1),
    header(MODE_OCTREE, 2**32 - 1, cells=2**31, depth=21),
    header(MODE_OCTREE, 2**32 - 1, nonfinite=2**32 - 1),
    header(MODE_SCAN, 2**32 - 1),
    header(MODE_SCAN, 2**32 - 1, nonfinite=2**32 - 1),
    header(MODE_LOSSLESS, 2**32 - 1),
    header(MODE_SCAN, 2**28, np.dtype({"names": "xyz", "formats": ["<f4"] * 3, "itemsize": 12})),
    # A few bytes that would become a gigabyte: a point padded to a huge point_step.
    header(MODE_OCTREE, 1, np.dtype({"names": "xyz", "formats": ["<f4"] * 3, "itemsize": 2**30}),
           cells=1),
    header(MODE_SCAN, 1, np.dtype([*XYZ.descr, ("blob", "u1", (2**30,))])),
    header(MODE_SCAN, 1, OVERLAPPING),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(HUGE)))
def test_a_bomb_is_refused_by_its_size(decoder, number):
    data = bitstream.pack(HUGE[number], {})

    def decode():
        with pytest.raises(CodecError, match="more than max_decoded_mib"):
            decoder.decode(data)

    assert traced_peak(decode) < 2**20
    assert inspect(data).points == HUGE[number].points


# As many points of 12 bytes as the limit allows.
MOST = LIMIT // 12


@pytest.mark.parametrize(
    ("head", "sections"),
    [
        (header(MODE_OCTREE, MOST, cells=MOST, depth=21), {}),
        (header(MODE_OCTREE, MOST, cells=MOST, depth=21), {"occupancy": b"\x06" + bytes(100)}),
        (header(MODE_OCTREE, MOST, cells=1), {}),
        (header(MODE_OCTREE, MOST, nonfinite=MOST), {}),
        (header(MODE_OCTREE, MOST, nonfinite=MOST), {"nonfinite": bytes(100)}),
        (header(MODE_SCAN, MOST), {}),
        (header(MODE_SCAN, MOST), {"lines": b"\0", "geometry": bytes(20)}),
        (header(MODE_SCAN, MOST), {"lines": b"\1\x40\0", "geometry": bytes(20)}),
        (header(MODE_SCAN, MOST, nonfinite=MOST), {"lines": b"\0", "geometry": bytes(20)}),
        (header(MODE_LOSSLESS, MOST), {"lines": b"\0"}),
        (header(MODE_LOSSLESS, MOST), {"lines": b"\0", "field x": bytes([4, 0, 1, 200, 1])}),
    ],
)
def test_many_points_in_few_bytes_are_refused_within_the_limit(decoder, head, sections):
    data = bitstream.pack(head, sections)
    assert len(data) < 400

    def decode():
        with pytest.raises(CodecError, match="damaged stream"):
            decoder.decode(data)

    assert traced_peak(decode) < 5 * LIMIT


def test_a_field_of_many_values_a_point_is_refused_before_they_are_counted(decoder):
    dtype = np.dtype([*XYZ.descr, ("blob", "u1", (LIMIT - 12,))])
    for mode, told in (MODE_SCAN, {}), (MODE_OCTREE, {"cells": 1}):
        sections = {"lines": b"\0", "geometry": b"\0\0\0\0\1", "field blob": b"\3\0\3\0" * 3}
        data = bitstream.pack(header(mode, 1, dtype, **told), sections)

        def decode(data=data):
            with pytest.raises(CodecError, match="damaged stream"):
                decoder.decode(data)

        assert traced_peak(decode) < 2 * LIMIT


def valid_bombs():
    """Return clouds at the limit whose streams take next to nothing."""
    constant = np.zeros(MOST, XYZ)
    blob = np.zeros(LIMIT // 116, [*XYZ.descr, ("blob", "u1", (104,))])
    byte = np.zeros(LIMIT // 13, [*XYZ.descr, ("byte", "u1")])
    missing = np.full(MOST, np.nan, np.float32).repeat(3).view(XYZ)
    return {"constant": constant, "blob": blob, "byte": byte, "missing": missing}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", valid_bombs())
def test_memory_stays_within_what_the_limit_states(decoder, mode, name):
    points = valid_bombs()[name]
    data = Codec(config(mode)).encode(points)
    assert len(data) < 2**15
    decoder.decode(data)
    # Beside it there are the device's buffers; together 20 times are stated.
    assert traced_peak(lambda: decoder.decode(data)) < 14 * LIMIT

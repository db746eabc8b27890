"""compression/bitstream.py: the container of version 2, read by a second decoder too."""

import dataclasses

import numpy as np
import pytest
import reference_decoder

from geoaccel_ros.compression import bitstream
from geoaccel_ros.compression.bitstream import (
    MODE_LOSSLESS,
    MODE_OCTREE,
    MODE_SCAN,
    Header,
)
from geoaccel_ros.compression.codec import Codec, CodecConfig, CodecError, inspect
from geoaccel_ros.compression.grid import Grid
from geoaccel_ros.pointcloud.layout import PointField

DTYPE = np.dtype(
    {
        "names": ["x", "y", "z", "ring", "normal"],
        "formats": ["<f4", "<f4", "<f8", ">u2", ("<i1", (2,))],
        "offsets": [0, 4, 8, 16, 18],
        "itemsize": 24,
    }
)
HEADER = Header(
    mode=MODE_SCAN,
    height=3,
    points=6,
    source_points=6,
    nonfinite=1,
    cells=0,
    grid=Grid(0.25, (-3, 4, 2**40), 0),
    dtype=DTYPE,
)
SECTIONS = {"lines": b"\x01\x10\x00", "geometry": b"abcd", "field normal": bytes(2)}
# Never change: the container is not to depend on how sections are coded.
PACKED = bytes.fromhex(
    "47415043 02 02 0500 18000000 03000000 06000000 06000000 01000000 00000000 00000000"
    "000000000000d03f fdffffffffffffff 0400000000000000 0000000000010000"
    "0178 07 00000000 01000000  0179 07 04000000 01000000  017a 08 08000000 01000000"
    "0472696e67 84 10000000 01000000  066e6f726d616c 01 12000000 02000000"
    "0300000000000000 85c0e0fa  0400000000000000 310ac892  0000000000000000 00000000"
    "0200000000000000 d27761f1  0000000000000000 00000000  d79800c2"
    "011000 61626364 0000"
)


def scanned(count=600):
    points = np.zeros(count, [*((axis, "<f4") for axis in "xyz"), ("ring", "<u2"), ("t", ">f8")])
    turn = np.linspace(0, 6, count)
    points["x"], points["y"], points["z"] = 8 * np.cos(turn), 8 * np.sin(turn), np.sin(5 * turn)
    points["ring"] = np.arange(count) % 8
    points["t"] = 100 + turn
    points[40:60] = points[20:40]
    points["y"][::50] = np.nan
    return points


@pytest.fixture(scope="module")
def streams():
    """Return a stream of the same cloud in each mode."""
    configs = {
        "octree": CodecConfig(mode="octree"),
        "scan": CodecConfig(mode="scan"),
        "lossless": CodecConfig(lossless=("x", "y", "z")),
    }
    return {mode: Codec(config).encode(scanned(), 4) for mode, config in configs.items()}


def test_the_container_is_pinned():
    assert bitstream.pack(HEADER, SECTIONS).hex(" ") == PACKED.hex(" ")


def test_what_was_packed_is_unpacked():
    stream = bitstream.unpack(memoryview(bitstream.pack(HEADER, SECTIONS)))
    assert stream.header == HEADER
    filled = {name: bytes(section) for name, section in stream.sections.items() if section}
    assert filled == SECTIONS
    assert list(stream.sections) == [
        "lines", "geometry", "field ring", "field normal", "nonfinite",
    ]  # fmt: skip
    assert stream.header_size == len(PACKED) - sum(map(len, SECTIONS.values()))


@pytest.mark.parametrize("mode", ["octree", "scan", "lossless"])
def test_a_second_reader_agrees_with_inspect(streams, mode):
    numbers, dtype, sections = reference_decoder.unpack(streams[mode])
    info = inspect(streams[mode])
    assert info.version == 2
    assert info.mode == mode
    assert numbers["mode"] == {"octree": 1, "scan": 2, "lossless": 3}[mode]
    for name in ("points", "source_points", "nonfinite", "cells", "height", "depth", "point_step"):
        assert numbers[name] == getattr(info, name)
    assert numbers["step"] == info.step
    assert tuple(cell * info.step for cell in numbers["origin"]) == info.origin
    assert [field.name for field in info.fields] == list(dtype.names)
    lengths = {name: len(section.content) for name, section in sections.items()}
    header = len(streams[mode]) - sum(lengths.values())
    assert {"header": header} | lengths == info.bytes_by_section


def test_inspect_tells_the_cloud(streams):
    octree, scan, lossless = (inspect(streams[mode]) for mode in ("octree", "scan", "lossless"))
    assert (octree.points, octree.source_points, octree.nonfinite) == (600, 600, 12)
    assert octree.cells == 569 and octree.depth == 11
    assert (octree.order_kept, scan.order_kept, lossless.order_kept) == (False, True, True)
    assert (octree.height, scan.height, lossless.height) == (1, 4, 4)
    assert (octree.step, scan.step, lossless.step) == (0.01, 0.01, 0.0)
    assert (scan.nonfinite, lossless.nonfinite) == (12, 0)
    assert (scan.cells, scan.depth, lossless.cells, lossless.depth) == (0, 0, 0, 0)
    assert octree.point_step == 22
    assert octree.fields[3:] == (PointField("ring", 12, 4, 1), PointField("t", 14, 8, 1))
    # x and y are at least -8 m, z at least -1 m.
    assert octree.origin == pytest.approx((-8.0, -8.0, -1.0), abs=0.011)
    assert scan.origin == (0.0, 0.0, 0.0)


def test_bytes_by_section_are_the_whole_stream(streams):
    for stream in streams.values():
        assert sum(inspect(stream).bytes_by_section.values()) == len(stream)


def test_a_damaged_section_is_named(codec, streams):
    for mode, name in ("octree", "occupancy"), ("scan", "field t"), ("lossless", "field z"):
        sizes = inspect(streams[mode]).bytes_by_section
        before = list(sizes)[: list(sizes).index(name)]
        damaged = bytearray(streams[mode])
        damaged[sum(sizes[other] for other in before) + 1] ^= 4
        with pytest.raises(CodecError, match=f"checksum of section '{name}' differs"):
            codec.decode(damaged)
        with pytest.raises(CodecError, match=f"checksum of section '{name}' differs"):
            inspect(damaged)


@pytest.mark.parametrize("mode", [MODE_OCTREE, MODE_SCAN, MODE_LOSSLESS])
def test_every_number_of_the_header_survives(mode):
    is_octree = mode == MODE_OCTREE
    header = Header(
        mode=mode,
        height=1 if is_octree else 5,
        points=2**31 - 3 if is_octree else 2**32 - 1,
        source_points=2**32 - 1,
        nonfinite=0 if mode == MODE_LOSSLESS else 7,
        cells=2**31 - 11 if is_octree else 0,
        grid=Grid(
            0.0 if mode == MODE_LOSSLESS else 1e-6,
            (0, -(2**52), 2**52) if mode != MODE_LOSSLESS else (0, 0, 0),
            21 if is_octree else 0,
        ),
        dtype=DTYPE,
    )
    assert bitstream.unpack(memoryview(bitstream.pack(header, {}))).header == header


def test_other_versions_and_other_files_are_told_apart(codec, streams):
    newer = bytearray(streams["octree"])
    newer[4] = 3
    with pytest.raises(CodecError, match="stream of version 3, known are 1 to 2: update"):
        codec.decode(newer)
    for mode in 0, 4, 255:
        stream = bitstream.pack(HEADER, SECTIONS)
        stream = stream[:5] + bytes([mode]) + stream[6:]
        with pytest.raises(CodecError, match=f"unknown mode {mode}: update the decoder"):
            codec.decode(stream)
    for other in b"", b"GA", b"\x89PNG\r\n\x1a\n" + bytes(100):
        with pytest.raises(CodecError, match="not a geoaccel point-cloud stream"):
            codec.decode(other)
    with pytest.raises(CodecError, match="truncated stream: it ends before its version"):
        codec.decode(b"GAPC")


def test_a_name_that_is_no_text_is_refused():
    stream = bytearray(bitstream.pack(HEADER, SECTIONS))
    stream[stream.index(b"ring")] = 0xFF
    with pytest.raises(CodecError, match="damaged stream: .*utf-8"):
        bitstream.unpack(memoryview(stream))


def test_missing_sections_are_empty():
    bare = dataclasses.replace(HEADER, nonfinite=0)
    stream = bitstream.unpack(memoryview(bitstream.pack(bare, {})))
    assert {len(section) for section in stream.sections.values()} == {0}

"""The bytes of version 1: pinned, and read by a second decoder that knows its description."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import zstandard

from geoaccel_ros.compression.codec import inspect
from geoaccel_ros.pointcloud.layout import PointField

FILES = sorted((Path(__file__).parent / "data").glob("version1_*.gapc"))

# Never change: streams of version 1 must stay decodable.
VERSION_1 = bytes.fromhex(
    "4741504301010600190000000100000012000000010000000f00000006000000000000000000d03ff8ffffff"
    "fffffffffcffffffffffffff00093d000000000001780700000000010000000179070400000001000000017a"
    "08080000000100000009696e74656e736974790710000000010000000474696d65841400000001000000066e"
    "6f726d616c0116000000020000002e000000000000001f000000000000003c00000000000000130000000000"
    "00001c000000000000001f0000000000000023000000000000002c0000000000000023000000000000002c00"
    "00000000000018000000000000001a0000000000000028b52ffd202eb50000700303032b3030104004080301"
    "02010200200c01780128b52ffd203c550000200000020001003d011128b52ffd201cb5000080010100000080"
    "3e0000003f0001010001010038b00428b52ffd202319010000b8a000e8d07058402810f8e0c8b09880680b0f"
    "000307171b1f23272a2e32363a3e4228b52ffd202319010000f4f5f6f7eeeff0f1f2f3fafbfcfdfeff000102"
    "030405060708090a0b0c0d0e0f101128b52ffd20188d0000580000c07f00e0408813f8f9010007d002fe2fae"
    "3d"
)


def version_1_cloud():
    dtype = np.dtype(
        {
            "names": ["x", "y", "z", "intensity", "time", "normal"],
            "formats": ["<f4", "<f4", "<f8", "<f4", ">u2", ("<i1", (2,))],
            "offsets": [0, 4, 8, 16, 20, 22],
            "itemsize": 25,
        }
    )
    points = np.zeros(18, dtype)
    points["x"] = [-2, 0.5, 1, 1, 1, *range(12), np.nan]
    points["y"] = [0, 0, 2, 2, 2, *[-1] * 12, 0]
    points["z"] = [1000001, *[1000000] * 4, *[1000002] * 12, 0]
    points["intensity"] = [0.25, 0.5, 0.5, 0.25, *[0.5] * 13, 7]
    points["time"] = np.array([3, 4, 0, 1, 2, *range(6, 18), 5]) * 1000
    normal = np.arange(36).reshape(18, 2) - 18
    points["normal"] = normal[[3, 4, 0, 1, 2, *range(6, 18), 5]]
    return points


def same_bytes(a, b):
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def test_version_1_stays_decodable(codec):
    decoded, height = codec.decode(VERSION_1)
    assert same_bytes(decoded, version_1_cloud())
    assert height == 1


def test_inspect_tells_the_header():
    info = inspect(VERSION_1)
    assert (info.version, info.mode, info.order_kept) == (1, "octree", False)
    assert (info.points, info.source_points, info.nonfinite, info.cells) == (18, 18, 1, 15)
    assert (info.height, info.step, info.origin, info.depth) == (1, 0.25, (-2.0, -1.0, 1e6), 6)
    assert info.point_step == 25
    assert info.fields[4:] == (PointField("time", 20, 4, 1), PointField("normal", 22, 1, 2))
    assert info.bytes_by_section == {
        "header": 242,
        "occupancy": 31,
        "multiplicity": 19,
        "field intensity": 31,
        "field time": 44,
        "field normal": 44,
        "nonfinite": 26,
        "checksum": 4,
    }
    assert sum(info.bytes_by_section.values()) == len(VERSION_1)


def test_the_order_of_points_in_a_stream_of_version_1(codec):
    points = version_1_cloud()
    shuffled = np.random.default_rng(0).permutation(len(points))
    order = codec.order(points[shuffled], VERSION_1)
    # Points of one cell keep the order that they had, here the shuffled one.
    decoded, _ = codec.decode(VERSION_1)
    for axis in "xyz":
        assert np.array_equal(points[shuffled][order][axis], decoded[axis], equal_nan=True)


def decode_by_the_book(data):
    """Decode as docs/bitstream_version1.md describes, sharing nothing with the package."""
    assert zlib.crc32(data[:-4]) == struct.unpack("<I", data[-4:])[0]
    magic, version, mode, field_count = struct.unpack_from("<4sBBH", data)
    assert (magic, version, mode) == (b"GAPC", 1, 1)
    point_step, _, count, nonfinite, cell_count, depth = struct.unpack_from("<6I", data, 8)
    step, *origin = struct.unpack_from("<d3q", data, 32)
    at, fields = 64, []
    for _ in range(field_count):
        length = data[at]
        name = data[at + 1 : at + 1 + length].decode()
        fields.append((name, *struct.unpack_from("<BII", data, at + 1 + length)))
        at += 1 + length + 9
    # Occupancy, multiplicity, each field but x y z, points that are not finite.
    sizes = [struct.unpack_from("<QQ", data, at + 16 * i) for i in range(field_count)]
    at += 16 * field_count
    contents = []
    for size, stored in sizes:
        frame = data[at : at + stored]
        contents.append(zstandard.ZstdDecompressor().decompress(frame) if stored else b"")
        assert len(contents[-1]) == size
        at += stored
    occupancy, multiplicity, *attributes, rest = contents

    codes, position = [0] if cell_count else [], 0
    for _ in range(depth):
        children = []
        for code in codes:
            children += [8 * code + d for d in range(8) if occupancy[position] >> d & 1]
            position += 1
        codes = children
    repeats = [1] * cell_count
    for i in range(cell_count if multiplicity else 0):
        repeats[i] += sum(multiplicity[i + cell_count * byte] << 8 * byte for byte in range(4))
    codes = [code for code, n in zip(codes, repeats, strict=True) for _ in range(n)]

    kinds = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
    finite = count - nonfinite
    points = [bytearray(point_step) for _ in range(count)]

    def put(index, field, item, little_endian):
        _, code, offset, _ = field
        raw = little_endian[::-1] if code & 0x80 else little_endian
        start = offset + item * len(raw)
        points[index][start : start + len(raw)] = raw

    attributes, cursor = iter(attributes), 0
    for field in fields:
        name, code, _, items = field
        kind = kinds[code & 0x7F]
        width = int(kind[1])
        if name in ("x", "y", "z"):
            axis = "xyz".index(name)
            for i, morton in enumerate(codes):
                cell = sum((morton >> 3 * bit + axis & 1) << bit for bit in range(21))
                centre = (origin[axis] + cell) * step
                put(i, field, 0, struct.pack("<" + kind[0].replace("f", "fd"[width == 8]), centre))
        elif finite:
            content = next(attributes)
            if content[0] == 0:
                values = planes(content[1:], finite * items, width)
            else:
                palette_size = 1 + content[1] + 256 * content[2]
                palette = content[3 : 3 + width * palette_size]
                index_width = 1 if palette_size <= 256 else 2
                indices = planes(content[3 + len(palette) :], finite * items, index_width)
                starts = [width * int.from_bytes(index, "little") for index in indices]
                values = [palette[start : start + width] for start in starts]
            for i, value in enumerate(values):
                put(i // items, field, i % items, value)
        else:
            next(attributes)
        for i in range(nonfinite * items):
            put(finite + i // items, field, i % items, rest[cursor : cursor + width])
            cursor += width
    return b"".join(points)


def planes(content, count, width):
    return [bytes(content[i + count * byte] for byte in range(width)) for i in range(count)]


def test_a_second_decoder_agrees_on_the_pinned_stream():
    assert decode_by_the_book(VERSION_1) == version_1_cloud().tobytes()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_second_decoder_agrees_on_files(path):
    assert decode_by_the_book(path.read_bytes()) == np.load(path.with_suffix(".npy")).tobytes()

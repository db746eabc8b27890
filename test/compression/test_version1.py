"""compression/version1.py: streams of version 1 stay decodable, and hostile ones are refused."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from geoaccel_ros.compression import version1
from geoaccel_ros.compression.errors import CodecError

DATA = Path(__file__).parent / "data"
FILES = sorted(DATA.glob("version1_*.gapc"))
HEADER_SIZE = 64


def unlimited(_):
    pass


def decode(data, check_size=unlimited):
    return version1.decode(version1.unpack(memoryview(data)), check_size)


def sealed(body):
    """Return the bytes with the right checksum, as an attacker would send them."""
    return bytes(body) + struct.pack("<I", zlib.crc32(body))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_decode_to_the_points_that_their_encoder_decoded(path):
    expected = np.load(path.with_suffix(".npy"))
    points = decode(path.read_bytes())
    assert points.dtype == expected.dtype
    assert points.tobytes() == expected.tobytes()


def test_every_layout_that_version_1_had_is_among_the_files():
    dtypes = [np.load(path.with_suffix(".npy")).dtype for path in FILES]
    kinds = {dtype[name].base.str for dtype in dtypes for name in dtype.names}
    assert {"<f4", ">f8", "<f8", "<u2", ">i4", "<u4"} <= kinds
    assert any(dtype[name].shape for dtype in dtypes for name in dtype.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_change_of_one_byte_is_refused(path):
    data = path.read_bytes()
    for position in range(0, len(data), max(1, len(data) // 400)):
        damaged = bytearray(data)
        damaged[position] ^= 0x11
        # The magic and the version are looked at before a stream comes here.
        if position >= 5:
            with pytest.raises(CodecError):
                decode(damaged)


def test_changes_under_a_right_checksum_end_in_an_error_or_a_cloud():
    body = (DATA / "version1_fields.gapc").read_bytes()[:-4]
    rng = np.random.default_rng(2)
    outcomes = set()

    def check_size(size):
        if size > 4 * 2**20:
            raise CodecError("too large")

    for _ in range(1500):
        damaged = bytearray(body)
        for _ in range(rng.integers(1, 4)):
            damaged[rng.integers(5, len(body))] = rng.integers(256)
        try:
            outcomes.add(type(decode(sealed(damaged), check_size)))
        except CodecError:
            outcomes.add(CodecError)
    assert outcomes == {np.ndarray, CodecError}


# Where the header of version1_xyz has what, and what else would be wrong there.
@pytest.mark.parametrize(
    ("offset", "layout", "value", "message"),
    [
        (5, "<B", 2, "unknown mode 2"),
        (12, "<I", 3, "rows in a mode"),
        (20, "<I", 601, "more non-finite points than points"),
        (24, "<I", 0, "number of cells does not fit"),
        (24, "<I", 601, "number of cells does not fit"),
        (28, "<I", 0, "depth does not fit"),
        (28, "<I", 22, "depth does not fit"),
        (32, "<d", 0.0, "step is not a positive number"),
        (32, "<d", float("nan"), "step is not a positive number"),
        (40, "<q", 2**62, "beyond their type's range"),
        (16, "<I", 599, "do not add up|does not fit"),
    ],
)
def test_a_header_that_contradicts_itself(offset, layout, value, message):
    body = bytearray((DATA / "version1_xyz.gapc").read_bytes()[:-4])
    struct.pack_into(layout, body, offset, value)
    with pytest.raises(CodecError, match=message):
        decode(sealed(body))


def test_sizes_are_checked_before_anything_is_allocated():
    def refuse(_):
        raise CodecError("more than max_decoded_mib")

    with pytest.raises(CodecError, match="max_decoded_mib"):
        decode((DATA / "version1_xyz.gapc").read_bytes(), refuse)

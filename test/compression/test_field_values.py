"""compression/fields.py: bit-exact whatever the values."""

import numpy as np
import pytest

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.fields import decode_values, encode_values

PLANES, PALETTE = 0, 1


def roundtrip(values):
    content = encode_values(values)
    itemsize = values.dtype.itemsize
    bits = values.astype(values.dtype.newbyteorder("<")).view(f"<u{itemsize}").ravel()
    assert (decode_values(content, values.size, itemsize) == bits).all()
    return content


@pytest.mark.parametrize(
    "code", ["i1", "u1", "<i2", ">u2", "<i4", ">u4", "<f4", ">f4", "<f8", ">f8"]
)
def test_noise_of_every_type_survives(code):
    rng = np.random.default_rng(3)
    values = rng.integers(-100, 100, 999).astype(code)
    roundtrip(values)
    roundtrip(rng.permutation(9999).astype(code))
    roundtrip(values.reshape(333, 3))


@pytest.mark.parametrize(("distinct", "index_bytes"), [(1, 1), (256, 1), (257, 2), (65_536, 2)])
def test_few_distinct_values_become_a_palette(distinct, index_bytes):
    values = np.resize(np.arange(distinct, dtype=np.uint32) * 2654435761, 4 * distinct)
    content = roundtrip(values)
    assert content[0] == PALETTE
    assert len(content) == 3 + 4 * distinct + index_bytes * len(values)


def test_many_distinct_values_do_not():
    values = np.resize(np.arange(65_537, dtype=np.uint32), 4 * 65_537)
    assert roundtrip(values)[0] == PLANES


def test_bits_of_nan_and_zero_survive():
    # Two NaNs with payloads (one signalling), both zeros, a denormal.
    bits = np.array([0x7FC00001, 0xFF812345, 0x80000000, 0, 1, 0x7F800000], np.uint32)
    for values in (bits, np.tile(bits, 50)):
        content = encode_values(values.view(np.float32))
        assert (decode_values(content, len(values), 4) == values).all()
        swapped = encode_values(values.astype(">u4").view(">f4"))
        assert swapped == content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes([2]) + bytes(8),
        bytes([PLANES]) + bytes(7),
        bytes([PLANES]) + bytes(9),
        bytes([PALETTE, 0]),
        bytes([PALETTE, 255, 255]) + bytes(8),
        bytes([PALETTE, 0, 0]) + bytes(4) + bytes([0]),
        bytes([PALETTE, 0, 0]) + bytes(4) + bytes([0, 1]),
    ],
)
def test_bytes_that_hold_no_values_are_refused(content):
    with pytest.raises(CodecError, match="damaged stream"):
        decode_values(content, 2, 4)

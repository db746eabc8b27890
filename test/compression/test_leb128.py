"""compression/leb128.py: numbers in as few bytes as they need."""

import numpy as np
import pytest

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.leb128 import (
    decode_counts,
    decode_number,
    decode_numbers,
    decode_signed,
    encode_number,
    encode_numbers,
    encode_signed,
)


def test_numbers_come_back():
    numbers = np.array([0, 1, 127, 128, 300, 2**14, 2**21 - 1, 2**28, 2**32 - 1, 2**64 - 1], "u8")
    coded = b"ab" + encode_numbers(numbers) + b"c"
    decoded, position = decode_numbers(memoryview(coded), 2, len(numbers))
    assert decoded.tolist() == numbers.tolist()
    assert position == len(coded) - 1
    assert encode_numbers(np.empty(0, int)) == b""
    assert decode_numbers(memoryview(b""), 0, 0)[0].tolist() == []


@pytest.mark.parametrize(
    ("number", "content"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\1"), (300, b"\xac\2")]
)
def test_bytes_are_those_of_leb128(number, content):
    assert encode_number(number) == content


def test_numbers_take_the_bytes_that_they_need():
    for number, size in ((0, 1), (127, 1), (128, 2), (2**63, 10), (2**64 - 1, 10)):
        content = encode_number(number)
        assert len(content) == size
        assert decode_number(memoryview(b"?" + content + b"?"), 1) == (number, 1 + size)


def test_signed_numbers_are_short_where_they_are_small():
    extremes = np.array([0, -1, 63, -64, 2**63 - 1, -(2**63)], np.int64)
    content = encode_signed(extremes)
    assert len(content) == 4 + 10 + 10
    assert decode_signed(memoryview(content), 0, 6)[0].tolist() == extremes.tolist()


@pytest.mark.parametrize("content", [b"", b"\x80", b"\x80" * 20])
def test_what_ends_within_a_number_is_refused(content):
    for decode in decode_numbers, decode_counts, decode_signed:
        with pytest.raises(CodecError, match="ends within its numbers"):
            decode(memoryview(content), 0, 1)


def test_numbers_of_too_many_bytes_are_refused():
    with pytest.raises(CodecError, match="more than 10 bytes"):
        decode_numbers(memoryview(b"\0" + b"\x80" * 10 + b"\0"), 0, 2)
    with pytest.raises(CodecError, match="more than 5 bytes"):
        decode_counts(memoryview(b"\0" + b"\x80" * 5 + b"\0"), 0, 2)
    assert decode_counts(memoryview(b"\xff" * 4 + b"\x7f"), 0, 1)[0].tolist() == [2**35 - 1]

"""compression/rice.py: numbers come back, in as few bits as they are random."""

import numpy as np
import pytest

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.rice import decode_rice, encode_rice


def decode(content, count, position=0):
    return decode_rice(np.frombuffer(content, np.uint8), position, count)


@pytest.mark.parametrize(
    "numbers",
    [
        [],
        [0],
        [2**32 - 1],
        [0] * 1000,
        [0, 1, 2, 3, 127, 128, 2**20, 2**32 - 1],
        [100_000, *[3] * 2000],
        list(range(500)),
    ],
)
def test_numbers_come_back(numbers):
    coded = encode_rice(np.array(numbers, np.int64))
    decoded, position = decode(b"ab" + coded + b"cd", len(numbers), 2)
    assert decoded.tolist() == numbers
    assert position == 2 + len(coded)


def test_the_bits_are_those_of_the_documentation():
    # k = 1: lowest bits 1, 0, 1; then the halves 2, 0, 1 in unary: 001 1 01.
    assert encode_rice(np.array([5, 0, 3])) == bytes([1, 0b101, 0b101100])


@pytest.mark.parametrize("mean", [0.3, 1, 7, 300])
def test_geometric_numbers_cost_little_more_than_their_entropy(mean):
    p = 1 / (mean + 1)
    numbers = np.random.default_rng(1).geometric(p, 20_000) - 1
    entropy = -(p * np.log2(p) + (1 - p) * np.log2(1 - p)) / p / 8
    # A whole k costs up to 4 %, and a number a bit at least.
    assert len(encode_rice(numbers)) <= 20_000 * max(1.04 * entropy, 1.31 / 8) + 3


def test_a_truncated_sequence_is_refused():
    coded = encode_rice(np.random.default_rng(2).integers(0, 1000, 300))
    for end in range(len(coded)):
        with pytest.raises(CodecError, match="ends within its numbers"):
            decode(coded[:end], 300)


@pytest.mark.parametrize(
    ("content", "count"),
    [(b"", 1), (b"\x20\xff\xff\xff\xff\xff", 1), (b"\0\xff", 2**40), (b"\x1f" * 40, 2**31)],
)
def test_hostile_counts_are_refused_before_anything_is_allocated(content, count):
    with pytest.raises(CodecError, match="ends within its numbers"):
        decode(content, count)


def test_a_number_of_33_bits_is_refused():
    assert decode(b"\x1f\xff\xff\xff\x7f\x02", 1)[0].tolist() == [2**32 - 1]
    with pytest.raises(CodecError, match="more than 32 bits"):
        decode(b"\x1f\xff\xff\xff\x7f\x04", 1)


def test_any_bytes_are_numbers_or_refused():
    rng = np.random.default_rng(3)
    for _ in range(2000):
        content = rng.bytes(int(rng.integers(0, 60)))
        try:
            numbers, position = decode(content, 40)
        except CodecError:
            continue
        assert position <= len(content)
        assert numbers.min() >= 0

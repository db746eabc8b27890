"""Numbers in as few bytes as they need: LEB128, seven bits a byte, the lowest first.

The highest bit of a byte says that another follows. Signed numbers are sent as n >= 0: 2 n, and
n < 0: -2 n - 1, so that small magnitudes are short.
"""

import numpy as np

from geoaccel_ros.compression.errors import CodecError

# Of 64 bits; and of counts, whose sums must stay within 64 bits whatever a stream says.
_MAX_BYTES = 10
_MAX_COUNT_BYTES = 5


def encode_numbers(numbers: np.ndarray) -> bytes:
    """Return non-negative integers, (N,), below 2**64."""
    numbers = np.asarray(numbers).astype(np.uint64)
    shifts = 7 * np.arange(_MAX_BYTES, dtype=np.uint64)
    rest = numbers[:, None] >> shifts
    continued = np.zeros(rest.shape, bool)
    continued[:, :-1] = rest[:, 1:] > 0
    groups = (rest & np.uint64(127) | continued * np.uint64(128)).astype(np.uint8)
    return groups[(rest > 0) | (shifts == 0)].tobytes()


def encode_number(number: int) -> bytes:
    """Return a non-negative integer below 2**64."""
    return encode_numbers(np.array([number], np.uint64))


def encode_signed(numbers: np.ndarray) -> bytes:
    """Return integers, int64 (N,)."""
    return encode_numbers((numbers << 1 ^ numbers >> 63).view(np.uint64))


def decode_numbers(content: memoryview, position: int, count: int) -> tuple[np.ndarray, int]:
    """Return ``count`` numbers, uint64 (count,), from ``position`` on, and where they end.

    Raises
    ------
    CodecError
        If there are not so many, or one has more than 10 bytes.
    """
    return _decode(content, position, count, _MAX_BYTES)


def decode_counts(content: memoryview, position: int, count: int) -> tuple[np.ndarray, int]:
    """Return the same as int64 below 2**35, so that sums of them do not overflow.

    Raises
    ------
    CodecError
        If there are not so many, or one has more than 5 bytes.
    """
    numbers, position = _decode(content, position, count, _MAX_COUNT_BYTES)
    return numbers.astype(np.int64), position


def decode_number(content: memoryview, position: int) -> tuple[int, int]:
    """Return the number at ``position``, and where it ends; errors are :func:`decode_numbers`'."""
    numbers, position = decode_numbers(content, position, 1)
    return int(numbers[0]), position


def decode_signed(content: memoryview, position: int, count: int) -> tuple[np.ndarray, int]:
    """Return ``count`` integers, int64; else as :func:`decode_numbers`."""
    numbers, position = decode_numbers(content, position, count)
    return signed(numbers), position


def signed(numbers: np.ndarray) -> np.ndarray:
    """Return the signed integers, int64, that unsigned ones stand for."""
    numbers = numbers.astype(np.uint64)
    halves = (numbers >> np.uint64(1)).view(np.int64)
    return halves ^ -(numbers & np.uint64(1)).view(np.int64)


def _decode(
    content: memoryview, position: int, count: int, max_bytes: int
) -> tuple[np.ndarray, int]:
    if count == 0:
        return np.empty(0, np.uint64), position
    part = np.frombuffer(content, np.uint8)[position : position + max_bytes * count]
    ends = np.flatnonzero(part < 128)[:count]
    if len(ends) < count:
        raise CodecError("damaged stream: a section ends within its numbers")
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (ends - starts).max() >= max_bytes:
        raise CodecError(f"damaged stream: a number of more than {max_bytes} bytes")
    used = part[: ends[-1] + 1].astype(np.uint64)
    places = (np.arange(len(used)) - np.repeat(starts, ends - starts + 1)).astype(np.uint64)
    groups = (used & np.uint64(127)) << np.uint64(7) * places
    return np.add.reduceat(groups, starts), position + len(used)

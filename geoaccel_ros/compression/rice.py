"""Rice codes of small numbers (Rice, 1979), laid out so that NumPy decodes them all at once.

A sequence of n numbers, whose n the decoder knows, is nothing if n = 0, else

- a byte k, at most 31;
- the k lowest bits of each number, lowest first;
- the rest of each number in unary: so many zeros, and a one.

Bits fill bytes from the lowest; each of the two parts is padded with zeros to whole bytes.
"""

import numpy as np

from geoaccel_ros.compression.errors import CodecError

_MAX_K = 31


def encode_rice(numbers: np.ndarray) -> bytes:
    """Return non-negative integers below 2**32 with the k that suits their mean best.

    Parameters
    ----------
    numbers : ndarray, shape (n,), integer
    """
    if len(numbers) == 0:
        return b""
    numbers = np.asarray(numbers, np.int64)
    near = int(numbers.sum() // len(numbers)).bit_length()
    choices = range(max(near - 2, 0), min(near, _MAX_K) + 1)
    k = min(choices, key=lambda k: (numbers >> k).sum() + k * len(numbers))
    low = numbers[:, None] >> np.arange(k) & 1
    ones = np.cumsum((numbers >> k) + 1) - 1
    unary = np.zeros(ones[-1] + 1, np.uint8)
    unary[ones] = 1
    return bytes([k]) + _packed(low.ravel().astype(np.uint8)) + _packed(unary)


def decode_rice(content: np.ndarray, position: int, count: int) -> tuple[np.ndarray, int]:
    """Return ``count`` numbers, int64 (count,), and the position behind them.

    Parameters
    ----------
    content : ndarray, uint8
        May be hostile.
    position, count : int

    Raises
    ------
    CodecError
        If there are not so many, or one is not below 2**32.
    """
    if count == 0:
        return np.empty(0, np.int64), position
    k = int(content[position]) if position < len(content) else 0
    low_end = position + 1 + -(-count * k // 8)
    # Of a number's unary part there is a bit at least: no more is allocated than there are bytes.
    if k > _MAX_K or low_end + -(-count // 8) > len(content):
        raise CodecError("damaged stream: a section ends within its numbers")
    low = np.unpackbits(content[position + 1 : low_end], count=count * k, bitorder="little")
    # Twice as many bits as numbers are enough most often.
    size = -(-count // 4)
    while True:
        unary = content[low_end : low_end + size]
        ones = np.flatnonzero(np.unpackbits(unary, bitorder="little"))[:count]
        if len(ones) == count:
            break
        if len(unary) < size:
            raise CodecError("damaged stream: a section ends within its numbers")
        size *= 4
    high = np.diff(ones, prepend=-1) - 1
    if (high >> 32 - k).any():
        raise CodecError("damaged stream: a number of more than 32 bits")
    numbers = (high << k) + low.reshape(count, k) @ (1 << np.arange(k))
    return numbers, low_end + int(ones[-1]) // 8 + 1


def _packed(bits: np.ndarray) -> bytes:
    return np.packbits(bits, bitorder="little").tobytes()

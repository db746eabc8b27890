"""A field's values as a sequence of 64-bit integers that resemble each other, and back.

A sequence's head says how a value comes from an integer q. Its numbers are LEB128, of at most 10
bytes; signed ones are ``n << 1 ^ n >> 63`` before.

- The kind, one byte, and what belongs to it. 0 integers: the value is n itself. 1 quotients: n / d
  as a float; d, a number, follows. 2 bits: the float whose bits, ordered as the floats are, are n.
  3 steps: n * s; s, a float64, follows.
- The form, one byte, and what belongs to it. 0 affine: n = base + scale * q; base, signed, and
  scale, a number, follow. 1 palette: n is the q-th of the numbers that follow: how many, the
  lowest (signed), and how far each other one is above the one before. 2 bent palette: the same, but
  of each distance how much more it is than the one before (signed; the first: than 0). 3 constant:
  n = base, which follows, signed, for every point; there is no q.

All sums are modulo 2**64. A float's bits b, as a signed integer, are ordered as b where b is not
negative, else as b with all bits but the sign's inverted. Quotients and products are of doubles.
"""

import struct
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.leb128 import (
    decode_number,
    decode_numbers,
    decode_signed,
    encode_number,
    encode_numbers,
    encode_signed,
)

_INTEGERS, _QUOTIENTS, _BITS, _STEPS = range(4)
_AFFINE, _PALETTE, _BENT_PALETTE, _CONSTANT = range(4)
# Floats that sensors make of integers: hundredths, bytes, binary fractions and so on.
_DIVISORS = (1, 100, 255, 65536, 10, 1000, 65535, 10_000, 10**6, 10**9, 10**12)
# By a float's bytes: of larger numerators nearly all floats would be quotients.
_MAX_NUMERATOR = {2: 2.0**11, 4: 2.0**24, 8: 2.0**50}
_SMALL_NUMERATOR, _BLOCK = 2.0**22, 1 << 15
_TRIED = 256
# Below so many different values at most, gaps between them cost next to nothing.
_SMALL_SPAN = 256
_PALETTE_SAMPLE = 2048
# A palette's entry takes a byte or two.
_POINTS_OF_A_COLOUR = 32
# Tables of less are faster than sorting.
_TABLE_SPAN = 1 << 21
_F64 = struct.Struct("<d")


@dataclass(frozen=True)
class Sequence:
    """What a field's values have become.

    Attributes
    ----------
    head : bytes
    values : ndarray, shape (N,), int32 or int64
        Empty where the head tells all. Of 32 bits are numbers below 2**22 alone.
    """

    head: bytes
    values: np.ndarray


def to_sequence(values: np.ndarray, step: float = 0.0) -> Sequence:
    """Return values as integers.

    Parameters
    ----------
    values : ndarray, shape (N,)
        Of any number's type and byte order; N is not 0.
    step : float
        Distance of the values that they are rounded to; 0: bit-exact. With a value that is not
        finite among them all are bit-exact.
    """
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    if step and np.isfinite(values).all():
        multiples = np.rint(values / np.float64(step)).astype(np.int64)
        return _in_form(bytes([_STEPS]) + _F64.pack(step), multiples)
    if values.dtype.kind != "f":
        # Narrow numbers are quick to go through; sums of a few stay within 32 bits.
        wide = np.int32 if values.itemsize <= 2 else np.int64
        return _in_form(bytes([_INTEGERS]), values.astype(wide))
    values = np.ascontiguousarray(values)
    for divisor in _DIVISORS:
        numerators = _numerators(values, divisor)
        if numerators is not None:
            return _in_form(bytes([_QUOTIENTS]) + encode_number(divisor), numerators)
    return _in_form(bytes([_BITS]), _ordered(values))


def read_head(content: memoryview, position: int, count: int) -> tuple["Head", int]:
    """Return the head at ``position`` of a sequence of ``count`` values, and where it ends.

    Raises
    ------
    CodecError
        If it is damaged.
    """
    content = memoryview(content)
    kind, position = _byte(content, position, _STEPS)
    divisor, step = 1, 0.0
    if kind == _QUOTIENTS:
        divisor, position = decode_number(content, position)
        if not 1 <= divisor <= max(_DIVISORS):
            raise CodecError("damaged stream: a field is divided by a number that is not used")
    elif kind == _STEPS:
        if len(content) < position + _F64.size:
            raise CodecError("damaged stream: a field's head is cut short")
        (step,) = _F64.unpack_from(content, position)
        position += _F64.size
        if not (np.isfinite(step) and step > 0):
            raise CodecError("damaged stream: a field's step is not a positive number")
    form, position = _byte(content, position, _CONSTANT)
    base, scale, palette = 0, 1, None
    if form in (_PALETTE, _BENT_PALETTE):
        size, position = decode_number(content, position)
        if not 1 <= size <= count:
            raise CodecError("damaged stream: a field has more different values than points")
        (base,), position = decode_signed(content, position, 1)
        gaps = np.empty(0, np.int64)
        if size > 1 and form == _PALETTE:
            gaps, position = decode_numbers(content, position, size - 1)
            gaps = gaps.view(np.int64)
        elif size > 1:
            bends, position = decode_signed(content, position, size - 1)
            gaps = np.cumsum(bends)
        palette = np.cumsum(np.concatenate([[base], gaps]))
    else:
        (base,), position = decode_signed(content, position, 1)
        if form == _AFFINE:
            scale, position = decode_number(content, position)
    return Head(kind, divisor, step, int(base), scale, palette, form == _CONSTANT), position


@dataclass(frozen=True)
class Head:
    """How values come from integers; see the module."""

    kind: int
    divisor: int
    step: float
    base: int
    scale: int
    palette: np.ndarray | None
    is_constant: bool

    def to_values(self, integers: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return the values, of a native type, of integers (N,), int64.

        Raises
        ------
        CodecError
            If one is not in the palette, or the type cannot be made of this kind.
        """
        numbers = self._numbers(integers)
        if self.kind == _INTEGERS:
            return numbers.astype(dtype)
        # Damage may make numbers that no float holds.
        with np.errstate(over="ignore"):
            if self.kind == _STEPS and dtype.kind != "f":
                limits = np.iinfo(dtype)
                return np.clip(np.rint(numbers * self.step), limits.min, limits.max).astype(dtype)
            if dtype.kind != "f":
                raise CodecError("damaged stream: a field of integers is coded as floats")
            if self.kind == _STEPS:
                return (numbers * np.float64(self.step)).astype(dtype)
            if self.kind == _QUOTIENTS:
                return (numbers / np.float64(self.divisor)).astype(dtype)
        signed = numbers.astype(f"i{dtype.itemsize}")
        return (signed ^ _inverted_if_negative(signed)).view(dtype)

    def _numbers(self, integers: np.ndarray) -> np.ndarray:
        if self.palette is None:
            if self.scale != 1:
                integers = integers * np.array(self.scale, np.uint64).astype(np.int64)
            return integers + np.int64(self.base) if self.base else integers
        if integers.min(initial=0) < 0 or integers.max(initial=0) >= len(self.palette):
            raise CodecError("damaged stream: a value beyond its field's palette")
        return self.palette[integers]


def _numerators(values: np.ndarray, divisor: int) -> np.ndarray | None:
    """Return n (N,), signed, with values == n / divisor, bit by bit; None if there are none."""
    stride = max(1, len(values) // _TRIED)
    # A few decide nearly always.
    few = _exact_numerators(values[::stride], divisor)
    return None if few is None else _exact_numerators(values, divisor)


def _exact_numerators(values: np.ndarray, divisor: int) -> np.ndarray | None:
    # What is not finite fails the comparison with a limit.
    with np.errstate(over="ignore", invalid="ignore"):
        is_single = values.dtype == np.float32 and np.float32(divisor) == divisor
        if is_single and np.abs(values).max() * divisor < _SMALL_NUMERATOR:
            return _small_numerators(values, np.float32(divisor))
        products = np.rint(values * np.float64(divisor))
    if not np.abs(products).max() <= _MAX_NUMERATOR[values.itemsize]:
        return None
    numerators = products.astype(np.int64)
    quotients = (numerators / np.float64(divisor)).astype(values.dtype)
    return numerators if _are_same(quotients, values) else None


def _small_numerators(values: np.ndarray, divisor: np.float32) -> np.ndarray | None:
    """Return numerators below 2**22, int32, as doubles would find them.

    The product is less than half off, and the quotient is that of doubles, rounded.
    """
    numerators = np.empty(len(values), np.int32)
    # In blocks that a core's cache holds with all that is made of them.
    for begin in range(0, len(values), _BLOCK):
        block = values[begin : begin + _BLOCK]
        products = np.rint(block * divisor)
        numerators[begin : begin + _BLOCK] = products
        # Adding 0 makes 0 of -0.
        if not _are_same((products + np.float32(0)) / divisor, block):
            return None
    return numerators


def _are_same(a: np.ndarray, b: np.ndarray) -> bool:
    """Tell whether floats are the same, bit by bit: -0 is not 0."""
    return bool((_as_signed(a) == _as_signed(b)).all())


def _in_form(kind: bytes, numbers: np.ndarray) -> Sequence:
    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        return Sequence(kind + bytes([_CONSTANT]) + _signed(low), np.empty(0, np.int64))
    scale = _scale(numbers, low, high)
    if (high - low) // scale >= _SMALL_SPAN:
        palette = _palette(numbers, low, high)
        if palette is not None:
            return Sequence(kind + _encode_palette(palette), _indices(numbers, palette))
    if scale > 1:
        numbers = (numbers - low) // scale
    else:
        # The level of a value tells how much the next may differ: it is kept.
        low = 0
    return Sequence(kind + bytes([_AFFINE]) + _signed(low) + encode_number(scale), numbers)


def _palette(numbers: np.ndarray, low: int, high: int) -> np.ndarray | None:
    """Return the different numbers, ascending, if they are few and far between; else None."""
    sample = numbers[:: max(1, len(numbers) // _PALETTE_SAMPLE)]
    if len(np.unique(sample)) > 3 * len(sample) // 4:
        return None
    if high - low < _TABLE_SPAN:
        present = np.zeros(high - low + 1, bool)
        present[numbers - low] = True
        different = np.flatnonzero(present) + low
    else:
        different = np.unique(numbers)
    is_short = _POINTS_OF_A_COLOUR * len(different) <= len(numbers)
    return different if is_short and high - low >= 4 * len(different) else None


def _indices(numbers: np.ndarray, palette: np.ndarray) -> np.ndarray:
    low, high = int(palette[0]), int(palette[-1])
    if high - low < _TABLE_SPAN:
        table = np.zeros(high - low + 1, np.int64)
        table[palette - low] = np.arange(len(palette))
        return table[numbers - low]
    return np.searchsorted(palette, numbers).astype(np.int64, copy=False)


def _scale(numbers: np.ndarray, low: int, high: int) -> int:
    """Return the largest integer of which all numbers less the lowest are multiples."""
    if high - low >= 2**62:
        return 1
    sample = numbers[:: max(1, len(numbers) // _TRIED)] - low
    scale = int(np.gcd.reduce(sample))
    if scale > 1:
        scale = int(np.gcd.reduce(np.unique((numbers - low) % scale), initial=scale))
    # All of the sample may be the lowest.
    return max(scale, 1)


def _encode_palette(palette: np.ndarray) -> bytes:
    gaps = np.diff(palette)
    size = encode_number(len(palette)) + _signed(int(palette[0]))
    straight = encode_numbers(gaps.astype(np.uint64))
    bent = encode_signed(np.diff(gaps, prepend=0))
    if len(straight) <= len(bent):
        return bytes([_PALETTE]) + size + straight
    return bytes([_BENT_PALETTE]) + size + bent


def _ordered(values: np.ndarray) -> np.ndarray:
    signed = _as_signed(values)
    return (signed ^ _inverted_if_negative(signed)).astype(np.int64)


def _inverted_if_negative(signed: np.ndarray) -> np.ndarray:
    """Return all bits but the highest where a number is negative, else none."""
    return (signed >> (8 * signed.itemsize - 1)) & np.iinfo(signed.dtype).max


def _as_signed(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(f"i{values.itemsize}")


def _signed(number: int) -> bytes:
    return encode_signed(np.array([number], np.int64))


def _byte(content: memoryview, position: int, highest: int) -> tuple[int, int]:
    if len(content) <= position or content[position] > highest:
        raise CodecError("damaged stream: unknown coding of a field")
    return content[position], position + 1

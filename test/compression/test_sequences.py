"""compression/sequences.py: values to integers and back, bit for bit or within half a step."""

import numpy as np
import pytest

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.sequences import (
    read_head,
    to_sequence,
)

AFFINE, PALETTE, BENT_PALETTE, CONSTANT = range(4)
KINDS = {"integers": 0, "quotients": 1, "bits": 2, "steps": 3}


def restored(values, step=0.0):
    """Return a sequence and the values made of it."""
    sequence = to_sequence(values, step)
    head, end = read_head(memoryview(sequence.head), 0, len(values))
    assert end == len(sequence.head)
    integers = np.zeros(len(values), np.int64) if head.is_constant else sequence.values
    return sequence, head.to_values(integers, values.dtype.newbyteorder("="))


def assert_exact(values):
    sequence, back = restored(values)
    native = values.astype(values.dtype.newbyteorder("="))
    assert back.dtype == native.dtype
    assert back.tobytes() == native.tobytes()
    return sequence


@pytest.mark.parametrize("code", ["i1", "u1", "<i2", ">u2", "<i4", ">u4", "<i8", ">u8"])
def test_integers_of_every_type_and_size_survive(code):
    rng = np.random.default_rng(5)
    limits = np.iinfo(code)
    native = np.dtype(code).newbyteorder("=")
    everything = rng.integers(limits.min, limits.max, 999, native, endpoint=True).astype(code)
    assert_exact(everything)
    assert_exact(np.array([limits.min, limits.max, 0, 1] * 99, code))
    assert_exact(np.array([limits.max], code))


@pytest.mark.parametrize("code", ["<f4", ">f4", "<f8", ">f8"])
def test_floats_of_any_bits_survive(code):
    rng = np.random.default_rng(6)
    itemsize = np.dtype(code).itemsize
    bits = rng.integers(0, 2 ** (8 * itemsize), 999, f"u{itemsize}")
    assert_exact(bits.astype(code[0] + f"u{itemsize}").view(code))
    assert_exact(rng.normal(size=999).astype(code))


def test_bits_of_nan_and_zero_survive():
    # Two NaNs with payloads (one signalling), both zeros, a denormal, infinity.
    bits = np.array([0x7FC00001, 0xFF812345, 0x80000000, 0, 1, 0x7F800000], np.uint32)
    for values in (bits, np.tile(bits, 99), bits[2:3], bits[3:4], bits[[2, 3]]):
        assert_exact(values.view(np.float32))


def test_the_order_of_bits_is_the_order_of_floats():
    floats = np.array([-np.inf, -1e30, -np.pi, -1e-42, -0.0, 0.0, 1e-42, np.e, np.inf], np.float32)
    sequence, _ = restored(floats)
    assert sequence.head[0] == KINDS["bits"]
    assert (np.diff(sequence.values) > 0).all()
    assert sequence.values[5] - sequence.values[4] == 1


@pytest.mark.parametrize("divisor", [1, 100, 255, 1000, 65536])
@pytest.mark.parametrize("code", ["<f4", ">f8"])
def test_quotients_of_integers_become_these(divisor, code):
    integers = np.random.default_rng(7).integers(0, 200, 5000)
    sequence = assert_exact((integers / divisor).astype(code))
    assert sequence.head[0] == KINDS["quotients"]
    assert (sequence.values == integers).all()


@pytest.mark.parametrize("divisor", [1, 100, 255, 1000])
@pytest.mark.parametrize("largest", [2**22 - 1, 2**22, 2**22 + 1, 2**23])
def test_large_numerators_are_found_as_small_ones_are(divisor, largest):
    """Single precision serves below 2**22, doubles above; both find every numerator."""
    near = largest - np.arange(3000)
    integers = np.concatenate([near, -near, np.arange(3000)])
    sequence = assert_exact((integers / divisor).astype(np.float32))
    assert sequence.head[0] == KINDS["quotients"]
    assert (sequence.values == integers).all()


def test_floats_next_to_a_quotient_are_none():
    floats = (np.arange(5000) / 100).astype(np.float32)
    for index in (0, 3, 4999):
        for towards in (-np.inf, np.inf):
            near = floats.copy()
            near[index] = np.nextafter(near[index], np.float32(towards))
            assert assert_exact(near).head[0] != KINDS["quotients"]
    floats[7] = -0.0
    assert assert_exact(floats).head[0] != KINDS["quotients"]


def test_numbers_of_a_text_become_integers():
    texts = [f"{value:.6g}" for value in np.random.default_rng(14).uniform(-1, 1, 5000)]
    sequence = assert_exact(np.array(texts, np.float64))
    assert sequence.head[0] == KINDS["quotients"]
    # Of six digits: the least of them is about 0.0001.
    assert np.abs(sequence.values).max() <= 10**12


def test_floats_of_full_precision_are_no_quotients():
    for code in ("<f4", "<f8"):
        noise = np.random.default_rng(15).uniform(-100, 100, 5000).astype(code)
        assert assert_exact(noise).head[0] == KINDS["bits"]


def test_one_value_that_is_no_quotient_is_not_lost():
    values = (np.arange(5000) % 100 / 100).astype(np.float32)
    values[4321] = np.nextafter(np.float32(0.5), np.float32(1))
    assert assert_exact(values).head[0] == KINDS["bits"]


def test_a_constant_needs_no_values():
    for values in (np.full(9, -7, np.int32), np.full(9, np.nan), np.full(9, 0.25, np.float32)):
        sequence = assert_exact(values)
        assert len(sequence.values) == 0
        assert len(sequence.head) <= 13


def test_common_factors_are_divided_by():
    values = (-400 + 16 * np.random.default_rng(8).integers(0, 200, 5000)).astype(np.int32)
    sequence = assert_exact(values)
    assert (sequence.values == (values + 400) // 16).all()
    values[4999] += 1
    assert_exact(values)


@pytest.mark.parametrize(
    ("palette", "form"),
    [
        (np.cumsum(1000 + 377 * (np.arange(50) % 3) ** 2), PALETTE),
        (10**15 + 333_333 * np.arange(50), BENT_PALETTE),
    ],
)
def test_few_values_far_between_become_a_palette(palette, form):
    indices = np.random.default_rng(9).integers(0, 50, 5000)
    # So that there is no common factor.
    sequence = assert_exact(np.append(palette[indices], palette[0] + 7))
    assert sequence.head[1] == form
    assert sequence.values.max() == 50
    assert len(sequence.head) < 50 * 4


def test_many_values_do_not():
    values = np.random.default_rng(10).integers(0, 2**31, 5000)
    assert assert_exact(values).head[1] == AFFINE


@pytest.mark.parametrize("code", ["<f4", ">f4", "<f8", "<i2", "u1"])
def test_steps_bound_the_error(code):
    rng = np.random.default_rng(11)
    for step in (1.0, 3.0, 0.007) if code[-2] == "f" else (1.0, 3.0, 7.0):
        values = rng.uniform(-20, 20, 9999) if code[-2] == "f" else rng.integers(0, 256, 9999)
        values = values.astype(code)
        sequence, back = restored(values, step)
        assert sequence.head[0] == KINDS["steps"]
        error = np.abs(back.astype(float) - values.astype(float))
        # Less than a unit in the last place of 20 in a float32.
        assert error.max() <= step / 2 + 2e-6
        assert error.max() > step / 4 or step == 1.0


def test_microseconds_since_1970_are_kept_by_doubles():
    times = 1.7e9 + np.sort(np.random.default_rng(12).uniform(0, 0.1, 9999))
    _, back = restored(times, 1e-6)
    # A double resolves 0.24 us there.
    assert np.abs(back - times).max() <= 0.5e-6 + np.spacing(1.7e9)


def test_with_a_value_that_is_not_finite_all_are_exact():
    values = np.random.default_rng(13).normal(size=999).astype(np.float32)
    values[500] = np.nan
    sequence, back = restored(values, 0.1)
    assert sequence.head[0] == KINDS["bits"]
    assert back.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"", "unknown coding"),
        (b"\4", "unknown coding"),
        (b"\0", "unknown coding"),
        (b"\0\4", "unknown coding"),
        (b"\0\0\0", "ends within its numbers"),
        (b"\0\0\x80", "ends within its numbers"),
        (b"\0\1\3\0" + b"\x80" * 10 + b"\1\1", "more than 10 bytes"),
        (b"\1\0", "divided by"),
        (b"\1" + b"\xff" * 8 + b"\1", "divided by"),
        (b"\3" + bytes(7), "cut short"),
        (b"\3" + bytes(8), "not a positive number"),
        (b"\3" + np.float64(np.nan).tobytes(), "not a positive number"),
        (b"\0\1\0", "more different values than points"),
        (b"\0\1\x0a", "more different values than points"),
        (b"\0\1\3\0\1", "ends within its numbers"),
        (b"\0\2\3\0\1", "ends within its numbers"),
    ],
)
def test_damaged_heads_are_refused(head, message):
    with pytest.raises(CodecError, match=f"damaged stream: .*{message}"):
        read_head(memoryview(head), 0, 9)


def test_integers_beyond_the_palette_are_refused():
    head, _ = read_head(memoryview(b"\0\1\2\0\1"), 0, 9)
    assert head.to_values(np.array([0, 1]), np.dtype(np.uint8)).tolist() == [0, 1]
    for index in (-1, 2, 2**62):
        with pytest.raises(CodecError, match="beyond its field's palette"):
            head.to_values(np.array([index]), np.dtype(np.uint8))


def test_floats_are_not_made_into_integers():
    for kind in (b"\1\1", b"\2"):
        head, _ = read_head(memoryview(kind + b"\0\0\1"), 0, 9)
        with pytest.raises(CodecError, match="coded as floats"):
            head.to_values(np.zeros(3, np.int64), np.dtype(np.uint16))

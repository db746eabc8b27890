import numpy as np
import pytest
from scipy import stats

from geoaccel_ros.control.philox import philox, two_normals


# The known answers that the authors publish with their implementation (Random123, kat_vectors).
@pytest.mark.parametrize(
    ("counter_and_key", "expected"),
    [
        ("00000000 " * 6, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff " * 6, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_gives_the_known_answers(counter_and_key, expected):
    found = philox(*(np.uint32(int(word, 16)) for word in counter_and_key.split()))
    assert [f"{word:08x}" for word in found] == expected.split()


def test_numbers_are_normal_and_independent():
    zero = np.uint32(0)
    key = np.uint32(7), np.uint32(0)
    words = [philox(np.uint32(i), zero, zero, zero, *key) for i in range(20_000)]
    normals = np.array([(*two_normals(a, b), *two_normals(c, d)) for a, b, c, d in words])
    for column in normals.T:
        assert stats.kstest(column, "norm").pvalue > 1e-3
    # Of independent numbers, correlations of 20,000 stay below 5 / sqrt(20,000).
    assert np.abs(np.corrcoef(normals.T) - np.eye(4)).max() < 0.035
    assert np.abs(np.corrcoef(np.abs(normals.T)) - np.eye(4)).max() < 0.035


def test_the_ends_of_the_range_are_finite():
    ends = np.uint32(0), np.uint32(0xFFFFFFFF)
    for a in ends:
        for b in ends:
            assert np.isfinite(two_normals(a, b)).all()
    # The smallest of 2^32 numbers lies furthest out.
    assert np.hypot(*two_normals(*ends)) == pytest.approx(np.sqrt(2 * 33 * np.log(2)), rel=1e-5)

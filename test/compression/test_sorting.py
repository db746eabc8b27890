"""compression/sorting.py against NumPy's stable sort."""

import dataclasses

import numpy as np
import pytest

from geoaccel_ros.compression.prefix_sums import PrefixSums
from geoaccel_ros.compression.sorting import RadixSort


class Sort:
    def __init__(self, device):
        self.device = device
        self.sort = RadixSort(device, PrefixSums(device))

    def __call__(self, keys, bits, payloads=None):
        device = self.device
        if payloads is not None:
            payloads = device.upload("payloads", payloads)
        buffers = self.sort.sort(device.upload("keys", keys), len(keys), bits, payloads)
        return (
            device.download(buffers[0], len(keys), "u8"),
            device.download(buffers[1], len(keys), "u4"),
        )


@pytest.fixture(
    params=[(True, 512), (True, 1), (False, 512), (False, 16), (False, 1)],
    ids=lambda p: f"{'CPU' if p[0] else 'GPU'}, {p[1]} KiB",
)
def sort(device, request):
    # The work is divided by kind and local memory; the order must not depend on that.
    is_cpu, local_kib = request.param
    return Sort(dataclasses.replace(device, is_cpu=is_cpu, local_bytes=local_kib << 10))


@pytest.mark.parametrize("count", [0, 1, 2, 1023, 1024, 1025, 40_000])
@pytest.mark.parametrize("bits", [1, 3, 12, 42, 63, 64])
def test_the_order_is_that_of_a_stable_sort(sort, count, bits):
    rng = np.random.default_rng(count + bits)
    keys = rng.integers(0, 2**bits - 1, count, np.uint64, endpoint=True)
    # Some in runs of equals.
    keys[: count // 2] >>= np.uint64(bits // 2)
    order = np.argsort(keys, kind="stable")
    sorted_keys, places = sort(keys, bits)
    assert np.array_equal(sorted_keys, keys[order])
    assert np.array_equal(places, order)


def test_payloads_go_with_their_keys(sort):
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 100, 5000).astype(np.uint64)
    payloads = rng.integers(0, 2**32, 5000, np.uint32)
    sorted_keys, sorted_payloads = sort(keys, 7, payloads)
    order = np.argsort(keys, kind="stable")
    assert np.array_equal(sorted_keys, keys[order])
    assert np.array_equal(sorted_payloads, payloads[order])


def test_keys_of_no_bits_stay_where_they_are(sort):
    sorted_keys, places = sort(np.zeros(300, np.uint64), 0)
    assert not sorted_keys.any()
    assert np.array_equal(places, np.arange(300))


def test_a_crowd_of_equal_keys(sort):
    keys = np.random.default_rng(2).integers(0, 2**42, 20_000).astype(np.uint64)
    keys[5000:15000] = keys[0]
    sorted_keys, places = sort(keys, 42)
    order = np.argsort(keys, kind="stable")
    assert np.array_equal(sorted_keys, keys[order])
    assert np.array_equal(places, order)

"""compression/prefix_sums.py against NumPy."""

import dataclasses

import numpy as np
import pytest

from geoaccel_ros.compression.prefix_sums import PrefixSums


@pytest.fixture(params=[(True, 512), (False, 512), (False, 1)])
def sums(device, request):
    is_cpu, local_kib = request.param
    return PrefixSums(dataclasses.replace(device, is_cpu=is_cpu, local_bytes=local_kib << 10))


@pytest.mark.parametrize(
    "count", [0, 1, 2, 255, 256, 2048, 2049, 16384, 16385, 70_001, 2048 * 2048 + 5]
)
def test_sums_of_those_before(sums, count):
    device = sums._device
    values = np.random.default_rng(count).integers(0, 100, count).astype(np.uint32)
    buffer = device.buffer("values", 4 * (count + 1))
    device.upload("values", values)
    sums.exclusive(buffer, count)
    expected = np.concatenate([[0], np.cumsum(values)]).astype(np.uint32)
    assert np.array_equal(device.download(buffer, count + 1, "u4"), expected)


def test_sums_are_modulo_the_width(sums):
    device = sums._device
    values = np.full(3000, 2**31, np.uint32)
    buffer = device.buffer("values", 4 * 3001)
    device.upload("values", values)
    sums.exclusive(buffer, 3000)
    assert (device.download(buffer, 3001, "u4") == np.arange(3001) % 2 * 2**31).all()

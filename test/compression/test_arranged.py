"""compression/arranged.py: the device gathers what the host does."""

import numpy as np
import pytest

from geoaccel_ros.compression.arranged import Arranged


@pytest.fixture(scope="module")
def gather(device):
    program = device.program("attributes.cl", ("-DEMIT", "-DNEIGHBOURS=3"))
    return {4: program.gather_values32, 8: program.gather_values64}


@pytest.mark.parametrize("count", [1, 7, 5000])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("order_type", [None, np.uint32, np.int64])
def test_values_come_in_their_order(device, gather, count, dtype, order_type):
    rng = np.random.default_rng(count)
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, count, dtype, endpoint=True)
    order, expected = None, values
    if order_type is not None:
        order = rng.permutation(count).astype(order_type)
        expected = values[order]
    arranged = Arranged(values, order)
    buffer = arranged.upload(device, "test values", gather)
    assert (device.download(buffer, count, "i8") == expected).all()
    assert (arranged.all() == expected).all()
    some = rng.integers(0, count, 9)
    assert (arranged[some] == expected[some]).all()
    assert (arranged[::3] == expected[::3]).all()
    assert len(arranged) == count and arranged[0] == expected[0]

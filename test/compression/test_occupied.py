"""compression/occupied.py: sorting by cells, against NumPy."""

import numpy as np
import pytest

from geoaccel_ros.compression.occupied import CellSort
from geoaccel_ros.compression.prefix_sums import PrefixSums


@pytest.fixture(scope="module")
def sort(device):
    return CellSort(device, PrefixSums(device))


@pytest.mark.parametrize("count", [0, 1, 2, 300, 70_000])
def test_cells_their_points_and_their_order(device, sort, count):
    codes = np.random.default_rng(count).integers(0, max(1, count), count).astype(np.uint64)
    cells = sort.sort(device.upload("test codes", codes), count, 6)
    leaves, first = np.unique(np.sort(codes), return_index=True)
    assert cells.count == len(leaves) and cells.points == count
    assert (device.download(cells.leaves, cells.count, "u8") == leaves).all()
    assert (cells.order() == np.argsort(codes, kind="stable")).all()
    assert (cells.first() == first).all()
    if count:
        starts = device.download(cells.starts, cells.count + 1, "u4")
        assert starts.tolist() == [*first, count]


def test_a_sample_is_the_first_of_every_so_many_blocks(device, sort):
    codes = np.arange(1000, dtype=np.uint64) * 3
    cells = sort.sort(device.upload("test codes", codes), 1000, 4)
    taken, count = sort.sample(cells, 10, 7)
    expected = np.concatenate([codes[70 * i : 70 * i + 10] for i in range(14)])
    assert device.download(taken, count, "u8").tolist() == expected.tolist()

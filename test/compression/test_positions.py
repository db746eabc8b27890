"""compression/positions.py: the device's positions are the host's; Morton's are in test_morton."""

import numpy as np
import pytest

from geoaccel_ros.compression.attributes import NeighbourSearch
from geoaccel_ros.compression.positions import WINDOW, ArrangedPositions, Positions


@pytest.fixture(scope="module")
def place(device):
    return device.program("neighbours.cl", ("-DNEIGHBOURS=3",)).place_cells


@pytest.mark.parametrize("behind", [0, 1, 60])
@pytest.mark.parametrize("reach", [50, 2**20, 2**31 - 1])
@pytest.mark.parametrize("count", [1, 8, 5001])
def test_arranged_positions_are_those_of_the_host(device, place, count, reach, behind):
    rng = np.random.default_rng(count)
    cells = rng.integers(-reach, reach, (3, count)).astype(np.int32)
    # All far from cell 0 on one axis: those behind must count.
    cells[0] = reach - np.abs(cells[0]) // 4
    order = rng.permutation(count).astype(np.uint32)
    expected = np.pad(cells[:, order], ((0, 0), (0, behind)))
    total = count + behind
    arranged = ArrangedPositions(cells, order, total)
    assert arranged.count == total
    assert (arranged.all() == expected).all()
    some = rng.integers(0, total, 20)
    assert (arranged.at(some) == expected[:, some]).all()
    assert (arranged.at(slice(1, None, 3)) == expected[:, 1::3]).all()
    planes, stride = arranged.planes(device, place)
    found = device.download(planes, 3 * stride, "i4").reshape(3, -1)[:, WINDOW : WINDOW + total]
    planes, stride_of_host = Positions(expected).planes(device, place)
    wanted = device.download(planes, 3 * stride, "i4").reshape(3, -1)[:, WINDOW : WINDOW + total]
    assert stride == stride_of_host
    assert (found == wanted).all()


def test_points_that_are_nowhere_are_at_cell_0(device, place):
    none = ArrangedPositions(np.empty((3, 0), np.int32), np.empty(0, np.uint32), 5)
    assert (none.all() == 0).all() and none.all().shape == (3, 5)
    assert NeighbourSearch(device).find(none).count == 5

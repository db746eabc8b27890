"""compression/grid.py: cells, centres, and what it refuses."""

import numpy as np
import pytest

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.grid import Grid, extents_of

F4, F8 = np.dtype("<f4"), np.dtype("<f8")


def grid_of(rows, step, dtype=F4):
    return Grid.around(extents_of(np.array(rows, dtype)), step, [dtype] * 3)


def test_cells_lie_around_the_multiples_of_the_step():
    grid = grid_of([[-0.26, -0.24, 0.24, 0.26], [0] * 4, [1] * 4], 0.5, F8)
    assert grid.origin == (-1, 0, 2)
    assert grid.cells(np.array([[-0.26, -0.24, 0.24, 0.26], [0] * 4, [1] * 4]))[0].tolist() == [
        0, 1, 1, 2,
    ]  # fmt: skip
    assert grid.centres(np.array([0, 1, 2], np.uint32), 0).tolist() == [-0.5, 0.0, 0.5]


@pytest.mark.parametrize(("cells", "depth"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (2**21, 21)])
def test_depth_is_the_least_that_holds_the_cells(cells, depth):
    assert grid_of([[0, 0], [0, 0], [0, cells - 1]], 1.0, F8).depth == depth


def test_a_cloud_without_points_has_a_grid():
    assert Grid.around(extents_of(np.empty((3, 0), F4)), 0.01, [F4] * 3) == Grid(0.01, (0, 0, 0), 0)


def test_more_cells_than_a_code_holds_are_refused_and_the_remedy_works():
    rows = [[-15_000.0, 15_000.0], [0, 0], [0, 0]]
    with pytest.raises(CodecError, match=r"x spans 30000 m.*at least 0\.0144 m"):
        grid_of(rows, 0.01)
    assert grid_of(rows, 0.0144).depth == 21


def test_a_step_finer_than_the_type_is_refused():
    # float32 resolves 0.5 m at 5,000 km (UTM northings), so a centimetre cannot be promised.
    with pytest.raises(CodecError, match=r"y reaches 5e\+06 m, where float32 resolves 0.5 m"):
        grid_of([[0.0], [5.0e6], [0.0]], 0.01)
    assert grid_of([[0.0], [5.0e6], [0.0]], 0.5).origin == (0, 10_000_000, 0)
    assert grid_of([[0.0], [5.0e6], [0.0]], 0.01, F8).origin == (0, 500_000_000, 0)


def test_each_axis_is_judged_by_its_own_type():
    rows = np.array([[5.0e6], [0.0], [0.0]])
    assert Grid.around(extents_of(rows), 0.01, [F8, F4, F4]).depth == 0
    with pytest.raises(CodecError, match="x reaches"):
        Grid.around(extents_of(rows), 0.01, [F4, F8, F8])

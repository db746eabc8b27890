"""compression/morton.py against codes made bit by bit."""

import dataclasses

import numpy as np
import pytest

from geoaccel_ros.compression.grid import Grid, extents_of
from geoaccel_ros.compression.morton import Morton


def code_bit_by_bit(x, y, z):
    code = 0
    for bit in range(21):
        code |= (x >> bit & 1) << 3 * bit
        code |= (y >> bit & 1) << 3 * bit + 1
        code |= (z >> bit & 1) << 3 * bit + 2
    return code


@pytest.fixture(params=["fp64", "no fp64"])
def of_kind(device, request):
    return dataclasses.replace(device, has_fp64=request.param == "fp64")


@pytest.fixture
def morton(of_kind):
    return Morton(of_kind)


def codes_of(device, xyz, grid):
    return device.download(Morton(device).encode(xyz, grid), xyz.shape[1], "u8")


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_codes_are_those_of_the_cells(of_kind, morton, dtype):
    rng = np.random.default_rng(1)
    cells = rng.integers(0, 2**21, (3, 1000))
    cells[:, :2] = [[0, 2**21 - 1]] * 3
    expected = [code_bit_by_bit(*map(int, cell)) for cell in cells.T]
    grid = Grid(1.0, (-(2**20), -(2**20), -(2**20)), 21)
    assert codes_of(of_kind, (cells - 2**20).astype(dtype), grid).tolist() == expected
    codes = of_kind.upload("expected", np.array(expected, np.uint64))
    assert (morton.decode(codes, 1000) == cells).all()


LAYOUTS = {
    "packed": np.dtype([(axis, "f4") for axis in "xyz"]),
    "doubles": np.dtype([(axis, "f8") for axis in "xyz"]),
    "padded": np.dtype(
        {"names": ["z", "x", "y", "t"], "formats": ["f4", "f4", "f4", "f8"],
         "offsets": [4, 12, 20, 24], "itemsize": 36}
    ),
    "askew": np.dtype([("ring", "u2"), *((axis, "f4") for axis in "xyz")]),
    "of other machines": np.dtype([(axis, ">f4") for axis in "xyz"]),
    "mixed": np.dtype([("x", "f4"), ("y", "f4"), ("z", "f8")]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", list(LAYOUTS.values()), ids=list(LAYOUTS))
def test_centres_are_rounded_once(of_kind, morton, dtype):
    rng = np.random.default_rng(3)
    cells = rng.integers(0, 2**21, (3, 1000))
    grid = Grid(0.001, (-1_000_003, 5, 123_456_789), 21)
    codes = [code_bit_by_bit(*map(int, cell)) for cell in cells.T]
    exact = (cells + np.array(grid.origin)[:, None]) * 0.001
    for multiplicity in None, rng.integers(1, 4, 1000).astype(np.uint32):
        # What was there before must not show.
        of_kind.upload("records", np.full(10**6, 255, np.uint8))
        buffer = of_kind.upload("expected", np.array(codes, np.uint64))
        points, starts = starts_of(of_kind, 1000, multiplicity)
        centres = morton.centres(buffer, 1000, points, starts, grid, dtype, points + 7)
        expected = np.zeros(points + 7, dtype)
        for axis, row in zip("xyz", exact, strict=True):
            each = row if multiplicity is None else np.repeat(row, multiplicity)
            expected[axis][:points] = each
        assert centres.dtype == dtype
        assert centres.tobytes() == expected.tobytes()


def test_positions_are_those_of_each_cell_s_points(of_kind, morton):
    rng = np.random.default_rng(4)
    cells = rng.integers(0, 2**21, (3, 1001))
    grid = Grid(0.01, (-(2**40), 7, 2**40), 21)
    codes = [code_bit_by_bit(*map(int, cell)) for cell in cells.T]
    buffer = of_kind.upload("expected", np.array(codes, np.uint64))
    for multiplicity in None, rng.integers(1, 4, 1001).astype(np.uint32):
        points, starts = starts_of(of_kind, 1001, multiplicity)
        positions = morton.positions(buffer, 1001, points, starts, grid)
        expected = cells + np.array(grid.origin)[:, None]
        if multiplicity is not None:
            expected = np.repeat(expected, multiplicity, axis=1)
        assert positions.count == points == expected.shape[1]
        assert (positions.all() == expected).all()
        some = rng.integers(0, points, 50)
        assert (positions.at(some) == expected[:, some]).all()
        assert (positions.at(slice(3, None, 7)) == expected[:, 3::7]).all()


def starts_of(device, cells, multiplicity):
    """Return the number of points, and where each cell's begin, as kernels take it."""
    if multiplicity is None:
        return cells, None
    ends = np.append(0, np.cumsum(multiplicity)).astype(np.uint32)
    return int(ends[-1]), device.upload("starts", ends)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("step", [0.01, 0.001, 1 / 3])
def test_the_device_finds_the_cells_that_the_host_finds(device, dtype, step):
    # Multiples of half a step are where a rounding of another kind would show.
    rng = np.random.default_rng(2)
    xyz = (rng.integers(-5000, 5000, (3, 20_000)) * (step / 2)).astype(dtype)
    grid = Grid.around(extents_of(xyz), step, [xyz.dtype] * 3)
    with_fp64 = codes_of(device, xyz, grid)
    without = codes_of(dataclasses.replace(device, has_fp64=False), xyz, grid)
    assert (with_fp64 == without).all()


def test_no_points(morton):
    grid = Grid(1.0, (0, 0, 0), 0)
    codes = morton.encode(np.empty((3, 0), np.float32), grid)
    assert morton.decode(codes, 0).shape == (3, 0)
    assert morton.centres(codes, 0, 0, None, grid, LAYOUTS["packed"], 0).shape == (0,)
    assert morton.positions(codes, 0, 0, None, grid).all().shape == (3, 0)

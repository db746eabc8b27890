"""compression/octree_estimate.py: the bits of an octree, told before it is built."""

import numpy as np
import pytest

from geoaccel_ros.compression.codec import inspect
from geoaccel_ros.compression.octree_estimate import estimated_bits


def nodes_by_level(cells):
    """Return the distinct cells of each level below the root, from the leaves upwards."""
    cells = cells - cells.min(axis=1, keepdims=True)
    levels = [np.unique(cells, axis=1)]
    while levels[-1].any():
        levels.append(np.unique(levels[-1] >> 1, axis=1))
    return levels


def expected_tenths(cells):
    """Count cells with several points, single nodes, forks and children one by one."""
    _, numbers = np.unique(cells, axis=1, return_counts=True)
    tenths = 25 + 30 * int(np.count_nonzero(numbers > 1))
    for children in nodes_by_level(cells)[:-1]:
        _, numbers = np.unique(children >> 1, axis=1, return_counts=True)
        tenths += sum(29 if number == 1 else 42 + 4 * int(number) for number in numbers)
    return tenths


@pytest.mark.parametrize("count", [1, 2, 300, 5000])
def test_of_a_small_cloud_all_nodes_are_counted(count):
    cells = np.random.default_rng(count).integers(-1000, 1000, (3, count), np.int32)
    cells[:, : count // 3] = cells[:, count // 3 : count // 3 * 2]
    assert estimated_bits(cells) == expected_tenths(cells) // 10


def test_nothing_takes_nothing():
    assert estimated_bits(np.empty((3, 0), np.int32)) == 0


def test_where_the_origin_is_and_the_order_of_the_points_do_not_matter():
    rng = np.random.default_rng(1)
    cells = rng.integers(0, 2**20, (3, 60_000)).astype(np.int32)
    bits = estimated_bits(cells)
    for origin in (-(2**31), -(2**19), 2**31 - 2**20):
        assert estimated_bits((cells.astype(np.int64) + origin).astype(np.int32)) == bits
    assert estimated_bits(rng.permutation(cells, axis=1)) == bits


def surfaces(count, step):
    """Cells of a room of 40 m: floor, walls, noise among them, denser near the middle."""
    rng = np.random.default_rng(2)
    xyz = rng.normal(0, 8, (3, count))
    side = rng.integers(0, 4, count)
    xyz[2, side == 0] = -1.7
    xyz[0, side == 1] = 20
    xyz[1, side == 2] = -15
    return np.rint((xyz + rng.normal(0, 0.01, xyz.shape)) / step).astype(np.int32)


@pytest.mark.parametrize("step", [0.002, 0.01, 0.05])
def test_of_a_large_cloud_a_sample_tells_it(step):
    cells = surfaces(200_000, step)
    assert estimated_bits(cells) == pytest.approx(expected_tenths(cells) / 10, rel=0.15)


@pytest.mark.parametrize("step", [0.002, 0.01, 0.05])
def test_it_is_about_what_is_coded(octree, step):
    cells = surfaces(60_000, step)
    points = np.zeros(cells.shape[1], [(axis, "<f4") for axis in "xyz"])
    for axis, row in zip("xyz", cells, strict=True):
        points[axis] = row * 0.01
    sections = inspect(octree.encode(points)).bytes_by_section
    coded = sections["occupancy"] + sections["multiplicity"]
    # Noise that fills space takes a little more than surfaces, by which the prices were found.
    assert estimated_bits(cells) == pytest.approx(8 * coded, rel=0.3)

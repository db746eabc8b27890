"""compression/octree.py against a recursive octree, and against trees that are none."""

import dataclasses

import numpy as np
import pytest

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.octree import Octree


def occupancy_reference(leaves, depth):
    """Return the occupancy bytes by walking the tree level by level with Python sets."""
    occupancy = []
    for level in range(depth):
        children = {}
        for leaf in leaves:
            digits = int(leaf) >> 3 * (depth - level - 1)
            children.setdefault(digits >> 3, set()).add(digits & 7)
        occupancy += [sum(1 << digit for digit in children[node]) for node in sorted(children)]
    return occupancy


def random_leaves(seed, depth, count, spread):
    """Return distinct ascending codes, more crowded the smaller ``spread`` is."""
    rng = np.random.default_rng(seed)
    codes = (8.0**depth * rng.random(count) ** spread).astype(np.uint64)
    return np.unique(np.minimum(codes, np.uint64(8**depth - 1)))


@pytest.fixture(params=["as a CPU", "as a GPU"])
def octree(device, request):
    # How nodes are divided among work-items depends on the kind of device; the bytes must not.
    return Octree(dataclasses.replace(device, is_cpu=request.param == "as a CPU"))


@pytest.mark.parametrize("depth", [1, 2, 3, 7, 14, 21])
@pytest.mark.parametrize("count", [1, 2, 17, 500, 5000])
@pytest.mark.parametrize("spread", [1, 8])
def test_occupancy_is_that_of_a_walk_through_the_tree(octree, depth, count, spread):
    leaves = random_leaves(depth * count, depth, count, spread)
    occupancy = octree.build(leaves, depth)
    assert occupancy.tolist() == occupancy_reference(leaves, depth)
    assert (octree.expand(occupancy, depth, len(leaves)) == leaves).all()


def test_a_full_tree(octree):
    leaves = np.arange(8**5, dtype=np.uint64)
    occupancy = octree.build(leaves, 5)
    assert (occupancy == 255).all()
    assert len(occupancy) == (8**5 - 1) // 7
    assert (octree.expand(occupancy, 5, 8**5) == leaves).all()


def test_the_outermost_corners_at_full_depth(octree):
    leaves = np.array([0, 8**21 - 1], np.uint64)
    occupancy = octree.build(leaves, 21)
    assert occupancy.tolist() == [0b10000001] + [1, 128] * 20
    assert (octree.expand(occupancy, 21, 2) == leaves).all()


def test_many_leaves_use_the_buffers_again(octree):
    big, small = random_leaves(1, 14, 200_000, 2), random_leaves(2, 9, 300, 1)
    for leaves, depth in ((small, 9), (big, 14), (small, 9)):
        occupancy = octree.build(leaves, depth)
        assert (octree.expand(occupancy, depth, len(leaves)) == leaves).all()
    assert occupancy.tolist() == occupancy_reference(small, 9)


@pytest.mark.parametrize("count", [0, 1])
def test_trees_without_inner_nodes(octree, count):
    leaves = np.zeros(count, np.uint64)
    assert len(octree.build(leaves, 0)) == 0
    assert (octree.expand(np.empty(0, np.uint8), 0, count) == leaves).all()


@pytest.mark.parametrize(
    ("occupancy", "depth", "leaves", "message"),
    [
        ([], 0, 2, "does not fit"),
        ([1], 0, 1, "does not fit"),
        ([1], 3, 0, "does not fit"),
        ([], 1, 1, "ends within a level"),
        ([3, 1], 2, 2, "ends within a level"),
        ([3, 0, 1], 2, 1, "without children"),
        ([3, 1, 1, 1], 2, 2, "does not fit"),
        ([3, 1, 3], 2, 2, "does not fit"),
        ([3, 1, 3], 2, 4, "does not fit"),
        ([255] * 4, 2, 32, "ends within a level"),
    ],
)
def test_bytes_that_are_no_tree_are_refused(octree, occupancy, depth, leaves, message):
    with pytest.raises(CodecError, match=message):
        octree.expand(np.array(occupancy, np.uint8), depth, leaves)

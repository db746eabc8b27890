"""The tree against brute force in float64 and against SciPy."""

import numpy as np
import pytest
from hostile_clouds import hostile_clouds
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial import cKDTree

from geoaccel_ros.registration.kdtree.search import PATIENCE
from geoaccel_ros.registration.kdtree.tree import KdTree, leaf_starts, tree_depth

RULES = ["spread", "cyclic"]


def queries_for(points, seed=1):
    """At the points, near them, about them and far outside."""
    rng = np.random.default_rng(seed)
    some = points[rng.integers(len(points), size=80)]
    size = np.ptp(points, axis=0).max() + 1.0
    return np.vstack(
        [
            some[:40],
            some + rng.normal(0, 0.05, some.shape),
            points.mean(axis=0) + size * rng.uniform(-0.7, 0.7, (40, 3)),
            points.mean(axis=0) + 30.0 * size * rng.normal(size=(10, 3)),
        ]
    )


def all_distances(points, queries):
    """(Q, N) of float64."""
    return np.linalg.norm(queries[:, None] - points[None], axis=2)


def tolerance(tree, points, queries):
    """What float32 may cost a distance.

    Local coordinates up to R are off by R 2^-24 each, for a point and for a query, which may shift
    a distance by sqrt(3) 2^-23 R; computing it adds a few 2^-24 of itself, and it is below 4 R.
    """
    reach = max(np.abs(points - tree.origin).max(), np.abs(queries - tree.origin).max())
    return 8.0 * 2.0**-23 * reach


def assert_nearest(tree, points, queries, max_distance):
    indices, distances = tree.nearest(queries, max_distance)
    expected = all_distances(points, queries)
    least, within = expected.min(axis=1), tolerance(tree, points, queries)
    matched = indices >= 0
    assert indices.dtype == np.int64 and distances.dtype == np.float64
    assert matched[least < max_distance - within].all()
    assert not matched[least > max_distance + within].any()
    assert (indices[~matched] == -1).all() and np.isinf(distances[~matched]).all()
    np.testing.assert_allclose(distances[matched], least[matched], rtol=0, atol=within)
    found = expected[np.flatnonzero(matched), indices[matched]]
    np.testing.assert_allclose(found, least[matched], rtol=0, atol=within)


def assert_neighbours(tree, points, queries, count):
    indices, distances = tree.neighbours(queries, count)
    expected = all_distances(points, queries)
    order = np.sort(expected, axis=1)[:, :count]
    have = order.shape[1]
    within = tolerance(tree, points, queries)
    assert indices.shape == distances.shape == (len(queries), count)
    np.testing.assert_allclose(distances[:, :have], order, rtol=0, atol=within)
    found = np.take_along_axis(expected, indices[:, :have], axis=1)
    np.testing.assert_allclose(found, order, rtol=0, atol=within)
    assert (np.diff(distances[:, :have], axis=1) >= 0.0).all()
    # No point twice.
    assert (np.diff(np.sort(indices[:, :have], axis=1), axis=1) > 0).all()
    assert (indices[:, have:] == -1).all() and np.isinf(distances[:, have:]).all()


@pytest.mark.parametrize("leaf_size", [1, 8, 16, 64])
@pytest.mark.parametrize("axis", RULES)
@pytest.mark.parametrize("name", hostile_clouds())
def test_equals_brute_force(name, axis, leaf_size):
    points = hostile_clouds()[name]
    tree, queries = KdTree(points, leaf_size, axis), queries_for(points)
    for max_distance in (np.inf, 0.1, 0.0):
        assert_nearest(tree, points, queries, max_distance)
    for count in (1, 7):
        assert_neighbours(tree, points, queries, count)


@pytest.mark.parametrize("name", ["clusters", "tilted plane", "tilted line", "half zeros"])
def test_long_searches_are_exact_too(name):
    """Single points as leaves: nearly all queries look at more than the boxes wait for."""
    points = hostile_clouds(3000)[name]
    queries = queries_for(points)[:120] + [0.0, 0.3, 0.3]
    tree = KdTree(points, leaf_size=1)
    assert len(tree.starts) > 100 * PATIENCE
    assert_nearest(tree, points, queries, np.inf)
    assert_neighbours(tree, points, queries, 40)


@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize("axis", RULES)
@pytest.mark.parametrize("name", ["uniform", "half zeros", "grid", "all the same", "three"])
def test_threads_change_nothing(name, axis, count):
    points = hostile_clouds(5000)[name]
    queries = queries_for(points)
    alone, shared = KdTree(points, axis=axis), KdTree(points, axis=axis, threads=count)
    for own, other in zip(alone.nodes, shared.nodes, strict=True):
        np.testing.assert_array_equal(own, other)
    np.testing.assert_array_equal(alone.order, shared.order)
    for own, other in zip(alone.nearest(queries, 0.5), shared.nearest(queries, 0.5), strict=True):
        np.testing.assert_array_equal(own, other)
    for own, other in zip(alone.neighbours(queries, 9), shared.neighbours(queries, 9), strict=True):
        np.testing.assert_array_equal(own, other)


def test_a_million_points_against_scipy():
    rng = np.random.default_rng(5)
    points = rng.uniform(-50, 50, (1_000_000, 3)).astype(np.float32)
    queries = rng.uniform(-55, 55, (2000, 3))
    tree = KdTree(points, threads=2)
    expected, _ = cKDTree(points, balanced_tree=False, compact_nodes=False).query(queries, 5)
    within = tolerance(tree, points, queries)
    np.testing.assert_allclose(tree.neighbours(queries, 5)[1], expected, rtol=0, atol=within)
    np.testing.assert_allclose(tree.nearest(queries)[1], expected[:, 0], rtol=0, atol=within)


@pytest.mark.parametrize("leaf_size", [1, 5, 16])
@pytest.mark.parametrize("axis", RULES)
@pytest.mark.parametrize("name", hostile_clouds())
def test_structure(name, axis, leaf_size):
    points = hostile_clouds()[name]
    tree = KdTree(points, leaf_size, axis)
    local = np.stack([tree.x, tree.y, tree.z], axis=1)
    np.testing.assert_array_equal(np.sort(tree.order), np.arange(len(points)))
    np.testing.assert_array_equal(local, (points[tree.order] - tree.origin).astype(np.float32))
    sizes = np.diff(tree.starts)
    assert sizes.sum() == len(points) and tree.starts[0] == 0
    assert sizes.max() <= leaf_size and np.ptp(sizes) <= 1
    assert len(sizes) == 1 << tree.depth and len(tree.split) == len(tree.axis) == len(sizes) - 1
    for node in range(len(tree.split)):
        start, end = range_of(tree, node)
        middle = range_of(tree, 2 * node + 1)[1]
        assert range_of(tree, 2 * node + 1) == (start, middle)
        assert range_of(tree, 2 * node + 2) == (middle, end)
        held = local[start:end]
        np.testing.assert_array_equal(tree.boxes[node, :3], held.min(axis=0))
        np.testing.assert_array_equal(tree.boxes[node, 3:], held.max(axis=0))
        spread = np.ptp(held, axis=0)
        split_axis = tree.axis[node]
        if split_axis == 3:
            assert not spread.any()
            continue
        keys = held[:, split_axis]
        assert keys[: middle - start].max(initial=-np.inf) <= tree.split[node]
        assert keys[middle - start :].min() >= tree.split[node]
        if axis == "spread":
            assert spread[split_axis] == spread.max()
        else:
            turn = ((node + 1).bit_length() - 1) % 3
            assert spread[split_axis] > 0.0 and (split_axis == turn or spread[turn] == 0.0)


def range_of(tree, node):
    """Points of a node, from the leaves below it: the leftmost's first, the rightmost's last."""
    left = right = node
    while left < len(tree.split):
        left, right = 2 * left + 1, 2 * right + 2
    first, last = left - len(tree.split), right - len(tree.split)
    return tree.starts[first], tree.starts[last + 1]


def test_depth_by_hand():
    assert [tree_depth(count, 16) for count in (0, 1, 16, 17, 32, 33)] == [0, 0, 0, 1, 1, 2]
    assert tree_depth(3, 1) == 2
    assert tree_depth(200_000, 16) == 14
    # 2^20 leaves of 16 are 16,777,216 points; up to 2^20 leaves of 64 the depth stays.
    assert tree_depth(16 << 20, 16) == 20
    assert tree_depth((16 << 20) + 1, 16) == 20
    assert tree_depth(64 << 20, 16) == 20
    assert tree_depth((64 << 20) + 1, 16) == 21
    assert leaf_starts(10, 2).tolist() == [0, 2, 5, 7, 10]
    # Beyond 2^31 for count times leaves.
    assert leaf_starts(100_000_000, 21)[-1] == 100_000_000


def forms_of(points):
    """The same numbers as other arrays."""
    wide = np.zeros((2 * len(points), 5))
    wide[::2, 1:4] = points
    frozen = points.copy()
    frozen.flags.writeable = False
    return {
        "float32": points.astype(np.float32),
        "float16": points.astype(np.float16),
        "int64": points.astype(np.int64),
        "uint8": points.astype(np.uint8),
        "big endian": points.astype(">f8"),
        "Fortran": np.asfortranarray(points),
        "strided": wide[::2, 1:4],
        "reversed": points[::-1].copy()[::-1],
        "read-only": frozen,
        "list": points.tolist(),
    }


@pytest.mark.parametrize("name", forms_of(np.zeros((1, 3))))
def test_any_form_of_points_and_queries_and_none_is_modified(name):
    rng = np.random.default_rng(2)
    points = rng.integers(0, 100, (300, 3)).astype(np.float64)
    queries = rng.integers(0, 100, (50, 3)).astype(np.float64)
    form, queries_form = forms_of(points)[name], forms_of(queries)[name]
    before, queries_before = np.array(form), np.array(queries_form)
    expected, found = KdTree(points).nearest(queries), KdTree(form).nearest(queries_form)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(form, before)
    np.testing.assert_array_equal(queries_form, queries_before)


@pytest.mark.filterwarnings("error")
def test_queries_that_are_not_finite_or_too_far_find_nothing():
    points = hostile_clouds()["uniform"]
    bad = [np.nan, np.inf, -np.inf, 1e300, 1e25]
    queries = np.zeros((16, 3))
    queries[np.arange(15), np.arange(15) % 3] = np.repeat(bad, 3)
    queries[15] = points[0]
    tree = KdTree(points)
    indices, distances = tree.nearest(queries)
    assert indices.tolist() == [-1] * 15 + [0]
    assert np.isinf(distances[:15]).all() and distances[15] == 0.0
    indices, distances = tree.neighbours(queries, 2)
    assert (indices[:15] == -1).all() and np.isinf(distances[:15]).all() and indices[15, 0] == 0


def test_the_distance_itself_is_within_it():
    # Exact in float32, and their mean is zero.
    tree = KdTree(np.array([[-0.5, 0.0, 0.0], [0.5, 0.0, 0.0]]))
    assert tree.nearest(np.array([[0.0, 0.0, 0.0]]), 0.5)[1].tolist() == [0.5]
    assert tree.nearest(np.array([[0.0, 0.0, 0.0]]), np.nextafter(0.5, 0.0) - 1e-7)[0] == [-1]
    assert tree.nearest(np.array([[0.5, 0.0, 0.0]]), 0.0)[0] == [1]
    for huge in (1e30, 1e200, np.inf):
        assert tree.nearest(np.array([[1.0, 0.0, 0.0]]), huge)[0] == [1]


def test_no_points_and_no_queries():
    empty = KdTree(np.empty((0, 3)))
    assert len(empty) == 0 and empty.depth == 0 and empty.starts.tolist() == [0, 0]
    indices, distances = empty.nearest(np.zeros((2, 3)))
    assert indices.tolist() == [-1, -1] and np.isinf(distances).all()
    indices, distances = empty.neighbours(np.zeros((2, 3)), 3)
    assert indices.shape == (2, 3) and (indices == -1).all() and np.isinf(distances).all()
    tree = KdTree(np.zeros((5, 3)))
    assert tree.nearest(np.empty((0, 3)))[0].shape == (0,)
    assert tree.neighbours(np.empty((0, 3)), 4)[1].shape == (0, 4)


@pytest.mark.parametrize(
    "points, remedy",
    [
        (np.zeros(3), r"points have shape \(3,\), must be \(N, 3\)"),
        (np.zeros((4, 2)), r"points have shape \(4, 2\)"),
        (np.zeros((2, 3), complex), "points are of complex128, must be numbers"),
        (np.full((1, 3), "a"), "points are of <U1"),
        (np.array([[0.0, np.nan, 0.0]]), "points are not all finite: remove"),
        (np.array([[0.0, 0.0, -np.inf]]), "points are not all finite"),
        (np.array([[1.0, 0.0, -1e30]]), r"points reach 1e\+30 m, must be within 1e\+18"),
    ],
)
def test_points_that_no_tree_can_hold(points, remedy):
    with pytest.raises(ValueError, match=remedy):
        KdTree(points)


def test_wrong_use():
    points = np.zeros((4, 3))
    with pytest.raises(ValueError, match="axis 'widest', must be one of spread, cyclic"):
        KdTree(points, axis="widest")
    with pytest.raises(ValueError, match="leaf_size is 0, must be 1 or more"):
        KdTree(points, leaf_size=0)
    with pytest.raises(ValueError, match="0 threads"):
        KdTree(points, threads=0)
    tree = KdTree(points)
    for distance in (-0.1, np.nan):
        with pytest.raises(ValueError, match="max_distance is .*, must not be negative"):
            tree.nearest(points, distance)
    with pytest.raises(ValueError, match="0 neighbours, must be 1 or more"):
        tree.neighbours(points, 0)
    with pytest.raises(ValueError, match=r"queries have shape \(3,\), must be \(N, 3\)"):
        tree.nearest(np.zeros(3))
    with pytest.raises(ValueError, match="queries are of complex128"):
        tree.neighbours(np.zeros((1, 3), complex), 1)


coordinates = st.sampled_from([0.0, 1.0, 1.5, -2.0, 3.0])
small_clouds = st.integers(1, 60).flatmap(
    lambda n: arrays(np.float64, (n, 3), elements=coordinates)
)


@given(
    points=small_clouds,
    queries=small_clouds,
    leaf_size=st.integers(1, 9),
    axis=st.sampled_from(RULES),
    max_distance=st.sampled_from([0.0, 0.9, 1.7, np.inf]),
    count=st.integers(1, 12),
)
def test_small_clouds_with_many_equal_coordinates(
    points, queries, leaf_size, axis, max_distance, count
):
    tree = KdTree(points, leaf_size, axis)
    assert_nearest(tree, points, queries, max_distance)
    assert_neighbours(tree, points, queries, count)

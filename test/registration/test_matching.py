import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.kdtree.tree import KdTree
from geoaccel_ros.registration.matching import Matcher
from geoaccel_ros.registration.morton import morton_order
from geoaccel_ros.threads import Threads


def clouds(kind, rng, count=600):
    if kind == "uniform":
        return rng.uniform(-5, 5, (count, 3))
    if kind == "plane":
        return rng.uniform(-5, 5, (count, 3)) * [1, 1, 0]
    if kind == "grid":
        return np.round(rng.uniform(-5, 5, (count, 3)))
    return np.repeat(rng.uniform(-5, 5, (count // 4, 3)), 4, axis=0)


def brute_force(target, moved, radius):
    squares = np.sum((moved[:, None] - target[None]) ** 2, axis=2).min(axis=1)
    return np.where(squares <= radius**2, squares, np.inf)


@given(
    kind=st.sampled_from(["uniform", "plane", "grid", "duplicated"]),
    seed=st.integers(0, 1000),
    steps=st.lists(st.floats(1e-6, 2.0), min_size=1, max_size=6),
    radius=st.sampled_from([0.3, 1.0, 50.0]),
    spacing=st.sampled_from([0.0, 0.1, 1.0, 100.0]),
)
@settings(max_examples=60, deadline=None)
def test_matches_stay_exact_however_the_cloud_moves(kind, seed, steps, radius, spacing):
    rng = np.random.default_rng(seed)
    target = clouds(kind, rng)
    source = clouds("uniform", rng, 200).astype(np.float32)
    tree = KdTree(target)
    matcher = Matcher(tree, np.ascontiguousarray(source.T), radius, spacing, Threads(1))
    pose = np.eye(4)
    pose[:3, 3] = -tree.origin
    for step in steps:
        pose = se3.perturbed(pose, step * rng.normal(size=6) * [1, 1, 1, 0.1, 0.1, 0.1])
        matcher.update(pose)
        moved = se3.apply(pose, source.astype(float)).astype(np.float32).astype(float)
        local = np.column_stack([tree.x, tree.y, tree.z]).astype(float)
        expected = brute_force(local, moved, radius)
        # float32 distances up to 20 m.
        near_radius = np.abs(np.sqrt(expected) - radius) < 1e-4
        matched = matcher.matches >= 0
        assert np.array_equal(matched[~near_radius], np.isfinite(expected)[~near_radius])
        both = matched & np.isfinite(expected)
        np.testing.assert_allclose(
            np.sqrt(matcher.squares[both]), np.sqrt(expected[both]), atol=1e-5
        )
        own = np.linalg.norm(moved[both] - local[matcher.matches[both]], axis=1)
        np.testing.assert_allclose(own, np.sqrt(expected[both]), atol=1e-5)
        assert np.isinf(matcher.squares[~matched]).all()


def test_what_has_not_moved_is_not_searched():
    rng = np.random.default_rng(3)
    target = rng.uniform(-5, 5, (5000, 3))
    tree = KdTree(target)
    source = np.ascontiguousarray((target + rng.normal(0, 0.01, target.shape) - tree.origin).T)
    matcher = Matcher(tree, source.astype(np.float32), 1.0, 0.3, Threads(1))
    matcher.update(np.eye(4))
    first = matcher._places.copy()
    nudged = np.eye(4)
    nudged[:3, 3] = 1e-4
    matcher.update(nudged)
    # Places are written where a point is searched: next to none is.
    assert np.mean(np.any(matcher._places != first, axis=0)) < 0.01


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_change_nothing(threads):
    rng = np.random.default_rng(4)
    target = rng.uniform(-5, 5, (4000, 3))
    source = np.ascontiguousarray(rng.uniform(-5, 5, (3000, 3)).T.astype(np.float32))
    tree = KdTree(target)
    results = []
    for count in (1, threads):
        matcher = Matcher(tree, source, 1.0, 0.2, Threads(count))
        for shift in (0.0, 0.01, 0.5):
            pose = np.eye(4)
            pose[0, 3] = shift
            matcher.update(pose)
        results.append((matcher.matches.copy(), matcher.squares.copy()))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_morton_order_by_hand():
    corners = np.array([[x, y, z] for z in (-1, 1) for y in (-1, 1) for x in (-1, 1)], float)
    shuffled = np.random.default_rng(5).permutation(8)
    order = morton_order(np.ascontiguousarray(corners[shuffled].T.astype(np.float32)), 1.7)
    # x is the lowest bit, z the highest.
    np.testing.assert_array_equal(shuffled[order], np.arange(8))
    # Points beyond the cube are counted to its border, none is lost; equal ones keep their order.
    far = np.array([[1e6, 0, 0], [0, 0, 0], [0, 0, 0], [-1e6, 0, 0]], np.float32)
    assert sorted(morton_order(np.ascontiguousarray(far.T), 1.0)) == [0, 1, 2, 3]
    same = np.zeros((3, 5), np.float32)
    np.testing.assert_array_equal(morton_order(same, 0.0), np.arange(5))
    assert morton_order(np.empty((3, 0), np.float32), 0.0).tolist() == []


def test_morton_order_brings_neighbours_together():
    points = np.random.default_rng(6).uniform(-10, 10, (3, 20_000)).astype(np.float32)
    ordered = points[:, morton_order(points, 10.0)]
    step = np.linalg.norm(np.diff(ordered, axis=1), axis=0)
    # Random points lie 13 m apart on average, neighbours in a cube of 20 m about 0.4.
    assert np.median(step) < 1.0

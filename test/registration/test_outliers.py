import numpy as np
import pytest
from hostile_clouds import hostile_clouds
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from geoaccel_ros.registration.kdtree.tree import KdTree
from geoaccel_ros.registration.outliers import mean_distances, radius_filter, statistical_filter
from geoaccel_ros.threads import Threads

CLOUDS = [name for name in hostile_clouds() if name not in ("one", "two", "three")]


def sorted_distances(points):
    """(N, N) of float64: row by row from the point itself to the farthest."""
    return np.sort(np.linalg.norm(points[:, None] - points[None], axis=2), axis=1)


def step_of(points):
    """What float32 may cost a distance: see test_kdtree."""
    return 8.0 * 2.0**-23 * (np.abs(points - points.mean(axis=0)).max() + 1e-30)


def assert_kept(kept, distances, threshold, points):
    """Those up to the threshold are kept; rounding may settle the few that are next to it."""
    step = step_of(points)
    assert kept.dtype == np.int64 and (np.diff(kept) > 0).all()
    assert np.isin(np.flatnonzero(distances <= threshold - step), kept).all()
    assert (distances[kept] <= threshold + step).all()
    assert np.mean(np.abs(distances - threshold) <= step) < 0.05


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("name", CLOUDS)
def test_mean_distances_equal_brute_force(name, threads):
    points = hostile_clouds()[name]
    for count in (1, 8, len(points) - 1):
        found = mean_distances(KdTree(points), count, Threads(threads))
        expected = sorted_distances(points)[:, 1 : count + 1].mean(axis=1)
        np.testing.assert_allclose(found, expected, rtol=0, atol=step_of(points))


@pytest.mark.parametrize("ratio", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("name", ["uniform", "clusters", "plane", "UTM", "wide and dense"])
def test_statistical_equals_brute_force(name, ratio):
    points = hostile_clouds()[name]
    means = sorted_distances(points)[:, 1:9].mean(axis=1)
    threshold = means.mean() + ratio * means.std()
    assert_kept(statistical_filter(points, 8, ratio), means, threshold, points)


def test_statistical_by_hand():
    # On a line at 0, 1, 2 and 10: nearest others 1, 1, 1 and 8 away; mean 2.75, deviation 3.03.
    points = np.array([[10.0, 0, 0], [0, 0, 0], [1, 0, 0], [2, 0, 0]])
    assert statistical_filter(points, 1, 1.7).tolist() == [1, 2, 3]
    assert statistical_filter(points, 1, 1.8).tolist() == [0, 1, 2, 3]
    # Of the two nearest: 8.5, 1.5, 1 and 1.5; mean 3.125, deviation 3.11.
    assert statistical_filter(points, 2, 1.7).tolist() == [1, 2, 3]
    assert statistical_filter(points, 2, 1.75).tolist() == [0, 1, 2, 3]
    # Fewer than asked for: all others.
    assert statistical_filter(points, 100, 0.0).tolist() == [1, 2, 3]


@pytest.mark.parametrize("most", [1, 3, 10_000])
@pytest.mark.parametrize("radius", [0.0, 0.3, 1.1, 100.0, np.inf])
@pytest.mark.parametrize("name", CLOUDS)
def test_counts_equal_brute_force(name, radius, most):
    points = hostile_clouds()[name]
    queries = np.vstack([points[::5], points[::7] + 0.2])
    distances = np.linalg.norm(queries[:, None] - points[None], axis=2)
    step = step_of(points)
    sure = np.count_nonzero(distances <= radius - step, axis=1)
    possible = np.count_nonzero(distances <= radius + step, axis=1)
    for axis, leaf_size in (("spread", 16), ("cyclic", 1)):
        found = KdTree(points, leaf_size, axis, threads=2).count_within(queries, radius, most)
        assert found.dtype == np.int64
        assert (found >= np.minimum(sure, most)).all()
        assert (found <= np.minimum(possible, most)).all()


@pytest.mark.parametrize("neighbours", [1, 4])
@pytest.mark.parametrize("name", ["uniform", "clusters", "half zeros", "five of each", "UTM"])
def test_radius_equals_brute_force(name, neighbours):
    points = hostile_clouds()[name]
    distances = sorted_distances(points)[:, neighbours]
    assert_kept(radius_filter(points, 0.7, neighbours, threads=2), distances, 0.7, points)


@given(
    points=st.integers(1, 40).flatmap(
        lambda n: arrays(np.float64, (n, 3), elements=st.sampled_from([0.0, 1.0, 2.0, 3.5]))
    ),
    radius=st.sampled_from([0.5, 1.2, 2.3]),
    neighbours=st.integers(1, 6),
)
def test_few_places_many_copies(points, radius, neighbours):
    distances = sorted_distances(points)
    expected = np.count_nonzero(distances <= radius, axis=1) > neighbours
    kept = radius_filter(points, radius, neighbours)
    np.testing.assert_array_equal(kept, np.flatnonzero(expected))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_not_finite_goes_and_does_no_harm(dtype):
    points = hostile_clouds(300)["uniform"].astype(dtype)
    points[50] = [100.0, 0.0, 0.0]
    broken = points.copy()
    broken[[0, 7]] = np.nan
    broken[9, 2] = np.inf
    broken.flags.writeable = False
    rest = np.setdiff1d(np.arange(300), [0, 7, 9])
    for keep in (
        lambda xyz: statistical_filter(xyz, 5, 3.0),
        lambda xyz: radius_filter(xyz, 2.0, 3),
    ):
        kept = keep(broken)
        np.testing.assert_array_equal(kept, rest[keep(points[rest])])
        assert 50 not in kept and len(kept) > 250


@pytest.mark.parametrize("count", [0, 1, 2])
def test_hardly_any_points(count):
    points = np.zeros((count, 3))
    assert statistical_filter(points, 5, 1.0).tolist() == list(range(count))
    assert radius_filter(points, 1.0, 1).tolist() == ([0, 1] if count == 2 else [])


def test_wrong_use():
    points = np.zeros((4, 3))
    with pytest.raises(ValueError, match="0 neighbours, must be 1 or more"):
        statistical_filter(points, 0, 1.0)
    with pytest.raises(ValueError, match="0 neighbours"):
        radius_filter(points, 1.0, 0)
    with pytest.raises(ValueError, match="max_distance is -1.0, must not be negative"):
        radius_filter(points, -1.0, 1)
    with pytest.raises(ValueError, match="points have shape"):
        radius_filter(np.zeros((4, 2)), 1.0, 1)
    with pytest.raises(ValueError, match="most is 0, must be 1 or more"):
        KdTree(points).count_within(points, 1.0, 0)

import numpy as np
import pytest

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.registration.outliers import radius_filter, statistical_filter
from geoaccel_ros.registration.preprocess import (
    PreprocessConfig,
    preprocess,
    range_filter,
    voxel_filter,
)


def _expected(xyz, voxel, min_range=0.0, max_range=np.inf):
    seen, kept = set(), []
    for i, point in enumerate(xyz):
        if not np.all(np.isfinite(point)):
            continue
        if not min_range <= np.linalg.norm(point) <= max_range:
            continue
        key = tuple(np.floor(point / voxel).astype(int))
        if key not in seen:
            seen.add(key)
            kept.append(i)
    return kept


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_keeps_the_first_point_of_each_voxel(dtype):
    xyz = np.random.default_rng(0).normal(0.0, 3.0, (3000, 3)).astype(dtype)
    # A power of two: the product with its inverse rounds as the division does.
    kept = voxel_filter(xyz, 0.5)
    assert kept.tolist() == _expected(xyz.astype(float), 0.5)


def test_drops_what_is_out_of_range_or_not_finite():
    xyz = np.array(
        [
            [0, 0, 0],
            [np.nan, 1, 1],
            [1, np.inf, 1],
            [1, -np.inf, 1],
            [1, 1, 1],
            [50, 0, 0],
            [9, 0, 0],
        ]
    )
    assert voxel_filter(xyz, 0.25, 0.5, 20.0).tolist() == [4, 6]
    assert range_filter(xyz, 0.5, 20.0).tolist() == [4, 6]
    # Both bounds are in.
    assert range_filter(xyz, 9.0, 50.0).tolist() == [5, 6]
    # Without bounds: still only finite ones.
    assert voxel_filter(xyz, 0.25).tolist() == range_filter(xyz).tolist() == [0, 4, 5, 6]


def test_half_zeros_and_duplicates_end():
    xyz = np.vstack([np.zeros((50_000, 3)), np.ones((50_000, 3))])
    assert voxel_filter(xyz, 0.25, 0.5).tolist() == [50_000]


def test_takes_views_read_only_arrays_and_none_at_all():
    table = np.random.default_rng(0).normal(0.0, 3.0, (100, 5)).astype(np.float32)
    view = table[:, 1:4]
    view.flags.writeable = False
    assert voxel_filter(view, 0.5).tolist() == voxel_filter(view.astype(float), 0.5).tolist()
    assert voxel_filter(np.empty((0, 3)), 0.5).tolist() == []


@pytest.fixture
def cloud():
    """Points about the origin, copies near a corner, strays, zeros and what is not finite."""
    rng = np.random.default_rng(3)
    xyz = rng.normal(0.0, 3.0, (2000, 3))
    xyz[::50] = rng.uniform(-30, 30, (40, 3))
    xyz[100:200] = xyz[99]
    xyz[300:400] = 0.0
    xyz[[7, 8]] = [[np.nan, 0, 0], [0, np.inf, 0]]
    return xyz


def test_by_default_only_what_is_not_finite_goes(cloud):
    kept = preprocess(cloud, PreprocessConfig())
    assert kept.dtype == np.int64
    np.testing.assert_array_equal(kept, np.delete(np.arange(2000), [7, 8]))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("outliers", ["none", "statistical", "radius"])
@pytest.mark.parametrize("voxel", [0.0, 0.5])
@pytest.mark.parametrize("ranges", [(0.0, 0.0), (0.5, 20.0)])
def test_range_then_voxels_then_outliers(cloud, ranges, voxel, outliers, threads):
    config = PreprocessConfig(
        min_range=ranges[0],
        max_range=ranges[1],
        voxel=voxel,
        outliers=outliers,
        outlier_neighbours=4,
        outlier_ratio=1.5,
        outlier_radius=1.2,
    )
    far = ranges[1] or np.inf
    expected = np.flatnonzero(np.isfinite(cloud).all(axis=1))
    square = np.sum(cloud[expected] ** 2, axis=1)
    expected = expected[(square >= ranges[0] ** 2) & (square <= far**2)]
    if voxel:
        expected = expected[_expected(cloud[expected], voxel)]
    if outliers == "statistical":
        expected = expected[statistical_filter(cloud[expected], 4, 1.5)]
    if outliers == "radius":
        expected = expected[radius_filter(cloud[expected], 1.2, 4)]
    kept = preprocess(cloud, config, threads)
    assert kept.dtype == np.int64
    np.testing.assert_array_equal(kept, expected)
    assert 200 < len(kept) < 2000


def test_preprocess_takes_lists_views_and_none_at_all(cloud):
    config = PreprocessConfig(voxel=0.5, outliers="radius")
    wide = np.zeros((4000, 5))
    wide[::2, 1:4] = cloud
    view = wide[::2, 1:4]
    view.flags.writeable = False
    expected = preprocess(cloud, config).tolist()
    assert preprocess(view, config).tolist() == preprocess(cloud.tolist(), config).tolist()
    assert preprocess(view, config).tolist() == expected
    for outliers in ("none", "statistical", "radius"):
        assert preprocess(np.empty((0, 3)), PreprocessConfig(outliers=outliers)).tolist() == []


@pytest.mark.parametrize(
    "values, remedy",
    [
        ({"outliers": "both"}, "'outliers' is 'both', must be one of none, statistical, radius"),
        ({"outlier_neighbours": 0}, "'outlier_neighbours' is 0, must be 1 to 1000"),
        ({"voxel": -0.1}, r"'voxel' is -0.1, must be 0 to 100 \(in m\)"),
        ({"min_range": 5.0, "max_range": 5.0}, r"'min_range' is 5, must be less than .* \(5\)"),
    ],
)
def test_what_no_parameter_may_be(values, remedy):
    with pytest.raises(ConfigurationError, match=remedy):
        PreprocessConfig(**values)

import numpy as np
import pytest
from scipy.spatial import cKDTree

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.synthetic import synthetic_pair


def residuals(pair):
    """In the target's frame, point by point."""
    return se3.apply(pair.T_target_source, pair.source) - pair.target


def test_the_default_is_the_problem_of_the_benchmarks():
    pair = synthetic_pair()
    assert pair.target.shape == pair.source.shape == (200_000, 3)
    assert pair.target.dtype == pair.source.dtype == np.float64
    # Evenly in [-25, 25]^3: a coordinate's deviation is 50 / sqrt(12), 25,000 points an octant,
    # give or take 148.
    assert np.abs(pair.target).max() <= 25.0 and np.abs(pair.target).max() > 24.99
    np.testing.assert_allclose(pair.target.std(axis=0), 50.0 / np.sqrt(12.0), rtol=0.01)
    octants = np.bincount((pair.target > 0.0) @ [1, 2, 4])
    assert np.abs(octants - 25_000).max() < 5 * 148
    # 3 degrees: the trace is 1 + 2 cos; 0.2 m.
    T = pair.T_target_source
    assert np.trace(T[:3, :3]) == pytest.approx(1.0 + 2.0 * np.cos(np.pi / 60.0), abs=1e-12)
    np.testing.assert_allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-12)
    assert np.linalg.det(T[:3, :3]) == pytest.approx(1.0)
    assert np.linalg.norm(T[:3, 3]) == pytest.approx(0.2)
    assert T[3].tolist() == [0.0, 0.0, 0.0, 1.0]
    # Normal, sigma 0.01 m an axis: 68.27 % within one sigma; sqrt(3) 0.01 in all.
    errors = residuals(pair)
    np.testing.assert_allclose(errors.mean(axis=0), 0.0, atol=5 * 0.01 / np.sqrt(200_000))
    np.testing.assert_allclose(errors.std(axis=0), 0.01, rtol=0.01)
    np.testing.assert_allclose(np.mean(np.abs(errors) < 0.01, axis=0), 0.6827, atol=0.006)
    np.testing.assert_allclose(np.mean(np.abs(errors) < 0.02, axis=0), 0.9545, atol=0.003)
    assert np.sqrt(np.mean(np.sum(errors**2, axis=1))) == pytest.approx(0.017321, rel=0.005)
    np.testing.assert_allclose(np.corrcoef(errors.T), np.eye(3), atol=0.012)


def test_without_noise_the_transform_maps_source_to_target():
    pair = synthetic_pair(500, extent=3.0, angle=2.0, translation=7.0, noise=0.0, seed=4)
    np.testing.assert_allclose(residuals(pair), 0.0, atol=1e-13)
    still = synthetic_pair(500, angle=0.0, translation=0.0, noise=0.0)
    np.testing.assert_array_equal(still.T_target_source, np.eye(4))
    np.testing.assert_array_equal(still.source, still.target)


def test_the_seed_decides():
    first, again, other = (synthetic_pair(100, outliers=0.2, seed=seed) for seed in (1, 1, 2))
    for name in ("target", "source", "T_target_source"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
        assert not np.array_equal(getattr(first, name), getattr(other, name))


@pytest.mark.parametrize("share, expected", [(0.0, 0), (0.001, 20), (0.3, 6000), (1.0, 20_000)])
def test_outliers_lie_anywhere_and_the_others_stay(share, expected):
    clean, pair = synthetic_pair(20_000), synthetic_pair(20_000, outliers=share)
    np.testing.assert_array_equal(pair.target, clean.target)
    np.testing.assert_array_equal(pair.T_target_source, clean.T_target_source)
    replaced = (pair.source != clean.source).any(axis=1)
    assert np.count_nonzero(replaced) == expected
    if expected < 1000:
        return
    # Not the first ones only, and in all of the cube: give or take five sigma.
    assert np.count_nonzero(replaced[:10_000]) == pytest.approx(expected / 2, abs=5 * 71)
    strays = se3.apply(pair.T_target_source, pair.source[replaced])
    assert np.abs(strays).max() <= 25.0 + 1e-9
    np.testing.assert_allclose(strays.mean(axis=0), 0.0, atol=5 * 14.4 / np.sqrt(expected))
    np.testing.assert_allclose(strays.std(axis=0), 14.43, rtol=0.03)


@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.9, 1.0])
def test_overlap_is_the_share_that_both_have(overlap):
    pair = synthetic_pair(1000, overlap=overlap, noise=0.0)
    source = se3.apply(pair.T_target_source, pair.source)
    assert len(source) == len(pair.target) == 1000
    shared = cKDTree(pair.target).query(source)[0] < 1e-9
    assert np.count_nonzero(shared) == round(1000 * overlap)
    if overlap < 1.0:
        # What only one has lies beyond all of the other's, along x.
        assert source[~shared, 0].min() > pair.target[:, 0].max()


@pytest.mark.parametrize(
    "values, remedy",
    [
        ({"points": 0}, "points is 0, must be 1 or more"),
        ({"extent": -1.0}, "extent is -1.0, must not be negative"),
        ({"noise": np.nan}, "noise is nan, must not be negative"),
        ({"outliers": 1.1}, "outliers is 1.1, must be 0 to 1"),
        ({"overlap": -0.1}, "overlap is -0.1, must be 0 to 1"),
    ],
)
def test_wrong_use(values, remedy):
    with pytest.raises(ValueError, match=remedy):
        synthetic_pair(**values)

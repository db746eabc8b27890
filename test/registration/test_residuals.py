import numpy as np
import pytest

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.matching import BLOCK
from geoaccel_ros.registration.residuals import (
    COUNT,
    EPSILON,
    ERROR,
    LENGTH,
    LEVERS,
    SQUARES,
    WEIGHTS,
    sum_point_to_point,
    sum_to_surfaces,
)
from geoaccel_ros.registration.robust import KERNELS, weight
from geoaccel_ros.registration.solve import fit, hessian_of, rigid_fit, unobserved

POSE = se3.exp(np.array([0.3, -0.2, 0.1, 0.05, -0.04, 0.2]))
COUNT_SOURCE = BLOCK + 300


def problem(seed=0):
    """Matches of random points, one in ten missing, with unit normals on both sides."""
    rng = np.random.default_rng(seed)
    source = rng.uniform(-10, 10, (COUNT_SOURCE, 3)).astype(np.float32)
    target = (se3.apply(POSE, source) + rng.normal(0, 0.3, source.shape)).astype(np.float32)
    places = rng.permutation(len(target)).astype(np.int32)
    target[places] = target.copy()
    matches = np.where(rng.random(len(source)) < 0.1, -1, places).astype(np.int32)
    normals = rng.normal(size=(2, *source.shape))
    normals /= np.linalg.norm(normals, axis=2, keepdims=True)
    return source, target, matches, *normals.astype(np.float32)


def sums(method, pose=POSE, trial=None, limit=np.inf, kernel="none", width=0.5):
    source, target, matches, source_normals, target_normals = problem()
    rows = np.zeros((2, LENGTH))
    trial = pose if trial is None else trial
    arguments = (
        pose[:3].copy(),
        trial[:3].copy(),
        limit,
        KERNELS[kernel],
        width,
        np.ascontiguousarray(source.T),
        tuple(np.ascontiguousarray(target.T)),
        matches,
        rows,
    )
    if method == "point_to_point":
        sum_point_to_point(0, len(source), *arguments)
    else:
        normals = source_normals if method == "gicp" else np.empty((0, 3), np.float32)
        sum_to_surfaces(
            0,
            len(source),
            *arguments,
            np.ascontiguousarray(normals.T),
            np.ascontiguousarray(target_normals.T),
        )
    return rows.sum(axis=0)


def metrics(method, pose):
    """The metric (N, 3, 3) of each match, in float64, as the equations have it."""
    source, _, matches, source_normals, target_normals = problem()
    kept = matches >= 0
    if method == "point_to_point":
        return np.tile(np.eye(3), (kept.sum(), 1, 1))
    outer = np.einsum("ni,nj->nij", *2 * (target_normals[matches[kept]].astype(float),))
    if method == "point_to_plane":
        return outer
    turned = source_normals[kept].astype(float) @ pose[:3, :3].T
    target_covariance = np.eye(3) - (1 - EPSILON) * outer
    source_covariance = np.eye(3) - (1 - EPSILON) * np.einsum("ni,nj->nij", turned, turned)
    return 2 * EPSILON * np.linalg.inv(target_covariance + source_covariance)


def half_squares(method, pose, metric):
    return 0.5 * np.sum(squares(method, pose, metric))


def squares(method, pose, metric=None):
    source, target, matches, *_ = problem()
    kept = matches >= 0
    error = se3.apply(pose, source[kept].astype(float)) - target[matches[kept]]
    metric = metrics(method, pose) if metric is None else metric
    return np.einsum("ni,nij,nj->n", error, metric, error)


METHODS = ("point_to_point", "point_to_plane", "gicp")


@pytest.mark.parametrize("method", METHODS)
def test_sums_are_those_of_the_equations(method):
    row = sums(method)
    source, _, matches, *_ = problem()
    expected = squares(method, POSE)
    assert row[COUNT] == row[WEIGHTS] == np.count_nonzero(matches >= 0)
    # Normals of float32 have lengths of 1 to 1e-7, which epsilon magnifies.
    assert row[SQUARES] == pytest.approx(expected.sum(), rel=1e-4)
    assert row[ERROR] == pytest.approx(row[SQUARES], rel=1e-12)
    assert row[LEVERS] == pytest.approx(np.sum(source[matches >= 0].astype(float) ** 2), rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_gradient_and_hessian_are_the_derivatives(method):
    """Of half the squares, by differences; the metric of gicp held fixed, as in Gauss-Newton."""
    metric = metrics(method, POSE)
    step, count = 1e-3, 6

    def value(twist):
        return half_squares(method, se3.perturbed(POSE, twist), metric)

    axes = step * np.eye(count)
    gradient = [(value(a) - value(-a)) / (2 * step) for a in axes]
    hessian = hessian_of(method, POSE, sums(method))
    if method != "point_to_point":
        np.testing.assert_allclose(sums(method)[5:11], gradient, rtol=1e-3, atol=1e-2)
    # Translations enter linearly: their second differences are exact.
    for a in range(3):
        for b in range(3):
            second = value(axes[a] + axes[b]) - value(axes[a]) - value(axes[b]) + value(0 * axes[0])
            assert hessian[a, b] == pytest.approx(second / step**2, rel=1e-3, abs=0.05)
    # Rotations: J'MJ of the residuals' own differences.
    source, _, matches, *_ = problem()
    points = source[matches >= 0].astype(float)
    moved = [
        se3.apply(se3.perturbed(POSE, a), points) - se3.apply(se3.perturbed(POSE, -a), points)
        for a in axes
    ]
    jacobian = np.stack(moved, axis=2) / (2 * step)
    expected = np.einsum("nia,nij,njb->ab", jacobian, metric, jacobian)
    np.testing.assert_allclose(hessian, expected, rtol=1e-3, atol=1e-4 * expected.max())


@pytest.mark.parametrize("method", METHODS)
def test_matches_beyond_the_limit_at_the_trial_are_left_out(method):
    trial = se3.perturbed(POSE, np.array([0.1, 0, 0, 0, 0, 0.01]))
    at_trial, at_pose = squares(method, trial), squares(method, POSE)
    limit = float(np.median(at_trial))
    # Between two values, so that rounding decides nothing.
    row = sums(method, trial=trial, limit=limit * (1 + 1e-9))
    kept = at_trial <= limit
    assert abs(row[COUNT] - kept.sum()) <= 1
    assert row[SQUARES] == pytest.approx(at_pose[kept].sum(), rel=2e-3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kernel", ["huber", "cauchy", "geman_mcclure"])
def test_weights_enter_error_and_not_squares(method, kernel):
    width = 0.3
    residual = np.sqrt(squares(method, POSE))
    weights = {
        "huber": np.where(residual <= width, 1.0, width / residual),
        "cauchy": 1.0 / (1.0 + (residual / width) ** 2),
        "geman_mcclure": 1.0 / (1.0 + (residual / width) ** 2) ** 2,
    }[kernel]
    row = sums(method, kernel=kernel, width=width)
    assert row[WEIGHTS] == pytest.approx(weights.sum(), rel=1e-4)
    assert row[ERROR] == pytest.approx(np.sum(weights * residual**2), rel=1e-4)
    assert row[SQUARES] == pytest.approx(sums(method)[SQUARES], rel=1e-12)


def test_weights_by_hand():
    assert [weight(KERNELS["none"], s, 1.0) for s in (0.0, 100.0)] == [1.0, 1.0]
    assert [weight(KERNELS["huber"], s, 2.0) for s in (0.0, 4.0, 16.0)] == [1.0, 1.0, 0.5]
    assert [weight(KERNELS["cauchy"], s, 2.0) for s in (0.0, 4.0, 12.0)] == [1.0, 0.5, 0.25]
    assert [weight(KERNELS["geman_mcclure"], s, 2.0) for s in (0.0, 4.0)] == [1.0, 0.25]


def test_point_to_point_solves_for_the_weighted_optimum():
    source, target, matches, *_ = problem()
    kept = matches >= 0
    expected = rigid_fit(source[kept].astype(float), target[matches[kept]].astype(float))
    found = fit("point_to_point", POSE, sums("point_to_point"))
    np.testing.assert_allclose(found.pose, expected, atol=1e-12)
    assert found.mean_square == pytest.approx(squares("point_to_point", found.pose).mean())


def test_a_reflection_is_never_the_answer():
    rng = np.random.default_rng(1)
    points = rng.normal(size=(400, 3))
    mirrored = rigid_fit(points * [1.0, 1.0, -1.0], points)
    assert np.linalg.det(mirrored[:3, :3]) == pytest.approx(1.0)
    # A flat cloud: both sides of the plane fit equally well, and only one is a rotation.
    flat = points * [1.0, 1.0, 0.0]
    np.testing.assert_allclose(rigid_fit(flat, se3.apply(POSE, flat)), POSE, atol=1e-12)


@pytest.mark.parametrize("method", ["point_to_plane", "gicp"])
def test_gauss_newton_lowers_what_it_predicts(method):
    found = fit(method, POSE, sums(method))
    metric = metrics(method, POSE)
    before, after = (2 * half_squares(method, p, metric) for p in (POSE, found.pose))
    count = sums(method)[COUNT]
    assert after < before
    # Linearised, with steps of a few hundredths.
    assert found.mean_square == pytest.approx(after / count, rel=0.02)


def test_unobserved_directions_by_hand():
    # Points on the plane z = 0 with its normal: x, y and the turn about z change nothing.
    rng = np.random.default_rng(2)
    points = np.column_stack([rng.uniform(-3, 3, (500, 2)), np.zeros(500)])
    normal = np.tile([0.0, 0.0, 1.0], (500, 1))
    rows = np.hstack([normal, np.cross(points, normal)])
    sums_row = np.zeros(LENGTH)
    sums_row[COUNT], sums_row[LEVERS] = 500, np.sum(points**2)
    found = unobserved("point_to_plane", rows.T @ rows, sums_row)
    assert found.shape == (3, 6)
    np.testing.assert_allclose(found[:, [2, 3, 4]], 0.0, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)
    assert len(unobserved("gicp", np.eye(6) * 500, sums_row)) == 0

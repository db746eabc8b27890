import numpy as np
import pytest

from geoaccel_ros.registration.update import constrained_step

SPATIAL, PLANAR = np.arange(6), np.array([0, 1, 5])
SHARE, REACH = 1e-3, 10.0


def problem(free=None, seed=0):
    """Residuals of a scan, some of whose points have an age; they say nothing of ``free`` (6,)."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(200, 6)) * [1, 1, 1, REACH, REACH, REACH]
    if free is not None:
        rows -= np.outer(rows @ free, free) / (free @ free)
    ages = rng.uniform(-0.05, 0.05, 200)
    rows = np.hstack([rows, ages[:, None] * rows])
    errors = rng.normal(size=200)
    spread = rng.normal(size=(12, 12))
    prior = spread @ spread.T + np.eye(12)
    return rows, errors, prior, 0.1 * rng.normal(size=12)


def step_of(rows, errors, prior, offset, moving=SPATIAL):
    rates = np.concatenate([moving, moving + 6])
    return constrained_step(
        rows.T @ rows,
        rows.T @ errors,
        rows[:, :6].T @ rows[:, :6],
        prior[np.ix_(rates, rates)],
        offset,
        REACH,
        moving,
        SHARE,
    )


def stacked(rows, errors, prior, offset):
    """Return the matrix and the right side whose least squares the step is."""
    root = np.linalg.cholesky(prior).T
    return np.vstack([rows, root]), -np.concatenate([errors, root @ offset])


@pytest.mark.parametrize("moving", [SPATIAL, PLANAR])
def test_the_step_is_the_least_squares_of_residuals_and_prediction(moving):
    rows, errors, prior, offset = problem()
    step, information, unobserved = step_of(rows, errors, prior, offset, moving)
    rates = np.concatenate([moving, moving + 6])
    matrix, right = stacked(rows[:, rates], errors, prior[np.ix_(rates, rates)], offset[rates])
    np.testing.assert_allclose(step[rates], np.linalg.lstsq(matrix, right)[0], atol=1e-9)
    assert not np.delete(step, rates).any() and not len(unobserved)
    np.testing.assert_allclose(information, matrix.T @ matrix, rtol=1e-9)


def test_what_nothing_observes_does_not_move_whatever_the_prediction_s_errors_have_in_common():
    free = np.array([1.0, 0.3, 0.0, 0.0, 0.0, 0.02])
    rows, errors, prior, offset = problem(free)
    step, information, unobserved = step_of(rows, errors, prior, offset)
    assert len(unobserved) == 1
    assert abs(unobserved[0] @ free) / np.linalg.norm(free) == pytest.approx(1.0, abs=1e-9)
    # Measured with rotations as displacements, neither pose nor twist moves along it.
    metric = np.repeat([1.0, REACH**2], 3)
    assert abs(step[:6] @ (metric * free)) < 1e-9 and abs(step[6:] @ (metric * free)) < 1e-9
    assert np.abs(step).max() > 1e-3
    # What is known of it is what the prediction knows.
    along = np.concatenate([free, np.zeros(6)])
    assert along @ information @ along == pytest.approx(along @ prior @ along)


def test_a_single_wall_in_the_plane():
    """Residuals along y alone: x is not observed, and yaw is, by the wall's length."""
    x = np.linspace(-REACH, REACH, 50)
    rows = np.zeros((50, 12))
    rows[:, 1], rows[:, 5] = 1.0, x
    step, _, unobserved = step_of(rows, np.full(50, -0.2), np.eye(12), np.zeros(12), PLANAR)
    np.testing.assert_allclose(np.abs(unobserved), [[1, 0, 0, 0, 0, 0]], atol=1e-9)
    # 50 residuals of 0.2 m against one prediction of no motion.
    np.testing.assert_allclose(step[:6], [0, 0.2 * 50 / 51, 0, 0, 0, 0], atol=1e-9)


def test_without_residuals_there_is_no_step():
    zeros = np.zeros((12, 12))
    step, information, unobserved = constrained_step(
        zeros, np.zeros(12), np.zeros((6, 6)), np.eye(12), np.ones(12), REACH, SPATIAL, SHARE
    )
    assert not step.any() and len(unobserved) == 6
    np.testing.assert_array_equal(information, np.eye(12))

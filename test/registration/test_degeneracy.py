import numpy as np

from geoaccel_ros.registration.degeneracy import unobserved, without


def problem():
    """Residuals that say nothing of one direction, which mixes metres and radians."""
    rng = np.random.default_rng(0)
    free = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.2])
    free /= np.linalg.norm(free)
    rows = rng.normal(size=(100, 6))
    rows -= np.outer(rows @ free, free)
    return rows, free


def test_the_direction_that_changes_no_residual_is_found():
    rows, free = problem()
    scale = np.array([1.0, 1.0, 1.0, 0.1, 0.1, 0.1])
    (found,) = unobserved(rows.T @ rows, scale, 1e-3)
    direction = scale * found
    assert abs(direction @ free) / np.linalg.norm(direction) > 1.0 - 1e-9


def test_neither_the_unit_of_length_nor_the_size_of_the_scene_decides():
    rng = np.random.default_rng(1)
    normals = rng.normal(size=(300, 3)) * [1.0, 1.0, 0.05]
    levers = rng.normal(size=(300, 3)) * 10.0
    for size in (0.01, 1.0, 1000.0):
        rows = np.hstack([normals, np.cross(size * levers, normals)])
        scale = np.repeat([1.0, 1.0 / (size * 17.0)], 3)
        assert len(unobserved(rows.T @ rows, scale, 1e-2)) == 1
        assert len(unobserved(rows.T @ rows, scale, 1e-4)) == 0


def test_a_step_without_them_is_the_best_of_those_that_leave_them_alone():
    rows, free = problem()
    scale = np.array([1.0, 1.0, 1.0, 0.1, 0.1, 0.1])
    target = np.random.default_rng(2).normal(size=100)
    hessian, gradient = rows.T @ rows, -rows.T @ target
    directions = unobserved(hessian, scale, 1e-3)
    observed = without(directions, scale)
    step = observed @ np.linalg.pinv(observed.T @ hessian @ observed) @ (observed.T @ -gradient)
    # Nothing along them, and the residuals as small as least squares have them.
    assert np.abs(directions @ (step / scale)).max() < 1e-9
    best = np.linalg.lstsq(rows, target, rcond=None)[0]
    np.testing.assert_allclose(rows @ step, rows @ best, atol=1e-9)


def test_nothing_observed_is_all_unobserved():
    assert len(unobserved(np.zeros((6, 6)), np.ones(6), 1e-3)) == 6
    np.testing.assert_allclose(without(np.eye(3), np.ones(3)), 0.0)
    np.testing.assert_allclose(without(np.empty((0, 3)), np.ones(3)), np.eye(3))

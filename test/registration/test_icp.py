import numpy as np
import pytest

from geoaccel_ros.backend import BackendError, cuda_problem
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.icp import METHODS, register, rigid_fit

T_TRUE = se3.exp(np.array([0.2, -0.1, 0.05, 0.01, -0.02, np.radians(3.0)]))


def room(count=4000, seed=0):
    """Points on the floor, two walls and a ball, metres."""
    rng = np.random.default_rng(seed)
    part = count // 4
    square = rng.uniform(-5, 5, (3, part, 2))
    zeros = np.full((part, 1), -5.0)
    ball = rng.normal(size=(part, 3))
    return np.vstack(
        [
            np.hstack([square[0], zeros]),
            np.hstack([square[1][:, :1], zeros, square[1][:, 1:]]),
            np.hstack([zeros, square[2]]),
            ball / np.linalg.norm(ball, axis=1, keepdims=True),
        ]
    )


def moved_back(points):
    T_source_target = se3.inverse(T_TRUE)
    return points @ T_source_target[:3, :3].T + T_source_target[:3, 3]


def assert_pose(found, expected, metres, radians):
    error = se3.inverse(expected) @ found
    assert np.linalg.norm(error[:3, 3]) < metres
    assert np.linalg.norm(se3.log_rotation(error[:3, :3])) < radians


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("offset", [np.zeros(3), np.array([512_700.0, 5_403_548.0, 300.0])])
def test_finds_a_known_transform_exactly(method, offset):
    target = room()
    result = register(target + offset, moved_back(target), method, max_distance=2.0,
                      initial=_shifted(np.eye(4), offset), max_iterations=200)  # fmt: skip
    assert result.converged, result.reason
    # 1e-9 m is a step of float64 at UTM coordinates.
    assert_pose(result.T_target_source, _shifted(T_TRUE, offset), 1e-6, 1e-7)
    assert result.rmse < 1e-6
    assert result.inliers == len(target) and result.overlap == 1.0
    assert 1 < result.iterations <= 200


@pytest.mark.parametrize("method", METHODS)
def test_finds_it_through_noise_and_outliers(method):
    rng = np.random.default_rng(1)
    target = room(8000)
    source = moved_back(target[::2] + rng.normal(0, 0.01, (4000, 3)))
    source[:200] += rng.uniform(5, 10, (200, 3))
    result = register(target, source.astype(np.float32), method, max_distance=1.0)
    assert result.converged, result.reason
    assert_pose(result.T_target_source, T_TRUE, 0.01, 0.003)
    assert 0.9 < result.overlap < 1.0
    np.testing.assert_allclose(result.hessian, result.hessian.T, rtol=1e-9)


def test_initial_guess_reaches_what_identity_does_not():
    target = room()
    T_far = se3.exp(np.array([1.5, 1.0, 0.0, 0.0, 0.0, np.radians(40.0)]))
    T_source_target = se3.inverse(T_far)
    source = target @ T_source_target[:3, :3].T + T_source_target[:3, 3]
    near = T_far @ se3.exp(np.array([0.1, 0, 0, 0, 0, 0.02]))
    result = register(target, source, initial=near)
    assert result.converged
    assert_pose(result.T_target_source, T_far, 1e-4, 1e-4)


def test_rigid_fit_of_a_mirror_image_is_a_rotation():
    points = room(400)
    fit = rigid_fit(points * [1.0, 1.0, -1.0], points)
    assert np.linalg.det(fit[:3, :3]) == pytest.approx(1.0)
    # A flat cloud: the plane's two sides fit equally well, and only one of them turns.
    flat = points * [1.0, 1.0, 0.0]
    moved = flat @ T_TRUE[:3, :3].T + T_TRUE[:3, 3]
    np.testing.assert_allclose(rigid_fit(flat, moved), T_TRUE, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_points_are_told(method, count):
    for target, source, name in (
        (room(), room()[:count], "source"),
        (room()[:count], room(), "target"),
    ):
        result = register(target, source, method)
        assert not result.converged and f"{count} finite points in the {name}" in result.reason
        np.testing.assert_array_equal(result.T_target_source, np.eye(4))
        assert np.isnan(result.rmse) and result.inliers == 0


def test_three_points_are_enough_point_to_point_and_a_line_is_not():
    triangle = np.array([[0.0, 0, 0], [10, 0, 0], [0, 10, 0]])
    result = register(triangle, moved_back(triangle), "point_to_point")
    assert result.converged, result.reason
    assert_pose(result.T_target_source, T_TRUE, 1e-9, 1e-9)
    line = np.linspace([0, 0, 0], [10, 0, 0], 50)
    for points in (line, np.zeros((20, 3))):
        result = register(points, points, "point_to_point")
        assert not result.converged and "degenerate" in result.reason


def test_one_plane_leaves_directions_open():
    rng = np.random.default_rng(2)
    plane = np.column_stack([rng.uniform(-5, 5, (3000, 2)), rng.normal(0, 0.01, 3000)])
    result = register(plane, plane + [0.0, 0.0, 0.1], "point_to_plane")
    assert not result.converged and "degenerate" in result.reason


@pytest.mark.parametrize("method", METHODS)
def test_no_overlap_is_told(method):
    result = register(room(), room() + [60.0, 0.0, 0.0], method)
    assert not result.converged
    assert "no overlap: 0 of 4000 source points" in result.reason
    assert result.overlap == 0.0 and np.isnan(result.rmse)
    np.testing.assert_array_equal(result.T_target_source, np.eye(4))


def test_iterations_that_run_out_are_told():
    result = register(room(), moved_back(room()), max_distance=2.0, max_iterations=1)
    assert not result.converged and "after 1 iterations" in result.reason
    assert result.iterations == 1


@pytest.mark.parametrize("method", METHODS)
def test_points_that_are_not_finite_are_left_out(method):
    target = room()
    source = moved_back(target)
    source[::10, 0] = np.nan
    target[5] = np.inf
    result = register(target, source, method, max_distance=2.0)
    assert result.converged
    assert_pose(result.T_target_source, T_TRUE, 0.01, 0.01)
    assert np.isfinite(result.rmse)


def test_voxel_thins_both_clouds():
    result = register(room(), moved_back(room()), voxel=0.5, max_distance=2.0)
    assert result.inliers < 1500
    assert_pose(result.T_target_source, T_TRUE, 0.05, 0.01)


def test_wrong_use():
    with pytest.raises(ValueError, match="method 'plane', must be one of point_to_point"):
        register(room(), room(), "plane")
    with pytest.raises(ValueError, match=r"source has shape \(10, 2\)"):
        register(room(), np.zeros((10, 2)))


@pytest.mark.skipif(cuda_problem() is None, reason="there is a GPU")
def test_cuda_without_a_device_is_refused():
    with pytest.raises(BackendError, match="cuda was asked for"):
        register(room(), room(), backend="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(cuda_problem() is not None, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("method", METHODS)
def test_cuda_agrees_with_the_cpu(method):
    target = room(8000)
    source = moved_back(target + np.random.default_rng(3).normal(0, 0.01, target.shape))
    cpu, cuda = (
        register(target, source, method, max_distance=2.0, backend=name) for name in ("cpu", "cuda")
    )
    assert cpu.iterations == cuda.iterations
    # Two points equally near in float32 may change partners: 1e-5 m, 1e-4 degrees.
    assert_pose(cuda.T_target_source, cpu.T_target_source, 1e-5, np.radians(1e-4))


def _shifted(transform, offset):
    shifted = transform.copy()
    shifted[:3, 3] += offset
    return shifted

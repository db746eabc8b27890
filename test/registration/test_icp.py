import numpy as np
import pytest

from geoaccel_ros.backend import BackendError, cuda_problem
from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.registration import (
    RegistrationConfig,
    RegistrationWarning,
    Target,
    register,
    se3,
)
from geoaccel_ros.registration.residuals import METHODS
from geoaccel_ros.registration.robust import KERNELS

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
                      initial=_shifted(np.eye(4), offset), max_iterations=200,
                      least_step=1e-9)  # fmt: skip
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


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_points_are_told(method, count):
    for target, source, name in (
        (room(), room()[:count], "source"),
        (room()[:count], room(), "target"),
    ):
        result = register(target, source, method)
        assert not result.converged and f"{count} usable points in the {name}" in result.reason
        np.testing.assert_array_equal(result.T_target_source, np.eye(4))
        assert np.isnan(result.rmse) and result.inliers == 0


def test_three_points_are_enough_point_to_point_and_a_line_is_not():
    triangle = np.array([[0.0, 0, 0], [10, 0, 0], [0, 10, 0]])
    result = register(triangle, moved_back(triangle), "point_to_point", max_distance=1.0)
    assert result.converged, result.reason
    # Coordinates are float32 within 10 m.
    assert_pose(result.T_target_source, T_TRUE, 1e-6, 1e-6)
    line = np.linspace([0, 0, 0], [10, 0, 0], 50)
    for points in (line, np.ones((20, 3))):
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
    with pytest.raises(ValueError, match="'method' is 'plane', must be one of point_to_point"):
        register(room(), room(), "plane")
    with pytest.raises(ValueError, match=r"source has shape \(10, 2\)"):
        register(room(), np.zeros((10, 2)))


@pytest.mark.skipif(cuda_problem() is None, reason="there is a GPU")
def test_cuda_without_a_device_is_refused():
    with pytest.raises(BackendError, match="cuda was asked for"):
        register(room(), room(), backend="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(cuda_problem() is not None, reason="needs an NVIDIA GPU")
class TestCuda:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("kernel", KERNELS)
    @pytest.mark.parametrize("three_sigma", [True, False])
    def test_agrees_with_the_cpu(self, method, kernel, three_sigma):
        target = room(8000)
        source = moved_back(target + np.random.default_rng(3).normal(0, 0.01, target.shape))
        source[::50] += [0.0, 0.0, 0.4]
        cpu, cuda = (
            register(target, source, method, max_distance=2.0, kernel=kernel, backend=name,
                     three_sigma=three_sigma)
            for name in ("cpu", "cuda")
        )  # fmt: skip
        assert cuda.backend == "cuda"
        assert (cuda.iterations, cuda.reason) == (cpu.iterations, cpu.reason)
        # Two points equally near in float32 may change partners: 1e-5 m, 1e-4 degrees.
        assert_pose(cuda.T_target_source, cpu.T_target_source, 1e-5, np.radians(1e-4))
        np.testing.assert_allclose(cuda.poses, cpu.poses, atol=1e-5)
        np.testing.assert_allclose(cuda.trace, cpu.trace, rtol=1e-4)
        np.testing.assert_allclose(cuda.hessian, cpu.hessian, rtol=1e-3, atol=1.0)
        assert abs(cuda.inliers - cpu.inliers) <= 2
        assert cuda.overlap == pytest.approx(cpu.overlap, abs=1e-3)
        assert cuda.overlap_before == pytest.approx(cpu.overlap_before, abs=1e-3)

    @pytest.mark.parametrize("offset", [[0.0, 0.0, 0.0], [512_700.0, 5_403_548.0, 300.0]])
    def test_the_same_bits_every_time_at_any_coordinates(self, offset):
        target = room(20_000) + offset
        source = moved_back(room(20_000))
        initial = _shifted(np.eye(4), np.array(offset))
        first, second = (
            register(target, source, initial=initial, max_distance=2.0, backend="cuda")
            for _ in range(2)
        )
        np.testing.assert_array_equal(first.T_target_source, second.T_target_source)
        assert_pose(first.T_target_source, _shifted(T_TRUE, np.array(offset)), 1e-5, 1e-6)

    @pytest.mark.parametrize("method", METHODS)
    def test_ends_badly_in_the_same_words(self, method):
        plane = room()[:1000]
        line = np.linspace([0, 0, 1], [10, 0, 1], 50)
        cases = [
            (room(), room() + [60.0, 0.0, 0.0]),
            (plane, plane + [0.0, 0.0, 0.1]),
            (line, line),
            (np.ones((20, 3)), np.ones((20, 3))),
            (room(), room()[:2]),
            (room()[:7], room()[:7]),
        ]
        for target, source in cases:
            cpu, cuda = (
                register(target, source, method, max_distance=2.0, backend=name)
                for name in ("cpu", "cuda")
            )
            assert (cuda.converged, cuda.reason) == (cpu.converged, cpu.reason)
            assert cuda.degenerate.shape == cpu.degenerate.shape

    def test_sequence_overlaps_uploads_and_changes_nothing(self):
        target = room(8000)
        sources = [moved_back(target[k::3]) for k in range(3)] * 3
        prepared = Target(target, RegistrationConfig(max_distance=1.0, backend="cuda"))
        together = list(prepared.register_all(sources))
        for source, result in zip(sources, together, strict=True):
            np.testing.assert_array_equal(
                prepared.register(source).T_target_source, result.T_target_source
            )

    def test_auto_tells_from_how_many_points_it_takes_the_device(self):
        small, large = (
            Target(room(count), RegistrationConfig(backend="auto")) for count in (100, 200_000)
        )
        assert small.backend == "cpu" and large.backend == "cuda"
        assert "CUDA is faster from" in large.backend_reason


def _shifted(transform, offset):
    shifted = transform.copy()
    shifted[:3, 3] += offset
    return shifted


def uniform_pair(count=20_000, extent=10.0, noise=0.01, seed=5):
    """Noisy copies of uniform points: matches are known, and so is the residual."""
    rng = np.random.default_rng(seed)
    target = rng.uniform(-extent, extent, (count, 3))
    return target, moved_back(target) + rng.normal(0, noise, target.shape)


def test_residual_of_point_to_point_is_that_of_the_noise():
    target, source = uniform_pair()
    result = register(target, source, "point_to_point", max_distance=2.0, three_sigma=False)
    assert result.converged, result.reason
    # Three coordinates of sigma 0.01 each; 20,000 points tell it to half a percent.
    assert result.rmse == pytest.approx(np.sqrt(3) * 0.01, rel=0.01)
    assert result.kept == 1.0 and result.overlap == 1.0 and not result.warning
    assert result.trace[-1] == result.rmse
    # It falls at every iteration until it stays.
    assert np.all(np.diff(result.trace) < 1e-6)
    np.testing.assert_array_equal(result.poses[-1], result.T_target_source)
    np.testing.assert_allclose(result.poses[0], np.eye(4), atol=1e-12)
    assert len(result.trace) == len(result.poses) == result.iterations + 1


@pytest.mark.parametrize("method", METHODS)
def test_three_sigma_drops_outliers_and_says_how_many(method):
    target = room(8000)
    source = moved_back(target + np.random.default_rng(6).normal(0, 0.005, target.shape))
    outliers = np.random.default_rng(7).choice(len(source), 400, replace=False)
    # Within reach of the target, and pulling all one way.
    source[outliers] += [0.0, 0.0, 0.6]
    with_it, without = (
        register(target, source, method, max_distance=1.0, three_sigma=on) for on in (True, False)
    )
    errors = [np.linalg.norm(r.T_target_source[:3, 3] - T_TRUE[:3, 3]) for r in (with_it, without)]
    assert errors[0] < 0.5 * errors[1]
    assert without.kept == 1.0
    assert 0.9 < with_it.kept < 1.0
    assert with_it.inliers == pytest.approx(with_it.kept * 8000, abs=1)
    assert with_it.rmse < without.rmse


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kernel", ["huber", "cauchy", "geman_mcclure"])
def test_robust_kernels_hold_against_outliers(method, kernel):
    target = room(8000)
    source = moved_back(target + np.random.default_rng(6).normal(0, 0.005, target.shape))
    source[::10] += [0.0, 0.0, 0.3]
    options = {"max_distance": 1.0, "three_sigma": False}
    plain = register(target, source, method, **options)
    robust = register(target, source, method, kernel=kernel, kernel_width=0.03, **options)
    errors = [np.linalg.norm(r.T_target_source[:3, 3] - T_TRUE[:3, 3]) for r in (robust, plain)]
    assert errors[0] < 0.6 * errors[1]


@pytest.mark.parametrize("count", [50_000, 200_000])
def test_stop_rule_broken_on_purpose_is_noticed(count):
    target, source = uniform_pair(count, extent=20.0)
    # Ends after the first iteration, far from aligned, and calls it converged.
    with pytest.warns(RegistrationWarning, match="of the source lies within"):
        result = register(target, source, "point_to_point", max_distance=2.0, least_step=1.0)
    assert result.converged and result.iterations == 1
    assert result.overlap < 0.8
    aligned = register(target, source, "point_to_point", max_distance=2.0)
    assert aligned.overlap == 1.0 and aligned.overlap_before < 0.8


def test_every_end_says_why():
    target, source = uniform_pair()
    options = {"method": "point_to_point", "max_distance": 2.0}
    step = register(target, source, **options, relative_change=0.0)
    assert step.converged and "step fell below" in step.reason
    residual = register(target, source, **options, least_step=0.0)
    assert residual.converged and "no longer changes" in residual.reason
    # Changed by less than a part of itself twice running: the last two ratios, not the one before.
    ratios = np.abs(np.diff(residual.trace**2)) / residual.trace[:-1] ** 2
    assert (ratios[-2:] < 1e-5).all() and ratios[-3] >= 1e-5
    forced = register(target, source, **options, relative_change=0.0, least_step=0.0,
                      max_iterations=25)  # fmt: skip
    assert not forced.converged and forced.iterations == 25


@pytest.mark.parametrize("method", METHODS)
def test_hessian_turns_about_the_sources_origin(method):
    """By differences of the objective over rotations of the source about its own origin."""
    offset = np.array([30.0, -20.0, 5.0])
    target, source = room(), moved_back(room()) + offset
    initial = T_TRUE @ _shifted(np.eye(4), -offset)
    result = register(target, source, method, initial=initial, max_distance=0.5, three_sigma=False)
    # The direction in which the turn about the source's origin shifts the cloud: J = [I, -[l]x].
    levers = source @ result.T_target_source[:3, :3].T
    if method == "point_to_point":
        expected = np.zeros((6, 6))
        for lever in levers:
            jacobian = np.hstack([np.eye(3), -se3.cross_matrix(lever)])
            expected += jacobian.T @ jacobian
        np.testing.assert_allclose(result.hessian, expected, rtol=1e-4, atol=1.0)
    else:
        # J'MJ for the same M at both: H_tr = -H_tt-weighted levers; symmetric, and H_rr is more
        # than what the mean lever alone gives.
        np.testing.assert_allclose(result.hessian, result.hessian.T, rtol=1e-9)
        assert np.linalg.eigvalsh(result.hessian)[0] > 0.0
        near = register(target, moved_back(room()), method, initial=T_TRUE, max_distance=0.5,
                        three_sigma=False)  # fmt: skip
        shift = np.eye(6)
        shift[:3, 3:] = -se3.cross_matrix(result.T_target_source[:3, :3] @ offset)
        np.testing.assert_allclose(
            result.hessian, shift.T @ near.hessian @ shift, rtol=1e-3, atol=1e-3 * 8000 * 900
        )


def test_directions_left_open_are_named():
    rng = np.random.default_rng(8)
    # A corridor along x: floor and two walls.
    along, across, up = (
        rng.uniform(-10, 10, 6000),
        rng.uniform(-2, 2, 6000),
        rng.uniform(0, 3, 6000),
    )
    corridor = np.vstack(
        [
            np.column_stack([along, across, 0 * up]),
            np.column_stack([along, 0 * across - 2, up]),
            np.column_stack([along, 0 * across + 2, up]),
        ]
    )
    result = register(corridor, corridor + [0.0, 0.05, 0.0], "point_to_plane", max_distance=0.5)
    assert not result.converged and "degenerate" in result.reason
    assert result.degenerate.shape == (1, 6)
    np.testing.assert_allclose(np.abs(result.degenerate[0]), [1, 0, 0, 0, 0, 0], atol=0.02)
    whole = register(room(), moved_back(room()), max_distance=2.0)
    assert whole.degenerate.shape == (0, 6)


def test_one_target_serves_many_sources():
    target = room(8000)
    sources = [
        moved_back(target[k::2]) + np.random.default_rng(k).normal(0, 0.005, target[k::2].shape)
        for k in (0, 1)
    ] * 2
    prepared = Target(target, RegistrationConfig("point_to_plane", max_distance=1.0))
    together = list(prepared.register_all(sources))
    for source, result in zip(sources, together, strict=True):
        alone = register(target, source, max_distance=1.0)
        np.testing.assert_array_equal(alone.T_target_source, result.T_target_source)
        np.testing.assert_array_equal(
            register(prepared, source).T_target_source, result.T_target_source
        )
        assert set(result.timings) == {"preprocess", "upload", "tree", "iterations", "total"}
    assert list(prepared.register_all([])) == []
    bad = list(prepared.register_all([sources[0], np.zeros((0, 3)), sources[1]]))
    assert [r.converged for r in bad] == [True, False, True]


@pytest.mark.parametrize("method", METHODS)
def test_threads_change_no_bit(method):
    target, source = uniform_pair(5000, 6.0)
    results = [
        register(target, source, method, max_distance=1.0, threads=n).T_target_source
        for n in (1, 2, 5)
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_inputs_are_left_alone_and_of_any_layout():
    target = room()
    source = moved_back(target)
    expected = register(target, source, max_distance=2.0).T_target_source
    for cast in (np.asfortranarray, lambda a: np.repeat(a, 2, axis=0)[::2], np.copy):
        given = cast(target), cast(source)
        for array in given:
            array.flags.writeable = False
        found = register(*given, max_distance=2.0).T_target_source
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(
        register(target.astype(np.float32), source.astype(np.float32), max_distance=2.0)
        .T_target_source, expected, atol=1e-5,
    )  # fmt: skip


def test_zeros_and_duplicates_do_not_hold_the_cloud_fast():
    target = room()
    source = moved_back(target)
    zeros = np.zeros_like(target)
    result = register(np.vstack([target, zeros]), np.vstack([source, zeros]), max_distance=2.0)
    assert result.converged and result.inliers <= len(source)
    assert_pose(result.T_target_source, T_TRUE, 1e-3, 1e-3)
    doubled = register(np.repeat(target, 3, axis=0), np.repeat(source, 3, axis=0),
                       "point_to_point", max_distance=2.0, max_iterations=200)  # fmt: skip
    assert_pose(doubled.T_target_source, T_TRUE, 1e-3, 1e-3)


def test_voxel_levels_tell_the_overlap_of_the_first_guess():
    target, source = room(20_000), moved_back(room(20_000, seed=1))
    options = {"max_distance": 2.0, "overlap_distance": 0.1}
    fine = register(target, source, **options)
    levels = register(target, source, voxel=[1.0, 0.0], **options)
    assert levels.overlap_before == fine.overlap_before < 0.5 < levels.overlap
    assert levels.inliers == pytest.approx(fine.inliers, rel=0.01)
    assert levels.iterations > len(levels.trace) - 1
    assert_pose(levels.T_target_source, fine.T_target_source, 1e-3, 1e-3)


def test_directions_left_open_are_held_and_the_others_solved():
    rng = np.random.default_rng(9)
    plane = np.column_stack([rng.uniform(-5, 5, (4000, 2)), np.zeros(4000)])
    tilt = se3.exp(np.array([0.0, 0.0, 0.1, 0.02, -0.03, 0.0]))
    result = register(plane, se3.apply(tilt, plane), max_distance=1.0)
    assert not result.converged and "degenerate" in result.reason
    assert result.degenerate.shape == (3, 6)
    # Height and tilt are found, nothing slides or turns in the plane.
    assert result.rmse < 1e-4
    found = se3.log(result.T_target_source @ tilt)
    np.testing.assert_allclose(found, 0.0, atol=0.01)


def test_parameters_are_checked():
    with pytest.raises(ConfigurationError, match="unknown parameter 'max_dist'.*'max_distance'"):
        register(room(), room(), max_dist=1.0)
    with pytest.raises(ConfigurationError, match="'voxel' is -1.0"):
        register(room(), room(), voxel=-1.0)
    with pytest.raises(ValueError, match="voxels of 1e-06 m in a cloud .* take .* or more"):
        register(room(), room(), voxel=1e-6)
    with pytest.raises(ConfigurationError, match="'kernel' is 'tukey'"):
        register(room(), room(), kernel="tukey")
    for wrong in (np.eye(3), np.diag([1.0, 1.0, -1.0, 1.0]), np.full((4, 4), np.nan)):
        with pytest.raises(ValueError, match="first guess"):
            register(room(), room(), initial=wrong)


def test_first_guess_with_six_printed_digits_is_made_a_rotation():
    rounded = np.round(T_TRUE, 6)
    result = register(room(), moved_back(room()), initial=rounded, max_iterations=1)
    rotation = result.T_target_source[:3, :3]
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)


def test_stray_points_change_neither_pose_nor_warning():
    target, source = room(8000), moved_back(room(8000, seed=1))
    clean = register(target, source)
    target[0], source[0] = [1e6, 0.0, 0.0], [0.0, -1e9, 0.0]
    stray = register(target, source)
    assert stray.converged, stray.reason
    assert stray.max_distance == pytest.approx(clean.max_distance, rel=0.01)
    assert_pose(stray.T_target_source, clean.T_target_source, 1e-3, 1e-3)
    wrong = se3.exp(np.array([3.0, 2.0, 0.0, 0.0, 0.0, 1.5]))
    with pytest.warns(RegistrationWarning):
        assert register(target, source, initial=wrong, max_distance=2.0).overlap < 0.8
    # Where squares leave float32 a coordinate is as good as infinite.
    source[1] = 1e300
    assert register(target, source).converged


@pytest.mark.parametrize("method", ["point_to_plane", "gicp"])
def test_a_coarse_level_that_degenerates_does_not_move_the_cloud(method):
    # In voxels of 100 m the target is one point and the source, which crosses zero, is eight: they
    # are drawn onto it, metres away from where they lie.
    target = room(8000) + 5.01
    source = moved_back(target)
    result = register(target, source, method, voxel=[100.0, 0.3])
    assert result.converged, result.reason
    assert_pose(result.T_target_source, T_TRUE, 0.01, 0.01)


def test_coarse_levels_that_fail_leave_the_guess_alone():
    target, source = room(8000), moved_back(room(8000))
    result = register(target, source, "gicp", voxel=[30.0, 0.3])
    assert result.converged, result.reason
    assert_pose(result.T_target_source, T_TRUE, 0.02, 0.01)
    result = register(target + 50.0, source + 50.0, voxel=100.0)
    assert "1 usable points in the target after voxels of 100 m" in result.reason


def test_a_target_takes_no_parameters():
    prepared = Target(room())
    with pytest.raises(ValueError, match="method, voxel, kernel given beside a Target"):
        register(prepared, room(), "gicp", voxel=0.1, kernel="huber")


def test_bad_frames_of_a_sequence_fail_alone():
    target = room()
    frames = [moved_back(target), np.zeros((5, 4)), np.full((9, 3), "a"), moved_back(target)]
    results = list(Target(target, RegistrationConfig(max_distance=2.0)).register_all(frames))
    assert [r.converged for r in results] == [True, False, False, True]
    assert "source has shape (5, 4)" in results[1].reason
    assert "must be numbers" in results[2].reason


def test_three_sigma_that_leaves_too_few_says_so():
    rng = np.random.default_rng(10)
    found = set()
    for _ in range(30):
        target, source = rng.normal(size=(8, 3)), rng.normal(size=(8, 3))
        found.add(register(target, source, max_distance=5.0).reason.split(":")[0])
    assert not any(reason.startswith("no overlap") for reason in found)


def test_narrowest_kernel_divides_by_nothing():
    result = register(room(), moved_back(room()), kernel="cauchy", kernel_width=1e-300)
    assert np.isfinite(result.T_target_source).all()


def test_rolling_ground_is_observed():
    rng = np.random.default_rng(11)
    x, y = rng.uniform(-50, 50, (2, 30_000))
    ground = np.column_stack([x, y, 0.3 * np.sin(0.3 * x) * np.cos(0.25 * y)])
    shift = np.array([0.3, 0.2, 0.0])
    result = register(ground, ground - shift, max_distance=2.0, max_iterations=200)
    assert result.converged, result.reason
    np.testing.assert_allclose(result.T_target_source[:3, 3], shift, atol=0.02)

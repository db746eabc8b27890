"""Odometry on a GPU, piece by piece and whole: the CPU's is the oracle."""

from dataclasses import replace

import numpy as np
import pytest
from ray_cast_yard import PERIOD, drive, scan

from geoaccel_ros.backend import BackendError, cuda_problem
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.local_map import PLANE
from geoaccel_ros.registration.metrics import absolute_trajectory_error
from geoaccel_ros.registration.odometry import Odometry, OdometryConfig
from geoaccel_ros.registration.odometry_engines import CpuEngine, choose_engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_problem() is not None, reason="needs an NVIDIA GPU"),
]

VOXEL = 0.4
ORIGIN = np.array([400_000.0, -20.0, 3.0])
TWIST = np.array([1.0, 0.2, -0.1, 0.05, -0.1, 0.8])
POSE = se3.exp(np.array([0.05, -0.03, 0.02, 0.01, -0.01, 0.02]))
POSE[:3, 3] += ORIGIN


def engines(**options):
    config = OdometryConfig(max_range=40.0, **options)
    return CpuEngine(config, ""), choose_engine(replace(config, backend="cuda"))


def curve(t):
    return min(t, 1.0) * 1.2, 1.5 * np.sin(1.1 * t) * min(t, 1.0)


@pytest.fixture(scope="module")
def curve_at():
    return drive(curve, 8.0)


def yard(seed=0, begin=2.0):
    return scan(drive(curve, 4.0), begin, seed=seed)


def clouds():
    xyz, times = yard()
    rng = np.random.default_rng(0)
    broken = xyz.copy()
    broken[::7] = np.nan
    broken[::11] = 0.0
    broken[::13, 1] = np.inf
    late = times.copy()
    late[100] = np.nan
    large = rng.normal(0.0, 15.0, (150_000, 3))
    return {
        "yard": (xyz, times),
        "float32": (xyz.astype(np.float32), times),
        "no times": (xyz, None),
        "a time that is not finite": (xyz, late),
        "negative times": (xyz, times - 0.2),
        "broken points": (broken, times),
        "large": (large, rng.uniform(0.0, 0.1, len(large))),
        "large float32": (large.astype(np.float32), None),
        "by axis": (np.asfortranarray(xyz), times),
        "large float32 by axis": (np.asfortranarray(large.astype(np.float32)), None),
        "strided": (np.repeat(xyz, 2, axis=0)[::2], times),
        "one place": (np.full((5000, 3), 7.0), None),
        "one point": (np.array([[1.0, 2.0, 3.0]]), np.array([0.05])),
        "out of range": (np.full((10, 3), 1e6), None),
        "empty": (np.empty((0, 3)), np.empty(0)),
    }


def check_sweeps(cpu, cuda):
    np.testing.assert_array_equal(cuda.array("points"), cpu.points)
    np.testing.assert_array_equal(cuda.array("matched"), cpu.points[cpu.matched])
    # Means are added up in another order.
    np.testing.assert_allclose(cuda.array("ages"), cpu.ages, atol=1e-15)
    np.testing.assert_allclose(cuda.array("matched_ages"), cpu.ages[cpu.matched], atol=1e-15)
    assert cuda.middle == pytest.approx(cpu.middle, abs=1e-15)
    assert cuda.end == cpu.end and len(cuda) == len(cpu)
    assert cuda.reach == pytest.approx(cpu.reach, rel=1e-12)


@pytest.mark.parametrize("name", clouds())
def test_thins_as_the_cpu(name):
    cpu, cuda = (engine.thin(*clouds()[name], VOXEL) for engine in engines())
    check_sweeps(cpu, cuda)
    expected = cpu.matched_at_end(TWIST)
    found = cuda.matched_at_end(TWIST)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    # A copy: the next call does not overwrite it.
    cuda.matched_at_end(np.zeros(6))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def maps_of(seeds, poses, **options):
    made = []
    for engine in engines(**options):
        local_map = engine.local_map(VOXEL, ORIGIN)
        for seed, pose in zip(seeds, poses, strict=True):
            engine.add(local_map, engine.thin(*yard(seed), VOXEL), pose, TWIST)
        made.append(local_map)
    return made


def check_maps(cpu, cuda):
    size = cpu.size
    assert cuda.size == size
    # Numbered in the same order.
    np.testing.assert_array_equal(cuda.rows("keys")[:, 0], cpu._keys[:size])
    np.testing.assert_array_equal(cuda.rows("gaussians")[:, 0], cpu.counts)
    np.testing.assert_allclose(cuda.rows("gaussians"), cpu._gaussians[:size], atol=1e-9)
    np.testing.assert_allclose(cuda.points(), cpu.points(), atol=1e-9)
    np.testing.assert_array_equal(cuda.rows("counts_at_normal")[:, 0], cpu._counts_at_normal[:size])
    kinds = cuda.rows("kinds")[:, 0]
    # At a threshold rounding decides.
    same = kinds == cpu.kinds
    assert np.mean(same) > 0.999 and np.count_nonzero(kinds == PLANE) > 50
    normals = cuda.rows("normals")[same]
    sign = np.where(np.sum(normals * cpu.normals[same], axis=1) < 0.0, -1.0, 1.0)
    np.testing.assert_allclose(normals * sign[:, None], cpu.normals[same], atol=1e-6)


@pytest.mark.parametrize("planar", [False, True])
def test_maps_as_the_cpu_over_several_scans(planar):
    poses = [POSE @ se3.exp(0.1 * k * TWIST) for k in range(8)]
    check_maps(*maps_of(range(8), poses, planar=planar))


def test_forgets_what_is_far_as_the_cpu():
    far = POSE.copy()
    far[:3, 3] += [45.0, 0.0, 0.0]
    cpu, cuda = maps_of([0, 1, 2], [POSE, far, far])
    assert 100 < cpu.size
    check_maps(cpu, cuda)
    # What was kept is found again: nothing is there twice.
    assert len(np.unique(cuda.rows("keys"))) == cuda.size


def test_a_full_map_keeps_the_nearest_half():
    poses = [POSE @ se3.exp(0.3 * k * TWIST) for k in range(12)]
    cpu, cuda = maps_of(range(12), poses, max_voxels=1200)
    assert cpu.size > 600
    # Two means equally far at the border of what is kept: as good as never.
    check_maps(cpu, cuda)


def test_no_more_voxels_than_the_capacity():
    cpu, cuda = maps_of([0], [POSE], max_voxels=1000)
    assert cuda.size == cpu.size == 1000
    check_maps(cpu, cuda)


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("bent", [True, False])
def test_linearises_as_the_cpu(timed, bent):
    cpu_map, cuda_map = maps_of([0, 1, 2], [POSE] * 3)
    xyz, times = yard(7)
    found = []
    for engine, local_map in zip(engines(), (cpu_map, cuda_map), strict=True):
        sweep = engine.thin(xyz, times if timed else None, VOXEL)
        matcher = engine.matcher(local_map, sweep, 0.08, 0.001)
        moved = POSE @ se3.exp(np.array([0.1, -0.05, 0.02, 0.01, 0.01, -0.02]))
        # Near, kept, within a few voxels, within many, and none.
        found.append(
            [
                matcher.linearise(pose, TWIST, radius, bent)
                for pose, radius in (
                    (POSE, 0.5),
                    (moved, None),
                    (moved, 0.9),
                    (moved, 3.1),
                    (moved, 9.0),
                    (moved, 1e-6),
                    (POSE, 0.5),
                )
            ]
        )
    for cpu, cuda in zip(*found, strict=True):
        assert (cuda.inliers, cuda.overlap) == (cpu.inliers, cpu.overlap)
        # The median is one of float32 numbers.
        assert cuda.deviation == pytest.approx(cpu.deviation, rel=1e-6)
        np.testing.assert_allclose(cuda.rmse, cpu.rmse, rtol=1e-6)
        for name in ("hessian", "gradient", "geometry"):
            own, other = getattr(cuda, name), getattr(cpu, name)
            np.testing.assert_allclose(own, other, rtol=1e-6, atol=1e-6 * np.abs(other).max())
    assert found[0][0].inliers > 500 and found[0][5].inliers == 0


def test_medians_of_even_and_odd_numbers_and_of_distances_to_points():
    rng = np.random.default_rng(3)
    # A ball: hardly a plane, so that distances to means decide.
    ball = rng.normal(0.0, 1.0, (6000, 3)) * [3.0, 3.0, 1.0] + 4.0
    for count in (6000, 5999, 801, 800, 33, 32):
        deviations = []
        for engine in engines():
            local_map = engine.local_map(VOXEL, np.zeros(3))
            engine.add(local_map, engine.thin(ball, None, VOXEL), np.eye(4), np.zeros(6))
            sweep = engine.thin(ball[:count], None, VOXEL)
            matcher = engine.matcher(local_map, sweep, 0.08, 1e-6)
            shifted = np.eye(4)
            shifted[0, 3] = 0.13
            deviations.append(matcher.linearise(shifted, np.zeros(6), 0.6).deviation)
        assert deviations[1] == pytest.approx(deviations[0], rel=1e-6)


def follow(config, curve_at, count=60):
    odometry = Odometry(config)
    results, truth = [], []
    for k in range(count):
        xyz, times = scan(curve_at, k * PERIOD, seed=k)
        results.append(odometry.register(xyz, times, 100.0 + k * PERIOD))
        truth.append(curve_at(results[-1].stamp - 100.0))
    return odometry, results, np.array([se3.inverse(truth[0]) @ pose for pose in truth])


def test_the_same_drive_as_on_the_cpu_and_the_same_bits_again(curve_at):
    _, cpu, _ = follow(OdometryConfig(backend="cpu"), curve_at)
    odometry, cuda, truth = follow(OdometryConfig(backend="cuda"), curve_at)
    assert odometry.backend == "cuda"
    assert [r.status for r in cuda] == [r.status for r in cpu]
    poses = np.array([r.T_odom_base for r in cuda])
    np.testing.assert_allclose(poses, [r.T_odom_base for r in cpu], atol=1e-3)
    assert absolute_trajectory_error(poses, truth) < 0.03
    for own, other in zip(cuda, cpu, strict=True):
        assert own.points.shape == other.points.shape
        assert abs(own.correspondences - other.correspondences) <= 3
        np.testing.assert_allclose(own.points, other.points, atol=1e-3)
    _, again, _ = follow(OdometryConfig(backend="cuda"), curve_at)
    for own, other in zip(again, cuda, strict=True):
        np.testing.assert_array_equal(own.T_odom_base, other.T_odom_base)
        np.testing.assert_array_equal(own.points, other.points)


def test_auto_takes_cuda():
    odometry = Odometry(OdometryConfig())
    assert (odometry.backend, odometry.backend_reason) == ("cuda", "a CUDA device is present")


def test_a_device_that_computes_otherwise_is_refused(monkeypatch):
    from geoaccel_ros.registration.cuda.scan_matching import CudaScanMatcher

    right = CudaScanMatcher.linearise

    def wrong(self, *arguments):
        found = right(self, *arguments)
        return replace(found, gradient=1.001 * found.gradient)

    monkeypatch.setattr(CudaScanMatcher, "linearise", wrong)
    with pytest.raises(BackendError, match="differs from the CPU's.*backend: cpu"):
        choose_engine(OdometryConfig(backend="cuda"))

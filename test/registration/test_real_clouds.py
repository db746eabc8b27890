"""Odometry and registration on real data, where it lies beside the repository."""

import sys
import warnings
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from geoaccel_ros.backend import cuda_problem
from geoaccel_ros.pointcloud.files import read_points
from geoaccel_ros.pointcloud.layout import coordinates
from geoaccel_ros.pointcloud.recordings import open_recording
from geoaccel_ros.pointcloud.times import PointTimesConfig
from geoaccel_ros.registration import RegistrationWarning, register, se3
from geoaccel_ros.registration.deskew import deskew
from geoaccel_ros.registration.metrics import path_length, relative_pose_error
from geoaccel_ros.registration.odometry import Odometry, OdometryConfig
from geoaccel_ros.registration.scans import ScanReader

SHARED = Path(__file__).resolve().parents[3] / "shared"

# On a machine with a GPU both, elsewhere the one there is.
BACKENDS = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(cuda_problem() is not None, reason="needs an NVIDIA GPU"),
        ],
    ),
]

# Full density takes ten times as long: one pair of each sensor, and the worst overlap.
AT_FULL_DENSITY = ("kitti_00_094_095", "gicp_pair", "eth_car", "balm_03", "balm_07")

pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="real data lies in ../shared")


@pytest.fixture(scope="module")
def lidar_data():
    sys.path.insert(0, str(SHARED / "tools"))
    import lidar_data

    yield lidar_data
    sys.path.remove(str(SHARED / "tools"))


def run(frames):
    odometry = Odometry(OdometryConfig())
    results = [odometry.register(xyz, None, stamp) for stamp, xyz, _, _ in frames]
    assert [r.status for r in results] == ["seeded"] + ["registered"] * (len(frames) - 1)
    poses = np.array([r.T_odom_base for r in results])
    assert np.isfinite(poses).all()
    return poses, np.array([pose for *_, pose in frames])


def test_car_on_a_motorway_at_once():
    """A forward-looking lidar at 23 m/s from the first scan on, the sides of the road all there is.

    The truth is that of registering the scans two by two, from 2.2 m: 2.29 to 2.33 m a scan.
    """
    odometry, reader = Odometry(OdometryConfig()), ScanReader(PointTimesConfig())
    bag = SHARED / "data" / "rosbags_pointcloud2" / "luminar_pointcloud_ros1.bag"
    with open_recording(bag, None) as recording:
        scans = [reader.read(c.points, c.stamp_ns, np.eye(4)) for c in recording.clouds()]
    results = [odometry.register(s.xyz, s.point_times.times, s.stamp) for s in scans]
    assert [r.status for r in results] == ["seeded"] + ["registered"] * 4
    steps = np.diff([r.T_odom_base[:3, 3] for r in results], axis=0)
    np.testing.assert_allclose(steps[:, 1], 2.31, atol=0.12)
    assert np.abs(steps[:, 0]).max() < 0.15
    assert sum(len(r.degenerate) for r in results) == 0


# A road without houses among them, where few points hold the pose.
CLOUDS = (
    "pcd_layouts/velodyne_vlp16_pad32.pcd",
    "pcd_layouts/velodyne_hdl32_pad32.pcd",
    "pcd_layouts/opencalib_top_ring_timestampF64_lzf.pcd",
    "pcd_layouts/nuscenes_LIDAR_TOP_xyzi_ring_f32x5.pcd.bin",
)


# In voxels that are too large for it the road hangs on few points, which are outliers at first.
@pytest.mark.parametrize(("file", "voxel"), [(file, 0.0) for file in CLOUDS] + [(CLOUDS[2], 1.5)])
def test_sensors_from_16_to_128_beams_started_at_5_m_s(file, voxel):
    """One real cloud, seen as if the sensor had moved; each time with noise of its own."""
    xyz = coordinates(read_points(SHARED / "data" / file)).astype(np.float64)
    rng = np.random.default_rng(0)
    odometry = Odometry(OdometryConfig(voxel=voxel))
    for k in range(6):
        truth = se3.exp(k * np.array([0.5, 0.05, 0.0, 0.0, 0.0, 0.05]))
        seen = se3.apply(se3.inverse(truth), xyz + rng.normal(0.0, 0.01, xyz.shape))
        result = odometry.register(seen, None, 0.1 * k)
        assert result.status == ("registered" if k else "seeded")
        assert len(result.degenerate) == 0
    error = se3.log(se3.inverse(truth) @ result.T_odom_base)
    assert np.linalg.norm(error[:3]) < 0.03 and np.degrees(np.linalg.norm(error[3:])) < 0.05


def test_car_on_a_street(lidar_data):
    estimate, truth = run(list(islice(lidar_data.sequence("kitti_raw_0005"), 30)))
    # GPS and INS, good to 0.3 m: it tells scale and gross error.
    assert path_length(estimate) == pytest.approx(path_length(truth), rel=0.05)
    translation, rotation = relative_pose_error(estimate, truth, 10)
    assert translation < 0.3 and np.degrees(rotation) < 0.15


def test_hand_held_indoors(lidar_data):
    estimate, truth = run(list(lidar_data.sequence("balm_realworld")))
    translation, rotation = relative_pose_error(estimate, truth, 1)
    assert translation < 0.01 and np.degrees(rotation) < 0.1


def pair(lidar_data, name):
    return next(pair[1:] for pair in lidar_data.pairs() if pair[0] == name)


def missed_by(found, truth):
    """Translation in metres and rotation in degrees between two transforms."""
    error = se3.inverse(truth) @ found
    return (
        np.linalg.norm(error[:3, 3]),
        np.degrees(np.linalg.norm(se3.log_rotation(error[:3, :3]))),
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", ["point_to_plane", "gicp"])
@pytest.mark.parametrize("voxel", [None, 0.1])
def test_every_pair_from_identity(lidar_data, method, voxel, backend):
    for name, target, source, truth, metres, degrees in lidar_data.pairs():
        if voxel is None and name not in AT_FULL_DENSITY:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error", RegistrationWarning)
            result = register(target, source, method, voxel=voxel, backend=backend)
        assert result.converged, (name, result.reason)
        translation, rotation = missed_by(result.T_target_source, truth)
        assert translation < metres and rotation < degrees, name
        assert result.overlap > 0.8, name


@pytest.mark.parametrize("backend", BACKENDS)
def test_coarse_to_fine_recovers_what_fine_misses(lidar_data, backend):
    target, source, truth, metres, degrees = pair(lidar_data, "gicp_pair")
    far = truth @ se3.exp(np.array([0.0, -1.5, 0.0, 0.0, 0.0, np.radians(-20.0)]))
    options = {"method": "gicp", "initial": far, "backend": backend}
    with pytest.warns(RegistrationWarning):
        fine = register(target, source, voxel=0.2, **options)
    assert missed_by(fine.T_target_source, truth)[0] > 10 * metres
    found = register(target, source, voxel=[1.0, 0.5, 0.2], **options)
    assert found.converged, found.reason
    translation, rotation = missed_by(found.T_target_source, truth)
    assert translation < metres and rotation < degrees


@pytest.mark.gpu
@pytest.mark.skipif(cuda_problem() is not None, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("method", ["point_to_plane", "gicp"])
def test_cuda_agrees_with_the_cpu_on_every_pair(lidar_data, method):
    for name, target, source, *_ in lidar_data.pairs():
        cpu, cuda = (
            register(target, source, method, voxel=0.1, backend=backend)
            for backend in ("cpu", "cuda")
        )
        assert cpu.iterations == cuda.iterations, name
        translation, rotation = missed_by(cuda.T_target_source, cpu.T_target_source)
        assert translation < 1e-5 and rotation < 1e-4, name


def test_deskew_agrees_with_another_one():
    """A hand-held lidar with an IMU: constant twist explains what their deskewing did."""
    folder = SHARED / "data" / "newer_college_deskew"
    raw = np.fromfile(folder / "raw_00.bin", "<f4").reshape(-1, 3).astype(float)
    times = np.fromfile(folder / "times_00.bin", "<f4").astype(float)
    theirs = np.fromfile(folder / "deskewed_00.bin", "<f4").reshape(-1, 3).astype(float)
    far = np.linalg.norm(raw, axis=1) > 1.0
    raw, times, theirs = raw[far], times[far], theirs[far]
    # In their frame, half a turn about z and a few millimetres away, found from the points alone.
    twist, T_theirs_ours = np.zeros(6), np.diag([-1.0, -1.0, 1.0, 1.0])
    for _ in range(10):
        moved = deskew(raw, times, twist, 0.0)
        moved = moved @ T_theirs_ours[:3, :3].T + T_theirs_ours[:3, 3]
        levers = moved - T_theirs_ours[:3, 3]
        crosses = np.zeros((len(raw), 3, 3))
        crosses[:, [0, 1, 2], [1, 2, 0]] = levers[:, [2, 0, 1]]
        crosses[:, [1, 2, 0], [0, 1, 2]] = -levers[:, [2, 0, 1]]
        rows = np.concatenate([np.broadcast_to(np.eye(3), crosses.shape), crosses], axis=2)
        rows = np.concatenate([rows, times[:, None, None] * rows], axis=2).reshape(-1, 12)
        step = np.linalg.lstsq(rows, (theirs - moved).ravel(), rcond=None)[0]
        T_theirs_ours = se3.perturbed(T_theirs_ours, step[:6])
        to_ours = T_theirs_ours[:3, :3].T
        twist = twist + np.concatenate([to_ours @ step[6:9], to_ours @ step[9:]])
    left = np.linalg.norm(theirs - moved, axis=1)
    skew = np.linalg.norm(deskew(raw, times, twist, 0.0) - raw, axis=1)
    assert np.median(left) < 0.1 * np.median(skew)

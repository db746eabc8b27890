"""The LiDAR against distances computed by hand from the shapes in a world made here."""

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.simulation import lidar as lidar_module
from geoaccel_ros.simulation.lidar import LidarConfig, SpinningLidar, cast_rays

STEP_NS = 5_000_000
# Ranges are computed in float64 and sent as float32, whose step at 60 m is 4e-6 m.
FLOAT32_M = 1e-5

SHAPES = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <geom name="box" type="box" pos="4 1 1" size="0.5 1 1" euler="0 0 30"/>
    <geom name="ball" type="sphere" pos="-3 2 1" size="0.8"/>
    <body name="robot" pos="0 0 1"><geom name="shell" type="sphere" size="0.5" mass="1"/></body>
  </worldbody>
</mujoco>
"""
# Four walls at +-8 m and +-6 m, 40 m high: every ray below 60 degrees of elevation hits one.
ROOM = """
<mujoco>
  <worldbody>
    <geom name="east" type="box" pos="8.5 0 0" size="0.5 20 20" rgba="1 1 1 1"/>
    <geom name="west" type="box" pos="-8.5 0 0" size="0.5 20 20" rgba="0.5 0.5 0.5 1"/>
    <geom name="north" type="box" pos="0 6.5 0" size="20 0.5 20" rgba="1 1 1 1"/>
    <geom name="south" type="box" pos="0 -6.5 0" size="20 0.5 20" rgba="1 1 1 1"/>
  </worldbody>
</mujoco>
"""


def exact(**values):
    return LidarConfig(**{"lidar_range_noise": 0.0, "lidar_dropout": 0.0, **values})


class Rig:
    """A LiDAR carried along a given path, without any physics."""

    def __init__(self, xml, config, seed=0, robot=None):
        self.model = mujoco.MjModel.from_xml_string(xml)
        geoms = [] if robot is None else [self.model.geom(robot).id]
        self.lidar = SpinningLidar(self.model, config, np.array(geoms, int), seed)
        self.data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, self.data)

    def scans(self, steps, pose=lambda t: np.eye(4), step_ns=STEP_NS):
        scans = []
        for step in range(steps):
            start, end = step * step_ns, (step + 1) * step_ns
            scans += self.lidar.advance(self.data, start, end, pose(start * 1e-9), pose(end * 1e-9))
        return scans


def at(x, y, z, yaw=0.0):
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("z", yaw).as_matrix()
    T[:3, 3] = x, y, z
    return T


def xyz(points):
    return np.stack([points["x"], points["y"], points["z"]], axis=1).astype(np.float64)


def beam_directions(config):
    """Return (columns * rings, 3) unit vectors in the order of firing, by SciPy's rotations."""
    elevations = np.linspace(
        config.lidar_elevation_min_deg, config.lidar_elevation_max_deg, config.lidar_rings
    )
    azimuths = -180 + 360 * np.arange(config.lidar_columns) / config.lidar_columns
    azimuth, elevation = (a.ravel() for a in np.meshgrid(azimuths, elevations, indexing="ij"))
    angles = np.stack([azimuth, -elevation], axis=1)
    return Rotation.from_euler("ZY", angles, degrees=True).apply([1.0, 0.0, 0.0])


def shapes_range(origin, d):
    """Return the distance to the nearest of the shapes in SHAPES, infinite for none."""
    with np.errstate(divide="ignore"):
        plane = np.where(d[:, 2] < 0, -origin[2] / d[:, 2], np.inf)
        turn = Rotation.from_euler("z", 30, degrees=True)
        o, b = turn.inv().apply(origin - [4, 1, 1]), turn.inv().apply(d)
        slabs = np.stack([(-np.array([0.5, 1, 1]) - o) / b, (np.array([0.5, 1, 1]) - o) / b])
    near, far = slabs.min(axis=0).max(axis=1), slabs.max(axis=0).min(axis=1)
    box = np.where((near <= far) & (near > 0), near, np.inf)
    to_centre = np.array([-3, 2, 1]) - origin
    along = d @ to_centre
    miss = to_centre @ to_centre - along**2
    ball = np.where(
        (miss <= 0.64) & (along > 0), along - np.sqrt(np.maximum(0.64 - miss, 0)), np.inf
    )
    return np.minimum(np.minimum(plane, box), ball)


def test_ranges_equal_analytic_distances_of_plane_box_and_sphere():
    config = exact()
    (scan,) = Rig(SHAPES, config, robot="shell").scans(20, lambda t: at(0, 0, 1))

    directions = beam_directions(config)
    expected = shapes_range(np.array([0.0, 0.0, 1.0]), directions)
    hit = (expected >= 0.3) & (expected <= 60)
    assert 0 < (~hit).sum() < hit.sum()
    assert len(scan.points) == hit.sum()
    measured = np.linalg.norm(xyz(scan.points), axis=1)
    np.testing.assert_allclose(measured, expected[hit], atol=FLOAT32_M)
    np.testing.assert_allclose(
        xyz(scan.points), directions[hit] * expected[hit, None], atol=FLOAT32_M
    )


def test_without_the_exclusion_the_robot_hides_the_world():
    config = exact(lidar_range_min=0.0)
    (scan,) = Rig(SHAPES, config).scans(20, lambda t: at(0, 0, 1))
    # From inside, MuJoCo sees the sphere's far side.
    np.testing.assert_allclose(np.linalg.norm(xyz(scan.points), axis=1), 0.5, atol=FLOAT32_M)


def test_ring_time_and_azimuth_of_every_point():
    config = exact(lidar_rings=5, lidar_columns=360, lidar_rate=20.0)
    (scan,) = Rig(ROOM, config).scans(10)

    points = scan.points
    column, ring = np.divmod(np.arange(5 * 360), 5)
    np.testing.assert_array_equal(points["ring"], ring)
    np.testing.assert_allclose(points["time"], column / 360 * 0.05, rtol=1e-7)
    azimuth = np.arctan2(points["y"].astype(float), points["x"])
    # Azimuth -pi and pi are the same direction.
    difference = np.angle(np.exp(1j * (azimuth - (-np.pi + 2 * np.pi * column / 360))))
    np.testing.assert_allclose(difference, 0, atol=1e-6)
    elevation = np.degrees(np.arctan2(points["z"], np.hypot(points["x"], points["y"])))
    np.testing.assert_allclose(elevation, np.array([-15, -7.5, 0, 7.5, 15])[ring], atol=1e-4)
    assert points.dtype.itemsize == 22
    assert [points.dtype.fields[n][1] for n in points.dtype.names] == [0, 4, 8, 12, 16, 18]


def test_rolling_shutter_smears_a_wall_by_what_was_driven():
    v = 1.2
    config = exact(lidar_rings=1, lidar_elevation_min_deg=0.0, lidar_elevation_max_deg=0.0)
    (scan,) = Rig(ROOM, config).scans(20, lambda t: at(v * t, 0, 0))

    # Ahead lies the wall x = 8, away from its corners.
    ahead = scan.points[(scan.points["x"] > 0) & (np.abs(scan.points["y"]) < 5)]
    assert len(ahead) > 150
    np.testing.assert_allclose(ahead["x"], 8 - v * ahead["time"], atol=FLOAT32_M)
    assert np.ptp(ahead["x"]) > 0.02


def test_points_moved_by_the_true_pose_lie_on_the_walls():
    """Translation and rotation at once, deskewed with the pose at each point's own time."""

    def pose(t):
        return at(1.2 * t, -0.7 * t, 0.1 * t, yaw=0.4 + 1.5 * t)

    rig = Rig(ROOM, exact())
    for scan in rig.scans(40, pose):
        times = scan.stamp_ns * 1e-9 + scan.points["time"].astype(float)
        turns = Rotation.from_euler("z", (0.4 + 1.5 * times)[:, None])
        world = turns.apply(xyz(scan.points)) + times[:, None] * [1.2, -0.7, 0.1]
        to_wall = np.minimum(np.abs(np.abs(world[:, 0]) - 8), np.abs(np.abs(world[:, 1]) - 6))
        np.testing.assert_allclose(to_wall, 0, atol=FLOAT32_M)
        assert len(scan.points) == 16 * 1024


def test_directions_stay_within_half_a_step_of_the_beams():
    v, config = 1.2, exact(lidar_rings=1, lidar_elevation_min_deg=0.0, lidar_elevation_max_deg=0.0)
    (scan,) = Rig(ROOM, config).scans(20, lambda t: at(v * t, 0, 0))
    direction = xyz(scan.points) / np.linalg.norm(xyz(scan.points), axis=1, keepdims=True)
    off = np.linalg.norm(direction - beam_directions(config), axis=1)
    assert off.max() < v * 0.005 / 2 / 6


def test_global_shutter_sees_all_from_the_end_of_the_sweep():
    config = exact(lidar_rolling_shutter=False)
    scans = Rig(ROOM, config).scans(40, lambda t: at(t, 0, 0, yaw=t))
    assert [scan.stamp_ns for scan in scans] == [100_000_000, 200_000_000]
    assert not scans[0].points["time"].any()
    (still,) = Rig(ROOM, config).scans(20, lambda t: at(0.1, 0, 0, yaw=0.1))
    np.testing.assert_array_equal(scans[0].points, still.points)


def test_slicing_does_not_matter_to_a_still_sensor():
    fine = Rig(SHAPES, exact(), robot="shell").scans(100, lambda t: at(0, 0, 1), step_ns=1_000_000)
    (coarse,) = Rig(SHAPES, exact(), robot="shell").scans(
        1, lambda t: at(0, 0, 1), step_ns=100_000_000
    )
    np.testing.assert_array_equal(fine[0].points, coarse.points)


@pytest.mark.parametrize("rate", [10.0, 7.0, 33.0, 100.0])
def test_every_sweep_is_told_once_complete_and_on_time(rate):
    config = exact(lidar_rate=rate, lidar_rings=2, lidar_columns=64)
    scans = Rig(ROOM, config).scans(200)
    # The last sweep of 33 in a second ends with the second, or rounding puts it a step later.
    assert len(scans) in (int(rate), int(rate) - 1)
    for number, scan in enumerate(scans):
        assert abs(scan.stamp_ns - number * 1e9 / rate) <= 1
        assert len(scan.points) == 128
        assert scan.points["time"].max() < 1 / rate


def test_restart_drops_the_sweep_in_progress():
    rig = Rig(ROOM, exact())
    assert not rig.scans(10)
    rig.lidar.restart(0)
    (scan,) = rig.scans(20)
    assert len(scan.points) == 16 * 1024


def test_noise_is_along_the_ray_and_of_the_given_size():
    config = exact(lidar_range_noise=0.05)
    (noisy,) = Rig(ROOM, config, seed=3).scans(20)
    (clean,) = Rig(ROOM, exact()).scans(20)
    ranges = np.linalg.norm(xyz(clean.points), axis=1)
    error = np.linalg.norm(xyz(noisy.points), axis=1) - ranges
    # 16,384 samples: the deviation is known to 0.6 %, the mean to 0.0004 m; five times that.
    assert abs(error.std() / 0.05 - 1) < 0.03
    assert abs(error.mean()) < 0.002
    across = xyz(noisy.points) - xyz(clean.points) * (1 + error / ranges)[:, None]
    np.testing.assert_allclose(across, 0, atol=FLOAT32_M)


def test_dropout_takes_its_share():
    (scan,) = Rig(ROOM, exact(lidar_dropout=0.25)).scans(20)
    share = 1 - len(scan.points) / (16 * 1024)
    assert abs(share - 0.25) < 5 * np.sqrt(0.25 * 0.75 / (16 * 1024))
    assert not len(Rig(ROOM, exact(lidar_dropout=1.0)).scans(20)[0].points)


def test_threads_change_no_bit():
    def spinning(t):
        pose = np.eye(4)
        pose[:3, :3] = Rotation.from_euler("z", 1.5 * t).as_matrix()
        pose[:3, 3] = 1.2 * t, 0.0, 1.0
        return pose

    one, three = (Rig(SHAPES, LidarConfig(threads=n), robot="shell") for n in (1, 3))
    scans = one.scans(45, spinning), three.scans(45, spinning)
    assert [len(s) for s in scans] == [2, 2]
    for a, b in zip(*scans, strict=True):
        assert a.stamp_ns == b.stamp_ns and a.points.tobytes() == b.points.tobytes()


def test_a_seed_repeats_every_bit():
    config = LidarConfig()

    def run(seed):
        return [scan.points.tobytes() for scan in Rig(ROOM, config, seed).scans(40)]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_range_limits():
    (scan,) = Rig(ROOM, exact(lidar_range_min=6.5, lidar_range_max=9.0)).scans(20)
    ranges = np.linalg.norm(xyz(scan.points), axis=1)
    assert 6.5 <= ranges.min() < 6.6
    assert 8.9 < ranges.max() <= 9.0 + FLOAT32_M


@pytest.mark.skipif(
    not lidar_module._MULTIRAY_HAS_NORMAL, reason="this MuJoCo gives no normals of rays"
)
def test_intensity_follows_colour_and_incidence():
    config = exact(lidar_rings=1, lidar_elevation_min_deg=0.0, lidar_elevation_max_deg=0.0)
    (scan,) = Rig(ROOM, config).scans(20)
    points, azimuth = scan.points, beam_directions(config)
    east = np.isclose(points["x"], 8, atol=1e-4)
    west = np.isclose(points["x"], -8, atol=1e-4)
    np.testing.assert_allclose(
        points["intensity"][east], 255 * (0.3 + 0.7 * azimuth[east, 0]), rtol=1e-5
    )
    np.testing.assert_allclose(
        points["intensity"][west], 127.5 * (0.3 - 0.7 * azimuth[west, 0]), rtol=1e-5
    )


def test_rays_by_the_older_signature(monkeypatch):
    """The adaptor gives the same hits where mj_multiRay has no argument for normals."""
    model = mujoco.MjModel.from_xml_string(SHAPES)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    directions = beam_directions(exact())
    count = len(directions)

    def cast():
        geom, distance = np.empty(count, np.int32), np.empty(count)
        normals = np.empty((count, 3))
        cast_rays(model, data, np.array([0, 0, 1.8]), directions, 60.0, geom, distance, normals)
        return geom, distance, normals

    geom, distance, normals = cast()
    if lidar_module._MULTIRAY_HAS_NORMAL:
        newer = mujoco.mj_multiRay

        def older(m, d, pnt, vec, groups, static, exclude, geom, dist, nray, cutoff):
            newer(m, d, pnt, vec, groups, static, exclude, geom, dist, None, nray, cutoff)

        monkeypatch.setattr(mujoco, "mj_multiRay", older)
        monkeypatch.setattr(lidar_module, "_MULTIRAY_HAS_NORMAL", False)
        on_floor = geom == model.geom("floor").id
        np.testing.assert_allclose(normals[on_floor], [[0, 0, 1]] * on_floor.sum(), atol=1e-12)
    old_geom, old_distance, old_normals = cast()
    np.testing.assert_array_equal(geom, old_geom)
    np.testing.assert_array_equal(distance, old_distance)
    np.testing.assert_array_equal(old_normals, -directions)


def test_rings_look_where_a_table_says():
    table = (-25.0, -8.0, -7.5, 0.0, 12.0)
    config = exact(lidar_rings=5, lidar_columns=64, lidar_elevations_deg=table)
    points = Rig(ROOM, config).scans(20)[0].points
    elevation = np.degrees(np.arctan2(points["z"], np.hypot(points["x"], points["y"])))
    assert len(points) == 5 * 64
    np.testing.assert_allclose(elevation, np.array(table)[points["ring"]], atol=1e-4)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ((0.0, 1.0), "'lidar_elevations_deg' has 2 values, must have one for each of the 3"),
        ((0.0, 2.0, 1.0), "'lidar_elevations_deg' is not ascending"),
        ((0.0, 1.0, 1.0), "'lidar_elevations_deg' is not ascending"),
    ],
)
def test_a_table_of_elevations_that_does_not_fit_is_refused(table, message):
    with pytest.raises(ConfigurationError, match=message):
        LidarConfig(lidar_rings=3, lidar_elevations_deg=table)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("lidar_elevation_min_deg", "lidar_elevation_max_deg"),
        ("lidar_range_min", "lidar_range_max"),
    ],
)
def test_limits_in_the_wrong_order_are_refused(low, high):
    with pytest.raises(ConfigurationError, match=f"'{low}' is greater than '{high}'"):
        LidarConfig(**{low: 20.0, high: 10.0})

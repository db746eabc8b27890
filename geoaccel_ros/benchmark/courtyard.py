"""Fast drives through a courtyard, made by the package's own simulator.

A lidar of 64 rings and 1024 columns (the geometry of an Ouster OS1-64) turns ten times a second
while it is carried along an S of 60 m, 1.2 m above flat ground. Half of its points are rings on the
ground that travel with it, which is what point-to-point matching locks onto.
"""

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources

import mujoco
import numpy as np

from geoaccel_ros.benchmark.drives import Drive, Sweep
from geoaccel_ros.pointcloud.layout import coordinates, from_xyz
from geoaccel_ros.simulation.events import Scan
from geoaccel_ros.simulation.lidar import LidarConfig, SpinningLidar
from geoaccel_ros.simulation.world import load_model

PATH_LENGTH = 60.0
# m/s, reached from rest in so many seconds.
SPEED = 5.0
ACCELERATION_TIME = 5.0

_LIDAR = LidarConfig(
    lidar_rings=64,
    lidar_columns=1024,
    lidar_rate=10.0,
    lidar_elevation_min_deg=-22.5,
    lidar_elevation_max_deg=22.5,
)
_HEIGHT = 1.2
# Largest curvature of the S, 1/m: 0.5 rad/s at full speed.
_CURVATURE = 0.1
_START = np.array([-23.5, -1.0])
# Rays that are cast together share an origin, which moves by 5 mm in this time.
_SLICE_NS = 1_000_000


class CourtyardPath:
    """The sensor's poses along the S, whose curvature is a period of a sine.

    Parameters
    ----------
    from_rest : bool
        Whether it accelerates from standstill to :data:`SPEED` by half a cosine; otherwise it has
        that speed from the first instant on.

    Attributes
    ----------
    duration : float, seconds
    """

    def __init__(self, from_rest: bool):
        self._from_rest = from_rest
        # A chord of 1 cm leaves the arc by a micrometre.
        self._s = np.linspace(0.0, PATH_LENGTH, 6001)
        amplitude = _CURVATURE * PATH_LENGTH / (2 * np.pi)
        self._heading = -amplitude * np.cos(2 * np.pi * self._s / PATH_LENGTH)
        middle = (self._heading[1:] + self._heading[:-1]) / 2
        steps = np.stack([np.cos(middle), np.sin(middle)], axis=1) * np.diff(self._s)[:, None]
        self._xy = _START + np.vstack([np.zeros(2), np.cumsum(steps, axis=0)])
        # The acceleration covers half of what full speed would.
        self.duration = PATH_LENGTH / SPEED + (ACCELERATION_TIME / 2 if from_rest else 0.0)

    def distance(self, t: np.ndarray) -> np.ndarray:
        """Return the metres travelled at instants (N,) in seconds."""
        t = np.asarray(t, float)
        if not self._from_rest:
            return SPEED * t
        ramp = np.minimum(t, ACCELERATION_TIME)
        wave = ACCELERATION_TIME / np.pi * np.sin(np.pi * ramp / ACCELERATION_TIME)
        return SPEED / 2 * (ramp - wave) + SPEED * (t - ramp)

    def poses(self, t: np.ndarray) -> np.ndarray:
        """Return the poses in the world, (N, 4, 4), at instants (N,) in seconds."""
        s = self.distance(t)
        heading = np.interp(s, self._s, self._heading)
        poses = np.tile(np.eye(4), (len(s), 1, 1))
        poses[:, 0, 0] = poses[:, 1, 1] = np.cos(heading)
        poses[:, 1, 0] = np.sin(heading)
        poses[:, 0, 1] = -poses[:, 1, 0]
        poses[:, 0, 3] = np.interp(s, self._s, self._xy[:, 0])
        poses[:, 1, 3] = np.interp(s, self._s, self._xy[:, 1])
        poses[:, 2, 3] = _HEIGHT
        return poses


def drive_courtyard(from_rest: bool, scans: int | None = None) -> Drive:
    """Return the drive along the S, 120 scans at speed or 145 from rest.

    Parameters
    ----------
    from_rest : bool
        As for :class:`CourtyardPath`.
    scans : int or None
        Only the first ones.
    """
    path = CourtyardPath(from_rest)
    most = round(path.duration * _LIDAR.lidar_rate)
    count = most if scans is None else min(scans, most)
    instants_ns = np.arange(0, _period_ns(count) + _SLICE_NS, _SLICE_NS)
    stamps = 1e-9 * instants_ns
    poses = path.poses(stamps)
    name = "courtyard, from rest" if from_rest else "courtyard, at speed"
    return Drive(name, [*map(_sweep, _cast(instants_ns, poses, _LIDAR))], stamps, poses)


def map_courtyard(points: int) -> np.ndarray:
    """Return the first points of the drive's scans, laid out in the world one after the other.

    Parameters
    ----------
    points : int
        At most 6 million.

    Returns
    -------
    structured ndarray (points,)
        x, y, z (metres) and intensity (whole numbers up to 255), all float32.
    """
    path = CourtyardPath(from_rest=False)
    # A scan has some 58,000.
    instants_ns = np.arange(0, _period_ns(1 + points // 50_000) + _SLICE_NS, _SLICE_NS)
    clouds = []
    for scan in _cast(instants_ns, path.poses(1e-9 * instants_ns), _LIDAR):
        poses = path.poses(1e-9 * scan.stamp_ns + scan.points["time"])
        xyz = np.einsum("nij,nj->ni", poses[:, :3, :3], coordinates(scan.points))
        xyz += poses[:, :3, 3]
        clouds.append(from_xyz(xyz.astype(np.float32), np.rint(scan.points["intensity"])))
    return np.concatenate(clouds)[:points]


def stand_in_courtyard(scans: int) -> Drive:
    """Return scans from one place, each with noise of its own.

    They are made when asked for: thousands would not fit into memory.
    """
    stamps = 1e-9 * np.array([_period_ns(index) for index in range(scans + 1)])
    pose = CourtyardPath(from_rest=True).poses(np.zeros(1))
    sweeps = _StillSweeps(stamps[:-1], pose[0])
    return Drive("courtyard, standstill", sweeps, stamps, pose.repeat(len(stamps), axis=0))


class _StillSweeps(Sequence[Sweep]):
    """One sweep without noise, and at each stamp the same with the sensor's noise and dropout."""

    def __init__(self, stamps: np.ndarray, pose: np.ndarray):
        instants_ns = np.arange(0, _period_ns(1) + _SLICE_NS, _SLICE_NS)
        lidar = replace(_LIDAR, lidar_range_noise=0.0, lidar_dropout=0.0)
        poses = np.broadcast_to(pose, (len(instants_ns), 4, 4))
        self._exact = _sweep(_cast(instants_ns, poses, lidar)[0])
        self._ranges = np.linalg.norm(self._exact.xyz, axis=1)
        self._stamps = stamps

    def __len__(self) -> int:
        return len(self._stamps)

    def __getitem__(self, index: int) -> Sweep:
        stamp = float(self._stamps[index])
        rng = np.random.default_rng(index)
        noise = rng.normal(0.0, _LIDAR.lidar_range_noise, len(self._ranges))
        xyz = self._exact.xyz * (1.0 + noise / self._ranges)[:, None]
        kept = rng.random(len(xyz)) >= _LIDAR.lidar_dropout
        return Sweep(stamp, xyz[kept], self._exact.times[kept])


def _period_ns(scans: int) -> int:
    """Return how long some scans take."""
    return round(1e9 * scans / _LIDAR.lidar_rate)


def _cast(instants_ns: np.ndarray, poses: np.ndarray, lidar: LidarConfig) -> list[Scan]:
    """Return the sweeps of a sensor that is at ``poses`` at some instants."""
    model = load_model(str(resources.files(__package__) / "courtyard.xml"))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    sensor = SpinningLidar(model, lidar, np.empty(0, int), seed=1)
    scans = []
    for i in range(len(instants_ns) - 1):
        start_ns, end_ns = instants_ns[i : i + 2].tolist()
        scans += sensor.advance(data, start_ns, end_ns, poses[i], poses[i + 1])
    return scans


def _sweep(scan: Scan) -> Sweep:
    xyz = np.ascontiguousarray(coordinates(scan.points), np.float64)
    return Sweep(1e-9 * scan.stamp_ns, xyz, scan.points["time"].astype(np.float64))

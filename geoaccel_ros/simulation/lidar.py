"""A spinning multi-beam LiDAR in a MuJoCo world.

The sensor turns while the robot moves: each column of rays is cast from the pose at its own
instant, as a rolling shutter, and only when the physics reaches that instant.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import mujoco
import numpy as np

from geoaccel_ros.config import Configuration, ConfigurationError, parameter
from geoaccel_ros.simulation.events import POINT_DTYPE, Scan

# While rays are cast the robot's own geoms are moved to this group, which the rays pass through.
_ROBOT_GROUP = 5
_VISIBLE_GROUPS = np.array([1, 1, 1, 1, 1, 0], np.uint8)


@dataclass(frozen=True)
class LidarConfig(Configuration):
    """Geometry, timing and noise of the sensor."""

    lidar_rings: int = parameter(16, "Beams, one above the other", minimum=1, maximum=256)
    lidar_columns: int = parameter(1024, "Columns of a revolution", minimum=1, maximum=8192)
    lidar_rate: float = parameter(10.0, "Revolutions a second", unit="Hz", minimum=0.1, maximum=100)
    lidar_elevation_min_deg: float = parameter(
        -15.0, "Elevation of ring 0", unit="deg", minimum=-89, maximum=89
    )
    lidar_elevation_max_deg: float = parameter(
        15.0,
        "Elevation of the last ring; rings are evenly spaced",
        unit="deg",
        minimum=-89,
        maximum=89,
    )
    lidar_elevations_deg: tuple[float, ...] = parameter(
        (),
        "Elevation of each ring in turn, ascending, instead of evenly spaced ones",
        unit="deg",
        minimum=-89,
        maximum=89,
    )
    lidar_range_min: float = parameter(0.3, "Nearer surfaces give no point", unit="m", minimum=0.0)
    lidar_range_max: float = parameter(
        60.0, "Farther surfaces give no point", unit="m", minimum=0.1
    )
    lidar_range_noise: float = parameter(
        0.01, "Standard deviation of a range", unit="m", minimum=0.0, maximum=1.0
    )
    lidar_dropout: float = parameter(
        0.002, "Probability that a ray gives no point", minimum=0.0, maximum=1.0
    )
    threads: int = parameter(1, "CPU threads that cast rays", minimum=1, maximum=256)
    lidar_rolling_shutter: bool = parameter(
        True, "Cast each column from the pose at its own instant; false: all from the sweep's end"
    )

    def __post_init__(self):
        super().__post_init__()
        for low, high in [
            ("lidar_elevation_min_deg", "lidar_elevation_max_deg"),
            ("lidar_range_min", "lidar_range_max"),
        ]:
            if getattr(self, low) > getattr(self, high):
                raise ConfigurationError(f"parameter '{low}' is greater than '{high}'")
        table = self.lidar_elevations_deg
        if table and len(table) != self.lidar_rings:
            raise ConfigurationError(
                f"parameter 'lidar_elevations_deg' has {len(table)} values, must have one for each"
                f" of the {self.lidar_rings} of 'lidar_rings'"
            )
        if any(a >= b for a, b in pairwise(table)):
            raise ConfigurationError("parameter 'lidar_elevations_deg' is not ascending")

    def elevations_deg(self) -> np.ndarray:
        """Return each ring's elevation, (rings,) float64, from ring 0, the lowest."""
        if self.lidar_elevations_deg:
            return np.array(self.lidar_elevations_deg)
        return np.linspace(
            self.lidar_elevation_min_deg, self.lidar_elevation_max_deg, self.lidar_rings
        )


class SpinningLidar:
    """Sweeps counter-clockwise seen from above, from behind (azimuth -pi) round to behind.

    Column c of a sweep looks along azimuth ``-pi + 2 pi c / columns`` and fires at
    ``c / columns`` of the period. Columns are cast slice by slice, one slice a physics step, with
    the pose interpolated for each column between the step's two poses. A slice's rays share one
    origin, that of its middle; the hits are expressed in each column's own frame, so points lie on
    the surfaces exactly and only their azimuth and elevation are off, by half the distance driven
    in a step over the range (3 mm at 1.2 m/s and 5 ms).

    Intensity is the surface's luminance times (0.3 + 0.7 cos(angle of incidence)), times 255; a
    MuJoCo whose ray casting gives no normals leaves the angle out.

    Parameters
    ----------
    model : mujoco.MjModel
        Its geoms that belong to ``robot_geoms`` are moved to group 5.
    config : LidarConfig
    robot_geoms : (nrobot,) int array
        Geoms that rays pass through.
    seed : int or numpy.random.SeedSequence
        Of noise and dropout.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        config: LidarConfig,
        robot_geoms: np.ndarray,
        seed: int | np.random.SeedSequence = 0,
    ):
        self._model = model
        self._config = config
        model.geom_group[robot_geoms] = _ROBOT_GROUP
        self._rng = np.random.default_rng(seed)
        self._reflectance = _reflectance(model)
        self._rays = RayPool(model, config.threads)

        rings, columns = config.lidar_rings, config.lidar_columns
        self.elevations = np.radians(config.elevations_deg())
        self.azimuths = -np.pi + 2 * np.pi * np.arange(columns) / columns
        self._directions = _directions(self.azimuths, self.elevations)
        self._column_ns = 1e9 / (config.lidar_rate * columns)

        # Of the sweep in progress, one row a ray, in the order of firing.
        count = rings * columns
        self._vectors = np.empty((count, 3))
        self._distance = np.empty(count)
        self._geom = np.empty(count, np.int32)
        self._normals = np.empty((count, 3))
        self._noise = np.empty(count, np.float32)
        self._uniform = np.empty(count, np.float32)
        self._shift = np.empty((columns, 3))
        self._column, ring = np.divmod(np.arange(count), rings)
        self._ring = ring.astype(np.uint16)
        self._time = np.zeros(count, np.float32)
        if config.lidar_rolling_shutter:
            self._time[:] = self._column * (self._column_ns * 1e-9)
        self.restart(0)

    def restart(self, now_ns: int) -> None:
        """Drop the sweep in progress; the next one starts at ``now_ns``."""
        self._start_ns = now_ns
        self._fired = 0

    def advance(
        self,
        data: mujoco.MjData,
        step_start_ns: int,
        step_end_ns: int,
        T_world_lidar_start: np.ndarray,
        T_world_lidar_end: np.ndarray,
    ) -> list[Scan]:
        """Cast the columns that fire in a physics step and return the sweeps that it completes.

        Parameters
        ----------
        data : mujoco.MjData
            With kinematics at the step's end.
        step_start_ns, step_end_ns : int
            The step's interval, closed at its start and open at its end. Successive calls must
            leave no gap.
        T_world_lidar_start, T_world_lidar_end : (4, 4) float64
            Poses at the two instants.
        """
        columns = self._config.lidar_columns
        # A column belongs to the step in which it fires; counted from the last restart.
        due = int(np.ceil((step_end_ns - self._start_ns) / self._column_ns))
        scans = []
        while self._fired < due:
            sweep, first = divmod(self._fired, columns)
            last = min(first + due - self._fired, columns)
            self._fired += last - first
            if self._config.lidar_rolling_shutter:
                fired = sweep * columns + np.arange(first, last)
                times_ns = self._start_ns + fired * self._column_ns
                fraction = (times_ns - step_start_ns) / (step_end_ns - step_start_ns)
                positions, rotations = _interpolate(
                    T_world_lidar_start, T_world_lidar_end, fraction
                )
                self._cast(data, first, last, positions, rotations)
            if last < columns:
                continue
            stamp_ns = self._start_ns + round(sweep * columns * self._column_ns)
            if not self._config.lidar_rolling_shutter:
                stamp_ns = step_end_ns
                pose = T_world_lidar_end[None]
                self._cast(data, 0, columns, pose[:, :3, 3], pose[:, :3, :3])
            scans.append(Scan(stamp_ns, self._points()))
        return scans

    def _cast(
        self,
        data: mujoco.MjData,
        first: int,
        last: int,
        positions: np.ndarray,
        rotations: np.ndarray,
    ) -> None:
        """Cast columns ``first`` to ``last`` (exclusive) from one pose or one each."""
        origin = (positions[0] + positions[-1]) / 2
        # From the shared origin to the column's own: what the sensor moved, in its own frame.
        self._shift[first:last] = ((origin - positions)[:, None, :] @ rotations)[:, 0]
        rays = slice(first * self._config.lidar_rings, last * self._config.lidar_rings)
        vectors = self._vectors[rays]
        directions = self._directions[first:last]
        np.matmul(directions, rotations.transpose(0, 2, 1), out=vectors.reshape(directions.shape))
        self._rays.cast(
            data,
            origin,
            vectors,
            self._config.lidar_range_max,
            self._geom[rays],
            self._distance[rays],
            self._normals[rays],
        )

    def _points(self) -> np.ndarray:
        """Return the points of the sweep just completed."""
        config = self._config
        self._rng.random(out=self._uniform, dtype=np.float32)
        self._rng.standard_normal(out=self._noise, dtype=np.float32)
        hit = (self._geom >= 0) & (self._uniform >= config.lidar_dropout)
        hit &= (self._distance >= config.lidar_range_min) & (
            self._distance <= config.lidar_range_max
        )
        rays = np.flatnonzero(hit)

        ranges = self._distance[rays] + config.lidar_range_noise * self._noise[rays]
        directions = self._directions.reshape(-1, 3)[rays]
        xyz = ranges[:, None] * directions + self._shift[self._column[rays]]
        incidence = np.abs(np.einsum("ni,ni->n", self._normals[rays], self._vectors[rays]))
        luminance = self._reflectance[self._geom[rays]]

        points = np.empty(len(rays), POINT_DTYPE)
        points["x"], points["y"], points["z"] = xyz.T
        points["intensity"] = 255 * luminance * (0.3 + 0.7 * incidence)
        points["ring"] = self._ring[rays]
        points["time"] = self._time[rays]
        return points


class RayPool:
    """Casts rays on several threads, each with a copy of the state: see :func:`cast_rays`.

    Parameters
    ----------
    model : mujoco.MjModel
    threads : int
        The caller's is one of them.
    """

    def __init__(self, model: mujoco.MjModel, threads: int):
        self._model = model
        self._copies = [mujoco.MjData(model) for _ in range(threads - 1)]
        self._pool = ThreadPoolExecutor(threads - 1, "rays") if threads > 1 else None

    def cast(
        self,
        data: mujoco.MjData,
        origin: np.ndarray,
        directions: np.ndarray,
        cutoff: float,
        geom: np.ndarray,
        distance: np.ndarray,
        normals: np.ndarray,
    ) -> None:
        """Cast rays as :func:`cast_rays` does, with the same result whatever the threads."""

        def cast(state: mujoco.MjData, part: slice) -> None:
            cast_rays(
                self._model, state, origin, directions[part], cutoff,
                geom[part], distance[part], normals[part],
            )  # fmt: skip

        bounds = np.linspace(0, len(directions), len(self._copies) + 2).astype(int)
        own, *others = (slice(*pair) for pair in pairwise(bounds.tolist()))
        waiting = []
        for copy, part in zip(self._copies, others, strict=True):
            mujoco.mj_copyData(copy, self._model, data)
            waiting.append(self._pool.submit(cast, copy, part))
        cast(data, own)
        for future in waiting:
            future.result()


def _directions(azimuths: np.ndarray, elevations: np.ndarray) -> np.ndarray:
    """Return unit vectors in the lidar frame, shape (columns, rings, 3)."""
    azimuth, elevation = np.meshgrid(azimuths, elevations, indexing="ij")
    return np.stack(
        [
            np.cos(elevation) * np.cos(azimuth),
            np.cos(elevation) * np.sin(azimuth),
            np.sin(elevation),
        ],
        axis=-1,
    )


def _reflectance(model: mujoco.MjModel) -> np.ndarray:
    """Return each geom's luminance (Rec. 709) in [0, 1], from its material or its colour."""
    rgb = model.geom_rgba[:, :3].astype(np.float64)
    has_material = model.geom_matid >= 0
    rgb[has_material] = model.mat_rgba[model.geom_matid[has_material], :3]
    return rgb @ [0.2126, 0.7152, 0.0722]


def _interpolate(
    T_start: np.ndarray, T_end: np.ndarray, fraction: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions (N, 3) and rotations (N, 3, 3) between two poses.

    The rotation is turned about its own axis by the fraction of the angle (Rodrigues), as a body
    at constant angular velocity does.
    """
    positions = T_start[:3, 3] + fraction[:, None] * (T_end[:3, 3] - T_start[:3, 3])
    R = T_start[:3, :3].T @ T_end[:3, :3]
    # sin(angle) times the axis; a physics step turns by far less than a right angle.
    w = np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]]) / 2
    sine = np.sqrt(w @ w)
    if sine < 1e-12:
        return positions, np.repeat(T_start[None, :3, :3], len(fraction), axis=0)
    x, y, z = w / sine
    K = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    angles = np.arctan2(sine, (R[0, 0] + R[1, 1] + R[2, 2] - 1) / 2) * fraction[:, None, None]
    turned = np.eye(3) + np.sin(angles) * K + (1 - np.cos(angles)) * (K @ K)
    return positions, T_start[:3, :3] @ turned


def cast_rays(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    origin: np.ndarray,
    directions: np.ndarray,
    cutoff: float,
    geom: np.ndarray,
    distance: np.ndarray,
    normals: np.ndarray,
) -> None:
    """Cast rays from one origin by mj_multiRay, whose signature depends on MuJoCo's version.

    The call releases the interpreter's lock, so other threads run meanwhile (they must not touch
    ``data``, whose arena it uses).

    Parameters
    ----------
    origin : (3,) float64, world frame
    directions : (N, 3) float64, unit vectors in the world frame
    cutoff : float
        Geoms farther than this, in metres, are skipped.
    geom : (N,) int32, output
        What was hit; -1: nothing.
    distance : (N,) float64, output
        Metres; -1: nothing.
    normals : (N, 3) float64, output
        Of the surfaces hit. Where this MuJoCo gives none, minus the directions: as if every ray
        met its surface head-on.
    """
    count = len(directions)
    if _MULTIRAY_HAS_NORMAL:
        mujoco.mj_multiRay(
            model, data, origin, directions.reshape(-1), _VISIBLE_GROUPS, True, -1,
            geom, distance, normals.reshape(-1), count, cutoff,
        )  # fmt: skip
    else:
        mujoco.mj_multiRay(
            model, data, origin, directions.reshape(-1), _VISIBLE_GROUPS, True, -1,
            geom, distance, count, cutoff,
        )  # fmt: skip
        np.negative(directions, out=normals)


# 3.3 has no such argument, 4.0 has it between dist and nray; only the binding's docstring tells.
_MULTIRAY_HAS_NORMAL = "normal:" in mujoco.mj_multiRay.__doc__.split("->")[0]

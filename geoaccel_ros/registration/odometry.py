"""LiDAR odometry: each scan is registered to a local map of the scans before it.

One step: voxel filter, prediction at constant velocity over real time, Gauss-Newton on the
distances to the map's planes together with the prediction while each point moves with the twist
for its own time (deskew), judgement, update of the map. Cf. KISS-ICP (Vizzo et al., RA-L 2023) for
the shape, and for the filter FAST-LIO (Xu and Zhang, RA-L 2021), without its IMU.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from geoaccel_ros.config import Configuration, ConfigurationError, parameter
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.deskew import deskew, move_along
from geoaccel_ros.registration.local_map import LocalMap
from geoaccel_ros.registration.motion import Motion
from geoaccel_ros.registration.nearest import Tree, choose_tree
from geoaccel_ros.registration.preprocess import voxel_filter
from geoaccel_ros.registration.scan_matching import NormalEquations, linearise

# The map's voxel, unless given, as a part of the first scan's root mean square range, and its
# bounds in metres: 0.8 m on a street, 0.3 m in a yard of 24 m. Half as much costs twice the time
# and gains nothing; twice as much doubles the error.
_VOXEL_PER_RANGE = 0.04
_VOXELS = (0.1, 1.5)
# A scan is thinned to this part of the map's voxel for the map …
_MAP_POINTS_VOXEL = 0.5
# … and to this multiple of it for the registration (both as in KISS-ICP).
_MATCHED_POINTS_VOXEL = 1.5
# Fewer points than this in a thinned scan cannot fix six degrees of freedom safely.
_FEWEST_POINTS = 30
# The first scan is deskewed this often by the twist that the second one finds.
_SEED_ROUNDS = 4
# A clock that steps back by more than this was set, or the bag began anew; less is a late scan.
_RESTART_AFTER = 1.0
# Residuals below the sensor's noise are not to be told apart, metres.
_LEAST_DEVIATION = 0.02
# A point nearer to its plane than this part of a voxel lies on it: 96 % and more of the points of a
# registered scan do (HDL-64 outdoors, hand-held lidar indoors), below 42 % of a misplaced one.
_ON_PLANE = 0.2
# Matches serve until the pose has moved a point at the root mean square range by this part of a
# voxel since they were made: fewer still changes of partner would not move the solution.
_REMATCH = 0.05
# Steps below this end the iteration: metres and radians.
_STEP = 1e-4
# The map takes a scan only after this much motion since the last one it took, so that standing
# still neither grows it nor lets its means wander: metres and radians.
_MAP_TRANSLATION = 0.05
_MAP_ROTATION = 0.02
# Standard deviations that are added to those of the estimate: residuals of neighbouring points are
# correlated, which the Hessian does not know. Metres and radians; for the twist each second.
_POSE_FLOORS = np.array([0.01] * 3 + [0.002] * 3)
_TWIST_FLOORS = np.array([0.05] * 3 + [0.02] * 3)
# Variances of what is not known: (100 m)^2, and pi^2 for an angle.
_UNKNOWN = np.diag([1e4] * 3 + [np.pi**2] * 3)


@dataclass(frozen=True)
class OdometryConfig(Configuration):
    """Parameters of :class:`Odometry`."""

    voxel: float = parameter(
        0.0,
        "Edge of the local map's voxels; 0: 4 % of the first scan's root mean square range",
        unit="m",
        minimum=0.0,
        maximum=10.0,
    )
    min_range: float = parameter(
        0.5,
        "Points nearer to the base than this are ignored (the robot itself, missing returns)",
        unit="m",
        minimum=0.01,
        maximum=100.0,
    )
    max_range: float = parameter(
        100.0,
        "Points farther than this are ignored, and the local map forgotten beyond it",
        unit="m",
        minimum=1.0,
        maximum=1000.0,
    )
    max_dist: float = parameter(
        2.0,
        "Farthest match between a point and the local map",
        unit="m",
        minimum=0.01,
        maximum=100.0,
    )
    min_overlap: float = parameter(
        0.5,
        "Least share of a scan's points that must lie on the local map; below it the scan failed",
        minimum=0.0,
        maximum=1.0,
    )
    max_iterations: int = parameter(
        30, "Most Gauss-Newton iterations a scan", minimum=1, maximum=1000
    )
    max_voxels: int = parameter(
        200_000, "Most voxels in the local map", minimum=1_000, maximum=10_000_000
    )
    deskew: bool = parameter(True, "Use the points' times, where there are any, to undo the motion")
    backend: str = parameter(
        "auto", "Device of the nearest-neighbour search", choices=("auto", "cpu", "cuda")
    )
    threads: int = parameter(1, "CPU threads of the search", minimum=1, maximum=256)

    def __post_init__(self):
        super().__post_init__()
        if self.min_range >= self.max_range:
            raise ConfigurationError(
                f"parameter 'min_range' is {self.min_range:g}, must be less than 'max_range' "
                f"({self.max_range:g})"
            )


@dataclass(frozen=True)
class OdometryResult:
    """What one scan gave.

    Attributes
    ----------
    status : str
        "seeded": the scan became the map, at the initial pose. "registered": the pose is measured.
        "skipped": the scan was unusable and changed nothing. "failed": it did not fit the map,
        which it left untouched. The pose is the prediction for the last two.
    reason : str
        Why, for all but "registered", where it may be empty.
    stamp : float, seconds
        The instant that the pose refers to: the end of the sweep, that is the header's stamp plus
        the largest time of the points used; the header's stamp where times are missing or not used.
    T_odom_base : ndarray (4, 4) of float64
    twist : ndarray (6,)
        Velocity of the base in the base frame, [vx vy vz wx wy wz], m/s and rad/s.
    pose_covariance, twist_covariance : ndarray (6, 6)
        In the order x y z roll pitch yaw, of the pose about the odom frame's axes and of the twist.
    points : ndarray (M, 3) of float64, metres
        The points of the thinned scan that were registered (those that seeded the map), deskewed,
        in the base frame at ``stamp``; none where the scan was skipped.
    correspondences : int
        Those of them that lie on the map's planes.
    rmse : float
        Root mean square of their distances to the map's planes, metres; NaN where there are none.
    """

    status: str
    reason: str
    stamp: float
    T_odom_base: np.ndarray
    twist: np.ndarray
    pose_covariance: np.ndarray
    twist_covariance: np.ndarray
    points: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))
    correspondences: int = 0
    rmse: float = float("nan")


class Odometry:
    """Pose of a base from its scans.

    Parameters
    ----------
    config : OdometryConfig

    Attributes
    ----------
    backend : str
        "cpu" or "cuda".
    backend_reason : str
        Why that one was taken.
    voxel : float or None
        Edge of the local map's voxels in metres; None until it follows from the first scan.

    Raises
    ------
    BackendError
        If the backend asked for cannot be used.
    """

    def __init__(self, config: OdometryConfig):
        self.config = config
        self._build_tree, self.backend, self.backend_reason = choose_tree(
            config.backend, config.threads
        )
        self.reset()
        # Everything compiles now, not in the first scans.
        room = _room()
        for stamp in (0.0, 0.1):
            self.register(room, np.linspace(0.0, 0.1, len(room)), stamp)
        self.reset()

    def reset(self, T_odom_base: np.ndarray | None = None) -> None:
        """Forget map and motion; the next scan seeds the map at ``T_odom_base`` (identity)."""
        self._T_initial = np.eye(4) if T_odom_base is None else np.array(T_odom_base, np.float64)
        self._restart()

    def local_map(self) -> np.ndarray:
        """Return the points of the local map, (M, 3) float64, metres, in the odom frame."""
        return np.empty((0, 3)) if self._map is None else self._map.points()

    def register(self, xyz: np.ndarray, times: np.ndarray | None, stamp: float) -> OdometryResult:
        """Register one scan.

        Parameters
        ----------
        xyz : ndarray (N, 3) of float32 or float64, metres
            The points in the base frame. NaN and (0, 0, 0) may be among them.
        times : ndarray (N,) of float64, seconds, or None
            Each point's time relative to ``stamp``, as
            :func:`geoaccel_ros.pointcloud.times.point_times` gives it. Taken as None where the
            time of a point in use is not finite.
        stamp : float, seconds
            The header's stamp.

        Raises
        ------
        ValueError
            If the arrays' shapes do not fit.
        """
        xyz = np.array(xyz, np.float64)
        if xyz.ndim != 2 or xyz.shape[1] != 3 or (times is not None and len(times) != len(xyz)):
            shapes = f"{xyz.shape} and {None if times is None else np.shape(times)}"
            raise ValueError(f"points and times of shapes {shapes}, must be (N, 3) and (N,)")
        voxel = self.voxel or self._voxel_for(xyz)
        keep = voxel_filter(
            xyz, _MAP_POINTS_VOXEL * voxel, self.config.min_range, self.config.max_range
        )
        scan = xyz[keep]
        offsets = np.zeros(len(scan))
        if times is not None and self.config.deskew and len(scan):
            offsets = np.asarray(times, np.float64)[keep]
            if not np.all(np.isfinite(offsets)):
                offsets = np.zeros(len(scan))
        # The points fix the pose at the middle of the sweep, the twist takes it from there to the
        # end.
        middle = stamp + float(np.mean(offsets)) if len(scan) else stamp
        end = stamp + float(np.max(offsets)) if len(scan) else stamp
        ages = offsets - (middle - stamp)

        restarted = ""
        if self._motion is not None and middle <= self._motion.stamp:
            late = self._motion.stamp - middle
            if late <= _RESTART_AFTER:
                return self._predicted("skipped", f"{late:.3f} s late", end)
            restarted = f"time jumped back by {late:.3f} s: restarted"
            self._restart()
        if len(scan) < _FEWEST_POINTS:
            reason = (
                f"{len(scan)} usable points of {len(xyz)} (finite, {self.config.min_range:g} to "
                f"{self.config.max_range:g} m), needs {_FEWEST_POINTS}"
            )
            return self._predicted("skipped", reason, end)
        if self._map is None:
            self.voxel = voxel
            return self._seed(scan, ages, middle, end, restarted or "first scan")
        return self._track(scan, ages, middle, end)

    def _voxel_for(self, xyz: np.ndarray) -> float:
        """Return the edge that suits the surroundings: rooms have finer structure than roads."""
        squares = np.sum(xyz**2, axis=1)
        used = squares[
            (squares >= self.config.min_range**2) & (squares <= self.config.max_range**2)
        ]
        mean = float(np.mean(used)) if len(used) else self.config.max_range**2
        return float(np.clip(_VOXEL_PER_RANGE * np.sqrt(mean), *_VOXELS))

    def _restart(self) -> None:
        self.voxel = self.config.voxel or None
        self._map: LocalMap | None = None
        self._tree: Tree | None = None
        self._motion: Motion | None = None
        # Scan, ages and time from its middle to its end, until the motion during it is known.
        self._first: tuple[np.ndarray, np.ndarray, float] | None = None
        self._T_last_mapped = self._T_initial

    def _seed(
        self, scan: np.ndarray, ages: np.ndarray, middle: float, end: float, reason: str
    ) -> OdometryResult:
        self._motion = Motion.unknown(middle, self._T_initial)
        self._first = scan, ages, end - middle
        self._plant(np.zeros(6))
        return self._result("seeded", reason, end, points=scan)

    def _plant(self, twist: np.ndarray) -> None:
        """Make the map of the first scan alone, moved with ``twist`` during its sweep.

        The sweep's end is at the initial pose, as the result of that scan said.
        """
        scan, ages, to_end = self._first
        T_odom_base = self._T_initial @ se3.exp(-to_end * twist)
        self._motion = replace(self._motion, T_odom_base=T_odom_base, twist=twist)
        self._map = LocalMap(
            self.voxel,
            self.config.max_range,
            self.config.max_voxels,
            origin=self._T_initial[:3, 3],
        )
        self._add_to_map(scan, ages)

    def _track(
        self, scan: np.ndarray, ages: np.ndarray, middle: float, end: float
    ) -> OdometryResult:
        thinned = voxel_filter(scan, _MATCHED_POINTS_VOXEL * self.voxel)
        points, ages_thinned = scan[thinned], ages[thinned]
        motion, equations, problem = self._align(points, ages_thinned, self._motion.at(middle))
        if self._first is not None:
            # Started on the move: only now is it known how, and the map bent accordingly; how well
            # the two fit shows when it is mended.
            for _ in range(_SEED_ROUNDS):
                self._plant(motion.twist)
                predicted = self._motion.at(middle)
                motion, equations, problem = self._align(points, ages_thinned, predicted)
            if problem:
                # One of the two is bad, who knows which: the newer one is the better seed.
                reason = (
                    f"the first scan and this one do not fit ({problem}): started with this one"
                )
                return self._seed(scan, ages, middle, end, reason)
        if problem:
            return self._predicted("failed", problem, end, points, equations)
        self._motion, self._first = motion, None
        step = se3.log(se3.inverse(self._T_last_mapped) @ motion.T_odom_base)
        if np.linalg.norm(step[:3]) > _MAP_TRANSLATION or np.linalg.norm(step[3:]) > _MAP_ROTATION:
            self._add_to_map(scan, ages)
        points = deskew(points, ages_thinned, motion.twist, end - middle)
        return self._result("registered", "", end, points, equations)

    def _align(
        self, points: np.ndarray, ages: np.ndarray, predicted: Motion
    ) -> tuple[Motion, NormalEquations, str]:
        """Find the motion at the middle of the sweep that fits map and prediction best.

        Iterated Kalman update, equal to Gauss-Newton on both terms (Bell and Cathey, 1993).

        Returns
        -------
        The motion, the last linearisation, and what went wrong, empty if nothing did.
        """
        local = self._map
        prior = np.linalg.inv(predicted.covariance)
        # Range at which a rotation is weighed against a translation.
        reach = float(np.sqrt(np.mean(np.sum(points**2, axis=1))))
        # A map of one scan is bent by the motion during it, and a scan bent alike fits it best:
        # until that is mended the twist must come from the motion between the two alone.
        leverage = ages if self._first is None else np.zeros_like(ages)
        moved = np.empty_like(points)
        motion, shift = predicted, np.inf
        for _ in range(self.config.max_iterations):
            # In coordinates of the map, which are small.
            T_map_base = motion.T_odom_base.copy()
            T_map_base[:3, 3] -= local.origin
            move_along(points, ages, motion.twist, T_map_base, moved)
            if shift > _REMATCH * self.voxel:
                matches, _ = self._tree.nearest(moved, self.config.max_dist)
                shift = 0.0
            equations = linearise(
                moved,
                leverage,
                T_map_base[:3, 3],
                matches,
                local.means,
                local.normals,
                local.planar,
                _ON_PLANE * self.voxel,
                _LEAST_DEVIATION,
            )
            information = equations.hessian / equations.deviation**2 + prior
            gradient = equations.gradient / equations.deviation**2
            gradient += prior @ motion.minus(predicted)
            step = -np.linalg.solve(information, gradient)
            motion = motion.corrected(step)
            shift += float(np.linalg.norm(step[:3]) + reach * np.linalg.norm(step[3:6]))
            if np.max(np.abs(step[:6])) < _STEP:
                break
        motion = replace(motion, covariance=np.linalg.inv(information))
        return motion, equations, self._judge(equations, step[:6])

    def _judge(self, equations: NormalEquations, step: np.ndarray) -> str:
        """Return why the result cannot be trusted, or an empty string."""
        if not np.all(np.isfinite(step)):
            return "the solution is not finite"
        if equations.overlap < self.config.min_overlap:
            return f"overlap {equations.overlap:.2f}, below {self.config.min_overlap:g}"
        if np.max(np.abs(step)) > 0.1 * self.voxel:
            return f"not converged after {self.config.max_iterations} iterations"
        return ""

    def _add_to_map(self, scan: np.ndarray, ages: np.ndarray) -> None:
        moved = np.empty_like(scan)
        move_along(scan, ages, self._motion.twist, self._motion.T_odom_base, moved)
        self._map.add(moved, self._motion.T_odom_base[:3, 3])
        self._tree = self._build_tree(self._map.means)
        self._T_last_mapped = self._motion.T_odom_base

    def _result(
        self,
        status: str,
        reason: str,
        stamp: float,
        points: np.ndarray,
        equations: NormalEquations | None = None,
    ) -> OdometryResult:
        """Return the present motion, taken to the end of the sweep."""
        motion = self._motion.at(stamp)
        rotation = np.kron(np.eye(2), motion.T_odom_base[:3, :3])
        return OdometryResult(
            status,
            reason,
            stamp,
            motion.T_odom_base.copy(),
            motion.twist.copy(),
            motion.covariance[:6, :6] + np.diag(_POSE_FLOORS**2),
            rotation.T @ motion.covariance[6:, 6:] @ rotation + np.diag(_TWIST_FLOORS**2),
            points,
            equations.inliers if equations else 0,
            equations.rmse if equations else float("nan"),
        )

    def _predicted(
        self,
        status: str,
        reason: str,
        stamp: float,
        points: np.ndarray | None = None,
        equations: NormalEquations | None = None,
    ) -> OdometryResult:
        """Return the prediction as a result; the motion stays the last measured one."""
        motion = self._motion or Motion.unknown(stamp, self._T_initial)
        motion = motion.at(max(stamp, motion.stamp))
        return OdometryResult(
            status,
            reason,
            stamp,
            motion.T_odom_base.copy(),
            motion.twist.copy(),
            _UNKNOWN.copy(),
            _UNKNOWN.copy(),
            np.empty((0, 3)) if points is None else points,
            equations.inliers if equations else 0,
            equations.rmse if equations else float("nan"),
        )


def _room() -> np.ndarray:
    """Return points on a floor and two walls, (N, 3), metres."""
    across, up = (
        axis.ravel() for axis in np.meshgrid(np.linspace(-5, 5, 40), np.linspace(-1, 3, 20))
    )
    floor = np.column_stack([across, 2.5 * up - 2.5, np.full_like(up, -1.0)])
    wall = np.column_stack([across, np.full_like(up, 5.0), up])
    return np.vstack([floor, wall, wall[:, [1, 0, 2]]])

"""LiDAR odometry: each scan is registered to a local map of the scans before it.

One step: voxel filter, prediction at constant velocity over real time, Gauss-Newton on the
distances to the map's planes while the points' own times deskew the scan (a pose that moves during
the sweep, cf. Dellenbach et al., CT-ICP, ICRA 2022), judgement, update of the map. After KISS-ICP
(Vizzo et al., RA-L 2023) in its shape.
"""

from dataclasses import dataclass, field

import numpy as np

from geoaccel_ros.config import Configuration, parameter
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.local_map import LocalMap
from geoaccel_ros.registration.nearest import make_search
from geoaccel_ros.registration.preprocess import move_along, voxel_filter
from geoaccel_ros.registration.scan_matching import NormalEquations, linearise

# A scan is thinned to this part of the map's voxel for the map …
_MAP_POINTS_VOXEL = 0.5
# … and to this multiple of it for the registration (both as in KISS-ICP).
_MATCHED_POINTS_VOXEL = 1.5
# Fewer points than this in a thinned scan cannot fix six degrees of freedom safely.
_FEWEST_POINTS = 30
# A clock that steps back by more than this was set, or the bag began anew; less is a late scan.
_RESTART_AFTER = 1.0
# Velocities older than this say nothing about the present one: the prediction stands still then.
_LONGEST_PREDICTION = 1.0
# Standard deviations of the unknown acceleration, m/s^2 and rad/s^2: what pulls the pose towards
# the prediction. Weaker by orders of magnitude than a scan that sees planes in all directions;
# along a direction that no plane fixes (a corridor's) it is all there is.
_ACCELERATION = 5.0
_ANGULAR_ACCELERATION = 20.0
# Residuals below the sensor's noise are not to be told apart, metres.
_LEAST_DEVIATION = 0.02
# A point nearer to its plane than this part of a voxel lies on it: 96 % and more of the points of a
# registered scan do (HDL-64 outdoors, hand-held lidar indoors), below 42 % of a misplaced one.
_ON_PLANE = 0.2
# Steps below this end the iteration: metres and radians.
_STEP = 1e-4
# The map takes a scan only after this much motion since the last one it took, so that standing
# still neither grows it nor lets its means wander: metres and radians.
_MAP_TRANSLATION = 0.05
_MAP_ROTATION = 0.02
# Lower bounds of the standard deviations: residuals of neighbouring points are correlated, which
# the Hessian does not know. Metres and radians.
_TRANSLATION_FLOOR = 0.01
_ROTATION_FLOOR = 0.002
# Variances of what is not known: (100 m)^2, and pi^2 for an angle.
_UNKNOWN = np.diag([1e4] * 3 + [np.pi**2] * 3)


@dataclass(frozen=True)
class OdometryConfig(Configuration):
    """Parameters of :class:`Odometry`."""

    voxel: float = parameter(
        0.5, "Edge of the local map's voxels", unit="m", minimum=0.01, maximum=10.0
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
        1.0,
        "Farthest match between a point and the local map",
        unit="m",
        minimum=0.01,
        maximum=100.0,
    )
    min_overlap: float = parameter(
        0.6,
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
        the largest of the points' times; the header's stamp where times are missing or not used.
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

    Raises
    ------
    BackendError
        If the backend asked for cannot be used.
    """

    def __init__(self, config: OdometryConfig):
        self.config = config
        self._search, self.backend, self.backend_reason = make_search(
            config.backend, config.threads
        )
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
            Each point's time relative to ``stamp`` (:func:`..pointcloud.times.point_times`).
        stamp : float, seconds
            The header's stamp.
        """
        keep = voxel_filter(
            xyz, _MAP_POINTS_VOXEL * self.config.voxel, self.config.min_range, self.config.max_range
        )
        scan = np.asarray(xyz[keep], np.float64)
        offsets = np.zeros(len(scan))
        if times is not None and self.config.deskew and len(scan):
            offsets = np.asarray(times[keep], np.float64)
            # The end of the sweep is zero from here on.
            end = float(np.max(offsets))
            stamp += end
            offsets = offsets - end

        restarted = ""
        if self._stamp is not None and stamp <= self._stamp:
            if self._stamp - stamp <= _RESTART_AFTER:
                return self._unmeasured("skipped", f"{self._stamp - stamp:.3f} s late", stamp)
            restarted = f"time jumped back by {self._stamp - stamp:.3f} s: restarted"
            self._restart()
        if len(scan) < _FEWEST_POINTS:
            reason = (
                f"{len(scan)} usable points of {len(xyz)} (finite, {self.config.min_range:g} to "
                f"{self.config.max_range:g} m), needs {_FEWEST_POINTS}"
            )
            return self._unmeasured("skipped", reason, stamp)
        if self._map is None:
            return self._seed(scan, stamp, restarted or "first scan")
        return self._track(scan, offsets, stamp)

    def _restart(self) -> None:
        self._map: LocalMap | None = None
        self._T_odom_base = self._T_initial
        self._twist = np.zeros(6)
        self._stamp: float | None = None
        self._T_last_mapped = self._T_initial

    def _seed(self, scan: np.ndarray, stamp: float, reason: str) -> OdometryResult:
        self._map = LocalMap(
            self.config.voxel,
            self.config.max_range,
            self.config.max_voxels,
            origin=self._T_odom_base[:3, 3],
        )
        self._stamp = stamp
        self._add_to_map(_transform(self._T_odom_base, scan))
        return OdometryResult(
            "seeded",
            reason,
            stamp,
            self._T_odom_base.copy(),
            self._twist.copy(),
            _with_floors(np.zeros((6, 6)), 1.0),
            _UNKNOWN.copy(),
            points=scan,
        )

    def _track(self, scan: np.ndarray, offsets: np.ndarray, stamp: float) -> OdometryResult:
        elapsed = stamp - self._stamp
        # A point's time as a fraction of the motion from the last pose (0) to this one (1).
        fractions = 1.0 + offsets / elapsed
        thinned = voxel_filter(scan, _MATCHED_POINTS_VOXEL * self.config.voxel)
        pose, points, equations, information, problem = self._align(
            np.ascontiguousarray(scan[thinned]), np.ascontiguousarray(fractions[thinned]), elapsed
        )
        if problem:
            return self._unmeasured("failed", problem, stamp, points, equations)

        motion = se3.log(se3.inverse(self._T_odom_base) @ pose)
        twist = motion / elapsed
        covariance = np.linalg.inv(information)
        pose_covariance = _with_floors(covariance, 1.0)
        rotation = np.kron(np.eye(2), pose[:3, :3])
        twist_covariance = _with_floors(rotation.T @ covariance @ rotation, 1.0) * (
            2.0 / elapsed**2
        )
        step = se3.log(se3.inverse(self._T_last_mapped) @ pose)
        if np.linalg.norm(step[:3]) > _MAP_TRANSLATION or np.linalg.norm(step[3:]) > _MAP_ROTATION:
            moved = np.empty_like(scan)
            move_along(scan, fractions, motion, self._T_odom_base, moved)
            self._T_odom_base = pose
            self._add_to_map(moved)
        self._T_odom_base, self._twist, self._stamp = pose, twist, stamp
        return OdometryResult(
            "registered",
            "",
            stamp,
            pose.copy(),
            twist,
            pose_covariance,
            twist_covariance,
            points,
            equations.inliers,
            equations.rmse,
        )

    def _align(
        self, points: np.ndarray, fractions: np.ndarray, elapsed: float
    ) -> tuple[np.ndarray, np.ndarray, NormalEquations, np.ndarray, str]:
        """Find the pose at the sweep's end.

        Returns
        -------
        The pose, the points in it (deskewed), the last linearisation, the information (inverse
        covariance), and what went wrong, empty if nothing did.
        """
        predicted = self._predict(elapsed)
        prior = self._prior_information(elapsed)
        local = self._map
        # In coordinates of the map, which are small.
        T_map_odom = np.eye(4)
        T_map_odom[:3, 3] = -local.origin
        T_map_last = T_map_odom @ self._T_odom_base
        predicted = T_map_odom @ predicted
        pose = predicted
        moved = np.empty_like(points)
        for _ in range(self.config.max_iterations):
            motion = se3.log(se3.inverse(T_map_last) @ pose)
            move_along(points, fractions, motion, T_map_last, moved)
            matches, _ = self._search.nearest(moved, self.config.max_dist)
            equations = linearise(
                moved,
                fractions,
                pose[:3, 3],
                matches,
                local.means,
                local.normals,
                local.planar,
                _ON_PLANE * self.config.voxel,
                _LEAST_DEVIATION,
            )
            information = equations.hessian / equations.deviation**2 + prior
            difference = np.concatenate(
                [
                    pose[:3, 3] - predicted[:3, 3],
                    se3.log_rotation(pose[:3, :3] @ predicted[:3, :3].T),
                ]
            )
            gradient = equations.gradient / equations.deviation**2 + prior @ difference
            step = -np.linalg.solve(information, gradient)
            pose = se3.perturbed(pose, step)
            if np.max(np.abs(step)) < _STEP:
                break
        problem = self._judge(equations, step)
        T_odom_map = np.eye(4)
        T_odom_map[:3, 3] = local.origin
        deskewed = (moved - pose[:3, 3]) @ pose[:3, :3]
        return T_odom_map @ pose, deskewed, equations, information, problem

    def _judge(self, equations: NormalEquations, step: np.ndarray) -> str:
        """Return why the result cannot be trusted, or an empty string."""
        if not np.all(np.isfinite(step)):
            return "the solution is not finite"
        if equations.overlap < self.config.min_overlap:
            return f"overlap {equations.overlap:.2f}, below {self.config.min_overlap:g}"
        if np.max(np.abs(step)) > 0.1 * self.config.voxel:
            return f"not converged after {self.config.max_iterations} iterations"
        return ""

    def _predict(self, elapsed: float) -> np.ndarray:
        """Return the pose at constant velocity after ``elapsed`` seconds."""
        return self._T_odom_base @ se3.exp(self._twist * min(elapsed, _LONGEST_PREDICTION))

    def _prior_information(self, elapsed: float) -> np.ndarray:
        translation = 0.5 * _ACCELERATION * elapsed**2
        rotation = 0.5 * _ANGULAR_ACCELERATION * elapsed**2
        return np.diag([translation**-2] * 3 + [rotation**-2] * 3)

    def _add_to_map(self, points: np.ndarray) -> None:
        self._map.add(points, self._T_odom_base[:3, 3])
        self._search.set_target(self._map.means)
        self._T_last_mapped = self._T_odom_base

    def _unmeasured(
        self,
        status: str,
        reason: str,
        stamp: float,
        points: np.ndarray | None = None,
        equations: NormalEquations | None = None,
    ) -> OdometryResult:
        elapsed = max(stamp - self._stamp, 0.0) if self._stamp is not None else 0.0
        return OdometryResult(
            status,
            reason,
            stamp,
            self._predict(elapsed),
            self._twist.copy(),
            _UNKNOWN.copy(),
            _UNKNOWN.copy(),
            np.empty((0, 3)) if points is None else points,
            equations.inliers if equations else 0,
            equations.rmse if equations else float("nan"),
        )


def _transform(transform: np.ndarray, points: np.ndarray) -> np.ndarray:
    return points @ transform[:3, :3].T + transform[:3, 3]


def _with_floors(covariance: np.ndarray, scale: float) -> np.ndarray:
    """Return the covariance plus that of the model's own error."""
    floors = np.array([_TRANSLATION_FLOOR] * 3 + [_ROTATION_FLOOR] * 3) * scale
    return covariance + np.diag(floors**2)

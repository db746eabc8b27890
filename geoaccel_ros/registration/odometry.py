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
from geoaccel_ros.registration.frames import pose_matrix
from geoaccel_ros.registration.motion import LONGEST_PREDICTION, Motion
from geoaccel_ros.registration.odometry_engines import Engine, choose_engine
from geoaccel_ros.registration.priors import MotionPrior
from geoaccel_ros.registration.scan_matching import NormalEquations
from geoaccel_ros.registration.sweep import Sweep
from geoaccel_ros.registration.update import constrained_step

# The farthest match in voxels, unless given: a scan that starts at 15 m/s lies 1.5 m off, two
# voxels of a street; a hand that turns by 13 degrees between two scans moves a room's walls four.
_MAX_DIST_VOXELS = 4.0
# Matches are sought this many standard deviations of the predictions' errors off, and a voxel.
_SURPRISES = 2.0
# Share of the newest error in their mean square, once there are as many, and how many of them tell
# enough to be trusted.
_SURPRISE_GAIN = 0.1
_FEWEST_PREDICTIONS = 5
# Fewer points than this in a thinned scan cannot fix six degrees of freedom safely, nor can fewer
# that lie on planes, or a smaller share of the map's points (a street and a bare plain have 0.12).
_FEWEST_POINTS = 30
_LEAST_ON_PLANES = 0.01
# Smaller voxels than any lidar or depth camera is exact to.
_LEAST_VOXEL = 0.01
# The first scan is deskewed this often by the twist that the second one finds.
_SEED_ROUNDS = 4
# A clock that steps back by more than this was set, or the bag began anew; less is a late scan.
_RESTART_AFTER = 1.0
# Residuals below the sensor's noise are not to be told apart: 0.02 m for lidars, and less where the
# scene is so small that voxels of a depth camera's kind suit it, as a part of the voxel.
_LEAST_DEVIATION, _LEAST_DEVIATION_VOXELS = 0.02, 0.05
# A point nearer to its plane than this part of a voxel lies on it: 96 % and more of the points of a
# registered scan do (HDL-64 outdoors, hand-held lidar indoors), below 42 % of a misplaced one.
_ON_PLANE = 0.2
# Matches serve until the pose has moved a point at the root mean square range by this part of a
# voxel since they were made: fewer still changes of partner would not move the solution.
_REMATCH = 0.05
# Steps below this end the iteration: metres and radians.
_STEP = 1e-4
# A direction with less than this part of the best one's information is left to the prediction.
_UNOBSERVED = 3e-3
# Nobody knows whether a body moves along such a direction. Slower than this in all the others, it
# stands: metres and (at the root mean square range) metres a second.
_REST = 0.05
# The map takes a scan only after this much motion since the last one it took, so that standing
# still neither grows it nor lets its means wander: metres, less in small scenes; radians.
_MAP_TRANSLATION, _MAP_TRANSLATION_VOXELS = 0.05, 0.25
_MAP_ROTATION = 0.02
# Without a registered scan for so long the pose is a guess, seconds.
_LOST_AFTER = 2.0
# Standard deviations that are added to those of the estimate: residuals of neighbouring points are
# correlated, which the Hessian does not know. Metres and radians; for the twist each second.
_POSE_FLOORS = np.array([0.01] * 3 + [0.002] * 3)
_TWIST_FLOORS = np.array([0.05] * 3 + [0.02] * 3)
# Variances of what is not known: (100 m)^2, and pi^2 for an angle.
_UNKNOWN = np.diag([1e4] * 3 + [np.pi**2] * 3)
# What moves in three dimensions, and what does in the plane: x, y and yaw, and their rates.
_SPATIAL, _PLANAR = np.arange(6), np.array([0, 1, 5])


@dataclass(frozen=True)
class OdometryConfig(Configuration):
    """Parameters of :class:`Odometry`."""

    voxel: float = parameter(
        0.0,
        "Edge of the local map's voxels, 0.01 m or more; 0: 4 % of the first scan's root mean "
        "square range, more where its points lie wide apart, 0.02 to 0.8 m",
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
        0.0,
        "Farthest match between a point and the local map; 0: four voxels",
        unit="m",
        minimum=0.0,
        maximum=100.0,
    )
    planar: bool = parameter(
        False,
        "Move in the plane alone (x, y, yaw) and see upright surfaces alone: for 2D lidars",
    )
    initial_pose: tuple[float, ...] = parameter(
        (),
        "Pose of the base at start and after a reset, x y z [m] roll pitch yaw [rad]; empty: the "
        "origin",
    )
    min_overlap: float = parameter(
        0.5,
        "Least share of a scan's points that must lie on the local map; below it the scan failed",
        minimum=0.05,
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
        "auto", "Device that filters, matches and maps", choices=("auto", "cpu", "cuda")
    )
    threads: int = parameter(2, "CPU threads", minimum=1, maximum=256)

    def __post_init__(self):
        super().__post_init__()
        if self.min_range >= self.max_range:
            raise ConfigurationError(
                f"parameter 'min_range' is {self.min_range:g}, must be less than 'max_range' "
                f"({self.max_range:g})"
            )
        if 0.0 < self.voxel < _LEAST_VOXEL:
            raise ConfigurationError(
                f"parameter 'voxel' is {self.voxel:g}, must be 0 (chosen by the first scan) or at "
                f"least {_LEAST_VOXEL:g}"
            )
        pose_matrix("initial_pose", self.initial_pose, "for the origin")


@dataclass(frozen=True)
class OdometryResult:
    """What one scan gave.

    Attributes
    ----------
    status : str
        "seeded": the scan became the map, at the initial pose. "registered": the pose is measured.
        "skipped": the scan was unusable and changed nothing. "failed": it did not fit the map,
        which it left untouched, or the first scan, whose place it took. The pose is the prediction
        for the last two.
    reason : str
        Why, for all but "registered", where it may be empty.
    stamp : float, seconds
        The instant that the pose refers to: the end of the sweep, that is the header's stamp plus
        ``offset``.
    offset : float, seconds
        The largest time of the points used; 0 where times are missing or not used.
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
    overlap : float
        Their share among the points that are matched to a plane or not matched at all.
    rmse : float
        Root mean square of their distances to the map's planes, metres; NaN where there are none.
    degenerate : ndarray (K, 6)
        Unit directions of motion, [x y z] and [roll pitch yaw] in the odom frame's axes, that the
        scene does not fix: there the pose is the prediction, and its covariance says so.
    lost : bool
        No scan was registered for two seconds, or since the first one: the pose is a guess until
        one is, or a reset.
    """

    status: str
    reason: str
    stamp: float
    offset: float
    T_odom_base: np.ndarray
    twist: np.ndarray
    pose_covariance: np.ndarray
    twist_covariance: np.ndarray
    points: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))
    correspondences: int = 0
    overlap: float = 0.0
    rmse: float = float("nan")
    degenerate: np.ndarray = field(default_factory=lambda: np.empty((0, 6)))
    lost: bool = False


@dataclass(frozen=True)
class _Attempt:
    """A motion that a scan was aligned to, and how well; ``problem`` is empty where it is good."""

    motion: Motion
    equations: NormalEquations
    degenerate: np.ndarray
    problem: str


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
    voxel, max_dist : float or None
        Edge of the local map's voxels and the farthest match, metres; None until they follow from
        the first scan.
    T_initial : ndarray (4, 4)
        Where the next map begins, or the present one began.
    prior : MotionPrior or None
        What another sensor tells of the motion between scans; None: constant velocity.

    Raises
    ------
    BackendError
        If the backend asked for cannot be used.
    """

    def __init__(self, config: OdometryConfig):
        self.config = config
        self.prior: MotionPrior | None = None
        self._moving = _PLANAR if config.planar else _SPATIAL
        self._engine: Engine = choose_engine(config)
        self.reset()
        self._warm_up()

    def _warm_up(self) -> None:
        """Compile everything now, not in the first scans: for both types, far and near matches."""
        for dtype in (np.float32, np.float64):
            room = _room().astype(dtype)
            times = np.linspace(0.0, 0.1, len(room))
            for scan in range(3 + _FEWEST_PREDICTIONS):
                self.register(room, times, 0.1 * scan)
            self.reset()

    @property
    def backend(self) -> str:
        return self._engine.name

    @property
    def backend_reason(self) -> str:
        return self._engine.reason

    def reset(self, T_odom_base: np.ndarray | None = None) -> None:
        """Forget map and motion; the next scan seeds the map at ``T_odom_base``.

        None: at the configuration's ``initial_pose``.
        """
        if T_odom_base is None:
            T_odom_base = pose_matrix("initial_pose", self.config.initial_pose, "for the origin")
        self.T_initial = np.eye(4) if T_odom_base is None else np.array(T_odom_base, np.float64)
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
            If the arrays' shapes do not fit, they do not hold real numbers, or the stamp is not
            finite.
        """
        xyz, times = _checked(xyz, times, stamp)
        sweep = self._thin(xyz, times)
        # The points fix the pose at the middle of the sweep, the twist takes it from there to the
        # end.
        middle = stamp + sweep.middle

        restarted = ""
        if self._motion is not None and self._is_late(middle, stamp + sweep.end, sweep):
            late = max(self._motion.stamp - middle, self._ended - stamp - sweep.end)
            if late <= _RESTART_AFTER:
                return self._predicted("skipped", f"{late:.3f} s late", stamp, sweep)
            restarted = f"time jumped back by {late:.3f} s: restarted"
            self._restart()
            sweep = self._thin(xyz, times)
        if len(sweep) < _FEWEST_POINTS:
            return self._predicted("skipped", self._too_few(len(sweep), len(xyz)), stamp, sweep)
        if self._first is not None and middle - self._motion.stamp < sweep.end - sweep.middle:
            # Of two lidars on one topic: the motion between the two would be told by noise.
            return self._predicted("skipped", "swept together with the first scan", stamp, sweep)
        if self._map is None:
            self._sure = stamp + sweep.end
            self._seed(sweep, stamp)
            points = sweep.matched_at_end(np.zeros(6))
            return self._result("seeded", restarted or "first scan", stamp, sweep, points)
        problem, attempt = self._track(sweep, stamp)
        if problem and self._first is not None:
            # One of the two is bad, who knows which: the newer one is the better seed.
            problem = f"the first scan and this one do not fit ({problem}): begins with this one"
            self._map = None
            sweep, attempt = self._thin(xyz, times), None
            self._seed(sweep, stamp)
        if problem:
            return self._predicted("failed", problem, stamp, sweep, attempt)
        self._sure = stamp + sweep.end
        # Before the map takes the scan: a GPU does that while the result is on its way.
        points = sweep.matched_at_end(self._motion.twist)
        if self._has_moved():
            self._add_to_map(sweep)
        return self._result("registered", "", stamp, sweep, points, attempt)

    def _thin(self, xyz: np.ndarray, times: np.ndarray | None) -> Sweep:
        """Return the sweep that a scan is, by the present voxel, or that which it suggests."""
        if self._map is None:
            self.voxel = self.config.voxel or self._engine.suitable_voxel(xyz)
            self.max_dist = self.config.max_dist or _MAX_DIST_VOXELS * self.voxel
        return self._engine.thin(xyz, times if self.config.deskew else None, self.voxel)

    def _too_few(self, used: int, points: int) -> str:
        reason = (
            f"{used} usable points of {points} (finite, {self.config.min_range:g} to "
            f"{self.config.max_range:g} m), needs {_FEWEST_POINTS}"
        )
        return reason if used or not points else f"{reason}; are they in the sensor's frame?"

    def _is_late(self, middle: float, end: float, sweep: Sweep) -> bool:
        """Return whether a scan belongs before the last one.

        Two lidars may sweep together, and the middles of their sweeps pass each other by a little;
        but poses follow one another.
        """
        return end < self._ended or middle < self._motion.stamp - (sweep.end - sweep.middle)

    def _restart(self) -> None:
        self.voxel = self.config.voxel or None
        self.max_dist = self.config.max_dist or None
        self._map = None
        self._motion: Motion | None = None
        # The first sweep, until the motion during it is known.
        self._first: Sweep | None = None
        self._T_last_mapped = self.T_initial
        # Stamps of the last pose, and of the last one that was measured.
        self._ended = self._sure = -np.inf
        self._distrust_predictions()

    def _seed(self, sweep: Sweep, stamp: float) -> None:
        self._motion = Motion.unknown(stamp + sweep.middle, self.T_initial)
        self._first = sweep
        self._distrust_predictions()
        self._plant(np.zeros(6))

    def _plant(self, twist: np.ndarray) -> None:
        """Make the map of the first scan alone, moved with ``twist`` during its sweep.

        The sweep's end is at the initial pose, as the result of that scan said.
        """
        to_end = self._first.end - self._first.middle
        T_odom_base = self.T_initial @ se3.exp(-to_end * twist)
        self._motion = replace(self._motion, T_odom_base=T_odom_base, twist=twist)
        self._map = self._engine.local_map(self.voxel, self.T_initial[:3, 3])
        self._add_to_map(self._first)

    def _track(self, sweep: Sweep, stamp: float) -> tuple[str, _Attempt]:
        """Find the motion of a scan and take it, unless there is a problem, which is returned."""
        predicted = self._predict(self._motion, stamp + sweep.middle)
        attempt = self._search(sweep, predicted)
        if self._first is not None:
            # Started on the move: only now is it known how, and the map bent accordingly; how well
            # the two fit shows when it is mended.
            for _ in range(_SEED_ROUNDS):
                self._plant(attempt.motion.twist)
                planted = self._predict(self._motion, stamp + sweep.middle)
                attempt = self._align(sweep, planted, self.max_dist)
        elif not attempt.problem:
            self._learn(attempt.motion.minus(predicted), sweep.reach)
        if attempt.problem:
            self._distrust_predictions()
        else:
            self._motion, self._first = attempt.motion, None
        return attempt.problem, attempt

    def _has_moved(self) -> bool:
        """Return whether the base has moved since the map last took a scan."""
        step = se3.log(se3.inverse(self._T_last_mapped) @ self._motion.T_odom_base)
        way = min(_MAP_TRANSLATION, _MAP_TRANSLATION_VOXELS * self.voxel)
        return np.linalg.norm(step[:3]) > way or np.linalg.norm(step[3:]) > _MAP_ROTATION

    def _predict(self, last: Motion, instant: float) -> Motion:
        """Return the motion at an instant, by a former one and what other sensors know."""
        measured = self.prior and self.prior.between(last.stamp, instant)
        return last.at(instant, measured)

    def _distrust_predictions(self) -> None:
        # Mean square error of the predictions so far, square metres, and how many they are.
        self._surprise, self._predictions = 0.0, 0

    def _learn(self, error: np.ndarray, reach: float) -> None:
        """Take in how far a prediction was off, as a displacement of the scan's points."""
        square = np.sum(error[:3] ** 2) + reach**2 * np.sum(error[3:6] ** 2)
        self._predictions += 1
        gain = max(_SURPRISE_GAIN, 1.0 / self._predictions)
        self._surprise += gain * (square - self._surprise)

    def _search_radius(self) -> float:
        """Return how far matches are to be sought: as predictions have been off, and a voxel."""
        if self._predictions < _FEWEST_PREDICTIONS:
            return self.max_dist
        return min(self.voxel + _SURPRISES * np.sqrt(self._surprise), self.max_dist)

    def _search(self, sweep: Sweep, predicted: Motion) -> _Attempt:
        """Align with matches as near as predictions have been good, then wider, then from afar."""
        radius = self._search_radius()
        attempt = self._align(sweep, predicted, radius)
        if attempt.problem and radius < self.max_dist:
            attempt = self._align(sweep, predicted, self.max_dist)
        if predicted.stamp - self._motion.stamp > _LOST_AFTER:
            # A robot that was carried off is found where it was last seen, if it is put back. Rooms
            # look alike from several sides: the better fit of the two.
            seen = replace(predicted, T_odom_base=self._motion.T_odom_base, twist=np.zeros(6))
            again = self._align(sweep, seen, self.max_dist)
            if not again.problem and again.equations.overlap > attempt.equations.overlap:
                attempt = again
        return attempt

    def _align(self, sweep: Sweep, predicted: Motion, radius: float) -> _Attempt:
        """Find the motion at the middle of the sweep that fits map and prediction best.

        Iterated Kalman update, equal to Gauss-Newton on both terms (Bell and Cathey, 1993).
        """
        rates = np.concatenate([self._moving, self._moving + 6])
        moving = np.ix_(rates, rates)
        prior = np.linalg.inv(predicted.covariance[moving])
        # A map of one scan is bent by the motion during it, and a scan bent alike fits it best:
        # until that is mended the twist must come from the motion between the two alone.
        bent = self._first is None
        matcher = self._engine.matcher(
            self._map,
            sweep,
            _ON_PLANE * self.voxel,
            min(_LEAST_DEVIATION, _LEAST_DEVIATION_VOXELS * self.voxel),
        )
        motion, shift = predicted, np.inf
        for _ in range(self.config.max_iterations):
            search = shift > _REMATCH * self.voxel
            equations = matcher.linearise(
                motion.T_odom_base, motion.twist, radius if search else None, bent
            )
            shift = 0.0 if search else shift
            variance = equations.deviation**2
            step, information, degenerate = constrained_step(
                equations.hessian / variance,
                equations.gradient / variance,
                equations.geometry,
                prior,
                motion.minus(predicted),
                sweep.reach,
                self._moving,
                _UNOBSERVED,
            )
            motion = motion.corrected(step)
            shift += float(np.linalg.norm(step[:3]) + sweep.reach * np.linalg.norm(step[3:6]))
            if np.max(np.abs(step[:6])) < _STEP:
                break
        covariance = np.zeros((12, 12))
        covariance[moving] = np.linalg.inv(information)
        motion = replace(motion, covariance=covariance)
        if len(degenerate):
            motion = _standing(motion, degenerate, sweep.reach)
        problem = self._judge(equations, step[:6], len(sweep))
        if problem and len(self._map.points()) >= self.config.max_voxels:
            problem += f"; the map is full ('max_voxels' is {self.config.max_voxels})"
        if len(degenerate) and not problem and self._is_blind(predicted.stamp):
            problem = (
                "the scene leaves directions open, and after such a silence nothing tells them"
            )
        return _Attempt(motion, equations, degenerate, problem)

    def _is_blind(self, instant: float) -> bool:
        """Return whether neither the last motion nor another sensor tells where the base went."""
        if instant - self._motion.stamp <= LONGEST_PREDICTION:
            return False
        measured = self.prior and self.prior.between(self._motion.stamp, instant)
        return measured is None or not np.all(np.isfinite(measured.deviations))

    def _judge(self, equations: NormalEquations, step: np.ndarray, points: int) -> str:
        """Return why the result cannot be trusted, or an empty string."""
        if not np.all(np.isfinite(step)):
            return "the solution is not finite"
        if equations.overlap < self.config.min_overlap:
            return (
                f"overlap {equations.overlap:.2f}, below {self.config.min_overlap:g}; residuals of "
                f"{equations.deviation:.2f} m"
            )
        if equations.inliers < max(_FEWEST_POINTS, _LEAST_ON_PLANES * points):
            return f"{equations.inliers} points of {points} lie on surfaces of the map"
        if np.max(np.abs(step)) > 0.1 * self.voxel:
            return f"not converged after {self.config.max_iterations} iterations"
        return ""

    def _add_to_map(self, sweep: Sweep) -> None:
        self._engine.add(self._map, sweep, self._motion.T_odom_base, self._motion.twist)
        self._T_last_mapped = self._motion.T_odom_base

    def _result(
        self,
        status: str,
        reason: str,
        stamp: float,
        sweep: Sweep,
        points: np.ndarray,
        attempt: _Attempt | None = None,
    ) -> OdometryResult:
        """Return the present motion, taken to the end of the sweep."""
        motion = self._motion.at(stamp + sweep.end)
        self._ended = motion.stamp
        rotation = _twice(motion.T_odom_base[:3, :3])
        twist_covariance = rotation.T @ motion.covariance[6:, 6:] @ rotation
        return OdometryResult(
            status,
            reason,
            motion.stamp,
            sweep.end,
            motion.T_odom_base.copy(),
            motion.twist.copy(),
            motion.covariance[:6, :6] + np.diag(_POSE_FLOORS**2),
            twist_covariance + np.diag(_TWIST_FLOORS**2),
            points,
            **_quality(attempt),
        )

    def _predicted(
        self,
        status: str,
        reason: str,
        stamp: float,
        sweep: Sweep,
        attempt: _Attempt | None = None,
    ) -> OdometryResult:
        """Return the prediction as a result; the motion stays the last measured one."""
        end = stamp + sweep.end
        if status == "failed":
            self._ended = max(self._ended, end)
        last = self._motion or Motion.unknown(end, self.T_initial)
        motion = last if end <= last.stamp else self._predict(last, end)
        points = np.empty((0, 3)) if attempt is None else sweep.matched_at_end(motion.twist)
        return OdometryResult(
            status,
            reason,
            end,
            sweep.end,
            motion.T_odom_base.copy(),
            motion.twist.copy(),
            _UNKNOWN.copy(),
            _UNKNOWN.copy(),
            points,
            lost=bool(self._map is not None and end - self._sure > _LOST_AFTER),
            **_quality(attempt),
        )


def _checked(
    xyz: np.ndarray, times: np.ndarray | None, stamp: float
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return points and times as arrays, or refuse what cannot be a scan."""
    xyz = np.asarray(xyz)
    times = None if times is None else np.asarray(times)
    if xyz.ndim != 2 or xyz.shape[1] != 3 or (times is not None and times.shape != xyz.shape[:1]):
        shapes = f"{xyz.shape} and {None if times is None else times.shape}"
        raise ValueError(f"points and times of shapes {shapes}, must be (N, 3) and (N,)")
    if any(array.dtype.kind not in "fiu" for array in (xyz, times) if array is not None):
        types = f"{xyz.dtype} and {None if times is None else times.dtype}"
        raise ValueError(f"points and times of types {types}, must be real numbers")
    if not np.isfinite(stamp):
        raise ValueError(f"the stamp is {stamp}, must be finite")
    return xyz, times


def _quality(attempt: _Attempt | None) -> dict:
    if attempt is None:
        return {}
    return {
        "correspondences": attempt.equations.inliers,
        "overlap": attempt.equations.overlap,
        "rmse": attempt.equations.rmse,
        "degenerate": attempt.degenerate,
    }


def _standing(motion: Motion, degenerate: np.ndarray, reach: float) -> Motion:
    """Stop the motion along directions that nothing observes where it stands in all others."""
    axes = _twice(motion.T_odom_base[:3, :3])
    # Rotations as displacements, in which the directions are orthogonal.
    scale = np.repeat([1.0, max(reach, 1e-3)], 3)
    velocity, directions = scale * (axes @ motion.twist), degenerate * scale
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    along = directions.T @ (directions @ velocity)
    if np.linalg.norm(velocity - along) > _REST or np.linalg.norm(along) > _REST:
        return motion
    return replace(motion, twist=axes.T @ ((velocity - along) / scale))


def _twice(matrix: np.ndarray) -> np.ndarray:
    """Return the block diagonal matrix of a matrix and itself."""
    size = len(matrix)
    blocks = np.zeros((2 * size, 2 * size))
    blocks[:size, :size] = blocks[size:, size:] = matrix
    return blocks


def _room() -> np.ndarray:
    """Return points on a floor and two walls, (N, 3), metres."""
    across, up = (
        axis.ravel() for axis in np.meshgrid(np.linspace(-5, 5, 40), np.linspace(-1, 3, 20))
    )
    floor = np.column_stack([across, 2.5 * up - 2.5, np.full_like(up, -1.0)])
    wall = np.column_stack([across, np.full_like(up, 5.0), up])
    return np.vstack([floor, wall, wall[:, [1, 0, 2]]])

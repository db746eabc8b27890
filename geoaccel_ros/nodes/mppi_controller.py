"""mppi_controller: a pose, clouds and goals in, velocity commands out."""

import collections
import contextlib
import math
import sys
import threading
import time
import traceback
from dataclasses import dataclass

import numpy as np
from geometry_msgs.msg import Point, PoseStamped, TwistStamped
from nav_msgs.msg import Odometry, Path
from rclpy.duration import Duration
from rclpy.time import Time
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import ColorRGBA, Header
from std_srvs.srv import Trigger
from visualization_msgs.msg import Marker, MarkerArray

from geoaccel_ros.config import ConfigurationError, parameter
from geoaccel_ros.control.goals import GoalConfig, GoalSequence
from geoaccel_ros.control.mppi import Mppi, MppiUpdate
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.obstacles import ObstacleConfig, ObstacleMap
from geoaccel_ros.control.systems import diff_drive
from geoaccel_ros.pointcloud.times import PointTimesConfig
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.deskew import deskew
from geoaccel_ros.registration.frames import FramesConfig, clean_frame
from geoaccel_ros.ros import diagnostics, qos
from geoaccel_ros.ros.clouds import MALFORMED, NO_TIMES, NO_TRANSFORM, CloudReader
from geoaccel_ros.ros.diagnostics import Counters, Latency, Status
from geoaccel_ros.ros.mount import SensorMounts
from geoaccel_ros.ros.node import ManagedNode, NodeConfig
from geoaccel_ros.ros.run import run
from geoaccel_ros.ros.transforms import matrix_from_pose, set_pose, yaw

# Rollouts drawn in RViz when somebody looks.
_ROLLOUTS_SHOWN = 30
# Commands older than this are in the measured state by now (s).
_COMMAND_MEMORY = 2.0
# A cloud's end and its pose's stamp may differ by this and still be the same instant (s).
_SAME_INSTANT = 0.01
# Clouds that wait for the pose at their end; a pose source that is slower than this is too slow.
_CLOUDS_WAITING = 5
# A pose may correct itself by this much between two messages without having begun anew (m).
_JUMP = 0.5
# How long the command to stop may take to be acknowledged when the controller ends.
_LAST_COMMAND = Duration(seconds=0.5)


@dataclass(frozen=True)
class MppiControllerConfig(
    NodeConfig,
    FramesConfig,
    PointTimesConfig,
    MppiConfig,
    ObstacleConfig,
    GoalConfig,
    diff_drive.Parameters,
):
    """Parameters of mppi_controller."""

    rate: float = parameter(
        20.0, "Updates a second, on a steady clock.", unit="Hz", minimum=1.0, maximum=500.0
    )
    goals: tuple[float, ...] = parameter(
        (), "Goals in odom_frame, one after the other: x1, y1, x2, y2, … [m]."
    )
    obstacle_height_min: float = parameter(
        0.2, "Points lower than this above base_frame are ground.", unit="m"
    )
    obstacle_height_max: float = parameter(
        1.5, "Points higher than this above base_frame are passed under.", unit="m"
    )
    state_timeout: float = parameter(
        0.5, "Stop when the newest pose is older than this.", unit="s", minimum=0.01
    )
    state_deviation_max: float = parameter(
        1.0,
        "Stop when the pose's own standard deviation of x or y is larger: it is not known then.",
        unit="m",
        minimum=0.001,
    )
    obstacle_timeout: float = parameter(
        1.0,
        "Stop when the newest cloud on the map is older than this; 0 drives without clouds.",
        unit="s",
        minimum=0.0,
    )


class MppiController(ManagedNode):
    """odom, points, goal_pose -> cmd_vel (TwistStamped), plan, rollouts.

    The control loop has a thread of its own; the executor brings it poses, obstacles and goals.
    """

    NAME = "mppi_controller"
    CONFIG = MppiControllerConfig

    def configure(self):
        config = self.config
        if len(config.goals) % 2:
            raise ConfigurationError(
                f"parameter 'goals' has {len(config.goals)} numbers, must be pairs of x and y"
            )
        self.counters = Counters(
            "updates", "missed deadlines", "no plan", "clouds in", MALFORMED, NO_TRANSFORM, NO_TIMES
        )
        self.latencies = {"update": Latency(), "obstacles": Latency()}
        self._mppi = Mppi(
            config.subset(MppiConfig), "diff_drive", config.subset(diff_drive.Parameters)
        )
        self.get_logger().info(f"rollouts on {self._mppi.backend} ({self._mppi.backend_reason})")
        if self._mppi.warning:
            self.get_logger().warning(self._mppi.warning)
        self._obstacles = ObstacleMap(config.subset(ObstacleConfig))
        deskew(np.zeros((1, 3)), np.zeros(1), np.zeros(6), 0.0)  # compiled before the first cloud
        self._waiting_clouds = collections.deque(maxlen=_CLOUDS_WAITING)
        self._sent = collections.deque()
        self._pose: _Pose | None = None
        self._seen: float | None = None  # s, when the newest cloud on the map ended
        self._lock = threading.Lock()
        self._set_goals(np.reshape(config.goals, (-1, 2)))
        self._condition = Status(diagnostics.WARN, "waiting for odom")

        mounts = SensorMounts(self, config.base_frame)
        self._reader = CloudReader(self, config, config.subset(PointTimesConfig), mounts)
        self._command_publisher = self.advertise(TwistStamped, "cmd_vel", qos.RELIABLE)
        self._plan_publisher = self.advertise(Path, "plan", qos.RELIABLE)
        self._rollout_publisher = self.advertise(MarkerArray, "rollouts", qos.RELIABLE)
        self.subscribe(Odometry, "odom", self._on_odom, qos.RELIABLE)
        self.subscribe(PointCloud2, "points", self._on_points, qos.sensor_data())
        self.subscribe(PoseStamped, "goal_pose", self._on_goal, qos.RELIABLE)
        self.offer(Trigger, "~/reset", self._on_reset)

    def activate(self):
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._control, name="control", daemon=True)
        self._thread.start()

    def deactivate(self):
        self._stopping.set()
        self._thread.join()
        self._send(np.zeros(2))
        # A publisher that ends takes along what has not arrived, and this must arrive.
        self._command_publisher.wait_for_all_acked(_LAST_COMMAND)

    def cleanup(self):
        self._mppi = None

    def status(self):
        backend = {"backend": f"{self._mppi.backend} ({self._mppi.backend_reason})"}
        with self._lock:
            condition = self._condition
            goals = {"goals reached": self._goals.index, "goals": len(self._goals)}
        return Status(condition.level, condition.message, {**backend, **goals, **condition.values})

    # The control loop, on its own thread.

    def _control(self) -> None:
        period = 1.0 / self.config.rate
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            try:
                self._tick()
            except Exception as error:
                self._condition = Status(diagnostics.ERROR, f"stopped: {error!r}")
                self.get_logger().error(traceback.format_exc(), throttle_duration_sec=5.0)
                with contextlib.suppress(Exception):
                    self._send(np.zeros(2))
            due += period
            late = time.monotonic() - due
            if late > 0.0:
                # Due again at once; periods that passed whole are not made up for.
                self.counters.count("missed deadlines", 1 + int(late / period))
                due += int(late / period) * period

    def _tick(self) -> None:
        now = self._now()
        with self._lock:
            pose, goal = self._pose, self._goals.current
        problem = self._problem(pose, goal, now)
        if problem is not None:
            self._condition = problem
            self._send(np.zeros(2))
            return
        with self.latencies["update"].measure():
            state = self._mppi.predict(pose.state, pose.stamp, list(self._sent), now)
            update = self._mppi.update(state, goal, now)
            self._send(update.command)
        self.counters.count("updates")
        if not update.ok:
            self.counters.count("no plan")
        self._condition = _condition(update)
        self._publish_plan(update)

    def _problem(self, pose: "_Pose | None", goal: np.ndarray | None, now: float) -> Status | None:
        """Return why the robot must stand, or None if it may drive."""
        if pose is None:
            return Status(diagnostics.WARN, "waiting for odom")
        age = now - pose.stamp
        # A pose from the future is one from before a reset of time: as useless as an old one.
        if abs(age) > self.config.state_timeout:
            limit = self.config.state_timeout
            return self._stopped(f"the pose is {age:.2f} s old (limit {limit:g} s)")
        if pose.deviation > self.config.state_deviation_max:
            return self._stopped(f"the pose is not known: {pose.deviation:.2g} m off, it says")
        if goal is None:
            return Status(diagnostics.OK, "all goals reached" if len(self._goals) else "no goal")
        limit, seen = self.config.obstacle_timeout, self._seen
        if limit and (seen is None or now - seen > limit):
            silence = "no cloud yet" if seen is None else f"no cloud for {now - seen:.2f} s"
            return self._stopped(f"{silence} (limit {limit:g} s)")
        return None

    def _stopped(self, reason: str) -> Status:
        text = f"stopped: {reason}"
        self.get_logger().warning(text, throttle_duration_sec=5.0)
        return Status(diagnostics.ERROR, text)

    def _send(self, command: np.ndarray) -> None:
        message = TwistStamped(header=self._header(self.config.base_frame))
        message.twist.linear.x, message.twist.angular.z = float(command[0]), float(command[1])
        self._command_publisher.publish(message)
        now = self._now()
        if self._sent and self._sent[-1][0] > now:
            self._sent.clear()  # time was set back: they were sent in another time
        self._sent.append((now, np.array(command, float)))
        while self._sent[0][0] < now - _COMMAND_MEMORY:
            self._sent.popleft()

    def _publish_plan(self, update: MppiUpdate) -> None:
        header = self._header(self.config.odom_frame)
        if self._plan_publisher.get_subscription_count():
            poses = [_pose_at(header, state) for state in update.plan]
            self._plan_publisher.publish(Path(header=header, poses=poses))
        if self._rollout_publisher.get_subscription_count():
            trajectories, weights = self._mppi.rollouts(_ROLLOUTS_SHOWN)
            self._rollout_publisher.publish(_markers(header, trajectories, weights))

    # From the executor.

    def _on_odom(self, message: Odometry) -> None:
        frame = clean_frame(message.header.frame_id)
        if frame != self.config.odom_frame:
            self.get_logger().warning(
                f"odom in frame '{frame}' ignored: must be in '{self.config.odom_frame}'",
                throttle_duration_sec=5.0,
            )
            return
        twist = message.twist.twist
        pose = _Pose(
            stamp=_seconds(message.header.stamp),
            T_odom_base=matrix_from_pose(message.pose.pose),
            twist=np.array(
                [
                    twist.linear.x, twist.linear.y, twist.linear.z,
                    twist.angular.x, twist.angular.y, twist.angular.z,
                ]
            ),
            deviation=math.sqrt(max(message.pose.covariance[0], message.pose.covariance[7], 0.0)),
        )  # fmt: skip
        if self._jumped(pose):
            self._start_over()
        with self._lock:
            self._pose = pose
            x, y, _, v, w = pose.state
            reached = self._goals.update(np.array([x, y]), max(abs(v), abs(w)))
            index = self._goals.index
        if reached:
            self.get_logger().info(f"goal {index} of {len(self._goals)} reached")
        self._use_clouds(pose)

    def _jumped(self, pose: "_Pose") -> bool:
        """Return whether no robot can have moved so: the odometry began anew, or time did."""
        with self._lock:
            last = self._pose
        if last is None:
            return False
        elapsed = pose.stamp - last.stamp
        moved = np.hypot(*(pose.T_odom_base[:2, 3] - last.T_odom_base[:2, 3]))
        return elapsed < 0.0 or moved > 2.0 * self.config.v_max * elapsed + _JUMP

    def _start_over(self) -> None:
        """Forget what was known in the old frame or time: obstacles, clouds that wait, the plan."""
        self.get_logger().warning("the pose jumped: obstacles and plan forgotten")
        self.counters.count("pose jumps")
        self._obstacles = ObstacleMap(self.config.subset(ObstacleConfig))
        self._waiting_clouds.clear()
        self._seen = None
        self._mppi.reset()

    def _on_points(self, message: PointCloud2) -> None:
        self.counters.count("clouds in")
        scan = self._reader.read(message)
        if scan is None:
            return
        base, times = scan.xyz, scan.point_times.times
        height, distance = base[:, 2], np.hypot(base[:, 0], base[:, 1])
        # What is inside the robot is the robot, or no return at all, whose time means nothing.
        outside = np.isfinite(distance) & (distance > self.config.robot_radius)
        if times is not None and not np.isfinite(times[outside]).all():
            times = None
        end = 0.0 if times is None else float(times[outside].max(initial=0.0))
        keep = outside & (height > self.config.obstacle_height_min)
        keep &= height < self.config.obstacle_height_max
        since_end = np.zeros(np.count_nonzero(keep)) if times is None else times[keep] - end
        self._waiting_clouds.append((_seconds(message.header.stamp) + end, base[keep], since_end))
        with self._lock:
            pose = self._pose
        if pose is not None:
            self._use_clouds(pose)

    def _use_clouds(self, pose: "_Pose") -> None:
        """Put the clouds that ended by the time of ``pose`` on the map; the others wait."""
        waiting = self._waiting_clouds
        used = False
        while waiting and waiting[0][0] <= pose.stamp + _SAME_INSTANT:
            end, xyz, since_end = waiting.popleft()
            with self.latencies["obstacles"].measure():
                xyz = deskew(xyz, since_end, pose.twist, pose.stamp - end)
                self._obstacles.add(se3.apply(pose.T_odom_base, xyz)[:, :2], pose.stamp)
            self._seen = end
            used = True
        if used:
            field = self._obstacles.distance_field(pose.T_odom_base[:2, 3], pose.stamp)
            self._mppi.set_obstacles(field)

    def _on_goal(self, message: PoseStamped) -> None:
        frame = clean_frame(message.header.frame_id)
        goal = np.array([message.pose.position.x, message.pose.position.y])
        if frame != self.config.odom_frame or not np.isfinite(goal).all():
            self.get_logger().warning(
                f"goal {goal.tolist()} in frame '{frame}' ignored: must be finite and in "
                f"'{self.config.odom_frame}'"
            )
            return
        self._set_goals(goal[None])
        self.get_logger().info(f"new goal at x {goal[0]:.2f} m, y {goal[1]:.2f} m")

    def _on_reset(self, _request, response):
        self._mppi.reset()
        self._set_goals(np.reshape(self.config.goals, (-1, 2)))
        response.success, response.message = True, "plan forgotten, goals from the first one"
        return response

    def _set_goals(self, goals: np.ndarray) -> None:
        with self._lock:
            self._goals = GoalSequence(goals, self.config.subset(GoalConfig))

    def _now(self) -> float:
        return 1e-9 * self.get_clock().now().nanoseconds

    def _header(self, frame: str) -> Header:
        return Header(stamp=self.get_clock().now().to_msg(), frame_id=frame)


@dataclass(frozen=True)
class _Pose:
    stamp: float  # s
    T_odom_base: np.ndarray
    twist: np.ndarray  # (6,) linear and angular, in base_frame
    deviation: float  # m, the larger one of x and y

    @property
    def state(self) -> np.ndarray:
        """The state of diff_drive: x, y, yaw, v, w."""
        x, y = self.T_odom_base[:2, 3]
        return np.array([x, y, yaw(self.T_odom_base), self.twist[0], self.twist[5]])


def _condition(update: MppiUpdate) -> Status:
    values = {
        "ess": f"{update.ess:.1f}",
        "temperature": f"{update.temperature:.4g}" + (" (at its bound)" if update.at_bound else ""),
        "log eta": f"{update.log_eta:.4g}",
        "minimum cost": f"{update.min_cost:.4g}",
        "mean cost": f"{update.mean_cost:.4g}",
        "collided [%]": f"{100 * update.collided_fraction:.1f}",
        "not finite [%]": f"{100 * update.not_finite_fraction:.1f}",
        "plan age [ms]": f"{1e3 * update.plan_age:.0f}",
        **{f"cost {term}": f"{cost:.4g}" for term, cost in update.terms.items()},
        **{f"{name}, believed": f"{value:.4g}" for name, value in update.parameters.items()},
        **{f"{stage} [ms]": f"{took:.3f}" for stage, took in update.milliseconds.items()},
    }
    if update.ok:
        return Status(diagnostics.OK, "driving", values)
    held = "the last plan is held: " if update.held else ""
    return Status(diagnostics.WARN, f"no plan: {held}{update.reason}", values)


def _pose_at(header: Header, state: np.ndarray) -> PoseStamped:
    pose = PoseStamped(header=header)
    matrix = np.eye(4)
    cosine, sine = np.cos(state[2]), np.sin(state[2])
    matrix[:2, :2] = [[cosine, -sine], [sine, cosine]]
    matrix[:2, 3] = state[:2]
    set_pose(pose.pose, matrix)
    return pose


def _markers(header: Header, trajectories: np.ndarray, weights: np.ndarray) -> MarkerArray:
    """Return the trajectories as lines, the heavier the more opaque."""
    markers = [Marker(header=header, action=Marker.DELETEALL)]
    largest = max(weights.max(initial=0.0), 1e-12)
    for number, (states, weight) in enumerate(zip(trajectories, weights, strict=True)):
        line = Marker(header=header, ns="rollouts", id=number, type=Marker.LINE_STRIP)
        line.pose.orientation.w = 1.0
        line.scale.x = 0.02
        line.color = ColorRGBA(r=0.1, g=0.6, b=1.0, a=float(0.1 + 0.9 * weight / largest))
        line.points = [Point(x=float(x), y=float(y)) for x, y in states[:, :2]]
        markers.append(line)
    return MarkerArray(markers=markers)


def _seconds(stamp) -> float:
    return 1e-9 * Time.from_msg(stamp).nanoseconds


def main() -> int:
    """Run the node."""
    return run(MppiController)


if __name__ == "__main__":
    sys.exit(main())

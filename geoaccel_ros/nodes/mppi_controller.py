"""mppi_controller: a robot's state, clouds and goals in, commands out."""

import functools
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path as FilePath

import numpy as np
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import OccupancyGrid, Odometry, Path
from rclpy.clock import ClockType
from rclpy.time import Time
from sensor_msgs.msg import JointState, PointCloud2
from std_msgs.msg import Header, UInt64
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

from geoaccel_ros.control.adaptive import AdaptiveMppi
from geoaccel_ros.control.distance_field import DistanceField, empty_field
from geoaccel_ros.control.goals import GoalSequence
from geoaccel_ros.control.mppi import MppiUpdate
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.plan import resample
from geoaccel_ros.control.systems import load_system
from geoaccel_ros.control.update_file import write_update
from geoaccel_ros.registration.frames import clean_frame
from geoaccel_ros.ros import diagnostics, parameters, qos
from geoaccel_ros.ros.clouds import MALFORMED, NO_TIMES, NO_TRANSFORM
from geoaccel_ros.ros.commands import Commands
from geoaccel_ros.ros.control_loop import ControlLoop
from geoaccel_ros.ros.controller_config import ControllerConfig, controller_config
from geoaccel_ros.ros.diagnostics import Counters, Latency, Status
from geoaccel_ros.ros.node import ManagedNode
from geoaccel_ros.ros.obstacle_clouds import ObstacleClouds
from geoaccel_ros.ros.occupancy_grid import cells_of
from geoaccel_ros.ros.plan_messages import goal_from_pose, plan_path, rollout_markers
from geoaccel_ros.ros.robot_state import RobotState, StateAssembly, StateError
from geoaccel_ros.ros.run import run

# Rollouts drawn in RViz when somebody looks.
_ROLLOUTS_SHOWN = 30
# A pose may correct itself by this much between two messages without having begun anew (m).
_JUMP = 0.5

# Of the robot that is controlled when nothing else is said.
MppiControllerConfig = controller_config("diff_drive")


@dataclass(frozen=True)
class _Plan:
    stamp: float  # s
    controls: np.ndarray  # (T, U)


@dataclass(frozen=True)
class _Update:
    """An update and what it was called with."""

    state: np.ndarray
    goal: np.ndarray
    stamp: float  # s
    found: MppiUpdate


class MppiController(ManagedNode):
    """odom, joint_states, points, goals -> cmd_vel or commands, plan, rollouts.

    The executor brings messages. The control loop has two threads of its own: one that sends a
    command each period, and one that plans.
    """

    NAME = "mppi_controller"
    CONFIG = ControllerConfig

    def config_type(self):
        return controller_config(parameters.given(self, ControllerConfig, "system"))

    def configure(self):
        config = self.config
        self._system = load_system(config.system)
        robot = config.subset(self._system.parameters)
        self._period = 1.0 / config.rate
        self._on_clock = config.update_on == "clock"
        self.counters = Counters("updates", "missed deadlines", "no plan", "state refused")
        self.latencies = {"update": Latency()}
        self._mppi: AdaptiveMppi | None = None
        self._use_parameters(config)
        engine = self._mppi.engine
        self.get_logger().info(f"rollouts on {engine.backend} ({engine.backend_reason})")
        if engine.warning:
            self.get_logger().warning(engine.warning)
        self._assembly = StateAssembly(self._system, robot, config.odom_frame, config.base_frame)

        # What the threads share; held for moments, never while a plan is made.
        self._lock = threading.RLock()
        self._state: RobotState | None = None
        self._refusal = ""
        self._not_before = -np.inf  # s, instant of the newest epoch
        self._epoch: int | None = None
        self._plan: _Plan | None = None
        # What is halted begins anew: counts up with every safe command.
        self._halts = 0
        self._is_halted = True
        self._field = empty_field()
        # Held while an update is made; what looks at the last one waits for it.
        self._updating = threading.Lock()
        self._last: _Update | None = None
        self._condition = Status(diagnostics.WARN, f"waiting for {self._assembly.sources}")
        self._set_goals(self._given_goals())

        self._commands = Commands(self, self._system, config.base_frame)
        self._plan_publisher = self.advertise(Path, "plan", qos.RELIABLE)
        self._rollout_publisher = self.advertise(MarkerArray, "rollouts", qos.RELIABLE)
        if self._assembly.needs_odometry:
            self.subscribe(Odometry, "odom", self._on_odom, qos.RELIABLE)
        if self._assembly.joints:
            self.subscribe(JointState, "joint_states", self._on_joints, qos.RELIABLE)
        self.subscribe(UInt64, "epoch", self._on_epoch, qos.LATCHED, always=True)
        self.subscribe(PoseStamped, "goal_pose", self._on_goal, qos.RELIABLE)
        self.subscribe(Path, "goal_path", self._on_path, qos.RELIABLE)
        self.offer(Trigger, "~/cancel", self._on_cancel)
        self.offer(Trigger, "~/reset", self._on_reset)
        self.offer(Trigger, "~/dump_update", self._on_dump)
        self._clouds: ObstacleClouds | None = None
        if self._system.is_planar:
            for name in ("clouds in", MALFORMED, NO_TRANSFORM, NO_TIMES):
                self.counters.count(name, 0)
            self._clouds = ObstacleClouds(self, config)
            self.latencies["obstacles"] = self._clouds.latency
            if config.obstacle_source != "map":
                self.subscribe(PointCloud2, "points", self._on_points, qos.sensor_data())
            if config.obstacle_source != "clouds":
                self.counters.count("maps in", 0)
                self.subscribe(OccupancyGrid, "map", self._on_map, qos.LATCHED, always=True)

    def activate(self):
        self._loop = ControlLoop(
            self._period if self._on_clock else None,
            self.config.state_timeout,
            self._tick,
            self._on_silence,
            self._on_error,
        )
        self._loop.start()

    def deactivate(self):
        self._loop.stop()
        with self._lock:
            self._halt(Status(diagnostics.WARN, "not active"))
        self._commands.wait_until_heard()
        self._loop.join()

    def cleanup(self):
        self._mppi = self._clouds = None

    def status(self):
        engine, samples, most = self._mppi.engine, self._mppi.samples, self._mppi.samples_max
        with self._lock:
            condition = self._condition
            values = {
                "backend": f"{engine.backend} ({engine.backend_reason})",
                "samples": samples,
                "goals reached": self._goals.index,
                "goals": len(self._goals),
                "epoch": "unknown" if self._epoch is None else self._epoch,
                **condition.values,
            }
        level, message = condition.level, condition.message
        if samples < most:
            level = max(level, diagnostics.WARN)
            message += f", with {samples} of {most} samples: more take longer than a period"
        return Status(level, message, values)

    # The control loop, on its own threads.

    def _tick(self, skipped: int) -> None:
        self.counters.count("missed deadlines", skipped)
        with self._lock:
            now = self._now()
            problem = self._problem(_seconds(now))
            if problem is not None:
                self._halt(problem)
            elif not self._loop.busy:
                job = functools.partial(
                    self._update, self._state, self._goal, now, self._halts, self._is_halted
                )
                self._is_halted = False
                self._loop.work(job)
            elif self._on_clock:
                self.counters.count("missed deadlines")
                self._play(now)

    def _update(
        self, state: RobotState, goal: np.ndarray, began: Time, halts: int, is_new: bool
    ) -> None:
        """Plan, and send the plan's command unless the robot was halted meanwhile."""
        stamp = _seconds(began)
        start = time.perf_counter()
        with self._lock:
            field, sent = self._field, self._commands.sent
        with self._updating:
            if self.config is not self._planned_with:
                self._use_parameters(self.config)
            engine = self._mppi.engine
            if is_new:
                engine.reset()
            engine.go_on_from(sent)
            if self._system.is_planar:
                engine.set_obstacles(field)
            predicted = engine.predict(state.values, state.stamp, sent, stamp)
            update = engine.update(predicted, goal, stamp)
            self._last = _Update(predicted, goal, stamp, update)
        took = time.perf_counter() - start
        with self._lock:
            if halts == self._halts:
                self._follow(update, stamp, is_late=self._on_clock and took > self._period)
        self.latencies["update"].add(1e3 * took)
        self.counters.count("updates")
        if not update.ok:
            self.counters.count("no plan")
        self._publish_plan(update)
        self._adapt(took)

    def _use_parameters(self, config: ControllerConfig) -> None:
        """Plan with these parameters from now on; a plan that was begun goes on."""
        robot, before = config.subset(self._system.parameters), self._mppi
        mppi = AdaptiveMppi(
            config.subset(MppiConfig),
            config.system,
            robot,
            config.samples_min if self._on_clock else config.samples,
            self._period,
        )
        if before is not None:
            mppi.engine.continue_from(before.engine)
        self._packed = self._system.pack(robot, np.float64)
        self._safe = self._system.tried_controls(robot)[0].astype(float)
        self._mppi, self._planned_with = mppi, config

    def _adapt(self, took: float) -> None:
        """Use more or fewer samples by what an update took, s."""
        with self._updating:
            changed = self._mppi.took(took)
            if changed:
                self._last = None  # of another engine
        if changed:
            self.get_logger().warning(
                f"updates have {self._mppi.samples} of {self._mppi.samples_max} samples now, by "
                f"what they took, {1e3 * took:.1f} ms of {1e3 * self._period:.1f} ms"
            )

    def _follow(self, update: MppiUpdate, stamp: float, is_late: bool) -> None:
        """Send the command of an update: its first one, or if it is late the one that is due."""
        self._condition = _condition(update)
        self._plan = _Plan(stamp, update.controls) if update.ok or update.held else None
        if is_late and self._plan is not None:
            self._play(self._now())
        else:
            self._commands.send(update.command, self._now())

    def _play(self, now: Time) -> None:
        """Send what the last plan has for now; what is safe where it is too old."""
        plan, age = self._plan, np.inf
        if plan is not None:
            age = _seconds(now) - plan.stamp
        if 0.0 <= age <= self._period + self.config.plan_hold:
            self._commands.send(resample(plan.controls, self.config.dt, age)[0], now)
        else:
            # No halt: what is being planned is still wanted, though it comes late.
            text = "no plan in time: updates take longer than a period and plan_hold"
            self._condition = Status(diagnostics.ERROR, text)
            self._commands.send(self._safe, now)

    def _halt(self, condition: Status) -> None:
        """Send the safe command; the robot goes on from a new plan."""
        self._condition = condition
        self._plan = None
        self._halts += 1
        self._is_halted = True
        self._commands.send(self._safe, self._now())

    def _problem(self, now: float) -> Status | None:
        """Return why the robot must be safe, or None if it may be controlled."""
        config, state = self.config, self._state
        refused = f"; refused: {self._refusal}" if self._refusal else ""
        if state is None:
            return Status(diagnostics.WARN, f"waiting for {self._assembly.sources}{refused}")
        age = now - state.stamp
        # A state from the future is one from before a reset of time: as useless as an old one.
        if abs(age) > config.state_timeout:
            return self._stopped(
                f"the state is {age:.2f} s old (limit {config.state_timeout:g} s){refused}"
            )
        pose = state.odometer
        if pose is not None and pose.deviation > config.state_deviation_max:
            return self._stopped(f"the pose is not known: {pose.deviation:.2g} m off, it says")
        if self._goal is None:
            return Status(diagnostics.OK, "all goals reached" if len(self._goals) else "no goal")
        if self._clouds is None:
            return None
        if config.obstacle_source != "clouds" and not self._clouds.knows_map:
            return self._stopped("no map yet")
        if config.obstacle_source != "map" and config.obstacle_timeout:
            limit, seen = config.obstacle_timeout, self._clouds.seen
            if seen is None or now - seen > limit:
                silence = "no cloud yet" if seen is None else f"no cloud for {now - seen:.2f} s"
                return self._stopped(f"{silence} (limit {limit:g} s)")
        return None

    def _stopped(self, reason: str) -> Status:
        text = f"stopped: {reason}"
        self.get_logger().warning(text, throttle_duration_sec=5.0)
        return Status(diagnostics.ERROR, text)

    @property
    def _goal(self) -> np.ndarray | None:
        """The goal to go to, or to be held at; None if there is none."""
        if self._goals.finished and self.config.at_goal == "hold":
            return self._goals.last
        return self._goals.current

    def _on_silence(self) -> None:
        with self._lock:
            self._halt(self._stopped(f"no state for {self.config.state_timeout:g} s"))

    def _on_error(self, error: Exception) -> None:
        self.get_logger().error(traceback.format_exc(), throttle_duration_sec=5.0)
        with self._lock:
            self._halt(Status(diagnostics.ERROR, f"stopped: {error!r}"))

    def _publish_plan(self, update: MppiUpdate) -> None:
        header = Header(stamp=self._now().to_msg(), frame_id=self.config.odom_frame)
        names = self._system.state
        if self._plan_publisher.get_subscription_count():
            self._plan_publisher.publish(plan_path(header, update.plan, names))
        if self._rollout_publisher.get_subscription_count():
            rollouts = self._mppi.engine.rollouts(_ROLLOUTS_SHOWN)
            self._rollout_publisher.publish(rollout_markers(header, *rollouts, names))

    # From the executor.

    def _on_odom(self, message: Odometry) -> None:
        self._take(self._assembly.add_odometry, message)

    def _on_joints(self, message: JointState) -> None:
        self._take(self._assembly.add_joint_state, message)

    def _take(self, add, message) -> None:
        try:
            state = add(message)
        except StateError as error:
            self.counters.count("state refused", reason=str(error))
            self.get_logger().warning(f"state refused: {error}", throttle_duration_sec=5.0)
            with self._lock:
                self._refusal = str(error)
            return
        # What was on its way while the robot was reset is of the time before.
        if state is None or state.stamp <= self._not_before:
            return
        if self._state is not None and _jumped(self._state, state):
            self.counters.count("jumps")
            self._start_over("the state jumped")
        with self._lock:
            self._state, self._refusal = state, ""
            reached = self._goals.update(functools.partial(self._is_reached, state))
            index = self._goals.index
        if reached:
            self.get_logger().info(f"goal {index} of {len(self._goals)} reached")
        if self._clouds is not None:
            self._use(self._clouds.use(state.odometer))
        self._loop.wake()

    def _is_reached(self, state: RobotState, goal: np.ndarray, is_last: bool) -> bool:
        if self._system.is_planar:
            twist = state.odometer.twist
            speed = max(np.hypot(*twist[:2]), abs(twist[5]))
            return self.config.reached(goal, is_last, state.values, speed)
        reached = self._system.reached
        return reached is not None and reached(tuple(state.values), tuple(goal), self._packed)

    def _on_epoch(self, message: UInt64) -> None:
        last, self._epoch = self._epoch, message.data
        if self.is_active and last not in (None, message.data):
            self.counters.count("epochs")
            if self._state is not None or self._on_clock:
                self._not_before = _seconds(self._now())
            self._start_over(f"epoch {message.data} begins")

    def _start_over(self, reason: str) -> None:
        """Forget all that is of another time or frame; the robot is safe until it is known."""
        self.get_logger().warning(f"{reason}: plan, commands, obstacles and state forgotten")
        self._assembly.forget()
        if self._clouds is not None:
            self._clouds.forget()
        with self._lock:
            self._state = None
            self._field = empty_field()
            self._commands.forget()
            self._halt(Status(diagnostics.WARN, f"{reason}: waiting for {self._assembly.sources}"))

    def _on_points(self, message: PointCloud2) -> None:
        self.counters.count("clouds in")
        self._clouds.config = self.config
        self._clouds.add(message)
        if self._state is not None:
            self._use(self._clouds.use(self._state.odometer))

    def _on_map(self, message: OccupancyGrid) -> None:
        self.counters.count("maps in")
        try:
            self._clouds.fixed = cells_of(message, self.config)
        except ValueError as error:
            self.counters.count("map refused", reason=str(error))
            self.get_logger().warning(f"map refused: {error}", throttle_duration_sec=5.0)
            return
        if self._state is not None:
            self._use(self._clouds.use(self._state.odometer))

    def _use(self, field: DistanceField | None) -> None:
        if field is not None:
            with self._lock:
                self._field = field

    def _on_goal(self, message: PoseStamped) -> None:
        self._take_goals([message])

    def _on_path(self, message: Path) -> None:
        for pose in message.poses:
            pose.header.frame_id = pose.header.frame_id or message.header.frame_id
        if message.poses:
            self._take_goals(message.poses)
        else:
            self._cancel()

    def _take_goals(self, poses: list[PoseStamped]) -> None:
        goals = []
        for pose in poses:
            frame = clean_frame(pose.header.frame_id)
            try:
                goals.append(goal_from_pose(pose.pose, self._system.goal))
                if frame != self.config.odom_frame:
                    raise ValueError(f"it is not in '{self.config.odom_frame}'")
            except ValueError as error:
                self.get_logger().warning(f"goal in frame '{frame}' ignored: {error}")
                return
        self._set_goals(np.array(goals))
        self.get_logger().info(f"{len(goals)} new goals, the first at {_text(goals[0])}")

    def _on_cancel(self, _request, response):
        self._cancel()
        response.success, response.message = True, "goals cancelled"
        return response

    def _cancel(self) -> None:
        """Have no goals: the robot is safe, or held where it is."""
        names, width = self._system.state, len(self._system.goal)
        with self._lock:
            here = np.zeros((0, width))
            if self.config.at_goal == "hold" and self._state is not None:
                column = {name: i for i, name in enumerate(names)}
                if all(name in column for name in self._system.goal):
                    here = self._state.values[[column[name] for name in self._system.goal]][None]
            self._set_goals(here)
            self._goals.index = len(here)
            if not len(here):
                self._halt(Status(diagnostics.OK, "no goal"))
        self.get_logger().info("goals cancelled")

    def _on_reset(self, _request, response):
        with self._lock:
            self._set_goals(self._given_goals())
            self._halt(Status(diagnostics.OK, "reset"))
        response.success, response.message = True, "plan forgotten, goals from the first one"
        return response

    def _on_dump(self, _request, response):
        path = FilePath(self.config.dump_file).absolute()
        with self._updating:
            last = self._last
            if last is None:
                response.success, response.message = False, "there was no update yet"
                return response
            try:
                count = write_update(
                    path, self._mppi.engine, last.found, last.state, last.goal, last.stamp,
                    self.config.dt, self.config,
                )  # fmt: skip
            except (OSError, ValueError) as error:
                response.success, response.message = False, str(error)
                return response
        response.success, response.message = True, f"{count} samples to {path}"
        return response

    def _given_goals(self) -> np.ndarray:
        return np.reshape(self.config.goals, (-1, len(self._system.goal)))

    def _set_goals(self, goals: np.ndarray) -> None:
        with self._lock:
            self._goals = GoalSequence(goals)

    def _now(self) -> Time:
        """Return the instant of a command: the present one, or that of the state it follows."""
        if self._on_clock or self._state is None:
            return self.get_clock().now()
        return Time(nanoseconds=round(1e9 * self._state.stamp), clock_type=ClockType.ROS_TIME)


def _jumped(last: RobotState, state: RobotState) -> bool:
    """Return whether no robot can have moved so: the odometry began anew, or time did."""
    elapsed = state.stamp - last.stamp
    if elapsed < 0.0:
        return True
    if state.odometer is None:
        return False
    poses = last.odometer, state.odometer
    moved = np.linalg.norm(np.subtract(*(pose.T_odom_base[:3, 3] for pose in poses)))
    fastest = max(np.linalg.norm(pose.twist[:3]) for pose in poses)
    return moved > 2.0 * fastest * elapsed + _JUMP


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


def _text(goal: np.ndarray) -> str:
    return ", ".join(f"{value:.2f}" for value in goal)


def _seconds(time: Time) -> float:
    return 1e-9 * time.nanoseconds


def main() -> int:
    """Run the node."""
    return run(MppiController)


if __name__ == "__main__":
    sys.exit(main())

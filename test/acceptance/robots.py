"""Robots in closed loop over DDS: their two nodes started, and what they do heard and asserted.

Where a run is not about time, the simulation steps by command and the controller follows its
states: no such run depends on how fast the machine is.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from geometry_msgs.msg import PoseStamped, TwistStamped
from nav_msgs.msg import Odometry
from ros_harness import Probe, Process, Processes, wait_for
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import SetBool

from geoaccel_ros.control.systems import load_system
from geoaccel_ros.ros import qos

CONFIG = Path(__file__).resolve().parents[2] / "config"
# Wall time that a simulated second may take, and that a loop needs to begin (s).
_SLOWEST = 10.0
_BEGIN = 60.0


def start_controller(nodes: Processes, robot: str, *values: str) -> Process:
    """Start the controller of a robot, with parameters (``name:=value``) beside its file's."""
    file = str(CONFIG / f"{robot}_controller.yaml")
    given = [
        part for value in ("use_sim_time:=true", "backend:=cpu", *values) for part in ("-p", value)
    ]
    return nodes.start("mppi_controller", "--params-file", file, *given)


def start_simulation(nodes: Processes, robot: str, *arguments: str) -> Process:
    """Start the simulation of a robot, with ROS arguments beside its file."""
    file = str(CONFIG / f"{robot}_simulation.yaml")
    return nodes.start("mujoco_simulation", "--params-file", file, *arguments)


def start_stepped(
    nodes: Processes,
    probe: Probe,
    robot: str,
    period: float,
    values: tuple = (),
    arguments: tuple = (),
) -> None:
    """Start both, each waiting for the other: a command moves time on by ``period`` s.

    Time begins when the probe, which has a Track and Commands of the robot by now, hears them.
    ``values`` are parameters of the controller, ``arguments`` ROS arguments of the simulation.
    """
    start_controller(nodes, robot, "update_on:=state", "command_delay:=0.0", *values)
    stepping = ["-p", "stepping:=command", "-p", f"command_period:={period}"]
    start_simulation(nodes, robot, "-p", "start_paused:=true", *stepping, *arguments)
    # The probe, and the controller or who carries states to it.
    state = "joint_states" if robot == "cartpole" else "odom"
    probe.wait_for_connections(
        "mujoco_simulation", publishers_of_commands=1, **{f"subscribers_of_{state}": 2}
    )
    probe.wait_for_connections("mppi_controller", subscribers_of_commands=2)
    assert probe.call(SetBool, "/mujoco_simulation/pause", SetBool.Request(data=False)).success


def carry(
    probe: Probe, kind: type, source: str, target: str, change: Callable, profile=qos.RELIABLE
) -> None:
    """Carry messages from a topic to another: for each one those that ``change`` returns.

    It is called on the probe's thread.
    """
    publisher = probe.node.create_publisher(kind, target, profile)

    def on_message(message):
        for changed in change(message):
            publisher.publish(changed)

    probe.node.create_subscription(kind, source, on_message, profile)


def goal_at(place: tuple[float, float, float]) -> PoseStamped:
    """Return a goal in the world, m."""
    goal = PoseStamped()
    goal.header.frame_id = "world"
    goal.pose.position.x, goal.pose.position.y, goal.pose.position.z = place
    return goal


def seconds(message) -> float:
    """Return the stamp of a message, s."""
    return message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec


class Track:
    """What a robot did: a row of numbers for each of its states, by simulated time."""

    def __init__(self, probe: Probe, kind: type, topic: str):
        self._times: list[float] = []
        self._rows: list[tuple[float, ...]] = []
        probe.node.create_subscription(kind, topic, self._on_message, qos.reliable(1000))

    @property
    def time(self) -> float:
        """Simulated s of the newest state; 0 before the first."""
        return self._times[-1] if self._times else 0.0

    def wait(self, until: float) -> None:
        """Wait until the simulated time is past ``until``."""
        most = _BEGIN + _SLOWEST * max(0.0, until - self.time)
        wait_for(lambda: self.time > until, most, lambda: f"{until:.1f} s; it is {self.time:.1f} s")

    def between(self, begin: float, end: float = math.inf) -> tuple[np.ndarray, np.ndarray]:
        """Return times (N,) and rows (N, ...) from ``begin`` to ``end``, both included."""
        times = np.array(self._times)
        rows = np.array(self._rows[: len(times)])
        wanted = (times >= begin) & (times <= end)
        assert wanted.any(), f"no state from {begin:.2f} to {end:.2f} s"
        return times[wanted], rows[wanted]

    def _on_message(self, message) -> None:
        # The row first: who reads meanwhile finds one for each time.
        self._rows.append(self._row(message))
        self._times.append(seconds(message))

    def _row(self, message) -> tuple[float, ...]:
        raise NotImplementedError


class Pole(Track):
    """The cartpole's place (m), angle from upright (rad, within half a turn) and force (N)."""

    def __init__(self, probe: Probe, topic: str = "/joint_states"):
        super().__init__(probe, JointState, topic)

    def angle(self, begin: float, end: float = math.inf) -> float:
        """Return the largest angle (rad) between two times."""
        return float(np.abs(self.between(begin, end)[1][:, 1]).max())

    def stands(self, duration: float) -> bool:
        """Return whether the pole has been within 0.1 rad for ``duration`` s."""
        return self.time > duration and self.angle(self.time - duration) < 0.1

    def _row(self, message: JointState) -> tuple[float, ...]:
        cart, hinge = message.name.index("rail"), message.name.index("hinge")
        angle = math.remainder(message.position[hinge], 2.0 * math.pi)
        return message.position[cart], angle, message.effort[cart]


class Body(Track):
    """The true place (m, x y z) of a robot that moves freely, its tilt (rad) and speed (m/s)."""

    def __init__(self, probe: Probe, topic: str = "/odom"):
        super().__init__(probe, Odometry, topic)

    def places(self, begin: float, end: float = math.inf) -> np.ndarray:
        """Return the places (N, 3) between two times."""
        return self.between(begin, end)[1][:, :3]

    def _row(self, message: Odometry) -> tuple[float, ...]:
        place, turn = message.pose.pose.position, message.pose.pose.orientation
        up = 1.0 - 2.0 * (turn.x * turn.x + turn.y * turn.y)
        v = message.twist.twist.linear
        tilt = math.acos(min(1.0, max(-1.0, up)))
        return place.x, place.y, place.z, tilt, math.hypot(v.x, v.y, v.z)


class Commands:
    """The commands of a robot's controller, by the simulated time at which they came.

    Parameters
    ----------
    probe : Probe
    robot : str
        Name of its system, which says its limits.
    track : Track
        Has the time.
    """

    def __init__(self, probe: Probe, robot: str, track: Track):
        system = load_system(robot)
        self._limits = [np.array(limit) for limit in system.limits(system.parameters())]
        self.safe = system.tried_controls(system.parameters())[0].astype(float)
        self._track = track
        self._heard: list[tuple[float, tuple[float, ...]]] = []
        kind, topic, self._values = (
            (TwistStamped, "/cmd_vel", _of_twist)
            if system.is_planar
            else (Float64MultiArray, "/commands", lambda message: tuple(message.data))
        )
        probe.node.create_subscription(kind, topic, self._on_command, qos.reliable(1000))

    def __len__(self) -> int:
        return len(self._heard)

    def between(self, begin: float, end: float = math.inf) -> np.ndarray:
        """Return the commands (N, U) heard between two times."""
        found = [values for time, values in list(self._heard) if begin <= time <= end]
        return np.array(found).reshape(-1, len(self.safe))

    def safe_after(self, fault: float, end: float, limit: float) -> float:
        """Return how long after ``fault`` the last command before ``end`` was not the safe one.

        Assert that this is no more than ``limit`` s, and that commands came until ``end``.
        """
        late = self.between(fault + limit, end)
        assert len(late), "no commands while there was no state"
        assert (late == self.safe).all(), f"not safe: {late.min(axis=0)} to {late.max(axis=0)}"
        times = [
            time
            for time, values in list(self._heard)
            if fault <= time <= end and not np.array_equal(values, self.safe)
        ]
        return max(times, default=fault) - fault

    def check(self) -> None:
        """Assert that every command was finite and within the robot's limits."""
        values = self.between(-math.inf)
        lower, upper = self._limits
        assert len(values), "no command"
        assert np.isfinite(values).all(), "a command was not finite"
        # Rollouts, and so commands, are of float32.
        assert (values >= lower - 1e-5).all() and (values <= upper + 1e-5).all(), (
            f"a command beyond the limits: {values.min(axis=0)} to {values.max(axis=0)}"
        )

    def _on_command(self, message) -> None:
        self._heard.append((self._track.time, self._values(message)))


def _of_twist(message: TwistStamped) -> tuple[float, ...]:
    return message.twist.linear.x, message.twist.angular.z

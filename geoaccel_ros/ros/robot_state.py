"""A robot's state from what is published of it: odometry, joint states, or both.

The state of a system that has a MuJoCo MODEL is its qpos and qvel: a free joint is the pose and the
twist of ``base_frame`` in an Odometry, hinges and slides are found by name in a JointState. The
state of one without is put together by the names of its components, from Odometry alone.
"""

import collections
import math
from collections.abc import Iterable
from dataclasses import dataclass

import mujoco
import numpy as np
from nav_msgs.msg import Odometry
from rclpy.time import Time
from sensor_msgs.msg import JointState

from geoaccel_ros.config import Configuration, ConfigurationError
from geoaccel_ros.control.systems import System
from geoaccel_ros.registration.frames import clean_frame
from geoaccel_ros.ros.transforms import matrix_from_pose, yaw

# Odometry and joint states stamped so far apart are of one instant (s).
_SAME_INSTANT = 0.005
# So many of each wait for the other.
_WAITING = 20


class StateError(ValueError):
    """A message that tells no state; its text says why."""


@dataclass(frozen=True)
class Odometer:
    """An Odometry message that was checked.

    Attributes
    ----------
    stamp : float
        s.
    T_odom_base : np.ndarray
        (4, 4).
    quaternion : np.ndarray
        (4,) w x y z, of norm 1.
    twist : np.ndarray
        (6,) linear and angular, in base_frame.
    deviation : float
        m, the larger one of x and y.
    """

    stamp: float
    T_odom_base: np.ndarray
    quaternion: np.ndarray
    twist: np.ndarray
    deviation: float


@dataclass(frozen=True)
class RobotState:
    """A state at an instant.

    Attributes
    ----------
    stamp : float
        s.
    values : np.ndarray
        (X,) in the order of the system's STATE.
    odometer : Odometer or None
        The pose in it, where it has one.
    """

    stamp: float
    values: np.ndarray
    odometer: Odometer | None


class StateAssembly:
    """Puts states together. Not thread-safe.

    Parameters
    ----------
    system : System
    parameters : Configuration
        The system's.
    odom_frame, base_frame : str
        Frames that an Odometry must be in.

    Attributes
    ----------
    needs_odometry : bool
    joints : tuple of str
        Names of the joints that must be told; empty if none.

    Raises
    ------
    ConfigurationError
        If the system has components that neither message tells.
    """

    def __init__(self, system: System, parameters: Configuration, odom_frame: str, base_frame: str):
        self._frames = odom_frame, base_frame
        self._layout = (
            _NamedLayout(system) if system.model is None else _ModelLayout(system, parameters)
        )
        self.needs_odometry, self.joints = self._layout.needs_odometry, self._layout.joints
        self.forget()

    @property
    def sources(self) -> str:
        """The topics that a state is made of."""
        return " and ".join(
            topic
            for topic, needed in (("odom", self.needs_odometry), ("joint_states", self.joints))
            if needed
        )

    def forget(self) -> None:
        """Drop what waits for its other half."""
        self._odometers = collections.deque(maxlen=_WAITING)
        self._joint_states = collections.deque(maxlen=_WAITING)

    def add_odometry(self, message: Odometry) -> RobotState | None:
        """Return the state that an Odometry completes; None while joint states are missing.

        Raises
        ------
        StateError
            If it is in another frame, not finite, or its quaternion's norm is not 1 to within 1 %.
        """
        odometer = read_odometry(message, *self._frames)
        if not self.joints:
            return RobotState(odometer.stamp, self._layout.state(odometer, None), odometer)
        self._odometers.append(odometer)
        return self._pair(odometer, None)

    def add_joint_state(self, message: JointState) -> RobotState | None:
        """Return the state that a JointState completes; None while odometry is missing.

        Raises
        ------
        StateError
            If a joint is missing or not finite.
        """
        joints = _read_joints(message, self.joints)
        if not self.needs_odometry:
            return RobotState(joints.stamp, self._layout.state(None, joints), None)
        self._joint_states.append(joints)
        return self._pair(None, joints)

    def _pair(self, odometer: Odometer | None, joints: "_Joints | None") -> RobotState | None:
        """Return the state of a new part and the nearest other one, if they are of one instant."""
        new, others = (
            (odometer, self._joint_states) if joints is None else (joints, self._odometers)
        )
        if not others:
            return None
        other = min(others, key=lambda part: abs(part.stamp - new.stamp))
        if abs(other.stamp - new.stamp) > _SAME_INSTANT:
            return None
        odometer, joints = (new, other) if joints is None else (other, new)
        return RobotState(odometer.stamp, self._layout.state(odometer, joints), odometer)


def read_odometry(message: Odometry, odom_frame: str, base_frame: str) -> Odometer:
    """Return an Odometry as numbers.

    Raises
    ------
    StateError
        If it is in another frame, not finite, or its quaternion's norm is not 1 to within 1 %.
    """
    for which, frame, wanted, parameter in (
        ("in frame", message.header.frame_id, odom_frame, "odom_frame"),
        ("of", message.child_frame_id, base_frame, "base_frame"),
    ):
        # A twist of no frame is taken to be in the robot's own.
        if clean_frame(frame) != wanted and (frame or parameter == "odom_frame"):
            raise StateError(
                f"odom {which} '{frame}', must be '{wanted}' (parameter '{parameter}')"
            )
    try:
        T_odom_base = matrix_from_pose(message.pose.pose)
    except ValueError as error:
        raise StateError(f"odom is {error}") from None
    linear, angular = message.twist.twist.linear, message.twist.twist.angular
    twist = np.array([linear.x, linear.y, linear.z, angular.x, angular.y, angular.z])
    if not np.isfinite(twist).all():
        raise StateError(f"odom's twist is not finite: {twist.tolist()}")
    variance = max(message.pose.covariance[0], message.pose.covariance[7], 0.0)
    orientation = message.pose.pose.orientation
    quaternion = np.array([orientation.w, orientation.x, orientation.y, orientation.z])
    return Odometer(
        seconds(message.header.stamp),
        T_odom_base,
        quaternion / np.linalg.norm(quaternion),
        twist,
        # What is not a number is not known.
        math.sqrt(variance) if math.isfinite(variance) else math.inf,
    )


def seconds(stamp) -> float:
    """Return a builtin_interfaces/Time in seconds."""
    return 1e-9 * Time.from_msg(stamp).nanoseconds


@dataclass(frozen=True)
class _Joints:
    stamp: float
    position: dict[str, float]
    velocity: dict[str, float]


def _read_joints(message: JointState, names: Iterable[str]) -> _Joints:
    count = len(message.name)
    if len(message.position) != count or len(message.velocity) != count:
        raise StateError(
            f"joint_states has {count} names, {len(message.position)} positions and "
            f"{len(message.velocity)} velocities"
        )
    position = dict(zip(message.name, message.position, strict=True))
    velocity = dict(zip(message.name, message.velocity, strict=True))
    for name in names:
        if name not in position:
            raise StateError(f"joint_states has no joint '{name}'")
        if not (math.isfinite(position[name]) and math.isfinite(velocity[name])):
            raise StateError(
                f"joint_states: '{name}' is not finite: position {position[name]}, velocity "
                f"{velocity[name]}"
            )
    return _Joints(seconds(message.header.stamp), position, velocity)


class _NamedLayout:
    """The state of a system without a MODEL, by the names of its components."""

    needs_odometry = True
    joints = ()

    # Position, attitude and velocity in the odom frame; v, w and the rates in the robot's own.
    _COMPONENTS = {
        "x": lambda o: o.T_odom_base[0, 3],
        "y": lambda o: o.T_odom_base[1, 3],
        "z": lambda o: o.T_odom_base[2, 3],
        "yaw": lambda o: yaw(o.T_odom_base),
        **{f"q{axis}": lambda o, i=i: o.quaternion[i] for i, axis in enumerate("wxyz")},
        "v": lambda o: o.twist[0],
        "w": lambda o: o.twist[5],
        **{
            f"v{axis}": lambda o, i=i: o.T_odom_base[i, :3] @ o.twist[:3]
            for i, axis in enumerate("xyz")
        },
        **{f"w{axis}": lambda o, i=i: o.twist[3 + i] for i, axis in enumerate("xyz")},
    }

    def __init__(self, system: System):
        unknown = [name for name in system.state if name not in self._COMPONENTS]
        if unknown:
            raise ConfigurationError(
                f"system '{system.name}' has no MODEL, and odom does not tell {', '.join(unknown)} "
                f"of its STATE: known are {', '.join(self._COMPONENTS)}"
            )
        self._components = [self._COMPONENTS[name] for name in system.state]

    def state(self, odometer: Odometer, joints: None) -> np.ndarray:
        return np.array([component(odometer) for component in self._components])


class _ModelLayout:
    """qpos and qvel of a MuJoCo model."""

    def __init__(self, system: System, parameters: Configuration):
        model = system.mujoco_model(parameters)
        self._sizes = model.nq, model.nv
        self._free: tuple[int, int] | None = None
        self._joints: dict[str, tuple[int, int]] = {}
        for number in range(model.njnt):
            kind, name = mujoco.mjtJoint(model.jnt_type[number]), model.joint(number).name
            addresses = int(model.jnt_qposadr[number]), int(model.jnt_dofadr[number])
            if kind == mujoco.mjtJoint.mjJNT_FREE and self._free is None:
                self._free = addresses
            elif kind in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE):
                self._joints[name] = addresses
            else:
                raise ConfigurationError(
                    f"system '{system.name}': joint '{name}' of its model is a ball joint or a "
                    "second free joint, which neither odom nor joint_states tell"
                )
        self.needs_odometry = self._free is not None
        self.joints = tuple(self._joints)

    def state(self, odometer: Odometer | None, joints: _Joints | None) -> np.ndarray:
        qpos, qvel = (np.zeros(size) for size in self._sizes)
        if self._free is not None:
            position, velocity = self._free
            qpos[position : position + 3] = odometer.T_odom_base[:3, 3]
            qpos[position + 3 : position + 7] = odometer.quaternion
            # MuJoCo has the linear velocity in the world, the angular one in the body.
            linear = odometer.T_odom_base[:3, :3] @ odometer.twist[:3]
            qvel[velocity : velocity + 3] = linear
            qvel[velocity + 3 : velocity + 6] = odometer.twist[3:]
        for name, (position, velocity) in self._joints.items():
            qpos[position], qvel[velocity] = joints.position[name], joints.velocity[name]
        return np.concatenate((qpos, qvel))

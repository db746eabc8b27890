"""MuJoCo's own models as robots that move on by a step with each command they hear."""

import threading
from collections import deque

import mujoco
import numpy as np
from nav_msgs.msg import Odometry
from rclpy.time import Time
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, UInt64

from geoaccel_ros.control.systems import load_system
from geoaccel_ros.ros import qos

# Simulated time begins here, so that no stamp is 0.
_BEGIN = 100.0


class Plant:
    """The robot of a system, told by ``commands``, telling ``odom`` and ``joint_states``.

    Attributes
    ----------
    times : deque of float
        Simulated s of each state, 0 at the beginning.
    states : deque of np.ndarray
        (X,) qpos and qvel.
    commands : deque of np.ndarray
        (U,) as they were heard.
    """

    def __init__(self, probe, system: str, period: float):
        self._system = load_system(system)
        self.model = self._system.mujoco_model(self._system.parameters())
        self.data = mujoco.MjData(self.model)
        self._period = period
        self._joints = [
            self.model.joint(i)
            for i in range(self.model.njnt)
            if self.model.jnt_type[i] != mujoco.mjtJoint.mjJNT_FREE
        ]
        self._is_free = len(self._joints) < self.model.njnt
        self.times, self.states, self.commands = deque(), deque(), deque()
        self._lock = threading.Lock()
        self.break_joints = False
        self._odometry = probe.speak(Odometry, "/odom", qos.RELIABLE) if self._is_free else None
        self._joint_states = (
            probe.speak(JointState, "/joint_states", qos.RELIABLE) if self._joints else None
        )
        self._epochs = probe.node.create_publisher(UInt64, "/epoch", qos.LATCHED)
        probe.node.create_subscription(
            Float64MultiArray, "/commands", self._on_command, qos.RELIABLE
        )

    def start(self, state) -> None:
        """Put the robot into a state (X,)."""
        with self._lock:
            self.data.qpos[:], self.data.qvel[:] = np.split(np.array(state, float), [self.model.nq])

    def push(self, change) -> None:
        """Add to the velocities (nv,)."""
        with self._lock:
            self.data.qvel[:] += change

    def reset(self, state, epoch: int) -> None:
        """Begin an epoch in a state; time goes on."""
        with self._lock:
            self._epochs.publish(UInt64(data=epoch))
            self.data.qpos[:], self.data.qvel[:] = np.split(np.array(state, float), [self.model.nq])

    @property
    def time(self) -> float:
        return self.times[-1] if self.times else 0.0

    def since(self, begin: float) -> np.ndarray:
        """Return the states (N, X) from a time on."""
        pairs = list(zip(self.times, self.states, strict=False))
        return np.array([state for time, state in pairs if time >= begin])

    def _on_command(self, message: Float64MultiArray) -> None:
        with self._lock:
            control = np.array(message.data)
            self.commands.append(control)
            self.data.ctrl[:] = control
            steps = round(self._period / self.model.opt.timestep)
            mujoco.mj_step(self.model, self.data, steps)
            mujoco.mj_forward(self.model, self.data)
            self.times.append(self.data.time)
            self.states.append(np.concatenate((self.data.qpos, self.data.qvel)))
            self._tell()

    def _tell(self) -> None:
        stamp = Time(nanoseconds=round(1e9 * (_BEGIN + self.data.time))).to_msg()
        if self._is_free:
            odom = Odometry(child_frame_id="base_link")
            odom.header.frame_id, odom.header.stamp = "odom", stamp
            position, orientation = odom.pose.pose.position, odom.pose.pose.orientation
            position.x, position.y, position.z = map(float, self.data.qpos[:3])
            quaternion = self.data.qpos[3:7]
            orientation.w, orientation.x, orientation.y, orientation.z = map(float, quaternion)
            rotation = Rotation.from_quat(quaternion, scalar_first=True)
            linear = rotation.inv().apply(self.data.qvel[:3])
            twist = odom.twist.twist
            twist.linear.x, twist.linear.y, twist.linear.z = map(float, linear)
            twist.angular.x, twist.angular.y, twist.angular.z = map(float, self.data.qvel[3:6])
            self._odometry.publish(odom)
        if self._joints:
            message = JointState(name=[joint.name for joint in self._joints])
            message.header.stamp = stamp
            message.position = [float(self.data.joint(j.name).qpos[0]) for j in self._joints]
            message.velocity = [float(self.data.joint(j.name).qvel[0]) for j in self._joints]
            if self.break_joints:
                message.velocity[-1] = float("nan")
            self._joint_states.publish(message)

"""The commands of a controller: published, and kept until the measured state has seen them."""

import collections

import numpy as np
from geometry_msgs.msg import TwistStamped
from rclpy.duration import Duration
from std_msgs.msg import Float64MultiArray, Header

from geoaccel_ros.control.systems import System
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.node import ManagedNode

# Commands older than this are in the measured state by now (s).
_MEMORY = 2.0
# How long a last command may take to be acknowledged.
_LAST_COMMAND = Duration(seconds=0.5)
# Controls of a wheeled robot, which cmd_vel tells.
_WHEELED = ("v_command", "w_command")


class Commands:
    """Sends controls: as ``cmd_vel`` those of a wheeled robot, as ``commands`` all others.

    ``commands`` has one value for each control, in the order of the system's CONTROL, as the
    forward command controllers of ros2_control take them.

    Parameters
    ----------
    node : ManagedNode
    system : System
    frame : str
        Of the twists.
    """

    def __init__(self, node: ManagedNode, system: System, frame: str):
        self._frame = frame
        self._is_wheeled = system.control == _WHEELED
        kind, topic = (
            (TwistStamped, "cmd_vel") if self._is_wheeled else (Float64MultiArray, "commands")
        )
        self._publisher = node.advertise(kind, topic, qos.RELIABLE)
        self.forget()

    @property
    def sent(self) -> list[tuple[float, np.ndarray]]:
        """When each command was sent, s, and its control (U,), in order of time."""
        return list(self._sent)

    def send(self, control: np.ndarray, stamp) -> None:
        """Publish a control (U,); ``stamp`` is an rclpy Time."""
        if self._is_wheeled:
            header = Header(stamp=stamp.to_msg(), frame_id=self._frame)
            message = TwistStamped(header=header)
            message.twist.linear.x, message.twist.angular.z = map(float, control)
        else:
            message = Float64MultiArray(data=[float(value) for value in control])
        self._publisher.publish(message)
        self._remember(1e-9 * stamp.nanoseconds, np.array(control, float))

    def forget(self) -> None:
        """Forget what was sent: it no longer acts on the robot."""
        self._sent = collections.deque()

    def wait_until_heard(self) -> None:
        """Wait, not for long, until the last command has arrived.

        A publisher that ends takes along what has not.
        """
        self._publisher.wait_for_all_acked(_LAST_COMMAND)

    def _remember(self, now: float, control: np.ndarray) -> None:
        if self._sent and self._sent[-1][0] > now:
            self._sent.clear()  # time was set back: they were sent in another time
        if self._sent and self._sent[-1][0] == now:
            self._sent.pop()  # time stands still
        self._sent.append((now, control))
        while self._sent[0][0] < now - _MEMORY:
            self._sent.popleft()

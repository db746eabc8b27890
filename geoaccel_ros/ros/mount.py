"""Where a sensor sits on the robot: from a parameter, or from /tf_static as it arrives."""

from collections.abc import Sequence

import numpy as np
from tf2_msgs.msg import TFMessage

from geoaccel_ros.registration.frames import StaticTransforms, clean_frame, mount_matrix
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.node import ManagedNode


class SensorMount:
    """T_base_sensor of each sensor frame that a node hears of.

    Parameters
    ----------
    node : ManagedNode
        Subscribes to /tf_static from configure on, also while it is not active.
    base_frame : str
        The robot's frame.
    fixed : sequence of float
        x y z [m] roll pitch yaw [rad] of the sensor in the base frame (fixed axes, REP 103); empty:
        /tf_static tells.

    Raises
    ------
    ConfigurationError
        If ``fixed`` has neither 0 nor 6 numbers.
    """

    def __init__(self, node: ManagedNode, base_frame: str, fixed: Sequence[float]):
        self._node = node
        self._base_frame = base_frame
        self._fixed = mount_matrix(fixed)
        self._transforms = StaticTransforms()
        self._node.subscribe(TFMessage, "/tf_static", self._on_static, qos.LATCHED, always=True)

    def lookup(self, frame_id: str) -> np.ndarray | None:
        """Return T_base_sensor (4 x 4), or None, with a throttled warning, while it is unknown."""
        frame = clean_frame(frame_id)
        if frame != frame_id:
            self._node.get_logger().warning(
                f"frame '{frame_id}' has the leading slash of ROS 1; reading it as '{frame}'",
                once=True,
            )
        if self._fixed is not None:
            return self._fixed
        T_base_sensor = self._transforms.lookup(self._base_frame, frame)
        if T_base_sensor is None:
            self._node.get_logger().warning(
                f"no transform from '{frame}' to '{self._base_frame}' on /tf_static yet; clouds "
                "are dropped until it comes (or set the parameter 'lidar_mount')",
                throttle_duration_sec=5.0,
            )
        return T_base_sensor

    def _on_static(self, message: TFMessage) -> None:
        for problem in self._transforms.add(message):
            self._node.get_logger().warning(f"/tf_static: transform ignored, {problem}")

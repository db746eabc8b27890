"""Where sensors sit on the robot, from /tf_static as it arrives."""

import threading

import numpy as np
from tf2_msgs.msg import TFMessage

from geoaccel_ros.registration.frames import StaticTransforms, clean_frame
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.node import ManagedNode


class SensorMounts:
    """T_base_sensor of each sensor frame that a node hears of; any thread may look them up.

    Parameters
    ----------
    node : ManagedNode
        Subscribes to /tf_static from configure on, also while it is not active.
    base_frame : str
        The robot's frame.
    """

    def __init__(self, node: ManagedNode, base_frame: str):
        self._node = node
        self._base_frame = base_frame
        self._transforms = StaticTransforms()
        self._lock = threading.Lock()
        self._node.subscribe(TFMessage, "/tf_static", self._on_static, qos.LATCHED, always=True)

    def lookup(self, frame_id: str, alternative: str = "") -> np.ndarray | None:
        """Return T_base_sensor (4 x 4), or None, with a throttled warning, while it is unknown.

        ``alternative`` ends the warning: what else than /tf_static could tell.
        """
        frame = self.clean(frame_id)
        with self._lock:
            T_base_sensor = self._transforms.lookup(self._base_frame, frame)
        if T_base_sensor is None:
            self._node.get_logger().warning(
                f"no transform from '{frame}' to '{self._base_frame}' on /tf_static yet; what "
                f"comes in that frame is dropped until then{alternative}",
                throttle_duration_sec=5.0,
            )
        return T_base_sensor

    def clean(self, frame_id: str) -> str:
        """Return a frame's name without the leading slash of ROS 1, of which it warns once."""
        frame = clean_frame(frame_id)
        if frame != frame_id:
            self._node.get_logger().warning(
                f"frame '{frame_id}' has the leading slash of ROS 1; reading it as '{frame}'",
                once=True,
            )
        return frame

    def _on_static(self, message: TFMessage) -> None:
        with self._lock:
            problems = self._transforms.add(message)
        for problem in problems:
            self._node.get_logger().warning(f"/tf_static: transform ignored, {problem}")

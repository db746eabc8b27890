"""Where sensors sit on the robot, from /tf_static as it arrives."""

import threading

import numpy as np
from tf2_msgs.msg import TFMessage

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.frames import StaticTransforms, clean_frame
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.node import ManagedNode

# A mount that is told again and differs by more has changed (m, rad).
_SHIFT = 1e-3
_TURN = 1e-3


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
        self._used: dict[str, np.ndarray] = {}
        self._lock = threading.Lock()
        self._node.subscribe(TFMessage, "/tf_static", self._on_static, qos.LATCHED, always=True)

    def lookup(self, frame_id: str, alternative: str = "") -> np.ndarray | None:
        """Return T_base_sensor (4 x 4), or None, with a throttled warning, while it is unknown.

        ``alternative`` ends the warning: what else than /tf_static could tell.
        """
        frame = self.clean(frame_id)
        with self._lock:
            T_base_sensor = self._transforms.lookup(self._base_frame, frame)
            if T_base_sensor is not None:
                self._used.setdefault(frame, T_base_sensor)
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
            changes = self._changes()
        for problem in problems:
            self._node.get_logger().warning(f"/tf_static: transform ignored, {problem}")
        for change in changes:
            self._node.get_logger().warning(f"/tf_static: {change}")

    def _changes(self) -> list[str]:
        """Return which of the mounts in use are others by now, and take them as known."""
        changes = []
        for frame, known in self._used.items():
            T_base_sensor = self._transforms.lookup(self._base_frame, frame)
            moved = se3.inverse(known) @ T_base_sensor
            shift = np.linalg.norm(moved[:3, 3])
            turn = np.linalg.norm(se3.log_rotation(moved[:3, :3]))
            if shift > _SHIFT or turn > _TURN:
                self._used[frame] = T_base_sensor
                changes.append(
                    f"the mount of '{frame}' changed by {shift:.4f} m and {turn:.4f} rad, which "
                    f"moves what it sees: a mount is constant, so make one publisher tell it"
                )
        return changes

"""Poses as messages and as 4 x 4 matrices.

Only what the nodes need: tf2's Python packages exist in distributions alone.
"""

import numpy as np
from geometry_msgs.msg import Pose, TransformStamped

from geoaccel_ros.registration.frames import quaternion_of, rigid_matrix


def matrix_from_pose(pose: Pose) -> np.ndarray:
    """Return the 4 x 4 float64 matrix of a Pose.

    Raises
    ------
    ValueError
        If a number is not finite or the quaternion's norm is not 1 to within 1 %.
    """
    return rigid_matrix(pose.position, pose.orientation)


def set_pose(pose: Pose, matrix: np.ndarray) -> None:
    """Write a 4 x 4 rigid transform into a Pose."""
    _set(pose.position, pose.orientation, matrix)


def stamped_transform(stamp, parent: str, child: str, matrix: np.ndarray) -> TransformStamped:
    """Return T_parent_child as a message; ``stamp`` is a builtin_interfaces/Time."""
    message = TransformStamped(child_frame_id=child)
    message.header.stamp = stamp
    message.header.frame_id = parent
    _set(message.transform.translation, message.transform.rotation, matrix)
    return message


def yaw(matrix: np.ndarray) -> float:
    """Return the heading of a 4 x 4 transform about z in radians, in (-pi, pi]."""
    return float(np.arctan2(matrix[1, 0], matrix[0, 0]))


def _set(position, orientation, matrix: np.ndarray) -> None:
    position.x, position.y, position.z = matrix[:3, 3].tolist()
    x, y, z, w = quaternion_of(matrix)
    orientation.x, orientation.y, orientation.z, orientation.w = x, y, z, w

"""Poses as messages and as 4 x 4 matrices, and the static transforms of a robot.

Only what the nodes need: tf2's Python packages exist in distributions alone, and the mount of a
sensor is constant, so a buffer over time would be idle.
"""

from collections import deque

import numpy as np
from geometry_msgs.msg import Pose, Transform, TransformStamped
from scipy.spatial.transform import Rotation
from tf2_msgs.msg import TFMessage


def matrix_from_pose(pose: Pose) -> np.ndarray:
    """Return the 4 x 4 float64 matrix of a Pose.

    Raises
    ------
    ValueError
        If a number is not finite or the quaternion's norm is not 1 to within 1 %.
    """
    return _matrix(pose.position, pose.orientation)


def matrix_from_transform(transform: Transform) -> np.ndarray:
    """Return the 4 x 4 float64 matrix of a Transform; errors as :func:`matrix_from_pose`."""
    return _matrix(transform.translation, transform.rotation)


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


def clean_frame(frame_id: str) -> str:
    """Return a frame's name without the leading slash of ROS 1."""
    return frame_id.lstrip("/")


class StaticTransforms:
    """The tree that /tf_static has told of so far."""

    def __init__(self):
        self._edges: dict[str, dict[str, np.ndarray]] = {}

    def add(self, message: TFMessage) -> list[str]:
        """Take in a message of /tf_static; a transform told again replaces the earlier one.

        Returns
        -------
        list of str
            What is wrong with those transforms that are none; the others are taken all the same.
        """
        problems = []
        for stamped in message.transforms:
            parent = clean_frame(stamped.header.frame_id)
            child = clean_frame(stamped.child_frame_id)
            try:
                matrix = matrix_from_transform(stamped.transform)
            except ValueError as error:
                problems.append(f"'{parent}' to '{child}': {error}")
                continue
            self._edges.setdefault(parent, {})[child] = matrix
            self._edges.setdefault(child, {})[parent] = np.linalg.inv(matrix)
        return problems

    def lookup(self, target: str, source: str) -> np.ndarray | None:
        """Return T_target_source (4 x 4), or None while the two are not connected."""
        found = {target: np.eye(4)}
        frontier = deque([target])
        while frontier and source not in found:
            frame = frontier.popleft()
            for neighbour, matrix in self._edges.get(frame, {}).items():
                if neighbour not in found:
                    found[neighbour] = found[frame] @ matrix
                    frontier.append(neighbour)
        return found.get(source)


def _matrix(position, orientation) -> np.ndarray:
    quaternion = np.array([orientation.x, orientation.y, orientation.z, orientation.w])
    translation = np.array([position.x, position.y, position.z])
    norm = np.linalg.norm(quaternion)
    if not (np.all(np.isfinite(translation)) and abs(norm - 1.0) < 0.01):
        raise ValueError(
            f"not a pose: translation {translation.tolist()}, quaternion of norm {norm:.4g}"
        )
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_quat(quaternion).as_matrix()
    matrix[:3, 3] = translation
    return matrix


def _set(position, orientation, matrix: np.ndarray) -> None:
    position.x, position.y, position.z = (float(v) for v in matrix[:3, 3])
    quaternion = Rotation.from_matrix(matrix[:3, :3]).as_quat()
    orientation.x, orientation.y, orientation.z, orientation.w = (float(v) for v in quaternion)

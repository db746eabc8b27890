"""Frames of a robot: where its sensors sit, from a parameter or from static transforms (REP 105).

A sensor's mount is constant, so there is no buffer over time. Free of ROS: messages are
read by their attributes, so those of rclpy and of a bag serve alike.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from geoaccel_ros.config import Configuration, ConfigurationError, parameter

# Up to here float64 keeps nanometres (m).
POSITION_MAX = 1e7


@dataclass(frozen=True)
class RobotFramesConfig(Configuration):
    """Frames of a robot (REP 105)."""

    odom_frame: str = parameter("odom", "Frame of poses, map and goals.")
    base_frame: str = parameter("base_link", "The robot's frame.")

    def __post_init__(self):
        super().__post_init__()
        for name in ("odom_frame", "base_frame"):
            object.__setattr__(self, name, clean_frame(getattr(self, name)))
        if not self.odom_frame or not self.base_frame or self.odom_frame == self.base_frame:
            raise ConfigurationError(
                f"parameters 'odom_frame' ('{self.odom_frame}') and 'base_frame' "
                f"('{self.base_frame}') must name two different frames"
            )


@dataclass(frozen=True)
class FramesConfig(RobotFramesConfig):
    """Frames of what reads clouds on a robot."""

    lidar_mount: tuple[float, ...] = parameter(
        (), "Mount of the lidar in base_frame, x y z [m] roll pitch yaw [rad]; empty: /tf_static."
    )


def mount_matrix(lidar_mount: Sequence[float]) -> np.ndarray | None:
    """Return T_base_lidar of the parameter ``lidar_mount`` as :func:`pose_matrix`."""
    return pose_matrix("lidar_mount", lidar_mount, "to take it from /tf_static")


def pose_matrix(name: str, numbers: Sequence[float], empty: str) -> np.ndarray | None:
    """Return the pose (4, 4) that the parameter ``name`` holds; None where it is empty.

    x y z [m] roll pitch yaw [rad], about fixed axes (REP 103). ``empty`` completes the message:
    what leaving it empty is for.

    Raises
    ------
    ConfigurationError
        If it has neither 0 nor 6 numbers, or a position beyond :data:`POSITION_MAX`.
    """
    if not len(numbers):
        return None
    if len(numbers) != 6:
        raise ConfigurationError(
            f"parameter '{name}' has {len(numbers)} numbers, must be x y z roll pitch yaw, or "
            f"empty {empty}"
        )
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler("xyz", numbers[3:]).as_matrix()
    matrix[:3, 3] = numbers[:3]
    try:
        check_position(matrix[:3, 3])
    except ValueError as error:
        raise ConfigurationError(f"parameter '{name}': {error}") from None
    return matrix


def check_position(position: np.ndarray) -> None:
    """Refuse a position (3,) in metres in which registration would have no fine steps.

    Raises
    ------
    ValueError
        If a coordinate is not finite or beyond :data:`POSITION_MAX`.
    """
    if not np.all(np.abs(position) <= POSITION_MAX):
        raise ValueError(
            f"position {position.tolist()} m, must be within {POSITION_MAX:g} m of the origin, "
            "where float64 keeps nanometres"
        )


def rigid_matrix(position, orientation) -> np.ndarray:
    """Return the (4, 4) float64 matrix of a position x y z and an orientation x y z w.

    Raises
    ------
    ValueError
        If a number is not finite or the quaternion's norm is not 1 to within 1 %.
    """
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


def quaternion_of(matrix: np.ndarray) -> tuple[float, float, float, float]:
    """Return x, y, z, w of a (4, 4) transform, the largest of them positive (Shepperd 1978).

    On plain numbers: SciPy's takes a hundred times as long for a single rotation.
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = matrix[:3, :3].tolist()
    trace = xx + yy + zz
    largest = max(xx, yy, zz, trace)
    if largest == trace:
        q = (zy - yz, xz - zx, yx - xy, 1 + trace)
    elif largest == xx:
        q = (1 + xx - yy - zz, yx + xy, xz + zx, zy - yz)
    elif largest == yy:
        q = (yx + xy, 1 - xx + yy - zz, zy + yz, xz - zx)
    else:
        q = (xz + zx, zy + yz, 1 - xx - yy + zz, yx - xy)
    norm = math.hypot(*q)
    return q[0] / norm, q[1] / norm, q[2] / norm, q[3] / norm


def clean_frame(frame_id: str) -> str:
    """Return a frame's name without the leading slash of ROS 1."""
    return frame_id.lstrip("/")


class StaticTransforms:
    """The tree that /tf_static has told of so far."""

    def __init__(self):
        self._edges: dict[str, dict[str, np.ndarray]] = {}

    def add(self, message) -> list[str]:
        """Take in a tf2_msgs/TFMessage; a transform told again replaces the earlier one.

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
                matrix = rigid_matrix(stamped.transform.translation, stamped.transform.rotation)
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

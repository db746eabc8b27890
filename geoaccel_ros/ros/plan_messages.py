"""Plans and rollouts of any system as RViz draws them, and poses as goals."""

from collections.abc import Sequence

import numpy as np
from geometry_msgs.msg import Point, Pose, PoseStamped
from nav_msgs.msg import Path
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

from geoaccel_ros.ros.transforms import matrix_from_pose, yaw

_QUATERNION = ("qw", "qx", "qy", "qz")


def plan_path(header: Header, states: np.ndarray, names: Sequence[str]) -> Path:
    """Return states (T, X) as a Path, of what their ``names`` tell of a pose."""
    column = {name: i for i, name in enumerate(names)}
    return Path(
        header=header,
        poses=[PoseStamped(header=header, pose=_pose(state, column)) for state in states],
    )


def rollout_markers(
    header: Header, trajectories: np.ndarray, weights: np.ndarray, names: Sequence[str]
) -> MarkerArray:
    """Return trajectories (K, T, X) as lines, the heavier the more opaque."""
    markers = [Marker(header=header, action=Marker.DELETEALL)]
    largest = max(weights.max(initial=0.0), 1e-12)
    axes = [names.index(axis) if axis in names else None for axis in "xyz"]
    for number, (states, weight) in enumerate(zip(trajectories, weights, strict=True)):
        line = Marker(header=header, ns="rollouts", id=number, type=Marker.LINE_STRIP)
        line.pose.orientation.w = 1.0
        line.scale.x = 0.02
        line.color = ColorRGBA(r=0.1, g=0.6, b=1.0, a=float(0.1 + 0.9 * weight / largest))
        line.points = [
            Point(**{
                axis: float(state[i]) for axis, i in zip("xyz", axes, strict=True) if i is not None
            })
            for state in states
        ]  # fmt: skip
        markers.append(line)
    return MarkerArray(markers=markers)


def goal_from_pose(pose: Pose, names: Sequence[str]) -> np.ndarray:
    """Return a pose as a goal whose components have these ``names``.

    Raises
    ------
    ValueError
        If the pose is not finite, its quaternion's norm is not 1 to within 1 %, or it does not tell
        one of the components.
    """
    position, orientation = pose.position, pose.orientation
    told = {"x": position.x, "y": position.y, "z": position.z}
    if set(names) - set(told):
        matrix = matrix_from_pose(pose)
        told["yaw"] = yaw(matrix)
        told |= {name: getattr(orientation, name[1]) for name in _QUATERNION}
    unknown = [name for name in names if name not in told]
    if unknown:
        raise ValueError(f"a pose does not tell the goal's {', '.join(unknown)}")
    goal = np.array([told[name] for name in names])
    if not np.isfinite(goal).all():
        raise ValueError(f"{goal.tolist()} is not finite")
    return goal


def _pose(state: np.ndarray, column: dict[str, int]) -> Pose:
    pose = Pose()
    for axis in "xyz":
        if axis in column:
            setattr(pose.position, axis, float(state[column[axis]]))
    if "yaw" in column:
        half = 0.5 * state[column["yaw"]]
        pose.orientation.w, pose.orientation.z = float(np.cos(half)), float(np.sin(half))
    elif "qw" in column:
        for name in _QUATERNION:
            setattr(pose.orientation, name[1], float(state[column[name]]))
    return pose

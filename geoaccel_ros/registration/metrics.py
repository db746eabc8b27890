"""How far an estimated trajectory is from the true one.

Definitions: absolute trajectory error, Sturm et al., IROS 2012; relative errors over lengths of
path, Geiger et al., CVPR 2012 (KITTI). Trajectories are (N, 4, 4), pose by pose the same instants.
"""

import numpy as np

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.solve import rigid_fit

# The KITTI benchmark's lengths, metres.
KITTI_LENGTHS = tuple(float(length) for length in range(100, 900, 100))


def path_length(poses: np.ndarray) -> float:
    """Return the sum of the distances (metres) between consecutive poses (N, 4, 4)."""
    return float(np.sum(np.linalg.norm(np.diff(np.asarray(poses)[:, :3, 3], axis=0), axis=1)))


def absolute_trajectory_error(
    estimate: np.ndarray, truth: np.ndarray, align: str = "first"
) -> float:
    """Return the root mean square distance (metres) between the positions of two trajectories.

    Parameters
    ----------
    estimate, truth : ndarray (N, 4, 4)
    align : str
        "first": both start at the same pose; "se3": the rigid transform that lays the estimate
        onto the truth best (flattering, and usual); "none": the frames are the same already.

    Raises
    ------
    ValueError
        If ``align`` is unknown or the shapes differ.
    """
    estimate, truth = _checked(estimate, truth)
    positions = estimate[:, :3, 3]
    if align == "first":
        correction = truth[0] @ se3.inverse(estimate[0])
    elif align == "se3":
        correction = rigid_fit(positions, truth[:, :3, 3])
    elif align == "none":
        correction = np.eye(4)
    else:
        raise ValueError(f"align {align!r}, must be first, se3 or none")
    aligned = se3.apply(correction, positions)
    return float(np.sqrt(np.mean(np.sum((aligned - truth[:, :3, 3]) ** 2, axis=1))))


def relative_pose_error(
    estimate: np.ndarray, truth: np.ndarray, frames: int
) -> tuple[float, float]:
    """Return the mean error of the motion over ``frames`` frames: metres and radians.

    Raises
    ------
    ValueError
        If the trajectories are not longer than that, or their shapes differ.
    """
    estimate, truth = _checked(estimate, truth)
    if not 0 < frames < len(truth):
        raise ValueError(f"{len(truth)} poses are too few for errors over {frames} frames")
    errors = [
        _motion_error(estimate, truth, first, first + frames)
        for first in range(len(truth) - frames)
    ]
    return tuple(float(value) for value in np.mean(errors, axis=0))


def kitti_error(
    estimate: np.ndarray, truth: np.ndarray, lengths: tuple[float, ...] = KITTI_LENGTHS
) -> tuple[float, float] | None:
    """Return the KITTI benchmark's errors: metres per metre, and radians per metre.

    From every tenth pose, over each length of path (metres) that the trajectory still covers.
    None where it covers not even the shortest.
    """
    estimate, truth = _checked(estimate, truth)
    steps = np.linalg.norm(np.diff(truth[:, :3, 3], axis=0), axis=1)
    travelled = np.concatenate([[0.0], np.cumsum(steps)])
    errors = []
    for first in range(0, len(truth), 10):
        for length in lengths:
            last = int(np.searchsorted(travelled, travelled[first] + length, side="right"))
            if last < len(truth):
                error = _motion_error(estimate, truth, first, last)
                errors.append((error[0] / length, error[1] / length))
    return tuple(float(value) for value in np.mean(errors, axis=0)) if errors else None


def interpolate_poses(stamps: np.ndarray, poses: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the poses at given instants, at constant twist between their neighbours.

    Parameters
    ----------
    stamps : ndarray (N,), seconds, strictly rising
    poses : ndarray (N, 4, 4)
    at : ndarray (M,), seconds
        Within the stamps; beyond them the nearest pose is returned.

    Returns
    -------
    ndarray (M, 4, 4)
    """
    stamps, poses = np.asarray(stamps, float), np.asarray(poses, float)
    result = np.empty((len(at), 4, 4))
    for row, instant in enumerate(np.asarray(at, float)):
        after = int(np.searchsorted(stamps, instant))
        if after == 0 or after == len(stamps):
            result[row] = poses[min(after, len(stamps) - 1)]
            continue
        fraction = (instant - stamps[after - 1]) / (stamps[after] - stamps[after - 1])
        motion = se3.log(se3.inverse(poses[after - 1]) @ poses[after])
        result[row] = poses[after - 1] @ se3.exp(fraction * motion)
    return result


def _checked(estimate: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    estimate, truth = np.asarray(estimate, float), np.asarray(truth, float)
    if estimate.shape != truth.shape or estimate.ndim != 3 or estimate.shape[1:] != (4, 4):
        raise ValueError(
            f"trajectories of shapes {estimate.shape} and {truth.shape}, both must be (N, 4, 4)"
        )
    if not len(truth):
        raise ValueError("the trajectories are empty")
    return estimate, truth


def _motion_error(
    estimate: np.ndarray, truth: np.ndarray, first: int, last: int
) -> tuple[float, float]:
    true_motion = se3.inverse(truth[first]) @ truth[last]
    motion = se3.inverse(estimate[first]) @ estimate[last]
    error = se3.inverse(true_motion) @ motion
    return (
        float(np.linalg.norm(error[:3, 3])),
        float(np.linalg.norm(se3.log_rotation(error[:3, :3]))),
    )

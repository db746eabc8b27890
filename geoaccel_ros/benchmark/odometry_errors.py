"""How far a contender's poses are from the truth."""

import math
from collections.abc import Sequence

import numpy as np

from geoaccel_ros.benchmark.drives import Drive
from geoaccel_ros.registration.metrics import absolute_trajectory_error, relative_pose_error

# Frames over which the relative error is taken.
FRAMES = 10


def pose_instants(drive: Drive, fraction: float) -> np.ndarray:
    """Return the instants (N,) at a fraction of each sweep, seconds."""
    return np.array([s.stamp + fraction * (s.end - s.stamp) for s in drive.sweeps])


def typical_pass(
    passes: Sequence[Sequence[np.ndarray]], drive: Drive, fractions: Sequence[float]
) -> tuple[np.ndarray, float]:
    """Return the pass with the median error; several threads do not always do the same.

    Parameters
    ----------
    passes : sequence of sequences of ndarray (4, 4)
        One pose a sweep of the drive.
    drive : Drive
    fractions : sequence of float
        Of the sweep at which a pose may be meant; that with the least error counts.

    Returns
    -------
    tuple of ndarray (N, 4, 4) and float
        Its poses, and the fraction.
    """
    truths = [drive.truth(pose_instants(drive, fraction)) for fraction in fractions]
    judged = []
    for poses in map(np.array, passes):
        error, best = min(
            (absolute_trajectory_error(poses, truth), index) for index, truth in enumerate(truths)
        )
        judged.append((error, poses, fractions[best]))
    judged.sort(key=lambda each: each[0])
    # The better one of the two in the middle.
    _, poses, fraction = judged[(len(judged) - 1) // 2]
    return poses, fraction


def errors(poses: np.ndarray, truth: np.ndarray) -> dict[str, float | None]:
    """Return a row's errors; None where there are too few poses.

    Parameters
    ----------
    poses, truth : ndarray (N, 4, 4)

    Returns
    -------
    dict
        ``ate_rmse_m``, aligned at the first pose; ``over_10_m`` and ``over_10_deg``, the mean error
        of the motion over ten frames; ``step_m``, ``step_deg``, ``step_max_m`` and
        ``step_max_deg``, mean and largest error of the motion from one scan to the next.
    """
    over = relative_pose_error(poses, truth, FRAMES) if len(poses) > FRAMES else (None, None)
    steps = np.array(
        [relative_pose_error(poses[i : i + 2], truth[i : i + 2], 1) for i in range(len(poses) - 1)]
    ).reshape(-1, 2)
    mean, largest = (steps.mean(0), steps.max(0)) if len(steps) else ((None,) * 2,) * 2
    return {
        "ate_rmse_m": absolute_trajectory_error(poses, truth),
        "over_10_m": over[0],
        "over_10_deg": _degrees(over[1]),
        "step_m": _number(mean[0]),
        "step_max_m": _number(largest[0]),
        "step_deg": _degrees(mean[1]),
        "step_max_deg": _degrees(largest[1]),
    }


def drift_rate(times: np.ndarray, positions: np.ndarray) -> float:
    """Return the speed at which positions (N, 3) at times (N,) move away, noise averaged out.

    Least squares; in the units of positions over those of times.
    """
    slope = np.polyfit(times, positions, 1)[0] if len(times) > 1 else np.zeros(3)
    return float(np.linalg.norm(slope))


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _degrees(radians: float | None) -> float | None:
    return None if radians is None else math.degrees(radians)

"""What other sensors tell of the motion between two scans: wheel odometry, or a gyroscope.

Each is fed from whatever thread its messages come on.
"""

import bisect
import threading
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from geoaccel_ros.registration import se3

# Standard deviations of a mean twist, m/s and rad/s: wheels slip, most of all while turning; a
# gyroscope of a few euros has half a degree a second of bias.
_WHEEL_DEVIATIONS = np.array([0.1] * 3 + [0.1] * 3)
_GYROSCOPE_DEVIATIONS = np.array([np.inf] * 3 + [0.01] * 3)
# Messages come late: the last one serves for this long, seconds.
_LONGEST_EXTRAPOLATION = 0.2
# Kept: more than lies between two scans; some hundreds a second.
_KEPT = 2000


@dataclass(frozen=True)
class MeasuredTwist:
    """The twist over an interval.

    Attributes
    ----------
    mean : ndarray (6,)
        Over the interval, of the base in the base frame, [v w], m/s and rad/s.
    latest : ndarray (6,)
        At its end.
    deviations : ndarray (6,)
        Standard deviation of each; infinite where it was not measured.
    """

    mean: np.ndarray
    latest: np.ndarray
    deviations: np.ndarray


class MotionPrior(Protocol):
    """What :class:`geoaccel_ros.registration.odometry.Odometry` asks for a prediction."""

    def between(self, start: float, end: float) -> MeasuredTwist | None:
        """Return the twist from ``start`` to ``end`` (seconds), None where it is unknown."""


class WheelOdometry:
    """Poses of the base in a frame of their own, which may drift."""

    def __init__(self):
        self._samples = _Samples()

    def add(self, stamp: float, T_odom_base: np.ndarray) -> None:
        """Add a pose (4, 4) at ``stamp`` (seconds)."""
        self._samples.add(stamp, np.array(T_odom_base, np.float64))

    def between(self, start: float, end: float) -> MeasuredTwist | None:
        stamps, poses = self._samples.around(start, end)
        if len(stamps) < 2:
            return None
        motion = se3.log(se3.inverse(_pose_at(stamps, poses, start)) @ _pose_at(stamps, poses, end))
        latest, _ = _twist_at(stamps, poses, end)
        return MeasuredTwist(motion / (end - start), latest, _WHEEL_DEVIATIONS)


class Gyroscope:
    """Angular velocities of the base; of the translation it tells nothing."""

    def __init__(self):
        self._samples = _Samples()

    def add(self, stamp: float, angular_velocity: np.ndarray) -> None:
        """Add an angular velocity (3,), rad/s, in the base frame, at ``stamp`` (seconds)."""
        self._samples.add(stamp, np.array(angular_velocity, np.float64))

    def between(self, start: float, end: float) -> MeasuredTwist | None:
        stamps, rates = self._samples.around(start, end)
        if not stamps:
            return None
        # Constant before the first and after the last; linear in between.
        inside = [stamp for stamp in stamps if start < stamp < end]
        instants = np.array([start, *inside, end])
        at = np.column_stack([np.interp(instants, stamps, axis) for axis in np.array(rates).T])
        mean = np.trapezoid(at, instants, axis=0) / (end - start)
        mean, latest = (np.concatenate([np.zeros(3), rate]) for rate in (mean, at[-1]))
        return MeasuredTwist(mean, latest, _GYROSCOPE_DEVIATIONS)


class _Samples:
    """Stamped values of the recent past; time that jumps back empties them."""

    def __init__(self):
        self._lock = threading.Lock()
        self._stamps: deque[float] = deque(maxlen=_KEPT)
        self._values: deque[np.ndarray] = deque(maxlen=_KEPT)

    def add(self, stamp: float, value: np.ndarray) -> None:
        if not (np.isfinite(stamp) and np.all(np.isfinite(value))):
            return
        with self._lock:
            if self._stamps and stamp <= self._stamps[-1]:
                if self._stamps[-1] - stamp < 1.0:
                    return
                self._stamps.clear()
                self._values.clear()
            self._stamps.append(stamp)
            self._values.append(value)

    def around(self, start: float, end: float) -> tuple[list[float], list[np.ndarray]]:
        """Return the samples that cover the interval, or nothing where they do not."""
        with self._lock:
            stamps, values = list(self._stamps), list(self._values)
        if end <= start or not stamps:
            return [], []
        slack = _LONGEST_EXTRAPOLATION
        if stamps[0] > start + slack or stamps[-1] < end - slack:
            return [], []
        first = max(bisect.bisect_right(stamps, start) - 2, 0)
        last = bisect.bisect_left(stamps, end) + 1
        return stamps[first:last], values[first:last]


def _pose_at(stamps: list[float], poses: list[np.ndarray], instant: float) -> np.ndarray:
    """Return the pose at an instant at the constant twist of the two samples next to it."""
    twist, before = _twist_at(stamps, poses, instant)
    return poses[before] @ se3.exp(twist * (instant - stamps[before]))


def _twist_at(
    stamps: list[float], poses: list[np.ndarray], instant: float
) -> tuple[np.ndarray, int]:
    """Return the twist between the two samples next to an instant, and the first one's index."""
    after = min(max(bisect.bisect_left(stamps, instant), 1), len(stamps) - 1)
    motion = se3.log(se3.inverse(poses[after - 1]) @ poses[after])
    return motion / (stamps[after] - stamps[after - 1]), after - 1

"""The state of a body that keeps its velocity but for unknown accelerations."""

from dataclasses import dataclass

import numpy as np

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.priors import MeasuredTwist

# Standard deviations of the acceleration, m/s^2 and rad/s^2: how far the motion may depart from
# the prediction. A scan that sees planes in all directions outweighs it by orders of magnitude;
# along a direction that no plane fixes (a corridor's) the prediction is all there is.
_ACCELERATIONS = np.array([3.0] * 3 + [10.0] * 3)
# Standard deviations of the first pose and twist: the pose is exact by definition, the motion
# unknown.
_FIRST_DEVIATIONS = np.array([1e-3] * 6 + [10.0] * 3 + [3.0] * 3)
# Velocities older than this many seconds say nothing of the present one: from there on the
# prediction stands still.
LONGEST_PREDICTION = 1.0
# By then hardly anything is known; more would only make the matrices ill-conditioned.
_LONGEST_GROWTH = 10.0
# Nor is more than this to be unknown, however long a direction goes unobserved: metres, radians,
# metres and radians a second.
_LARGEST_DEVIATIONS = np.array([100.0] * 3 + [np.pi] * 3 + [10.0] * 3 + [3.0] * 3)


@dataclass(frozen=True)
class Motion:
    """Pose and twist at an instant.

    Attributes
    ----------
    stamp : float, seconds
    T_odom_base : ndarray (4, 4)
    twist : ndarray (6,)
        In the base frame, [v w], m/s and rad/s.
    covariance : ndarray (12, 12)
        Of translation, rotation, velocity and angular velocity in the odom frame's axes, the
        rotation about the base's origin.
    """

    stamp: float
    T_odom_base: np.ndarray
    twist: np.ndarray
    covariance: np.ndarray

    @classmethod
    def unknown(cls, stamp: float, T_odom_base: np.ndarray) -> "Motion":
        """Return a motion of which the pose alone is known."""
        return cls(stamp, T_odom_base, np.zeros(6), np.diag(_FIRST_DEVIATIONS**2))

    def at(self, stamp: float, measured: MeasuredTwist | None = None) -> "Motion":
        """Return the motion at another instant, a little before this one at the earliest.

        Parameters
        ----------
        stamp : float, seconds
        measured : MeasuredTwist, optional
            From this instant to that one, by another sensor. What it does not tell, all if there is
            none, stays as it is: constant velocity, whose covariance grows by that of an
            acceleration which is white noise (Bar-Shalom et al., Estimation with Applications,
            6.2.2), of such strength that the velocity changes by ``acceleration * elapsed``.
        """
        elapsed = stamp - self.stamp
        deviations = np.full(6, np.inf) if measured is None else measured.deviations
        told = np.isfinite(deviations)
        coasting = elapsed <= LONGEST_PREDICTION
        own = self.twist if coasting else np.zeros(6)
        travelled = self.twist * min(elapsed, LONGEST_PREDICTION)
        if measured is not None:
            own = np.where(told, measured.latest, own)
            travelled = np.where(told, measured.mean * elapsed, travelled)
        T_odom_base = self.T_odom_base @ se3.exp(travelled)

        growing = min(elapsed, _LONGEST_GROWTH)
        pose_part, cross_part, twist_part = (
            power * (_ACCELERATIONS * growing) ** 2 for power in (growing**2 / 3, growing / 2, 1.0)
        )
        variances = np.where(told, deviations, 0.0) ** 2
        pose_part = np.where(told, growing**2 * variances, pose_part)
        cross_part = np.where(told, growing * variances, cross_part)
        twist_part = np.where(told, variances, twist_part)
        # What is measured is so along the base's axes; the covariance is in those of odom.
        axes = np.zeros((6, 6))
        axes[:3, :3] = axes[3:, 3:] = self.T_odom_base[:3, :3]
        kept = (axes * np.where(told, 0.0, 1.0)) @ axes.T
        transition = np.zeros((12, 12))
        transition[:6, :6] = np.eye(6)
        transition[:6, 6:] = growing * kept
        transition[6:, 6:] = kept
        covariance = transition @ self.covariance @ transition.T
        covariance[:6, :6] += (axes * pose_part) @ axes.T
        covariance[:6, 6:] += (axes * cross_part) @ axes.T
        covariance[6:, :6] += (axes * cross_part) @ axes.T
        covariance[6:, 6:] += (axes * twist_part) @ axes.T
        # All of a row and a column by the same factor: what remains is a covariance.
        deviations = np.sqrt(np.diag(covariance))
        shrink = np.minimum(1.0, _LARGEST_DEVIATIONS / np.maximum(deviations, 1e-9))
        return Motion(stamp, T_odom_base, own, covariance * np.outer(shrink, shrink))

    def corrected(self, step: np.ndarray) -> "Motion":
        """Return the motion after a step (12,) in the order of the covariance; that stays."""
        to_base = self.T_odom_base[:3, :3].T
        turn = np.concatenate([to_base @ step[6:9], to_base @ step[9:]])
        T_odom_base = se3.perturbed(self.T_odom_base, step[:6])
        return Motion(self.stamp, T_odom_base, self.twist + turn, self.covariance)

    def minus(self, other: "Motion") -> np.ndarray:
        """Return the step (12,) that leads from ``other`` to this motion."""
        rotation = self.T_odom_base[:3, :3]
        twist = self.twist - other.twist
        return np.concatenate(
            [
                self.T_odom_base[:3, 3] - other.T_odom_base[:3, 3],
                se3.log_rotation(rotation @ other.T_odom_base[:3, :3].T),
                rotation @ twist[:3],
                rotation @ twist[3:],
            ]
        )

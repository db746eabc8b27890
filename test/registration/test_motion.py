import numpy as np
import pytest

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.motion import Motion


def test_prediction_moves_at_constant_twist_over_real_time():
    twist = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.5])
    start = se3.exp(np.array([1.0, 2.0, 3.0, 0.0, 0.0, 1.0]))
    motion = Motion(10.0, start, twist, np.zeros((12, 12)))
    later = motion.at(10.3)
    np.testing.assert_allclose(later.T_odom_base, start @ se3.exp(0.3 * twist))
    np.testing.assert_array_equal(later.twist, twist)
    assert later.stamp == 10.3


def test_prediction_stands_still_after_a_second():
    motion = Motion(0.0, np.eye(4), np.array([2.0, 0, 0, 0, 0, 0]), np.zeros((12, 12)))
    later = motion.at(60.0)
    assert later.T_odom_base[0, 3] == pytest.approx(2.0)
    assert not later.twist.any()
    # Where it is by then nobody knows.
    assert later.covariance[0, 0] > 10.0**2


def test_uncertainty_grows_and_stays_a_covariance():
    motion = Motion.unknown(0.0, np.eye(4))
    previous = 0.0
    for stamp in (0.0, 0.1, 0.5, 2.0):
        covariance = motion.at(stamp).covariance
        assert covariance[0, 0] > previous
        previous = covariance[0, 0]
        assert np.linalg.eigvalsh(covariance).min() > 0.0


def test_minus_undoes_corrected():
    rng = np.random.default_rng(0)
    motion = Motion(0.0, se3.exp(rng.normal(size=6)), rng.normal(size=6), np.eye(12))
    step = 0.1 * rng.normal(size=12)
    corrected = motion.corrected(step)
    difference = corrected.minus(motion)
    np.testing.assert_allclose(difference[:6], step[:6], atol=1e-12)
    # The twist's axes are those of the pose: they turned by the step, 0.1 rad of a 0.1 change.
    np.testing.assert_allclose(difference[6:], step[6:], atol=0.03)


def test_what_goes_unobserved_for_hours_stays_a_covariance():
    """Ten hours along a wall: all but x and its rate is measured at every scan."""
    motion = Motion(0.0, np.eye(4), np.zeros(6), 1e-4 * np.eye(12))
    measured = np.delete(np.arange(12), [0, 6])
    for scan in range(1, 360_001, 90):
        motion = motion.at(0.1 * scan)
        information = np.linalg.inv(motion.covariance)
        information[measured, measured] += 1e5
        covariance = np.linalg.inv(information)
        motion = Motion(motion.stamp, motion.T_odom_base, motion.twist, covariance)
    assert np.linalg.eigvalsh(covariance).min() > 0.0
    np.testing.assert_allclose(covariance, covariance.T, atol=1e-6)
    # Of x hardly anything is known, and of the rest as much as ever.
    assert 50.0 < np.sqrt(covariance[0, 0]) <= 100.0
    assert np.sqrt(np.diag(covariance)[[1, 2, 3, 4, 5]]).max() < 0.01

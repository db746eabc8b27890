import numpy as np
import pytest

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.motion import Motion
from geoaccel_ros.registration.priors import Gyroscope, MeasuredTwist, WheelOdometry

TWIST = np.array([1.0, 0.1, 0.0, 0.0, 0.02, 0.5])


def wheels(rate=50.0, until=2.0):
    odometry = WheelOdometry()
    start = se3.exp(np.array([5.0, -2.0, 0.0, 0.0, 0.0, 2.0]))
    for stamp in np.arange(0.0, until, 1.0 / rate):
        odometry.add(stamp, start @ se3.exp(TWIST * stamp))
    return odometry


@pytest.mark.parametrize("span", [(0.3, 0.4), (0.313, 1.747), (0.5, 0.5001), (1.9, 2.1)])
def test_wheels_tell_the_mean_twist_between_any_two_instants(span):
    found = wheels().between(*span)
    np.testing.assert_allclose(found.mean, TWIST, atol=1e-6)
    assert np.all(np.isfinite(found.deviations))


def test_a_gyroscope_tells_the_mean_rate_alone():
    gyroscope = Gyroscope()
    for stamp in np.arange(0.0, 2.0, 0.01):
        gyroscope.add(stamp, np.array([0.0, 0.1, stamp]))
    found = gyroscope.between(0.4, 0.8)
    # The rate about z rises with time: its mean is that of the middle.
    np.testing.assert_allclose(found.mean[3:], [0.0, 0.1, 0.6], atol=1e-9)
    np.testing.assert_allclose(found.latest[3:], [0.0, 0.1, 0.8], atol=1e-9)
    assert np.all(np.isinf(found.deviations[:3])) and np.all(np.isfinite(found.deviations[3:]))


@pytest.mark.parametrize("span", [(-1.0, 0.5), (1.0, 3.0), (0.5, 0.5), (0.6, 0.5), (5.0, 5.1)])
@pytest.mark.parametrize("sensor", ["wheels", "gyroscope"])
def test_an_interval_that_is_not_covered_is_unknown(sensor, span):
    gyroscope = Gyroscope()
    for stamp in np.arange(0.0, 2.0, 0.01):
        gyroscope.add(stamp, np.zeros(3))
    prior = wheels() if sensor == "wheels" else gyroscope
    assert prior.between(*span) is None


def test_bad_values_and_time_that_jumps():
    odometry = wheels()
    odometry.add(np.nan, np.eye(4))
    odometry.add(2.5, np.full((4, 4), np.nan))
    odometry.add(1.5, np.eye(4))  # late: left out
    np.testing.assert_allclose(odometry.between(1.4, 1.6).mean, TWIST, atol=1e-6)
    # A bag that begins anew: what was before says nothing of what is now.
    for stamp in (0.0, 0.1, 0.2):
        odometry.add(stamp, se3.exp(2.0 * TWIST * stamp))
    np.testing.assert_allclose(odometry.between(0.0, 0.2).mean, 2.0 * TWIST, atol=1e-6)
    assert odometry.between(1.0, 1.1) is None


def test_no_samples_tell_nothing():
    assert WheelOdometry().between(0.0, 0.1) is None
    assert Gyroscope().between(0.0, 0.1) is None


def test_what_is_measured_replaces_constant_velocity_where_it_is():
    pose = se3.exp(np.array([3.0, 1.0, 0.0, 0.0, 0.0, 0.7]))
    motion = Motion(10.0, pose, np.array([2.0, 0, 0, 0, 0, 0.1]), 0.01 * np.eye(12))
    rate = MeasuredTwist(
        np.array([0, 0, 0, 0.0, 0.0, 1.0]),
        np.array([0, 0, 0, 0.0, 0.0, 1.5]),
        np.array([np.inf] * 3 + [0.01] * 3),
    )
    later = motion.at(10.2, rate)
    mean = np.array([2.0, 0, 0, 0, 0, 1.0])
    np.testing.assert_allclose(later.T_odom_base, pose @ se3.exp(0.2 * mean), atol=1e-12)
    np.testing.assert_allclose(later.twist, [2.0, 0, 0, 0, 0, 1.5])
    # The turn is known to 0.01 rad/s over 0.2 s beside what it was before; the way as ever.
    expected = 0.01 + (0.2 * 0.01) ** 2
    np.testing.assert_allclose(np.diag(later.covariance)[3:6], expected)
    np.testing.assert_allclose(np.diag(later.covariance)[9:], 0.01**2)
    ever = motion.at(10.2)
    np.testing.assert_allclose(later.covariance[:3, :3], ever.covariance[:3, :3])
    assert np.linalg.eigvalsh(later.covariance).min() > 0.0


def test_a_measured_way_goes_on_beyond_the_second_that_velocity_is_trusted():
    motion = Motion(0.0, np.eye(4), np.zeros(6), np.zeros((12, 12)))
    forward = np.array([1.0, 0, 0, 0, 0, 0])
    way = MeasuredTwist(forward, forward, np.full(6, 0.1))
    assert motion.at(5.0, way).T_odom_base[0, 3] == pytest.approx(5.0)

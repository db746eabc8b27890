"""Odometry in a yard whose truth is known; no bound on time anywhere."""

import numpy as np
import pytest
from ray_cast_yard import CORRIDOR, HEIGHT, PERIOD, PLAIN, SINGLE_BEAM, WALL, drive, scan

from geoaccel_ros.backend import BackendError, cuda_problem
from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.metrics import absolute_trajectory_error, path_length
from geoaccel_ros.registration.odometry import Odometry, OdometryConfig
from geoaccel_ros.registration.priors import Gyroscope, WheelOdometry


def curve(t):
    """From rest to 1.2 m/s and up to 1.5 rad/s to both sides."""
    return min(t, 1.0) * 1.2, 1.5 * np.sin(1.1 * t) * min(t, 1.0)


def still(t):
    return 0.0, 0.0


def run(odometry, pose_at, start, count, first_stamp=100.0):
    """Register ``count`` scans; return results and true poses at their stamps, from the first."""
    results, truth = [], []
    for k in range(count):
        begin = start + k * PERIOD
        xyz, times = scan(pose_at, begin, seed=k)
        result = odometry.register(xyz, times, first_stamp + begin)
        results.append(result)
        truth.append(pose_at(result.stamp - first_stamp))
    return results, np.array([se3.inverse(truth[0]) @ pose for pose in truth])


def poses_of(results):
    return np.array([result.T_odom_base for result in results])


@pytest.fixture(scope="module")
def curve_at():
    return drive(curve, 8.0)


@pytest.fixture(scope="module")
def drive_results(curve_at):
    return run(Odometry(OdometryConfig()), curve_at, 0.0, 60)


def test_follows_the_truth_under_rolling_shutter(drive_results):
    results, truth = drive_results
    assert [r.status for r in results] == ["seeded"] + ["registered"] * 59
    estimate = poses_of(results)
    assert path_length(truth) > 5.0
    assert absolute_trajectory_error(estimate, truth) < 0.03
    rotation = se3.log_rotation(truth[-1, :3, :3].T @ estimate[-1, :3, :3])
    assert np.degrees(np.linalg.norm(rotation)) < 0.5


def test_result_says_what_it_is(drive_results, curve_at):
    results, _ = drive_results
    last = results[-1]
    # The end of the sweep: its last column.
    assert last.stamp == pytest.approx(100.0 + 60 * PERIOD, abs=1e-3)
    v, w = curve(last.stamp - 100.0)
    np.testing.assert_allclose(last.twist, [v, 0, 0, 0, 0, w], atol=0.15)
    for covariance in (last.pose_covariance, last.twist_covariance):
        np.testing.assert_allclose(covariance, covariance.T, atol=1e-12)
        assert np.linalg.eigvalsh(covariance).min() >= 0.99 * 0.002**2
        assert np.sqrt(np.diag(covariance)).max() < 0.6
    assert last.reason == "" and last.correspondences > 100 and 0.0 < last.rmse < 0.05
    # The registered points lie on the yard's surfaces as seen from where the robot is.
    world = last.points @ curve_at(last.stamp - 100.0)[:3, :3].T
    world += curve_at(last.stamp - 100.0)[:3, 3]
    ground = world[world[:, 2] < 0.05]
    assert len(ground) > 50 and np.abs(ground[:, 2]).mean() < 0.03


def test_without_deskew_the_same_drive_is_worse(drive_results, curve_at):
    rigid, truth = run(Odometry(OdometryConfig(deskew=False)), curve_at, 0.0, 60)
    # Its stamp is the header's.
    assert rigid[0].stamp == 100.0
    error = absolute_trajectory_error(poses_of(rigid), truth)
    assert error > absolute_trajectory_error(poses_of(drive_results[0]), drive_results[1])


def test_started_on_the_move(curve_at):
    results, truth = run(Odometry(OdometryConfig()), curve_at, 3.0, 25)
    assert results[-1].status == "registered"
    assert sum(r.status == "registered" for r in results) >= 23
    v, w = curve(3.0 + 2 * PERIOD)
    np.testing.assert_allclose(results[1].twist[[0, 5]], [v, w], atol=0.3)
    assert absolute_trajectory_error(poses_of(results), truth) < 0.08
    # Ground rings that the pose locks onto would make the path too short.
    assert path_length(poses_of(results)) > 0.95 * path_length(truth)


def test_standing_still_neither_drifts_nor_grows():
    odometry = Odometry(OdometryConfig())
    results, _ = run(odometry, drive(still, 0.1), 0.0, 60)
    estimate = poses_of(results)
    assert all(r.status == "registered" for r in results[1:])
    # No trend: the means of two halves differ by less than the noise of one scan.
    first, second = estimate[10:35, :3, 3].mean(axis=0), estimate[35:, :3, 3].mean(axis=0)
    assert np.linalg.norm(second - first) < 0.002
    assert np.abs(estimate[:, :3, 3]).max() < 0.02
    size = len(odometry.local_map())
    run(odometry, drive(still, 0.1), 6.0, 20)
    assert len(odometry.local_map()) == size


def test_the_same_scans_give_the_same_bits(drive_results, curve_at):
    again, _ = run(Odometry(OdometryConfig(threads=2)), curve_at, 0.0, 10)
    for one, other in zip(again, drive_results[0], strict=False):
        np.testing.assert_array_equal(one.T_odom_base, other.T_odom_base)


def test_lost_scans_are_bridged_over_real_time(curve_at):
    odometry = Odometry(OdometryConfig())
    run(odometry, curve_at, 0.0, 30)
    results, _ = run(odometry, curve_at, 3.3, 5)
    assert [r.status for r in results] == ["registered"] * 5
    moved = se3.inverse(curve_at(3.4)) @ curve_at(3.8)
    found = se3.inverse(results[0].T_odom_base) @ results[-1].T_odom_base
    np.testing.assert_allclose(found[:3, 3], moved[:3, 3], atol=0.03)


def test_a_long_silence_is_survived():
    odometry = Odometry(OdometryConfig())
    run(odometry, drive(still, 0.1), 0.0, 5)
    for gap in (30.0, 1e6):
        result = run(odometry, drive(still, 0.1), 0.5, 1, first_stamp=100.0 + gap)[0][0]
        assert result.status == "registered"
        np.testing.assert_allclose(result.T_odom_base, np.eye(4), atol=0.02)


def test_wrong_shapes_and_times():
    odometry = Odometry(OdometryConfig())
    with pytest.raises(ValueError, match=r"shapes \(5, 2\) and None"):
        odometry.register(np.zeros((5, 2)), None, 0.0)
    with pytest.raises(ValueError, match=r"shapes \(5, 3\) and \(4,\)"):
        odometry.register(np.zeros((5, 3)), np.zeros(4), 0.0)
    xyz, times = scan(drive(still, 0.1), 0.0)
    times[::10] = np.nan
    assert odometry.register(xyz, times, 5.0).stamp == 5.0


def test_a_scan_from_elsewhere_fails_and_leaves_the_map_alone(curve_at):
    odometry = Odometry(OdometryConfig())
    results, _ = run(odometry, curve_at, 0.0, 20)
    before, last = odometry.local_map(), results[-1]
    xyz, times = scan(curve_at, 2.0)
    failed = odometry.register(xyz + [60.0, 0.0, 0.0], times, 102.0)
    assert failed.status == "failed" and "overlap" in failed.reason
    np.testing.assert_array_equal(odometry.local_map(), before)
    assert failed.pose_covariance[0, 0] >= 1e4 and failed.twist_covariance[0, 0] >= 1e4
    # The pose is the prediction: a tenth of a second on.
    expected = last.T_odom_base @ se3.exp(last.twist * (failed.stamp - last.stamp))
    np.testing.assert_allclose(failed.T_odom_base, expected, atol=1e-9)
    # And the next good scan is registered as if nothing had been.
    results, _ = run(odometry, curve_at, 2.1, 1)
    assert results[0].status == "registered"


@pytest.mark.parametrize(
    "xyz",
    [
        np.empty((0, 3)),
        np.zeros((5000, 3)),
        np.full((5000, 3), np.nan),
        np.full((5000, 3), np.inf),
        np.full((5000, 3), 7.0),
        np.array([[1.0, 2.0, 3.0]]),
    ],
    ids=["empty", "zeros", "nan", "infinite", "one place", "one point"],
)
def test_useless_scans_are_skipped_and_the_first_good_one_seeds(xyz, curve_at):
    odometry = Odometry(OdometryConfig())
    result = odometry.register(xyz, np.linspace(0, 0.1, len(xyz)), 99.0)
    assert result.status == "skipped" and f"usable points of {len(xyz)}" in result.reason
    assert np.isfinite(result.T_odom_base).all() and len(odometry.local_map()) == 0
    results, _ = run(odometry, curve_at, 0.0, 2)
    assert [r.status for r in results] == ["seeded", "registered"]
    # And in the middle of a run it changes nothing.
    skipped = odometry.register(xyz, np.linspace(0, 0.1, len(xyz)), 100.2)
    assert skipped.status == "skipped"
    assert run(odometry, curve_at, 0.3, 1)[0][0].status == "registered"


def test_some_points_that_are_not_finite_do_no_harm(curve_at, drive_results):
    odometry = Odometry(OdometryConfig())
    for k in range(5):
        xyz, times = scan(curve_at, k * PERIOD, seed=k)
        xyz = np.insert(xyz, 100, [[np.nan, 1, 1]] * 50, axis=0)
        times = np.insert(times, 100, [0.0] * 50)
        result = odometry.register(xyz, times, 100.0 + k * PERIOD)
    np.testing.assert_array_equal(result.T_odom_base, drive_results[0][4].T_odom_base)


def test_a_late_scan_is_skipped_and_a_new_beginning_restarts(curve_at):
    odometry = Odometry(OdometryConfig())
    results, _ = run(odometry, curve_at, 0.0, 20)
    late = run(odometry, curve_at, 1.5, 1)[0][0]
    assert late.status == "skipped" and "0.400 s late" in late.reason
    assert run(odometry, curve_at, 2.0, 1)[0][0].status == "registered"
    # The bag begins again: the pose does too.
    again = run(odometry, curve_at, 0.0, 3)[0]
    assert again[0].status == "seeded" and "time jumped back by 2.000 s" in again[0].reason
    np.testing.assert_array_equal(again[0].T_odom_base, np.eye(4))
    np.testing.assert_allclose(again[2].T_odom_base, results[2].T_odom_base, atol=1e-9)


@pytest.mark.parametrize("apart", [0.0, 0.03, 0.05])
def test_two_lidars_take_turns_or_sweep_together(apart):
    """On one topic, started at 1.2 m/s; what the second one adds must not bend the beginning."""
    pose_at = drive(lambda t: (1.2, 0.4), 3.0)
    odometry = Odometry(OdometryConfig())
    results = []
    for k in range(20):
        for lidar in (0, 1):
            begin = k * PERIOD + lidar * apart
            results.append(odometry.register(*scan(pose_at, begin, seed=2 * k + lidar), begin))
    # Of two that sweep together the second may end first.
    assert [r.status for r in results].count("registered") >= (37 if apart else 25)
    expected = se3.inverse(pose_at(results[0].stamp)) @ pose_at(results[-1].stamp)
    np.testing.assert_allclose(results[-1].T_odom_base[:3, 3], expected[:3, 3], atol=0.03)


def test_a_scan_that_fails_is_where_the_wheels_say(curve_at):
    odometry = Odometry(OdometryConfig())
    odometry.prior = wheels = WheelOdometry()
    for stamp in np.arange(0.0, 2.5, 0.02):
        wheels.add(stamp, curve_at(stamp))
    results, _ = run(odometry, curve_at, 0.0, 5, 0.0)
    elsewhere = np.random.default_rng(0).uniform(-10, 10, (3000, 3))
    failed = odometry.register(elsewhere, None, 2.0)
    assert failed.status == "failed"
    expected = se3.inverse(curve_at(results[0].stamp)) @ curve_at(2.0)
    np.testing.assert_allclose(failed.T_odom_base, expected, atol=0.03)


def test_reset_starts_at_the_given_pose(curve_at):
    odometry = Odometry(OdometryConfig())
    free, _ = run(odometry, curve_at, 0.0, 10)
    T_start = se3.exp(np.array([512_700.0, 5_403_548.0, 300.0, 0.0, 0.0, 2.0]))
    odometry.reset(T_start)
    assert odometry.local_map().shape == (0, 3)
    placed, _ = run(odometry, curve_at, 0.0, 10)
    np.testing.assert_array_equal(placed[0].T_odom_base, T_start)
    expected = T_start @ free[-1].T_odom_base
    # Voxels lie elsewhere on the turned points, so the two differ by noise, not by the 1 m that
    # float32 would lose at such coordinates.
    np.testing.assert_allclose(placed[-1].T_odom_base, expected, atol=0.03)
    assert np.linalg.norm(odometry.local_map() - T_start[:3, 3], axis=1).max() < 40.0


def test_does_not_stick_to_the_rings_in_a_corridor():
    """The rings fall on bare walls alike from everywhere: point to point stays where it is."""
    pose_at = drive(lambda t: (1.2 * min(t, 1.0), 0.0), 6.0)
    odometry = Odometry(OdometryConfig())
    for k in range(60):
        xyz, times = scan(pose_at, k * PERIOD, seed=k, boxes=CORRIDOR)
        result = odometry.register(xyz, times, k * PERIOD)
    assert result.status == "registered"
    expected = se3.inverse(pose_at(PERIOD)) @ pose_at(result.stamp)
    np.testing.assert_allclose(result.T_odom_base[:3, 3], expected[:3, 3], atol=0.1)


def straight(t):
    return 1.2 * min(t, 1.0), 0.0


@pytest.fixture(scope="module")
def beside_a_wall():
    """Scans of a drive along a wall on a plain, and the true poses at any time."""
    pose_at = drive(straight, 3.0)
    return pose_at, [scan(pose_at, k * PERIOD, seed=k, boxes=WALL) for k in range(25)]


def test_along_a_wall_the_prediction_is_held_and_flagged(beside_a_wall):
    pose_at, scans = beside_a_wall
    odometry = Odometry(OdometryConfig())
    results = [odometry.register(*one, k * PERIOD) for k, one in enumerate(scans)]
    for result in results[1:]:
        assert result.status == "registered"
        (direction,) = result.degenerate
        assert abs(direction[0]) > 0.99
    # Nothing moves along the wall, what is seen is followed, and only the former is uncertain.
    end = results[-1]
    np.testing.assert_allclose(end.T_odom_base[:3, 3], 0.0, atol=0.03)
    deviations = np.sqrt(np.diag(end.pose_covariance))
    assert deviations[0] > 1.0 and np.all(deviations[1:] < 0.1)
    assert np.sqrt(end.twist_covariance[0, 0]) > 1.0


def test_wheels_tell_the_way_along_the_wall(beside_a_wall):
    pose_at, scans = beside_a_wall
    odometry = Odometry(OdometryConfig())
    odometry.prior = wheels = WheelOdometry()
    elsewhere = se3.exp(np.array([7.0, 3.0, 0.0, 0.0, 0.0, 2.0]))
    for stamp in np.arange(0.0, 2.6, 0.02):
        wheels.add(stamp, elsewhere @ pose_at(stamp))
    results = [odometry.register(*one, k * PERIOD) for k, one in enumerate(scans)]
    expected = se3.inverse(pose_at(results[0].stamp)) @ pose_at(results[-1].stamp)
    np.testing.assert_allclose(results[-1].T_odom_base[:3, 3], expected[:3, 3], atol=0.05)
    assert len(results[-1].degenerate) == 1
    assert np.sqrt(results[-1].pose_covariance[0, 0]) < 0.5


def test_a_plain_fixes_height_and_slope_alone():
    odometry = Odometry(OdometryConfig())
    pose_at = drive(straight, 2.0)
    for k in range(15):
        result = odometry.register(*scan(pose_at, k * PERIOD, seed=k, boxes=PLAIN), k * PERIOD)
    assert len(result.degenerate) == 3
    # x, y and yaw: nothing of z, roll and pitch among them.
    assert np.abs(result.degenerate[:, 2:5]).max() < 0.05
    deviations = np.sqrt(np.diag(result.pose_covariance))
    assert np.all(deviations[[0, 1, 5]] > 1.0) and np.all(deviations[2:5] < 0.15)


def test_a_yard_leaves_nothing_open(drive_results):
    assert all(len(result.degenerate) == 0 for result in drive_results[0])


@pytest.mark.parametrize("height", [0.0, 0.3])
def test_one_beam_in_the_plane(curve_at, height):
    odometry = Odometry(OdometryConfig(planar=True))
    results, truth = [], []
    for k in range(60):
        xyz, times = scan(curve_at, k * PERIOD, seed=k, elevation=SINGLE_BEAM)
        results.append(odometry.register(xyz + [0.0, 0.0, height], times, k * PERIOD))
        truth.append(curve_at(results[-1].stamp))
    truth = np.array([se3.inverse(truth[0]) @ pose for pose in truth])
    assert [r.status for r in results] == ["seeded"] + ["registered"] * 59
    estimate = poses_of(results)
    assert absolute_trajectory_error(estimate, truth) < 0.05
    # It never leaves the plane, and never claims to have looked.
    assert not estimate[:, 2, 3].any() and not estimate[:, 2, :2].any()
    assert not any(result.twist[2:5].any() for result in results)


def test_a_gyroscope_bridges_a_turn_that_nobody_could_predict():
    """Half a second without scans, in which the robot turns by 100 degrees from rest."""
    spin = drive(lambda t: (0.0, 3.5 if 0.5 <= t < 1.0 else 0.0), 2.0)
    stamps = [k * PERIOD for k in (0, 1, 2, 3, 4, 10, 11, 12)]
    scans = [scan(spin, stamp, seed=k) for k, stamp in enumerate(stamps)]

    def drive_with(prior):
        odometry = Odometry(OdometryConfig())
        odometry.prior = prior
        results = [odometry.register(*one, stamp) for one, stamp in zip(scans, stamps, strict=True)]
        turned = se3.log_rotation(results[-1].T_odom_base[:3, :3])[2]
        return [r.status for r in results], turned

    gyroscope = Gyroscope()
    for stamp in np.arange(0.0, 1.5, 0.005):
        gyroscope.add(stamp, [0.0, 0.0, 3.5 if 0.5 <= stamp < 1.0 else 0.0])
    statuses, turned = drive_with(gyroscope)
    assert statuses == ["seeded"] + ["registered"] * 7
    assert turned == pytest.approx(3.5 * 0.5, abs=0.02)
    # Without, the square yard looks as if it had turned by ten degrees.
    _, turned = drive_with(None)
    assert abs(turned - 3.5 * 0.5) > 1.0


def test_carried_off_it_is_lost_until_it_is_put_back(curve_at):
    odometry = Odometry(OdometryConfig())
    results, _ = run(odometry, curve_at, 0.0, 10, 0.0)
    seen, points = results[-1], len(odometry.local_map())
    rng = np.random.default_rng(0)
    for k in range(10, 40):
        elsewhere = rng.uniform(-10, 10, (3000, 3))
        result = odometry.register(elsewhere, None, k * PERIOD)
        assert result.status == "failed" and "overlap" in result.reason
        # The last registered scan refers to the middle of its sweep.
        assert result.lost == (result.stamp - seen.stamp > 2.0 - PERIOD / 2)
    assert result.lost and len(odometry.local_map()) == points
    assert np.all(np.diag(result.pose_covariance) > 9.0)
    # Seen again from where it was before, standing.
    back = odometry.register(*scan(lambda t: curve_at(1.0), 0.0, seed=99), 4.0)
    assert (back.status, back.lost) == ("registered", False)
    expected = se3.inverse(curve_at(results[0].stamp)) @ curve_at(1.0)
    np.testing.assert_allclose(back.T_odom_base, expected, atol=0.03)


def test_a_bad_first_scan_is_forgotten_with_the_lengths_it_suggested(curve_at):
    """A lidar whose cover is taken off: what it saw before fits nothing."""
    odometry = Odometry(OdometryConfig())
    covered = np.random.default_rng(0).normal([0.6, 0.0, 0.0], 0.05, (2000, 3))
    first = odometry.register(covered, None, 0.0)
    assert first.status == "seeded" and odometry.voxel < 0.1
    second = odometry.register(*scan(curve_at, PERIOD, seed=1), PERIOD)
    assert second.status == "failed" and "begins with this one" in second.reason
    assert np.all(np.diag(second.pose_covariance) > 9.0)
    assert odometry.voxel > 0.2 and odometry.max_dist == 4.0 * odometry.voxel
    results, truth = run(odometry, curve_at, 2 * PERIOD, 20, 0.0)
    assert {r.status for r in results} == {"registered"}
    begin = se3.inverse(curve_at(second.stamp)) @ curve_at(results[-1].stamp)
    np.testing.assert_allclose(results[-1].T_odom_base, begin, atol=0.03)


def test_where_there_are_no_surfaces_nothing_is_claimed():
    """Bushes: blobs of points, among which a scan fits itself wherever it is put."""
    rng = np.random.default_rng(0)
    bushes = np.repeat(rng.uniform(-20, 20, (60, 3)) * [1, 1, 0.05], 300, axis=0)
    odometry = Odometry(OdometryConfig())
    results = []
    for k in range(30):
        seen = bushes + rng.normal(0.0, 1.0, bushes.shape) - [0.1 * k, 0.0, 0.0]
        results.append(odometry.register(seen, None, k * PERIOD))
    assert [r.status for r in results] == ["seeded"] + ["failed"] * 29
    # Since no scan was ever sure, it is lost two seconds after the first.
    assert [r.lost for r in results] == [k * PERIOD > 2.0 for k in range(30)]
    assert np.all(np.diag(results[-1].pose_covariance) > 9.0)


def test_a_map_that_is_too_small_is_named(curve_at):
    odometry = Odometry(OdometryConfig(voxel=0.05, max_voxels=1000, min_overlap=0.05))
    results, _ = run(odometry, curve_at, 0.0, 5)
    assert {r.status for r in results[1:]} == {"failed"}
    assert any("'max_voxels' is 1000" in r.reason for r in results)


def test_after_a_silence_an_open_scene_is_not_believed(beside_a_wall):
    """The prediction has ended, and along the wall nothing takes its place."""
    pose_at, scans = beside_a_wall
    odometry = Odometry(OdometryConfig())
    for k in range(15):
        result = odometry.register(*scans[k], k * PERIOD)
    points = len(odometry.local_map())
    for k in range(15, 25):
        result = odometry.register(*scans[k], 2.0 + k * PERIOD)
        assert result.status == "failed" and "leaves directions open" in result.reason
    assert result.lost and len(odometry.local_map()) == points
    # Wheels that were heard all the while tell.
    odometry.reset()
    odometry.prior = wheels = WheelOdometry()
    for stamp in np.arange(0.0, 5.0, 0.02):
        wheels.add(stamp, pose_at(stamp if stamp < 1.5 else max(1.5, stamp - 2.0)))
    for k in range(25):
        result = odometry.register(*scans[k], k * PERIOD + (2.0 if k >= 15 else 0.0))
        assert result.status == ("registered" if k else "seeded")


def test_poses_follow_one_another_also_where_scans_fail(curve_at):
    odometry = Odometry(OdometryConfig())
    run(odometry, curve_at, 0.0, 5, 0.0)
    elsewhere = np.random.default_rng(0).uniform(-10, 10, (3000, 3))
    failed = odometry.register(elsewhere, None, 3.0)
    assert (failed.status, failed.stamp) == ("failed", 3.0)
    assert odometry.register(*scan(curve_at, 2.5), 2.5).status == "skipped"
    # A jump back by more than a second is one also while scans fail.
    assert "time jumped back" in odometry.register(*scan(curve_at, 1.0), 1.0).reason


def test_lengths_are_chosen_anew_where_time_begins_anew(curve_at):
    odometry = Odometry(OdometryConfig())
    small = 0.1 * scan(drive(still, 0.1), 0.0)[0]
    odometry.register(small, None, 100.0)
    before = odometry.voxel
    restarted = odometry.register(scan(drive(still, 0.1), 0.0)[0], None, 5.0)
    assert "time jumped back" in restarted.reason
    assert odometry.voxel > 5.0 * before


@pytest.mark.parametrize(
    ("xyz", "times", "stamp", "complaint"),
    [
        (np.zeros((9, 3)), np.zeros((9, 1)), 0.0, "shapes"),
        (np.zeros((9, 3)), 5.0, 0.0, "shapes"),
        (np.zeros((9, 3), complex), None, 0.0, "real numbers"),
        (np.zeros((9, 3)), np.full(9, "now"), 0.0, "real numbers"),
        (np.zeros((9, 3)), None, np.nan, "stamp is nan"),
        (np.zeros((9, 3)), None, np.inf, "stamp is inf"),
    ],
)
def test_what_is_no_scan_is_refused_and_does_no_harm(curve_at, xyz, times, stamp, complaint):
    odometry = Odometry(OdometryConfig())
    with pytest.raises(ValueError, match=complaint):
        odometry.register(xyz, times, stamp)
    assert run(odometry, curve_at, 0.0, 3)[0][-1].status == "registered"


def test_the_map_is_bounded(curve_at):
    odometry = Odometry(OdometryConfig(max_voxels=4000))
    results, _ = run(odometry, curve_at, 0.0, 15)
    assert len(odometry.local_map()) <= 4000
    assert results[-1].status == "registered"


def test_voxel_follows_from_the_first_scan_unless_given(curve_at):
    odometry = Odometry(OdometryConfig())
    assert odometry.voxel is None
    run(odometry, curve_at, 0.0, 1)
    assert 0.1 < odometry.voxel < 0.5
    assert odometry.max_dist == 4.0 * odometry.voxel
    given = Odometry(OdometryConfig(voxel=0.7, max_dist=1.5))
    assert (given.voxel, given.max_dist) == (0.7, 1.5)


def test_configuration():
    with pytest.raises(ConfigurationError, match="backend"):
        OdometryConfig(backend="opencl")
    with pytest.raises(ConfigurationError, match="min_range"):
        OdometryConfig(min_range=0.0)
    with pytest.raises(ConfigurationError, match="'voxel' is 1e-09, must be 0 .* or at least 0.01"):
        OdometryConfig(voxel=1e-9)
    odometry = Odometry(OdometryConfig(backend="cpu"))
    assert (odometry.backend, odometry.backend_reason) == ("cpu", "asked for")


@pytest.mark.skipif(cuda_problem() is None, reason="there is a GPU")
def test_cuda_without_a_device_is_refused_at_construction():
    with pytest.raises(BackendError, match="cuda was asked for"):
        Odometry(OdometryConfig(backend="cuda"))
    assert Odometry(OdometryConfig()).backend_reason == cuda_problem()


@pytest.mark.gpu
@pytest.mark.skipif(cuda_problem() is not None, reason="needs an NVIDIA GPU")
def test_cuda_gives_the_same_trajectory(curve_at, drive_results):
    cuda, truth = run(Odometry(OdometryConfig(backend="cuda")), curve_at, 0.0, 60)
    assert absolute_trajectory_error(poses_of(cuda), truth) < 0.03
    apart = absolute_trajectory_error(poses_of(cuda), poses_of(drive_results[0]))
    # Ties of float32 change a partner now and then.
    assert apart < 0.005


def test_the_yard_itself():
    """The helper's truth: the nearest wall is seen at its distance."""
    xyz, times = scan(drive(still, 0.1), 0.0, noise=0.0)
    world = xyz + [0.0, 0.0, HEIGHT]
    assert world[:, 0].max() == pytest.approx(12.0) and world[:, 2].min() == pytest.approx(0.0)
    assert times.min() == 0.0 and times.max() < PERIOD

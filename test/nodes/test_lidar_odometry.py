"""lidar_odometry over DDS, lossless, so that every cloud has its answer: one node for all tests.

Each situation is one of those in which odometry on robots is reported to fail.
"""

import copy
import itertools
import os
import re
import signal

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import PoseWithCovarianceStamped
from nav_msgs.msg import Odometry, Path
from registration.ray_cast_yard import CORRIDOR, HEIGHT, PERIOD, drive
from ros_harness import Probe, Processes, wait_for
from sensor_msgs.msg import PointCloud2
from std_srvs.srv import Trigger
from tf2_msgs.msg import TFMessage
from yard_clouds import (
    EPOCH_NS,
    SECOND_NS,
    XYZT,
    cloud,
    drive_of,
    registered_here,
    stamp_ns,
    sweep,
    with_fields,
    xyz_of,
)

from geoaccel_ros.pointcloud.files import read_points
from geoaccel_ros.pointcloud.layout import coordinates
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.frames import mount_matrix
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.transforms import matrix_from_pose, set_pose, stamped_transform

MOUNTS = {
    "lidar_left": mount_matrix([0.3, 0.4, 0.2, 0.1, -0.2, 1.4]),
    "lidar_right": mount_matrix([-0.2, -0.5, 0.3, np.pi, 0.0, -1.2]),
}


class Node:
    """The node's process, a player that waits for it, and its answers in their order."""

    def __init__(self, processes, probe, *parameters):
        arguments = itertools.chain.from_iterable(("-p", p) for p in parameters)
        self.process = processes.start("lidar_odometry", "-p", "lossless:=true", *arguments)
        self.probe = probe
        self.odometry = probe.listen(Odometry, "/odom", qos.reliable(1000))
        self.player = probe.speak(PointCloud2, "/points", qos.KEEP_ALL)
        probe.wait_for_connections("lidar_odometry", subscribers_of_odom=1)

    def reset(self):
        assert self.probe.call(Trigger, "/lidar_odometry/reset").success

    def play(self, messages):
        """Return the answers to messages of which each has one."""
        first = len(self.odometry)
        for message in messages:
            self.player.publish(message)
        wait_for(
            lambda: len(self.odometry) >= first + len(messages),
            what=lambda: f"{len(messages)} poses; {len(self.odometry) - first}; {self.says()}",
        )
        return [self.odometry[k] for k in range(first, first + len(messages))]

    def says(self):
        return self.probe.diagnostics("lidar_odometry")

    def says_now(self):
        """Wait for diagnostics that are no older than this call."""
        before = len(self.probe.received["/diagnostics"])
        wait_for(lambda: len(self.probe.received["/diagnostics"]) > before, what="diagnostics")
        return self.says()

    def counted(self, name):
        """Return a function that waits until ``name`` has risen by an amount since now."""
        before = int(self.says_now().get(name, 0))
        return lambda amount=1: self.probe.wait_for_count("lidar_odometry", name, before + amount)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lidar_odometry")
    with Probe() as probe, Processes(folder) as processes:
        made = Node(processes, probe, f"map_file:={folder / 'map.pcd'}")
        made.map_file = folder / "map.pcd"
        wait_for(made.says, what="diagnostics")
        yield made


@pytest.fixture(autouse=True)
def begin_anew(request):
    if "node" in request.fixturenames:
        request.getfixturevalue("node").reset()


@pytest.fixture(scope="module")
def curve_at():
    """From rest to 1.2 m/s and up to 1.5 rad/s to both sides."""
    return drive(lambda t: (min(t, 1.0) * 1.2, 1.5 * np.sin(1.1 * t) * min(t, 1.0)), 8.0)


@pytest.fixture(scope="module")
def still_at():
    return drive(lambda t: (0.0, 0.0), 0.1)


@pytest.fixture(scope="module")
def sixty(curve_at):
    return drive_of(curve_at, 60)


@pytest.fixture(scope="module")
def sixty_here(sixty):
    return registered_here(sixty)


def poses(answers):
    return np.array([matrix_from_pose(answer.pose.pose) for answer in answers])


def truth_at(pose_at, answers):
    """True poses at the answers' own stamps, as seen from the first one's."""
    seconds = [(stamp_ns(answer) - EPOCH_NS) / SECOND_NS for answer in answers]
    true = np.array([pose_at(at) for at in seconds])
    return se3.inverse(true[0]) @ true


def covariance(flat):
    return np.reshape(flat, (6, 6))


# 7, 18, 25. The stamp is the pose's own instant; lossless loses nothing; numbers are the library's.
def test_sixty_clouds_as_fast_as_they_go_all_come_out_in_order(node, sixty, sixty_here):
    results, stamps = sixty_here
    answers = node.play(sixty)
    assert [stamp_ns(answer) for answer in answers] == stamps
    # The end of the sweep, to the nanosecond: the last of 512 columns.
    assert stamps[0] - stamp_ns(sixty[0]) == round(PERIOD * 511 / 512 * SECOND_NS)
    found = poses(answers)
    np.testing.assert_array_equal(found[:, :3, 3], [r.T_odom_base[:3, 3] for r in results])
    np.testing.assert_allclose(found, [r.T_odom_base for r in results], atol=1e-12)
    twist = [answers[-1].twist.twist.linear, answers[-1].twist.twist.angular]
    np.testing.assert_array_equal([[v.x, v.y, v.z] for v in twist], results[-1].twist.reshape(2, 3))
    for got, expected in (
        (answers[-1].pose.covariance, results[-1].pose_covariance),
        (answers[-1].twist.covariance, results[-1].twist_covariance),
    ):
        np.testing.assert_array_equal(covariance(got), expected)
    said = node.says()
    assert all(int(value) == 0 for name, value in said.items() if name.startswith("dropped: a"))
    assert int(said["lost: points"]) == 0


# 7, 15, 16.
def test_pose_twist_and_covariance_are_those_of_the_stamp(node, curve_at, sixty):
    answers = node.play(sixty[:40])
    found, true = poses(answers), truth_at(curve_at, answers)
    np.testing.assert_allclose(found[:, :3, 3], true[:, :3, 3], atol=0.05)
    last = answers[-1]
    assert (last.header.frame_id, last.child_frame_id) == ("odom", "base_link")
    at = (stamp_ns(last) - EPOCH_NS) / SECOND_NS
    linear, angular = last.twist.twist.linear, last.twist.twist.angular
    # In the frame of the robot, which drives forwards whatever its heading.
    np.testing.assert_allclose([linear.x, linear.y, linear.z], [1.2, 0, 0], atol=0.15)
    assert angular.z == pytest.approx(1.5 * np.sin(1.1 * at), abs=0.15)
    for flat in (last.pose.covariance, last.twist.covariance):
        deviations = np.sqrt(np.diag(covariance(flat)))
        assert (deviations > 0.001).all() and (deviations < 0.6).all()


def ticks(encode):
    return lambda points, stamp: with_fields(points, encode(points["time"], stamp * 1e-9))


ENCODINGS = {
    "Velodyne: float32 seconds": ticks(lambda t, s: [("time", t.astype("f4"))]),
    "float64 seconds": ticks(lambda t, s: [("time", t)]),
    "Ouster: uint32 nanoseconds": ticks(lambda t, s: [("t", np.round(t * 1e9).astype("u4"))]),
    "int32 nanoseconds": ticks(lambda t, s: [("offset_time", np.round(t * 1e9).astype("i4"))]),
    "uint16 microseconds by half": ticks(
        lambda t, s: [("timeStamp", np.round(np.minimum(t, 0.065) * 1e6).astype("u2"))]
    ),
    "Livox: float64 nanoseconds since 1970": ticks(lambda t, s: [("timestamp", (s + t) * 1e9)]),
    "Hesai: float64 seconds since 1970": ticks(lambda t, s: [("timestamp", s + t)]),
    "Luminar: seconds and nanoseconds": ticks(
        lambda t, s: [
            ("time_sec", np.floor(s + t).astype("u4")),
            ("time_nsec", np.round((s + t) % 1.0 * 1e9).astype("u4")),
        ]
    ),
}


# 2, 4. All are the same motion.
@pytest.mark.parametrize("name", ENCODINGS)
def test_times_are_understood_however_they_are_written(node, curve_at, name):
    begins = [3.0 + k * PERIOD for k in range(4)]
    sweeps = [sweep(curve_at, at, seed=k) for k, at in enumerate(begins)]
    plain = [cloud(points, at) for points, at in zip(sweeps, begins, strict=True)]
    if "half" in name:
        for points in sweeps:
            points["time"] = np.minimum(points["time"], 0.065)
        plain = [cloud(points, at) for points, at in zip(sweeps, begins, strict=True)]
    written = [
        cloud(ENCODINGS[name](points, stamp_ns(message)), at)
        for points, message, at in zip(sweeps, plain, begins, strict=True)
    ]
    expected, stamps = registered_here(plain)
    blind, _ = registered_here(plain, deskew=False)
    answers = node.play(written)
    # Seconds since 1970 in float64, the coarsest, have steps of 0.24 us.
    np.testing.assert_allclose([stamp_ns(a) for a in answers], stamps, atol=500, rtol=0)
    last = poses(answers)[-1]
    np.testing.assert_allclose(last, expected[-1].T_odom_base, atol=1e-3)
    assert np.abs(last - blind[-1].T_odom_base).max() > 5e-3


# 5, 6. A sweep that ends at the stamp, and one that covers half a turn in half the time.
def test_times_before_the_stamp_and_partial_sweeps(node, curve_at):
    clouds = []
    for k in range(20):
        at = 2.0 + k * PERIOD
        points = sweep(curve_at, at, seed=k)
        points = points[points["time"] <= 0.6 * PERIOD]
        points["time"] -= points["time"].max() - 0.0006
        clouds.append(cloud(points, at + 0.6 * PERIOD))
    answers = node.play(clouds)
    assert stamp_ns(answers[3]) - stamp_ns(clouds[3]) == 600_000
    found, true = poses(answers), truth_at(curve_at, answers)
    np.testing.assert_allclose(found[:, :3, 3], true[:, :3, 3], atol=0.06)


def equal(times):
    return np.full_like(times, 0.05)


def one_not_finite(times):
    return np.where(np.arange(len(times)) == 100, np.nan, times)


# 1, 3. Without usable times the scan serves all the same, and the log says why.
@pytest.mark.parametrize(
    ("field", "spoil", "complaint"),
    [
        ("time", equal, r"field 'time': all \d+ times are equal \(0.05\)"),
        ("time", one_not_finite, r"field 'time': 1 of \d+ times are not finite"),
        ("when", lambda times: times, r"no field of times among x y z when"),
    ],
)
def test_times_that_are_none_are_told_of_and_not_used(
    node, still_at, curve_at, field, spoil, complaint
):
    clouds = []
    for k, pose_at in enumerate((still_at, still_at, still_at, curve_at)):
        points = sweep(pose_at, 0.1 * k, seed=k)
        clouds.append(cloud(with_fields(points, [(field, spoil(points["time"]))]), 0.1 * k))
    expected, stamps = registered_here(clouds)
    assert stamps == [stamp_ns(message) for message in clouds]
    unused = node.counted("without point times")
    np.testing.assert_allclose(
        poses(node.play(clouds)), [result.T_odom_base for result in expected], atol=1e-12
    )
    unused(4)
    assert re.fullmatch(complaint, node.says()["newest reason"])
    assert "motion during the sweep is not undone: " in node.process.output
    if field == "when":
        assert node.process.output.count("(parameter 'time_field')") == 1


def with_holes(points):
    """8. Points without a return between the others, with times far off; is_dense says not so."""
    places = np.arange(0, len(points), 3)
    filled = np.insert(points, places, np.array((np.nan, np.nan, np.nan, 7.0), points.dtype))
    return filled


def half_zeros(points):
    """9. As many missing returns at the origin as there are points."""
    return np.concatenate([points, np.zeros(len(points), points.dtype)])


def doubled(points):
    return np.repeat(points, 2)


@pytest.mark.parametrize("fill", [with_holes, half_zeros, doubled])
def test_missing_returns_and_duplicates_change_nothing(node, sixty, sixty_here, curve_at, fill):
    clouds = [cloud(fill(sweep(curve_at, 0.1 * k, seed=k)), 0.1 * k) for k in range(6)]
    assert all(message.is_dense for message in clouds)
    answers = node.play(clouds)
    expected = [result.T_odom_base for result in sixty_here[0][:6]]
    np.testing.assert_allclose(poses(answers), expected, atol=1e-3)
    assert [stamp_ns(answer) for answer in answers] == sixty_here[1][:6]


def padded(points):
    """10. PCL's padding: 16 bytes of x y z, another 16 behind them, and fields in any order."""
    dtype = np.dtype(
        {"names": ["time", "z", "y", "x"], "formats": ["<f8", "<f4", "<f4", "<f4"],
         "offsets": [16, 8, 4, 0], "itemsize": 48}
    )  # fmt: skip
    made = np.zeros(len(points), dtype)
    for name in dtype.names:
        made[name] = points[name]
    return made


def without_row_step(message):
    message.row_step = 0


def organised(message):
    """Rows of 64 points with 40 bytes of padding behind each."""
    width, step = 64, message.point_step
    height = message.width // width
    rows = np.frombuffer(message.data, np.uint8)[: height * width * step].reshape(height, -1)
    rows = np.hstack([rows, np.full((height, 40), 255, np.uint8)])
    message.height, message.width, message.row_step = height, width, rows.shape[1]
    message.data = rows.tobytes()
    message.is_dense = False


def big_endian(message):
    points = np.frombuffer(message.data, "<f4,<f4,<f4,<f8")
    message.data = points.astype(points.dtype.newbyteorder(">")).tobytes()
    message.is_bigendian = True


@pytest.mark.parametrize("change", [padded, without_row_step, organised, big_endian])
def test_layouts_of_all_kinds_lead_to_the_same_pose(node, curve_at, change):
    sweeps = [sweep(curve_at, 2.0 + 0.1 * k, seed=k) for k in range(4)]
    sweeps = [points[: len(points) // 64 * 64] for points in sweeps]
    plain = [cloud(points, 2.0 + 0.1 * k) for k, points in enumerate(sweeps)]
    expected = [result.T_odom_base for result in registered_here(plain)[0]]
    if change is padded:
        plain = [cloud(padded(points), 2.0 + 0.1 * k) for k, points in enumerate(sweeps)]
    else:
        for message in plain:
            change(message)
    np.testing.assert_allclose(poses(node.play(plain)), expected, atol=1e-12)


def shortened(message):
    message.data = message.data[:-1]


def of_unknown_type(message):
    message.fields[1].datatype = 0


def without_z(message):
    message.fields[2].name = "height"


def beyond_its_step(message):
    message.fields[3].offset = 16


def before_time_0(message):
    message.header.stamp.sec = -5


def emptied(message):
    message.width = message.row_step = 0
    message.data = []


def tiny(message):
    """20 points from all of the sweep, whose times are then still one's."""
    points = np.frombuffer(bytes(message.data), XYZT)
    points = points[:: len(points) // 20][:20]
    message.width = len(points)
    message.row_step = points.nbytes
    message.data = points.tobytes()


# 10, 11.
@pytest.mark.parametrize(
    ("spoil", "counter", "complaint"),
    [
        (shortened, "dropped: malformed", "bytes in all, but carries"),
        (of_unknown_type, "dropped: malformed", "field 'y' has the unknown datatype 0"),
        (without_z, "dropped: malformed", "no field z; the cloud has x y height"),
        (beyond_its_step, "dropped: malformed", "field 'time' ends at byte 24, beyond point_step"),
        (before_time_0, "dropped: malformed", "its stamp, -5 s, lies before time 0"),
        (emptied, "dropped: empty", "a cloud without points"),
        (tiny, "dropped: skipped", "usable points of 20"),
    ],
)
def test_a_cloud_that_cannot_be_used_is_dropped_and_told_of(
    node, sixty, sixty_here, curve_at, spoil, counter, complaint
):
    bad = [cloud(sweep(curve_at, at, seed=9), at) for at in (-0.1, 0.25)]
    for message in bad:
        spoil(message)
    dropped = node.counted(counter)
    first = len(node.odometry)
    # Before the first good one, which seeds the map, and between two others.
    for message in (bad[0], *sixty[:3], bad[1]):
        node.player.publish(message)
    node.play(sixty[3:5])
    dropped(2)
    answers = [node.odometry[k] for k in range(first, len(node.odometry))]
    assert [stamp_ns(answer) for answer in answers] == sixty_here[1][:5]
    np.testing.assert_allclose(
        poses(answers), [result.T_odom_base for result in sixty_here[0][:5]], atol=1e-12
    )
    assert complaint in node.says()["newest reason"]
    assert "Traceback" not in node.process.output


# 12, 13, 28, 29. First in the file to speak of these frames; what comes later may use them.
def test_two_lidars_with_mounts_of_their_own_alternate_on_one_topic(node, curve_at):
    early = drive_of(curve_at, 3, T_base_lidar=MOUNTS["lidar_left"])
    for message in early:
        message.header.frame_id = "/lidar_left"
    before, dropped = len(node.odometry), node.counted("dropped: no transform")
    for message in early:
        node.player.publish(message)
    dropped(3)
    assert len(node.odometry) == before
    said = node.says()
    assert said["level"] != DiagnosticStatus.OK
    assert "cloud dropped: no transform from '/lidar_left'" in said["message"]
    assert "no transform from 'lidar_left' to 'base_link' on /tf_static yet" in node.process.output
    assert node.process.output.count("leading slash") == 1

    tell_mounts(node)
    clouds = []
    for k in range(40):
        # Each a whole turn, 50 ms apart at first, then 30 and 70.
        at = 1.0 + 0.1 * (k // 2) + (0.05 if k < 6 else 0.03) * (k % 2)
        frame = ("lidar_left", "lidar_right")[k % 2]
        points = sweep(curve_at, at, seed=k, T_base_lidar=MOUNTS[frame])
        clouds.append(cloud(points, at, ("/" if k % 2 else "") + frame))
    answers = node.play(clouds)
    found, true = poses(answers), truth_at(curve_at, answers)
    np.testing.assert_allclose(found[:, :3, 3], true[:, :3, 3], atol=0.05)
    assert np.trace(found[-1, :3, :3].T @ true[-1, :3, :3]) > 3.0 - 1e-3
    assert {answer.child_frame_id for answer in answers} == {"base_link"}
    assert node.process.output.count("leading slash") == 1

    # A mount is constant: one that is not is told of, but not one that is only rounded.
    mount = MOUNTS["lidar_left"]
    for change in ([5e-4, 0, 0, 0, 0, 5e-4], [0.003, 0, 0, 0, 0, 0], [0.003, 0, 0, 0, 0, 0.002]):
        tell_mounts(node, lidar_left=mount @ mount_matrix(change))
    node.process.wait_for_output("changed by 0.0000 m and 0.0020 rad", 20.0)
    changes = re.findall("the mount of '(.*)' changed by ([0-9.]+) m", node.process.output)
    assert changes == [("lidar_left", "0.0030"), ("lidar_left", "0.0000")]
    tell_mounts(node)


def tell_mounts(node, **others):
    if not hasattr(node, "mounts"):
        node.mounts = node.probe.speak(TFMessage, "/tf_static", qos.LATCHED)
    stamp = PointCloud2().header.stamp
    edges = [stamped_transform(stamp, "base_link", f, T) for f, T in {**MOUNTS, **others}.items()]
    node.mounts.publish(TFMessage(transforms=edges))


# 13. Map and scan lie in the odom frame, whichever way the lidar is mounted.
def test_local_map_and_scan_lie_where_the_yard_is(node, curve_at):
    tell_mounts(node)
    maps = node.probe.listen(PointCloud2, "/local_map", qos.RELIABLE)
    scans = node.probe.listen(PointCloud2, "/points_registered", qos.RELIABLE)
    node.probe.wait_for_connections(
        "lidar_odometry", subscribers_of_local_map=1, subscribers_of_points_registered=1
    )
    clouds = drive_of(curve_at, 20, begin=1.0, T_base_lidar=MOUNTS["lidar_right"])
    for message in clouds:
        message.header.frame_id = "lidar_right"
    answers = node.play(clouds)
    wait_for(
        lambda: len(scans) and stamp_ns(scans[-1]) == stamp_ns(answers[-1]), what="the last scan"
    )
    wait_for(lambda: stamp_ns(maps[-1]) == stamp_ns(answers[-1]), what="the last map")
    T_world_odom = curve_at((stamp_ns(answers[0]) - EPOCH_NS) / SECOND_NS)
    for message in (maps[-1], scans[-1]):
        assert message.header.frame_id == "odom"
        world = se3.apply(T_world_odom, xyz_of(message))
        # The ground at 0 and the walls at 12 m; one that is turned or shifted misses them.
        ground, wall = world[world[:, 2] < 0.1], world[world[:, 0] > 11.5]
        assert len(ground) > 50 and np.abs(np.median(ground[:, 2])) < 0.03
        assert len(wall) > 20 and np.abs(np.median(wall[:, 0]) - 12.0) < 0.05
        assert world[:, 2].min() > -0.2 and world[:, 2].max() < 3.1


# 18. Scans that never came: the prediction spans the real time between two.
def test_scans_lost_on_the_way_do_not_break_the_prediction(node, curve_at, sixty):
    answers = node.play(sixty[:20] + sixty[23:35] + sixty[36:50:2])
    found, true = poses(answers), truth_at(curve_at, answers)
    np.testing.assert_allclose(found[:, :3, 3], true[:, :3, 3], atol=0.06)
    assert max(covariance(answer.pose.covariance)[0, 0] for answer in answers[1:]) < 0.5**2


# 19. A late cloud is dropped; a bag that begins anew begins the map anew.
def test_time_that_jumps_back(node, sixty, sixty_here):
    late, restarts = node.counted("dropped: skipped"), node.counted("restarts")
    node.play(sixty[:10])
    node.player.publish(sixty[6])
    answers = node.play(sixty[10:30])
    late()
    expected = [result.T_odom_base for result in sixty_here[0]]
    np.testing.assert_allclose(poses(answers), expected[10:30], atol=1e-12)
    again = node.play(sixty[:10])
    restarts()
    np.testing.assert_allclose(poses(again), expected[:10], atol=1e-12)
    assert [stamp_ns(answer) for answer in again] == sixty_here[1][:10]
    assert "the map begins (time jumped back by" in node.process.output


# 20. ~/reset and initialpose; a pose in another frame is none.
def test_reset_and_initial_pose(node, sixty, curve_at):
    paths = node.probe.listen(Path, "/path", qos.RELIABLE)
    publisher = node.probe.speak(PoseWithCovarianceStamped, "/initialpose", qos.RELIABLE)
    node.probe.wait_for_connections("lidar_odometry", subscribers_of_path=1)
    # At UTM coordinates, of which float32 would keep half a metre (24).
    start = mount_matrix([500_000.125, 5_400_000.0625, 30.0, 0.0, 0.0, 2.0])
    message = PoseWithCovarianceStamped()
    set_pose(message.pose.pose, start)
    message.header.frame_id = "map"
    publisher.publish(message)
    node.process.wait_for_output("initialpose in frame 'map' ignored: must be in 'odom'", 20.0)
    np.testing.assert_allclose(poses(node.play(sixty[:2]))[0], np.eye(4), atol=1e-12)

    message.header.frame_id = "/odom"
    message.pose.pose.position.x = 1e300
    publisher.publish(message)
    node.process.wait_for_output("initialpose ignored: position [1e+300, 5400000.0625, 30.0]", 20.0)
    assert "must be within 1e+07 m of the origin, where float64 keeps" in node.process.output
    set_pose(message.pose.pose, start)
    restarts = node.counted("restarts")
    publisher.publish(message)
    restarts()
    answers = node.play(sixty[:30])
    found = poses(answers)
    np.testing.assert_allclose(found[0], start, atol=1e-9)
    moved, true = se3.inverse(start) @ found, truth_at(curve_at, answers)
    np.testing.assert_allclose(moved[:, :3, 3], true[:, :3, 3], atol=0.05)
    # The path began anew, too.
    wait_for(lambda: len(paths) and stamp_ns(paths[-1]) > stamp_ns(answers[15]), what="the path")
    assert all(p.pose.position.x > 4e5 for p in paths[-1].poses)

    # The map that is saved has millimetres there, and can be read again.
    answer = node.probe.call(Trigger, "/lidar_odometry/save_map")
    assert answer.success, answer.message
    saved = coordinates(read_points(node.map_file))
    assert saved.dtype == np.float64 and f"{len(saved)} points" in answer.message
    world = se3.apply(se3.inverse(start), saved) + [0.0, 0.0, HEIGHT]
    ground = world[world[:, 2] < 0.1]
    assert len(ground) > 100 and np.abs(np.median(ground[:, 2])) < 0.02

    node.reset()
    np.testing.assert_allclose(poses(node.play(sixty[:1]))[0], np.eye(4), atol=1e-12)


# 21. Started at speed: neither the rings on the ground nor a standstill is believed.
def test_started_on_the_move(node, curve_at):
    answers = node.play(drive_of(curve_at, 25, begin=3.0))
    found, true = poses(answers), truth_at(curve_at, answers)
    np.testing.assert_allclose(found[:, :3, 3], true[:, :3, 3], atol=0.1)
    assert answers[1].twist.twist.linear.x == pytest.approx(1.2, abs=0.3)


# 22.
def test_standing_still_neither_drifts_nor_grows(node, still_at):
    maps = node.probe.listen(PointCloud2, "/local_map", qos.RELIABLE)
    node.probe.wait_for_connections("lidar_odometry", subscribers_of_local_map=1)
    sweeps = [sweep(still_at, 0.0, seed=k) for k in range(8)]
    first = len(maps)
    # One minute, a scan a second.
    answers = node.play([cloud(sweeps[k % 8], float(k)) for k in range(60)])
    found = poses(answers)[:, :3, 3]
    assert np.abs(found).max() < 0.02
    assert np.linalg.norm(found[32:56].mean(axis=0) - found[8:32].mean(axis=0)) < 0.001
    wait_for(lambda: len(maps) >= first + 40, what="the maps")
    assert len({maps[k].width for k in range(first + 10, len(maps))}) == 1


# 31. No overlap, and no way to know where it is: said so, in the covariance too.
def test_a_cloud_from_elsewhere_is_reported_and_leaves_the_map_alone(node, sixty, curve_at):
    failed = node.counted("clouds failed")
    before = node.play(sixty[:20])
    elsewhere = sweep(curve_at, 2.0)
    elsewhere["x"] += 60.0
    lost = node.play([cloud(elsewhere, 2.0)])[0]
    failed()
    assert covariance(lost.pose.covariance)[0, 0] >= 1e4
    assert covariance(lost.twist.covariance)[0, 0] >= 1e4
    predicted = poses([lost])[0, :3, 3]
    assert np.linalg.norm(predicted - poses(before)[-1, :3, 3]) < 0.3
    wait_for(lambda: "overlap" in node.says()["message"], what="the diagnostics to say so")
    after = node.play(sixty[21:25])
    found, true = poses(before + after), truth_at(curve_at, before + after)
    np.testing.assert_allclose(found[:, :3, 3], true[:, :3, 3], atol=0.05)
    assert covariance(after[-1].pose.covariance)[0, 0] < 0.1**2

    # Not for long, though: then it is lost, says what helps, and begins anew when it is told to.
    node.play([cloud(elsewhere, 3.0), cloud(elsewhere, 6.0)])
    wait_for(lambda: "lost, overlap" in node.says()["message"], what="the diagnostics to say so")
    assert "call ~/reset or send an initialpose" in node.says()["message"]
    node.reset()
    node.play(drive_of(curve_at, 2, begin=7.0))
    wait_for(lambda: "tracking" in node.says()["message"], what="the diagnostics")


# 23. One wall tells nothing of how far along it one is.
def test_along_a_wall_the_pose_is_the_prediction_and_flagged(node):
    along = drive(lambda t: (min(t, 1.0), 0.0), 6.0)
    answers = node.play(drive_of(along, 12, begin=1.5, boxes=CORRIDOR[:2]))
    wait_for(lambda: "held to the prediction" in node.says()["message"], what="the diagnostics")
    along_x = r"held to the prediction along \(-?1\.00, -?0\.0\d, -?0\.0\d\):"
    assert re.search(along_x, node.says()["message"])
    deviations = np.sqrt(np.diag(covariance(answers[-1].pose.covariance)))
    assert deviations[0] > 1.0 and (deviations[1:3] < 0.05).all()


# 18. A player that keeps one cloud alone overwrites what has not arrived yet.
def test_clouds_that_the_middleware_lost_are_counted(node, still_at):
    points = np.tile(sweep(still_at, 0.0), 12)
    clouds = [cloud(points, 0.1 * k) for k in range(40)]
    before = node.says_now()
    hasty = node.probe.speak(PointCloud2, "/points", qos.reliable(1))
    node.probe.wait_for_connections("lidar_odometry", publishers_of_points=2)
    # Stopped, so that it cannot take them as they come, however fast the machine is.
    os.kill(node.process.pid, signal.SIGSTOP)
    try:
        for message in clouds:
            hasty.publish(message)
    finally:
        os.kill(node.process.pid, signal.SIGCONT)

    def since(*names):
        said = node.says()
        return sum(int(said[name]) - int(before[name]) for name in names)

    wait_for(
        lambda: since("clouds in", "lost: points") == len(clouds),
        what=lambda: f"every cloud to be counted; {node.says()}",
    )
    assert since("lost: points") > 0
    assert "messages on 'points' were lost on their way" in node.process.output
    node.probe.node.destroy_publisher(hasty)


def test_diagnostics_say_what_is_in_use(node, sixty):
    node.play(sixty[:10])
    wait_for(lambda: node.says().get("message") == "tracking", what="the diagnostics")
    said = node.says()
    assert said["backend"].startswith(("cpu (", "cuda ("))
    assert float(said["rmse [m]"]) < 0.05 and int(said["correspondences"]) > 100
    assert 0.05 < float(said["voxel [m]"]) < 1.0 and float(said["overlap"]) > 0.8
    assert float(said["max_dist [m]"]) == pytest.approx(4 * float(said["voxel [m]"]), rel=1e-3)
    assert "the map begins (first scan): voxel 0." in node.process.output
    assert all(float(said[f"odometry {p} [ms]"]) > 0 for p in ("p50", "p95", "p99"))


def ending_before_time_0(message):
    """Stamped 0.05 s, with points from 0.1 s to 0.06 s before that; the first have no return."""
    points = np.frombuffer(bytes(message.data), XYZT).copy()
    points["time"] = 0.4 * points["time"] - 0.1
    message.data = points.tobytes()
    message.header.stamp.sec, message.header.stamp.nanosec = 0, 50_000_000


def in_a_frame_nobody_knows(message):
    message.header.frame_id = "nowhere"


# What was tracked is no comfort while nothing that comes can be used.
def test_clouds_that_cannot_be_used_are_not_called_tracking(node, sixty, sixty_here):
    def says(level, *texts):
        said = node.says()
        return said["level"] == level and all(text in said["message"] for text in texts)

    def sent(spoil):
        message = copy.deepcopy(sixty[3])
        spoil(message)
        node.player.publish(message)

    node.play(sixty[:3])
    wait_for(lambda: says(DiagnosticStatus.OK, "tracking"), what="the diagnostics")
    malformed = node.counted("dropped: malformed")
    for spoil, complaint in (
        (ending_before_time_0, "cloud dropped: its points begin 0.050 s before time 0"),
        (shortened, "bytes in all, but carries"),
        (in_a_frame_nobody_knows, "cloud dropped: no transform from 'nowhere'"),
    ):
        sent(spoil)
        wait_for(
            lambda text=complaint: text in node.says()["message"],
            what=lambda: f"the reason; it says {node.says()}",
        )
        assert node.says()["level"] != DiagnosticStatus.OK
    malformed(2)

    def no_pose():
        sent(emptied)
        return says(DiagnosticStatus.ERROR, "no pose for ", "s: cloud dropped: a cloud without")

    wait_for(no_pose, what=lambda: f"the diagnostics to say so; {node.says()}")
    found = poses(node.play(sixty[3:5]))
    wait_for(lambda: says(DiagnosticStatus.OK, "tracking"), what="the diagnostics")
    expected = [result.T_odom_base for result in sixty_here[0][3:5]]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert int(node.says().get("exceptions", 0)) == 0

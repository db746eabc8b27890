"""lidar_odometry as it runs on a robot: the newest cloud alone, parameters, lifecycle, QoS."""

import time

import numpy as np
import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from nav_msgs.msg import Odometry, Path
from registration.ray_cast_yard import drive
from ros_harness import Probe, Processes, wait_for
from sensor_msgs.msg import PointCloud2
from std_srvs.srv import Trigger
from tf2_msgs.msg import TFMessage
from yard_clouds import EPOCH_NS, SECOND_NS, cloud, stamp_ns, sweep, with_fields

from geoaccel_ros.backend import cuda_problem
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.frames import mount_matrix, rigid_matrix
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.transforms import matrix_from_pose

MOUNT = [0.2, -0.3, 0.5, 0.3, -0.2, 2.0]
START = [3.0, -2.0, 1.0, 0.0, 0.1, -2.5]
PARAMETERS = {
    "lidar_mount": MOUNT,
    "initial_pose": START,
    # With the leading slash of ROS 1, which is left out (28).
    "base_frame": "/base",
    "odom_frame": "/world",
    "invert_tf": True,
    "path_length": 4,
    "time_field": "when",
    "time_unit": "us",
}


class Robot:
    """The node on a robot, whose lidar publishes as drivers do."""

    def __init__(self, processes, probe):
        values = (f"{name}:={str(value).lower()}" for name, value in PARAMETERS.items())
        arguments = [word for value in values for word in ("-p", value)]
        self.process = processes.start("lidar_odometry", *arguments)
        self.probe = probe
        self.odometry = probe.listen(Odometry, "/odom", qos.reliable(1000))
        self.transforms = probe.listen(TFMessage, "/tf", qos.TRANSFORMS)
        self.paths = probe.listen(Path, "/path", qos.RELIABLE)
        self.lidar = probe.speak(PointCloud2, "/points", qos.sensor_data(100))
        probe.wait_for_connections("lidar_odometry", subscribers_of_odom=1, subscribers_of_path=1)

    def says(self):
        return self.probe.diagnostics("lidar_odometry")

    def change(self, transition):
        request = ChangeState.Request(transition=Transition(id=transition))
        return self.probe.call(ChangeState, "/lidar_odometry/change_state", request).success


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    with Probe() as probe, Processes(tmp_path_factory.mktemp("live")) as processes:
        yield Robot(processes, probe)


@pytest.fixture(scope="module")
def curve_at():
    return drive(lambda t: (min(t, 1.0) * 1.2, 1.5 * np.sin(1.1 * t) * min(t, 1.0)), 8.0)


def clouds_of(pose_at, count, begin=0.0):
    """Sweeps with times that only the parameters explain."""
    mount, made = mount_matrix(MOUNT), []
    for k in range(count):
        points = sweep(pose_at, begin + 0.1 * k, seed=k, T_base_lidar=mount)
        ticks = np.round(points["time"] * 1e6).astype("u4")
        made.append(cloud(with_fields(points, [("when", ticks)]), begin + 0.1 * k, "lidar"))
    return made


# 3, 14, 20, 25, 28. A mount, a first pose, a field of times and frames by parameters.
def test_parameters_place_the_robot_and_bound_the_path(robot, curve_at):
    clouds = clouds_of(curve_at, 30)
    for message in clouds:
        count = len(robot.odometry)
        robot.lidar.publish(message)
        wait_for(lambda count=count: len(robot.odometry) > count, what="a pose")
    answers = list(robot.odometry)
    # The sweep's end, found in a field that no table lists.
    assert stamp_ns(answers[0]) - stamp_ns(clouds[0]) == pytest.approx(99_804_687, abs=1000)
    found = np.array([matrix_from_pose(answer.pose.pose) for answer in answers])
    true = [curve_at((stamp_ns(answer) - EPOCH_NS) / SECOND_NS) for answer in answers]
    expected = mount_matrix(START) @ se3.inverse(true[0]) @ np.array(true)
    np.testing.assert_allclose(found[:, :3, 3], expected[:, :3, 3], atol=0.05)
    assert (answers[-1].header.frame_id, answers[-1].child_frame_id) == ("world", "base")

    wait_for(lambda: len(robot.transforms) == len(answers), what="the transforms")
    transform = robot.transforms[-1].transforms[0]
    assert (transform.header.frame_id, transform.child_frame_id) == ("base", "world")
    assert transform.header.stamp == answers[-1].header.stamp
    parts = transform.transform.translation, transform.transform.rotation
    np.testing.assert_allclose(rigid_matrix(*parts) @ found[-1], np.eye(4), atol=1e-9)

    path = robot.paths[-1]
    assert path.header.frame_id == "world" and len(path.poses) == PARAMETERS["path_length"]
    ends = [matrix_from_pose(pose.pose)[:3, 3] for pose in path.poses]
    steps = np.linalg.norm(np.diff(ends, axis=0), axis=1)
    assert (steps > 0.05).all() and (steps < 0.3).all()
    published = [k for k, a in enumerate(answers) if stamp_ns(a) == stamp_ns(path)][0]
    assert np.linalg.norm(ends[-1] - found[published, :3, 3]) < 0.06


# 18. What comes while a cloud is registered waits only if nothing newer does.
def test_of_clouds_that_wait_the_newest_is_registered(robot, curve_at):
    assert robot.probe.call(Trigger, "/lidar_odometry/reset").success
    wait_for(lambda: "no cloud since" in robot.says()["message"], what="the diagnostics")
    before, first = robot.says(), len(robot.odometry)
    clouds = clouds_of(curve_at, 60)
    for message in clouds:
        robot.lidar.publish(message)
        time.sleep(0.004)
    end = stamp_ns(clouds[-1])
    wait_for(
        lambda: len(robot.odometry) > first and stamp_ns(robot.odometry[-1]) > end,
        what="the newest cloud's pose",
    )
    stamps = [stamp_ns(robot.odometry[k]) for k in range(first, len(robot.odometry))]
    assert stamps == sorted(stamps)

    def since(*names):
        said = robot.says()
        return sum(int(said[name]) - int(before[name]) for name in names)

    poses = ("clouds registered", "clouds failed")
    wait_for(
        lambda: since(*poses, "dropped: a newer one came") == len(clouds),
        what=lambda: f"all clouds to be counted; {robot.says()}",
    )
    assert since("dropped: a newer one came") > 0 and since(*poses) == len(stamps)


def test_nothing_is_published_after_deactivate(robot, curve_at):
    clouds = iter(clouds_of(curve_at, 8))
    for _ in range(4):
        robot.lidar.publish(next(clouds))
    assert robot.change(Transition.TRANSITION_DEACTIVATE)
    time.sleep(0.3)
    count = len(robot.odometry)
    for message in clouds:
        robot.lidar.publish(message)
    time.sleep(1.0)
    assert len(robot.odometry) == count
    assert robot.change(Transition.TRANSITION_ACTIVATE)
    assert robot.probe.call(Trigger, "/lidar_odometry/reset").success
    robot.lidar.publish(clouds_of(curve_at, 1)[0])
    wait_for(lambda: len(robot.odometry) > count, what="a pose once it is active again")
    found = matrix_from_pose(robot.odometry[-1].pose.pose)
    np.testing.assert_allclose(found, mount_matrix(START), atol=1e-9)


# 17.
def test_silence_is_told_and_a_signal_ends_the_node_cleanly(robot):
    wait_for(
        lambda: "no message on 'points' for" in robot.says()["message"], what="the diagnostics"
    )
    status, seconds = robot.process.stop()
    assert status == 0 and seconds < 2.0
    assert "Traceback" not in robot.process.output


# 17. A bag whose clouds were recorded as a driver sends them.
def test_lossless_takes_what_a_best_effort_player_offers_and_says_so(nodes, probe, curve_at):
    mount = f"lidar_mount:={MOUNT}"
    process = nodes.start("lidar_odometry", "-p", "lossless:=true", "-p", mount)
    odometry = probe.listen(Odometry, "/odom", qos.reliable(100))
    player = probe.node.create_publisher(PointCloud2, "/points", qos.sensor_data(100))
    process.wait_for_output("lossless needs a reliable publisher", timeout=20.0)
    probe.wait_for_connections("lidar_odometry", publishers_of_points=1, subscribers_of_odom=1)
    clouds = clouds_of(curve_at, 12)
    for message in clouds:
        player.publish(message)
        time.sleep(0.02)
    wait_for(lambda: len(odometry) == len(clouds), what="a pose for each cloud")
    assert process.output.count("lossless needs a reliable publisher") == 1
    assert "nothing will pass" not in process.output


# 26. No silent fallback.
def test_cuda_where_there_is_none_is_refused(nodes):
    if cuda_problem() is None:
        nodes.start("lidar_odometry", "-p", "backend:=cuda")
        return
    process = nodes.start("lidar_odometry", "-p", "backend:=cuda", active=False)
    assert process.wait() == 1
    assert "cannot configure: " in process.output and "Traceback" not in process.output

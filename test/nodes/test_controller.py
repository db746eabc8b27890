"""mppi_controller over DDS: drives to goals on the pose it is given, and stops when in doubt."""

import array
import math
import time

import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped, TwistStamped
from nav_msgs.msg import OccupancyGrid, Odometry, Path
from rcl_interfaces.srv import SetParameters
from rclpy.duration import Duration
from rclpy.parameter import Parameter
from ros_harness import wait_for
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header, UInt64
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

from geoaccel_ros.pointcloud.layout import packed_dtype
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.pointcloud2 import message_from_points

XYZ = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])
MOUNT = ["-p", "lidar_mount:=[0.0,0.0,0.0,0.0,0.0,0.0]"]
# Where the test is about the pose: an open field needs no lidar.
BLIND = [*MOUNT, "-p", "obstacle_timeout:=0.0"]


def pose_at(node, x, y=0.0, frame="odom"):
    odom = Odometry(child_frame_id="base_link")
    odom.header = Header(stamp=node.get_clock().now().to_msg(), frame_id=frame)
    odom.pose.pose.position.x, odom.pose.pose.position.y = x, y
    odom.pose.pose.orientation.w = 1.0
    return odom


class Robot:
    """Tells a pose and hears commands."""

    def __init__(self, probe):
        self._probe = probe
        self.commands = probe.listen(TwistStamped, "/cmd_vel", qos.RELIABLE)
        self._odometry = probe.speak(Odometry, "/odom", qos.RELIABLE)

    def at(self, x, y=0.0, **kwargs):
        self.tells(pose_at(self._probe.node, x, y, **kwargs))

    def tells(self, odom):
        self._odometry.publish(odom)

    def told(self):
        twist = self.commands[-1].twist
        return twist.linear.x, twist.angular.z

    def answers(self, condition, x=0.0, y=0.0, what=""):
        """Stand at a pose until the last command fulfils ``condition``."""

        def told():
            self.at(x, y)
            return len(self.commands) and condition(*self.told())

        wait_for(told, what=what)


def test_it_drives_towards_the_goal_and_stops_at_it(nodes, probe):
    nodes.start("mppi_controller", *BLIND, "-p", "goals:=[3.0, 0.0]")
    plans = probe.listen(Path, "/plan", qos.RELIABLE)
    rollouts = probe.listen(MarkerArray, "/rollouts", qos.RELIABLE)
    robot = Robot(probe)
    robot.answers(lambda v, w: v > 0.3, what="the robot to drive on")
    assert all(
        abs(c.twist.linear.x) <= 1.2 and abs(c.twist.angular.z) <= 1.5 for c in robot.commands
    )
    wait_for(lambda: len(plans) and len(rollouts), what="plan and rollouts")
    end = plans[-1].poses[-1].pose.position
    assert plans[-1].header.frame_id == "odom" and end.x > 1.0 and abs(end.y) < 1.0
    assert len(rollouts[-1].markers) > 10
    robot.answers(lambda v, w: v == 0.0 and w == 0.0, x=3.0, what="the robot to stop at the goal")

    def said():
        robot.at(3.0)
        return probe.diagnostics("mppi_controller")["message"] == "all goals reached"

    wait_for(said, what="the controller to say so")
    assert probe.diagnostics("mppi_controller")["goals reached"] == "1"


def test_a_goal_may_come_by_topic(nodes, probe):
    process = nodes.start("mppi_controller", *BLIND)
    robot = Robot(probe)
    robot.answers(lambda v, w: v == 0.0 and w == 0.0, what="the robot to stand without a goal")
    goals = probe.speak(PoseStamped, "/goal_pose", qos.RELIABLE)
    goal = PoseStamped(header=Header(frame_id="elsewhere"))
    goal.pose.position.x = 4.0
    goals.publish(goal)
    process.wait_for_output("in frame 'elsewhere' ignored")
    goal.header.frame_id = "odom"
    goals.publish(goal)
    robot.answers(lambda v, w: v > 0.3, what="the robot to drive to the new goal")


def test_it_turns_aside_from_what_the_cloud_shows(nodes, probe):
    nodes.start("mppi_controller", *MOUNT, "-p", "goals:=[5.0, 0.0]")
    plans = probe.listen(Path, "/plan", qos.RELIABLE)
    robot = Robot(probe)
    clouds = probe.speak(PointCloud2, "/points", qos.RELIABLE)
    # A wall across the way, 1.5 m ahead and 3 m wide, as high as the robot.
    y, z = np.meshgrid(np.arange(-1.5, 1.5, 0.05), np.arange(0.3, 1.2, 0.1))
    wall = np.stack([np.full(y.size, 1.5), y.ravel(), z.ravel()], axis=1).astype(np.float32)

    def avoided():
        robot.at(0.0)
        header = Header(stamp=probe.node.get_clock().now().to_msg(), frame_id="lidar")
        clouds.publish(message_from_points(header, wall.view(XYZ).reshape(-1)))
        time.sleep(0.05)
        robot.at(0.0)
        if not len(plans):
            return False
        return around_the_wall(plans)

    wait_for(avoided, what="a plan that does not cross the wall")


def wall_map(value, frame="odom"):
    """A grid of 8 x 8 m around the origin, with a wall 1.5 m ahead and 3 m wide of that value."""
    grid = OccupancyGrid(header=Header(frame_id=frame))
    grid.info.resolution, grid.info.width, grid.info.height = 0.05, 160, 160
    grid.info.origin.position.x = grid.info.origin.position.y = -4.0
    grid.info.origin.orientation.w = 1.0
    cells = np.zeros((160, 160), np.int8)
    cells[50:110, 110:112] = value
    grid.data = array.array("b", cells.tobytes())
    return grid


def around_the_wall(plans):
    """Return whether the last plan passes the wall of ``wall_map`` on a side, or ends before it."""
    path = np.array([[p.pose.position.x, p.pose.position.y] for p in plans[-1].poses])
    beside = np.abs(path[np.abs(path[:, 0] - 1.5) < 0.1, 1])
    return path[:, 0].max() < 1.4 or (len(beside) > 0 and beside.min() > 1.5)


# -1 is unknown.
@pytest.mark.parametrize("value", [100, -1])
def test_it_turns_aside_from_what_a_map_shows_without_any_cloud(nodes, probe, value):
    process = nodes.start(
        "mppi_controller", "-p", "goals:=[5.0, 0.0]", "-p", "obstacle_source:=map"
    )
    plans = probe.listen(Path, "/plan", qos.RELIABLE)
    robot = Robot(probe)

    def waits():
        robot.at(0.0)
        return probe.diagnostics("mppi_controller").get("message") == "stopped: no map yet"

    wait_for(waits, what="the controller to ask for a map")
    assert not plans and robot.told() == (0.0, 0.0)
    maps = probe.speak(OccupancyGrid, "/map", qos.LATCHED)
    maps.publish(wall_map(value, frame="map"))
    process.wait_for_output("map refused: it is in frame 'map', must be in 'odom'")
    assert not plans
    maps.publish(wall_map(value))

    def avoided():
        robot.at(0.0)
        return len(plans) > 5 and around_the_wall(plans)

    wait_for(avoided, what="a plan that does not cross the wall")

    def said():
        robot.at(0.0)
        told = probe.diagnostics("mppi_controller")
        return told["message"] == "driving" and told.get("map refused") == "1"

    wait_for(said, what="the controller to say that it drives, and that it refused a map")


def test_unknown_cells_may_be_free_and_clouds_are_still_asked_for_beside_a_map(nodes, probe):
    # Told before the node is there: a map server tells it once.
    probe.node.create_publisher(OccupancyGrid, "/map", qos.LATCHED).publish(wall_map(-1))
    nodes.start(
        "mppi_controller", *MOUNT, "-p", "goals:=[5.0, 0.0]", "-p", "obstacle_source:=both",
        "-p", "map_unknown:=free",
    )  # fmt: skip
    plans = probe.listen(Path, "/plan", qos.RELIABLE)
    robot = Robot(probe)

    def waits():
        robot.at(0.0)
        message = probe.diagnostics("mppi_controller").get("message", "")
        return message.startswith("stopped: no cloud yet")

    wait_for(waits, what="the controller to ask for clouds")
    clouds = probe.speak(PointCloud2, "/points", qos.RELIABLE)
    far = np.array([[-3.0, 3.0, 0.5]], np.float32)

    def straight():
        header = Header(stamp=probe.node.get_clock().now().to_msg(), frame_id="lidar")
        clouds.publish(message_from_points(header, far.view(XYZ).reshape(-1)))
        robot.at(0.0)
        return len(plans) and not around_the_wall(plans)

    wait_for(straight, what="a plan straight through what is unknown")


@pytest.mark.parametrize("no_return", [(np.nan, np.nan), (0.0, 1e6)])
def test_the_time_of_a_point_that_is_no_return_means_nothing(nodes, probe, no_return):
    nodes.start("mppi_controller", *MOUNT, "-p", "goals:=[5.0, 0.0]")
    robot = Robot(probe)
    clouds = probe.speak(PointCloud2, "/points", qos.RELIABLE)
    dtype = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("time", "f4")])
    points = np.zeros(200, dtype)
    points["x"], points["y"], points["z"] = 3.0, np.linspace(2, 6, 200), 0.5
    points["time"] = np.linspace(0.0, 0.1, 200)
    points[100] = (no_return[0], no_return[0], no_return[0], no_return[1])

    def seen():
        now = probe.node.get_clock().now()
        header = Header(stamp=(now - Duration(seconds=0.1)).to_msg(), frame_id="lidar")
        clouds.publish(message_from_points(header, points))
        robot.at(0.0)
        return int(probe.diagnostics("mppi_controller").get("obstacles count", 0))

    wait_for(seen, what="the cloud on the map")


def test_it_stands_without_clouds_and_stops_when_they_stop(nodes, probe):
    nodes.start("mppi_controller", *MOUNT, "-p", "goals:=[10.0, 0.0]")
    robot = Robot(probe)
    clouds = probe.speak(PointCloud2, "/points", qos.RELIABLE)
    far = np.array([[50.0, 50.0, 0.5]], np.float32).view(XYZ).reshape(-1)

    def says(text):
        robot.at(0.0)
        return text in probe.diagnostics("mppi_controller").get("message", "")

    def drives():
        header = Header(stamp=probe.node.get_clock().now().to_msg(), frame_id="lidar")
        clouds.publish(message_from_points(header, far))
        time.sleep(0.05)
        robot.at(0.0)
        return len(robot.commands) and robot.told()[0] > 0.3

    wait_for(lambda: says("stopped: no cloud yet"), what="it to say that it sees nothing")
    assert robot.told() == (0.0, 0.0)
    wait_for(drives, what="the robot to drive once it sees")
    wait_for(lambda: says("stopped: no cloud for"), what="it to say that clouds stopped")
    assert robot.told() == (0.0, 0.0)


@pytest.mark.parametrize(
    ("doubt", "says"),
    [
        ("silence", "stopped: the state is "),
        ("another frame", "refused: odom in frame 'map', must be 'odom' (parameter 'odom_frame')"),
        ("another robot", "refused: odom of 'trailer', must be 'base_link'"),
        ("a broken quaternion", "refused: odom is not a pose"),
        ("no number", "refused: odom's twist is not finite"),
        ("a deviation of 100 m", "stopped: the pose is not known: 1e+02 m off"),
    ],
)
def test_it_stops_when_the_pose_cannot_be_trusted(nodes, probe, doubt, says):
    nodes.start("mppi_controller", *BLIND, "-p", "goals:=[10.0, 0.0]")
    robot = Robot(probe)
    robot.answers(lambda v, w: v > 0.3, what="the robot to drive on")

    def stopped():
        if doubt == "another frame":
            robot.at(0.0, frame="map")
        elif doubt != "silence":
            odom = pose_at(probe.node, 0.0)
            if doubt == "another robot":
                odom.child_frame_id = "trailer"
            elif doubt == "a broken quaternion":
                odom.pose.pose.orientation.w = 0.0
            elif doubt == "no number":
                odom.twist.twist.linear.x = math.nan
            else:
                odom.pose.covariance[0] = 1e4
            robot.tells(odom)
        return robot.told() == (0.0, 0.0)

    wait_for(stopped, what="the robot to stop")
    wait_for(
        lambda: stopped() and says in probe.diagnostics("mppi_controller")["message"],
        what="the controller to say why",
    )
    robot.answers(lambda v, w: v > 0.3, what="the robot to drive on by itself")


def test_its_last_command_is_to_stop(nodes, probe):
    process = nodes.start("mppi_controller", *BLIND, "-p", "goals:=[10.0, 0.0]")
    robot = Robot(probe)
    robot.answers(lambda v, w: v > 0.3, what="the robot to drive on")
    status, took = process.stop()
    assert status == 0 and took < 2.0
    wait_for(lambda: robot.told() == (0.0, 0.0), what="the safe command")


def test_it_tells_what_the_plan_costs_and_where_the_time_goes(nodes, probe):
    nodes.start("mppi_controller", *BLIND, "-p", "goals:=[10.0, 0.0]")
    robot = Robot(probe)

    def driving():
        robot.at(0.0)
        return probe.diagnostics("mppi_controller").get("message") == "driving"

    wait_for(driving, what="the controller to drive")
    said = probe.diagnostics("mppi_controller")
    # 10 m for 5 s at most.
    assert 10.0 < float(said["cost goal"]) < 50.0 and float(said["cost final_goal"]) > 0.0
    assert float(said["sample [ms]"]) > 0.0 and said["not finite [%]"] == "0.0"


def test_late_updates_leave_no_gap_and_get_fewer_samples(nodes, probe):
    # So many samples that no machine has an update of them in 20 ms.
    values = ["rate:=50.0", "samples:=200000", "samples_min:=100", "plan_hold:=10.0"]
    values = [argument for value in (*values, "backend:=cpu") for argument in ("-p", value)]
    nodes.start("mppi_controller", *BLIND, "-p", "goals:=[10.0, 0.0]", *values)
    robot = Robot(probe)

    def adapted():
        robot.at(0.0)
        said = probe.diagnostics("mppi_controller")
        return int(said.get("samples", 200000)) <= 200000 // 8 and said

    said = wait_for(adapted, 60.0, what="fewer samples")
    few = f"with {said['samples']} of 200000 samples: more take longer than a period"
    assert said["message"] == f"driving, {few}"
    # Each of three halvings took three late updates, and commands went on meanwhile.
    assert int(said["missed deadlines"]) >= 9
    driven = np.array([command.twist.linear.x for command in robot.commands])
    driven = np.trim_zeros(driven, "f")
    assert len(driven) > int(said["updates"]) and driven.min() > 0.0


def test_an_update_can_be_looked_at(nodes, probe, tmp_path):
    file = tmp_path / "update.npz"
    nodes.start("mppi_controller", *BLIND, "-p", f"dump_file:={file}", "-p", "goals:=[10.0, 0.0]")
    refused = probe.call(Trigger, "/mppi_controller/dump_update")
    assert (refused.success, refused.message) == (False, "there was no update yet")
    robot = Robot(probe)
    robot.answers(lambda v, w: v > 0.3, x=1.0, what="the robot to drive on")
    answer = probe.call(Trigger, "/mppi_controller/dump_update")
    assert (answer.success, answer.message) == (True, f"1024 samples to {file}")
    update = np.load(file)
    assert update["controls"].shape == (1024, 50, 2)
    assert update["goal"].tolist() == [10.0, 0.0] and str(update["system"]) == "diff_drive"
    # Predicted from 1 m through 50 ms and more of what was sent.
    assert 1.0 <= update["state"][0] < 1.3
    assert update["weights"].sum() == pytest.approx(1.0)


def test_parameters_change_while_it_drives(nodes, probe):
    patient = ["-p", "state_timeout:=10.0"]  # No pose comes while a service is called.
    nodes.start("mppi_controller", *BLIND, *patient, "-p", "goals:=[20.0, 0.0]")
    robot = Robot(probe)
    robot.answers(lambda v, w: v > 0.8, what="the robot to drive fast")

    def set_to(name, value):
        request = SetParameters.Request(
            parameters=[Parameter(name, value=value).to_parameter_msg()]
        )
        answer = probe.call(SetParameters, "/mppi_controller/set_parameters", request)
        return answer.results[0]

    begin = len(robot.commands)
    assert set_to("v_max", 0.5).successful
    robot.answers(lambda v, w: v <= 0.5, what="the robot to drive slowly")
    # The plan went on: it did not stop in between.
    assert min(command.twist.linear.x for command in list(robot.commands)[begin:]) > 0.3
    refused = set_to("sigma", [0.1, 0.1, 0.1])
    assert not refused.successful and "'sigma' has 3 values" in refused.reason
    refused = set_to("horizon", 20)
    assert not refused.successful and "cannot change while the node is active" in refused.reason
    refused = set_to("system", "cartpole")
    assert not refused.successful and "read-only" in refused.reason
    assert set_to("goal_tolerance", 30.0).successful
    robot.answers(lambda v, w: v == 0.0, what="the robot to be at its goal, as it is now")


def test_a_goal_that_is_cancelled_stops_it_at_once(nodes, probe):
    nodes.start("mppi_controller", *BLIND, "-p", "goals:=[10.0, 0.0]")
    robot = Robot(probe)
    robot.answers(lambda v, w: v > 0.3, what="the robot to drive on")
    assert probe.call(Trigger, "/mppi_controller/cancel").success
    wait_for(lambda: robot.told() == (0.0, 0.0), what="the robot to stop")
    heard = len(robot.commands)
    for _ in range(20):
        robot.at(0.0)
        time.sleep(0.02)
    assert all(c.twist.linear.x == 0.0 for c in list(robot.commands)[heard:])
    assert probe.call(Trigger, "/mppi_controller/reset").success
    robot.answers(lambda v, w: v > 0.3, what="the robot to drive to the first goal again")


def test_an_epoch_stops_it_until_a_new_pose_comes(nodes, probe):
    nodes.start("mppi_controller", *BLIND, "-p", "goals:=[10.0, 0.0]")
    robot = Robot(probe)
    epochs = probe.speak(UInt64, "/epoch", qos.LATCHED)
    epochs.publish(UInt64(data=3))
    robot.answers(lambda v, w: v > 0.3, what="the robot to drive on")
    late = pose_at(probe.node, 0.0)
    epochs.publish(UInt64(data=4))

    def said(name):
        return probe.diagnostics("mppi_controller").get(name, "")

    def waits():
        robot.tells(late)  # on its way since before the epoch
        return said("message").startswith("waiting for odom")

    wait_for(lambda: waits() and said("epochs") == "1", what="it to wait for a pose")
    assert robot.told() == (0.0, 0.0)
    robot.answers(lambda v, w: v > 0.3, what="the robot to drive on")


def test_it_names_what_is_not_finite(nodes, probe):
    nodes.start("mppi_controller", *BLIND, "-p", "goals:=[1.0e30, 0.0]", "-p", "backend:=cpu")
    robot = Robot(probe)
    expected = (
        "no plan: no rollout has a finite cost: rollout 0, step 0: the cost's term goal is inf"
    )

    def named():
        robot.at(0.0)
        return probe.diagnostics("mppi_controller").get("message", "").startswith(expected)

    wait_for(named, what="the term to be named")
    assert robot.told() == (0.0, 0.0)
    assert probe.diagnostics("mppi_controller")["not finite [%]"] == "100.0"


def test_a_sigma_that_is_large_for_its_range_is_warned_of(nodes):
    process = nodes.start("mppi_controller", *BLIND, "-p", "sigma:=[0.5, 0.7]")
    process.wait_for_output("sigma is more than a quarter of the range of v_command: 0.5, above")


def test_goals_come_in_pairs(nodes):
    process = nodes.start("mppi_controller", "-p", "goals:=[1.0, 2.0, 3.0]", active=False)
    assert process.wait() == 1
    assert "'goals' has 3 numbers, must have x and y for each goal" in process.output
    assert "Traceback" not in process.output

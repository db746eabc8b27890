"""Each bundled world over DDS, by its parameter file: it loads, tells what it has, and is moved."""

import numpy as np
import pytest
from geometry_msgs.msg import TwistStamped
from nav_msgs.msg import Odometry
from ros_harness import wait_for
from sensor_msgs.msg import Imu, JointState, PointCloud2
from std_msgs.msg import Float64MultiArray

from geoaccel_ros.pointcloud.layout import coordinates
from geoaccel_ros.resources import share_path
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.pointcloud2 import points_from_message

STANCE = [0.0, 0.8, -1.6] * 4


@pytest.fixture
def start(nodes):
    def start(world, *arguments):
        file = share_path(f"config/{world}_simulation.yaml")
        return nodes.start("mujoco_simulation", "--params-file", str(file), *arguments)

    return start


def topics(probe):
    return {name for name, _ in probe.node.get_topic_names_and_types()}


@pytest.mark.parametrize(("world", "sides"), [("corridor", 2.0), ("field", None)])
def test_a_world_of_the_robot_with_wheels(start, probe, world, sides):
    clouds = probe.listen(PointCloud2, "/points", qos.sensor_data(50))
    truth = probe.listen(Odometry, "/odom", qos.RELIABLE)
    start(world)
    commands = probe.speak(TwistStamped, "/cmd_vel", qos.RELIABLE)

    def driven():
        command = TwistStamped()
        command.twist.linear.x = 1.0
        commands.publish(command)
        return len(truth) and truth[-1].pose.pose.position.x > 0.5

    wait_for(driven, what="the robot to drive half a metre")
    wait_for(lambda: len(clouds) > 3, what="clouds")
    points = coordinates(points_from_message(clouds[-1]))
    assert len(points) > 5000
    above = points[points[:, 2] > -0.5]
    if sides is None:
        assert len(above) == 0
    else:
        np.testing.assert_allclose(np.abs(above[:, 1]), sides, atol=0.1)
    assert "/commands" not in topics(probe)


def test_cartpole(start, probe):
    joints = probe.listen(JointState, "/joint_states", qos.RELIABLE)
    start("cartpole")
    commands = probe.speak(Float64MultiArray, "/commands", qos.RELIABLE)
    wait_for(lambda: len(joints), what="its state")
    assert joints[0].name == ["rail", "hinge"]
    np.testing.assert_allclose(joints[0].position, [0, np.pi], atol=1e-9)

    def pushed():
        commands.publish(Float64MultiArray(data=[5.0]))
        return joints[-1].position[0] > 0.2 and joints[-1].effort[0] == 5.0

    wait_for(pushed, what="the cart to move to the right")
    wait_for(lambda: joints[-1].effort[0] == 0.0, what="the force to end by itself")
    assert {"/odom", "/points", "/imu", "/cmd_vel"}.isdisjoint(topics(probe))


def test_quadrotor(start, probe):
    truth = probe.listen(Odometry, "/odom", qos.RELIABLE)
    imu = probe.listen(Imu, "/imu", qos.sensor_data(50))
    start("quadrotor")
    commands = probe.speak(Float64MultiArray, "/commands", qos.RELIABLE)
    wait_for(lambda: len(truth) > 50 and len(imu), what="its state")
    assert truth[-1].child_frame_id == "base_link"
    assert truth[-1].pose.pose.position.z == pytest.approx(1.0, abs=1e-9)

    def risen():
        commands.publish(Float64MultiArray(data=[12.0, 0.0, 0.0, 0.0]))
        return truth[-1].pose.pose.position.z > 1.5

    wait_for(risen, what="it to rise")
    assert truth[-1].twist.twist.linear.z > 0.5
    assert {"/joint_states", "/points", "/cmd_vel"}.isdisjoint(topics(probe))


def test_quadruped(start, probe):
    truth = probe.listen(Odometry, "/odom", qos.RELIABLE)
    joints = probe.listen(JointState, "/joint_states", qos.RELIABLE)
    start("quadruped")
    commands = probe.speak(Float64MultiArray, "/commands", qos.RELIABLE)
    wait_for(lambda: len(truth) > 100 and len(joints) > 100, what="its state")
    assert len(joints[0].name) == 12 and joints[0].name[:2] == [
        "front_left_hip",
        "front_left_thigh",
    ]
    # Stamps of the two meet: a full state.
    assert {_ns(m) for m in list(truth)[50:80]} <= {_ns(m) for m in joints}
    standing = truth[-1].pose.pose.position.z
    assert standing == pytest.approx(0.29, abs=0.02)

    crouch = [value * factor for value, factor in zip(STANCE, [1.0, 1.4, 1.3] * 4, strict=True)]

    def crouched():
        commands.publish(Float64MultiArray(data=crouch))
        return truth[-1].pose.pose.position.z < standing - 0.05

    wait_for(crouched, what="it to crouch")


def _ns(message):
    return message.header.stamp.sec * 10**9 + message.header.stamp.nanosec

"""A robot's state from messages, against MuJoCo's own kinematics."""

import math

import mujoco
import numpy as np
import pytest
from nav_msgs.msg import Odometry
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import JointState

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.control.systems import load_system
from geoaccel_ros.ros.robot_state import StateAssembly, StateError

SPEED = (0.3, -0.2, 0.1)
TURN = (0.5, 0.4, -0.7)


def assembly(name):
    system = load_system(name)
    return StateAssembly(system, system.parameters(), "odom", "base_link")


def odometry(stamp=1.0, rotation=None):
    message = Odometry(child_frame_id="base_link")
    message.header.frame_id = "odom"
    message.header.stamp.sec = int(stamp)
    message.header.stamp.nanosec = round(1e9 * (stamp % 1.0))
    position, orientation = message.pose.pose.position, message.pose.pose.orientation
    position.x, position.y, position.z = 1.0, 2.0, 3.0
    rotation = rotation or Rotation.from_euler("xyz", (0.3, -0.4, 2.5))
    orientation.x, orientation.y, orientation.z, orientation.w = rotation.as_quat()
    twist = message.twist.twist
    twist.linear.x, twist.linear.y, twist.linear.z = SPEED
    twist.angular.x, twist.angular.y, twist.angular.z = TURN
    return message


def joint_states(names, stamp=1.0):
    message = JointState(name=list(names))
    message.header.stamp.sec = int(stamp)
    message.header.stamp.nanosec = round(1e9 * (stamp % 1.0))
    message.position = [0.1 * i for i in range(len(names))]
    message.velocity = [-0.01 * i for i in range(len(names))]
    return message


def test_a_free_body_moves_in_mujoco_as_odometry_says():
    system = load_system("quadrotor")
    state = assembly("quadrotor").add_odometry(odometry())
    model = system.mujoco_model(system.parameters())
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = np.split(state.values, [model.nq])
    mujoco.mj_forward(model, data)
    # Body velocities as MuJoCo has them: angular first, here in the body's frame.
    velocity = np.zeros(6)
    body = model.body("base_link").id
    mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_BODY, body, velocity, 1)
    np.testing.assert_allclose(velocity, (*TURN, *SPEED), atol=1e-12)
    np.testing.assert_allclose(data.body("base_link").xpos, (1.0, 2.0, 3.0))
    np.testing.assert_allclose(
        data.body("base_link").xmat.reshape(3, 3),
        Rotation.from_euler("xyz", (0.3, -0.4, 2.5)).as_matrix(),
        atol=1e-12,
    )
    assert state.stamp == 1.0


def test_joints_are_found_by_name_in_any_order():
    made = assembly("cartpole")
    assert not made.needs_odometry and made.joints == ("rail", "hinge")
    message = joint_states(("wheel", "hinge", "rail"))
    state = made.add_joint_state(message)
    # x, theta, v, w.
    np.testing.assert_allclose(state.values, [0.2, 0.1, -0.02, -0.01])
    assert state.odometer is None


def test_odometry_and_joints_of_one_instant_are_a_state():
    made = assembly("quadruped")
    assert made.needs_odometry and len(made.joints) == 12
    assert made.add_odometry(odometry(1.0)) is None
    assert made.add_joint_state(joint_states(made.joints, 1.02)) is None
    state = made.add_joint_state(joint_states(made.joints, 1.001))
    assert state.stamp == 1.0
    np.testing.assert_allclose(state.values[7:19], 0.1 * np.arange(12))
    np.testing.assert_allclose(state.values[25:], -0.01 * np.arange(12))
    # The other half may come first.
    assert made.add_odometry(odometry(1.02)).stamp == 1.02
    made.forget()
    assert made.add_odometry(odometry(1.02)) is None


def test_a_drive_is_told_by_the_names_of_its_state():
    state = assembly("diff_drive").add_odometry(odometry(rotation=Rotation.from_euler("z", -3.0)))
    np.testing.assert_allclose(state.values, [1.0, 2.0, -3.0, 0.3, -0.7])


def test_a_deviation_that_is_no_number_is_not_known():
    message = odometry()
    message.pose.covariance[0] = math.nan
    message.pose.covariance[7] = math.nan
    assert assembly("diff_drive").add_odometry(message).odometer.deviation == math.inf


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: setattr(m.header, "frame_id", "map"), "in frame 'map', must be 'odom'"),
        (lambda m: setattr(m, "child_frame_id", "camera"), "of 'camera', must be 'base_link'"),
        (lambda m: setattr(m.pose.pose.orientation, "w", 0.9), "quaternion of norm"),
        (lambda m: setattr(m.pose.pose.position, "z", math.inf), "not a pose"),
        (lambda m: setattr(m.twist.twist.angular, "z", math.nan), "twist is not finite"),
    ],
)
def test_odometry_that_tells_no_state_is_refused(change, reason):
    message = odometry()
    change(message)
    with pytest.raises(StateError, match=reason):
        assembly("quadrotor").add_odometry(message)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: setattr(m, "name", ["rail", "elbow"]), "has no joint 'hinge'"),
        (lambda m: setattr(m, "velocity", []), "2 names, 2 positions and 0 velocities"),
        (lambda m: setattr(m, "position", [0.0, math.nan]), "'hinge' is not finite: position nan"),
        (lambda m: setattr(m, "velocity", [math.inf, 0.0]), "'rail' is not finite"),
    ],
)
def test_joint_states_that_tell_no_state_are_refused(change, reason):
    message = joint_states(("rail", "hinge"))
    change(message)
    with pytest.raises(StateError, match=reason):
        assembly("cartpole").add_joint_state(message)


def test_a_component_that_nothing_tells_is_named(tmp_path):
    source = (load_system("diff_drive").step.__code__.co_filename, tmp_path / "robot.py")
    with open(source[0]) as file:
        text = file.read().replace('"v", "w")\nCONTROL', '"v", "charge")\nCONTROL')
    source[1].write_text(text)
    with pytest.raises(ConfigurationError, match="does not tell charge of its STATE"):
        assembly(str(source[1]))

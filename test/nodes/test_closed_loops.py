"""mppi_controller and mujoco_simulation as they are shipped, in closed loop over DDS.

The simulation steps by command and the controller follows its states, so that no run depends on how
fast the machine is.
"""

import math
from pathlib import Path

import numpy as np
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry
from ros_harness import wait_for
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger

from geoaccel_ros.ros import qos

CONFIG = Path(__file__).resolve().parents[2] / "config"
PERIOD = 0.02


def start(nodes, robot):
    """Start the controller and the simulation of a robot."""
    controller = ["use_sim_time:=true", "update_on:=state", "command_delay:=0.0", "backend:=cpu"]
    simulation = ["stepping:=command", f"command_period:={PERIOD}"]
    for node, kind, values in (
        ("mppi_controller", "controller", controller),
        ("mujoco_simulation", "simulation", simulation),
    ):
        file = str(CONFIG / f"{robot}_{kind}.yaml")
        given = [argument for value in values for argument in ("-p", value)]
        nodes.start(node, "--params-file", file, *given)


def seconds(message):
    return message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec


class Pole:
    """The pole's angle from upright, by time."""

    def __init__(self, probe):
        self._states = probe.listen(JointState, "/joint_states", qos.RELIABLE)

    @property
    def time(self):
        return seconds(self._states[-1]) if len(self._states) else 0.0

    def wait(self, until):
        wait_for(lambda: self.time > until, 60.0, what=f"{until:.1f} s of the cartpole")

    def angle(self, begin, end):
        """Return the largest angle (rad) between two times."""
        poses = [
            dict(zip(state.name, state.position, strict=True))["hinge"]
            for state in self._states
            if begin <= seconds(state) <= end
        ]
        return max(abs(math.remainder(pose, 2.0 * math.pi)) for pose in poses)


def test_cartpole_swings_up_stands_two_pushes_and_a_reset(nodes, probe):
    pole = Pole(probe)
    start(nodes, "cartpole")
    hand = probe.speak(Float64MultiArray, "/commands", qos.RELIABLE)
    pole.wait(5.0)
    assert pole.angle(3.0, 5.0) < 0.1
    for force in (15.0, -15.0):
        # Of a hand that takes the cart for a period.
        pushed = pole.time
        hand.publish(Float64MultiArray(data=[force]))
        pole.wait(pushed + 3.0)
        assert 0.01 < pole.angle(pushed, pushed + 1.0) < 0.5
        assert pole.angle(pushed + 2.0, pushed + 3.0) < 0.1
    before = pole.time
    assert probe.call(Trigger, "/mujoco_simulation/reset").success
    end = pole.time + 6.0
    pole.wait(end)
    assert pole.angle(before, end) > 3.0
    assert pole.angle(end - 1.0, end) < 0.1
    assert probe.diagnostics("mppi_controller")["epochs"] == "1"


def test_quadrotor_hovers_and_flies_to_a_goal(nodes, probe):
    poses = probe.listen(Odometry, "/odom", qos.RELIABLE)
    start(nodes, "quadrotor")

    def time():
        return seconds(poses[-1]) if len(poses) else 0.0

    def position(begin, end):
        return np.array([
            [p.pose.pose.position.x, p.pose.pose.position.y, p.pose.pose.position.z]
            for p in poses
            if begin <= seconds(p) <= end
        ])  # fmt: skip

    wait_for(lambda: time() > 2.0, 60.0, what="2 s of hovering")
    assert np.linalg.norm(position(0.0, 2.0) - [0.0, 0.0, 1.0], axis=1).max() < 0.05
    goals = probe.speak(PoseStamped, "/goal_pose", qos.RELIABLE)
    goal = PoseStamped()
    goal.header.frame_id = "world"
    goal.pose.position.x, goal.pose.position.y, goal.pose.position.z = 2.0, 1.0, 1.5
    goals.publish(goal)
    sent = time()
    wait_for(lambda: time() > sent + 5.0, 120.0, what="5 s more")
    there = position(sent + 4.0, sent + 5.0)
    assert np.linalg.norm(there - [2.0, 1.0, 1.5], axis=1).max() < 0.05

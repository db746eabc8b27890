"""mppi_controller and mujoco_simulation as they are shipped, in closed loop over DDS.

Where a test is not about time, the simulation steps by command and the controller follows its
states, so that no run depends on how fast the machine is.
"""

import math
import signal
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry
from ros_harness import wait_for
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import SetBool, Trigger

from geoaccel_ros.ros import qos

CONFIG = Path(__file__).resolve().parents[2] / "config"
PERIOD = 0.02


def start_controller(nodes, robot, *values):
    """Start the controller of a robot, with parameters beside those of its file."""
    file = str(CONFIG / f"{robot}_controller.yaml")
    given = [
        part for value in ("use_sim_time:=true", "backend:=cpu", *values) for part in ("-p", value)
    ]
    return nodes.start("mppi_controller", "--params-file", file, *given)


def start_simulation(nodes, robot, *arguments):
    """Start the simulation of a robot."""
    file = str(CONFIG / f"{robot}_simulation.yaml")
    return nodes.start("mujoco_simulation", "--params-file", file, *arguments)


def start(nodes, robot, delay=0.0, *arguments):
    """Start both, each waiting for the other."""
    start_controller(nodes, robot, "update_on:=state", f"command_delay:={delay}")
    stepping = ["-p", "stepping:=command", "-p", f"command_period:={PERIOD}"]
    start_simulation(nodes, robot, *stepping, *arguments)


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


@pytest.mark.parametrize("delay", [0.05, 0.1])
def test_commands_that_arrive_late_are_predicted(nodes, probe, delay):
    pole = Pole(probe)
    # Commands are on their way for so many periods; the first ones are of before the beginning.
    way = deque([Float64MultiArray(data=[0.0])] * round(delay / PERIOD))
    late = probe.node.create_publisher(Float64MultiArray, "/late_commands", qos.RELIABLE)

    def carry(command):
        way.append(command)
        late.publish(way.popleft())

    probe.node.create_subscription(Float64MultiArray, "/commands", carry, qos.RELIABLE)
    start(nodes, "cartpole", delay, "-r", "commands:=late_commands")
    pole.wait(6.0)
    assert pole.angle(4.0, 6.0) < 0.05


def test_a_controller_that_is_killed_and_a_time_that_stands(nodes, probe):
    pole = Pole(probe)
    start_simulation(nodes, "cartpole")
    controller = start_controller(nodes, "cartpole")
    commands = probe.listen(Float64MultiArray, "/commands", qos.RELIABLE)

    def stands():
        return pole.time > 2.0 and pole.angle(pole.time - 2.0, pole.time) < 0.2

    wait_for(stands, 60.0, what="the pole to stand for 2 s")
    assert probe.call(SetBool, "/mujoco_simulation/pause", SetBool.Request(data=True)).success
    paused = pole.time + 0.02  # for what was on its way
    heard = len(commands)
    wait_for(lambda: len(commands) > heard + 50, what="commands while time stands")
    assert pole.time <= paused
    assert probe.call(SetBool, "/mujoco_simulation/pause", SetBool.Request(data=False)).success
    pole.wait(paused + 2.0)
    assert pole.angle(paused, paused + 2.0) < 0.3

    controller.stop(signal.SIGKILL)
    # Commands become old, and the pole falls.
    wait_for(lambda: pole.angle(pole.time - 0.5, pole.time) > 2.0, 60.0, what="the pole to fall")
    start_controller(nodes, "cartpole")
    wait_for(stands, 60.0, what="the pole to stand again")
    assert max(abs(command.data[0]) for command in commands) <= 20.0


def test_quadruped_stands_and_walks(nodes, probe):
    poses = probe.listen(Odometry, "/odom", qos.RELIABLE)
    start(nodes, "quadruped")

    def time():
        return seconds(poses[-1]) if len(poses) else 0.0

    wait_for(lambda: time() > 1.0, 120.0, what="1 s of standing")
    goals = probe.speak(PoseStamped, "/goal_pose", qos.RELIABLE)
    goal = PoseStamped()
    goal.header.frame_id = "world"
    goal.pose.position.x = 1.0
    goals.publish(goal)
    wait_for(lambda: poses[-1].pose.pose.position.x > 0.7, 300.0, what="it to walk to its goal")
    heights = [pose.pose.pose.position.z for pose in poses]
    assert min(heights) > 0.2
    assert probe.diagnostics("mppi_controller")["state refused"] == "0"


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

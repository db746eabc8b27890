"""mppi_controller with other robots than a drive, over DDS, on MuJoCo's own models.

The controller follows the states, and the robots its commands, so that no run depends on how fast
the machine is.
"""

import math

import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped
from mujoco_plants import Plant
from nav_msgs.msg import Path
from ros_harness import wait_for
from std_msgs.msg import Header

from geoaccel_ros.ros import qos

HANGING = (0.0, math.pi, 0.0, 0.0)
NODE = "mppi_controller"


def arguments(system, *more):
    values = [f"system:={system}", "update_on:=state", "backend:=cpu", *more]
    return [argument for value in values for argument in ("-p", value)]


def upright(plant, begin, end):
    """Return whether the pole stood all the time."""
    angles = plant.since(begin)[: round((end - begin) / 0.02), 1]
    return np.abs(np.arctan2(np.sin(angles), np.cos(angles))).max() < 0.2


def said(probe):
    return probe.diagnostics(NODE).get("message", "")


@pytest.fixture
def cartpole(nodes, probe):
    nodes.start(NODE, *arguments("cartpole", "goals:=[0.0]"))
    plant = Plant(probe, "cartpole", 0.02)
    plant.start(HANGING)
    wait_for(lambda: plant.time > 4.0, 60.0, what="4 s of the cartpole")
    return plant


def test_cartpole_swings_up_and_withstands_pushes_and_bad_states(cartpole, probe):
    assert upright(cartpole, 3.0, 4.0)
    assert np.abs(cartpole.commands).max() <= 20.0
    assert np.abs(cartpole.since(0.0)[:, 0]).max() < 2.4
    # 0.3 m/s at the pole's end; 0.6 fell and swung up again, also without ROS.
    cartpole.push([0.0, 0.6])
    pushed = cartpole.time
    wait_for(lambda: cartpole.time > pushed + 2.0, 60.0, what="2 s after the push")
    assert np.abs(cartpole.since(pushed)[:3, 3]).max() > 0.4
    assert upright(cartpole, pushed, pushed + 2.0)
    wait_for(lambda: said(probe) == "driving", what="it to say that it drives")
    assert probe.diagnostics(NODE)["goals reached"] == "1"

    # A state that is none is refused, and without a state the command is the safe one.
    cartpole.break_joints = True
    wait_for(lambda: "stopped: no state for 0.5 s" in said(probe), what="it to stop")
    assert "'hinge' is not finite" in probe.diagnostics(NODE)["newest reason"]
    assert cartpole.commands[-1] == 0.0
    cartpole.break_joints = False
    mended = cartpole.time
    wait_for(lambda: cartpole.time > mended + 4.0, 60.0, what="4 s more")
    assert upright(cartpole, mended + 3.0, mended + 4.0)


def test_an_epoch_drops_plan_and_state(cartpole, probe):
    wait_for(lambda: probe.diagnostics(NODE).get("epoch") == "unknown", what="diagnostics")
    cartpole.reset(HANGING, 0)
    # The first epoch that it hears of is the one that it is in.
    wait_for(lambda: probe.diagnostics(NODE)["epoch"] == "0", what="the epoch to be known")
    began, commands = cartpole.time, len(cartpole.commands)
    cartpole.reset(HANGING, 1)
    wait_for(lambda: probe.diagnostics(NODE).get("epochs") == "1", what="the epoch to count")
    wait_for(lambda: cartpole.time > began + 4.0, 60.0, what="4 s more")
    # The safe command came at once: what was on its way, and then it.
    assert 0.0 in np.array(list(cartpole.commands)[commands : commands + 5])
    assert upright(cartpole, began + 3.2, began + 4.0)


def test_quadrotor_flies_a_path_and_is_held_where_it_is_cancelled(nodes, probe):
    process = nodes.start(NODE, *arguments("quadrotor"))
    plant = Plant(probe, "quadrotor", 0.02)
    plant.start((0.0, 0.0, 1.0, 1.0, *[0.0] * 9))
    wait_for(lambda: said(probe) == "no goal", what="it to say that it has no goal")
    # Hovering: the safe command of a quadrotor.
    np.testing.assert_allclose(plant.commands[-1], [9.81, 0.0, 0.0, 0.0])

    paths = probe.speak(Path, "/goal_path", qos.RELIABLE)
    waypoints = np.array([[0.5, 0.0, 1.0], [0.5, 0.5, 1.5]])
    path = Path(header=Header(frame_id="odom"))
    for waypoint in waypoints:
        pose = PoseStamped()
        position = pose.pose.position
        position.x, position.y, position.z = map(float, waypoint)
        path.poses.append(pose)
    path.poses[1].header.frame_id = "map"
    paths.publish(path)
    process.wait_for_output("goal in frame 'map' ignored: it is not in 'odom'")
    path.poses[1].header.frame_id = ""
    begin = plant.time
    paths.publish(path)
    wait_for(
        lambda: probe.diagnostics(NODE).get("goals reached") == "2", 60.0, what="both waypoints"
    )
    reached = plant.time
    wait_for(lambda: plant.time > reached + 2.0, 60.0, what="2 s at the last waypoint")
    flown = plant.since(begin)[:, :3]
    nearest = np.linalg.norm(flown[:, None] - waypoints, axis=2).min(axis=0)
    assert (nearest < 0.05).all()
    held = plant.since(plant.time - 1.0)[:, :3]
    assert np.linalg.norm(held - waypoints[1], axis=1).max() < 0.1

    # An empty path cancels: it stays where it is, though it was on its way elsewhere.
    path.poses[0].pose.position.x = 5.0
    paths.publish(path)
    away = plant.time
    wait_for(lambda: plant.time > away + 0.6, 60.0, what="it to be on its way")
    paths.publish(Path(header=Header(frame_id="odom")))
    wait_for(lambda: probe.diagnostics(NODE).get("goals") == "1", what="the cancelling")
    cancelled = plant.time
    wait_for(lambda: plant.time > cancelled + 3.0, 60.0, what="3 s more")
    held = plant.since(plant.time - 1.0)[:, :3]
    assert np.linalg.norm(held - held[-1], axis=1).max() < 0.1
    assert held[-1, 0] < 4.0


def test_a_robot_of_ones_own_is_a_file(nodes, tmp_path):
    robot = tmp_path / "robot.py"
    robot.write_text("STATE = ()\n")
    process = nodes.start(NODE, "-p", f"system:={robot}", active=False)
    assert process.wait() == 1
    assert "does not define CONTROL, GOAL" in process.output
    assert "Traceback" not in process.output

"""What goes wrong around a robot that drives: it stops, and goes on by itself.

In real time, on the true pose: mujoco_simulation and mppi_controller among the yard's obstacles.
"""

import math
import signal

import numpy as np
from nav_msgs.msg import Odometry
from ros_harness import Process, wait_for
from std_srvs.srv import SetBool, Trigger

from acceptance.faults import SLACK, STATE_TIMEOUT, Gate
from acceptance.robots import Body, Commands, carry
from acceptance.rows import Row, Series, in_processes

RUNS = 2
GOAL = (8.5, -6.0)
# goal_tolerance of the controller, and command_timeout of the simulation: their defaults.
NEAR = 0.25  # m
COMMAND_TIMEOUT = 0.5  # s
# It drives when it is faster, and rests when it is slower (m/s).
DRIVING = 0.4
RESTING = 0.02
# To brake from full speed, after a last command is old (s).
BRAKING = 1.0
# It drives again so soon after a fault (s).
RECOVERY = 5.0
FAULT = 1.0  # s


class Drive:
    """A robot on its way through the yard; what it measures reaches the controller by a gate."""

    def __init__(self, nodes, probe, seed: int):
        self._nodes, self._probe, self._seed = nodes, probe, seed
        self.gate = Gate()
        carry(probe, Odometry, "/true_odom", "/odom", self.gate)
        self.body = Body(probe, "/true_odom")
        self.commands = Commands(probe, "diff_drive", self.body)
        nodes.start("mujoco_simulation", "-p", f"seed:={seed}", "-r", "odom:=true_odom")
        self.start_controller()
        self.drives_again(0.0, math.inf)
        wait_for(lambda: len(self.commands), what="a command")

    def start_controller(self) -> None:
        values = (f"goals:={list(GOAL)}", f"seed:={self._seed}", "odom_frame:=world")
        given = [
            part
            for value in ("use_sim_time:=true", "backend:=cpu", *values)
            for part in ("-p", value)
        ]
        self.controller: Process = self._nodes.start("mppi_controller", *given)

    def pause(self, paused: bool) -> None:
        request = SetBool.Request(data=paused)
        assert self._probe.call(SetBool, "/mujoco_simulation/pause", request).success

    def reset(self) -> None:
        assert self._probe.call(Trigger, "/mujoco_simulation/reset").success

    def drives_again(self, since: float, limit: float = RECOVERY) -> float:
        """Wait until the robot drives; return how long after ``since``."""

        def driving():
            if self.body.time <= since:
                return None
            times, rows = self.body.between(since)
            return times[rows[:, 4] > DRIVING].tolist()

        took = wait_for(driving, 60.0, "the robot to drive")[0] - since
        assert took <= limit, f"drove {took:.1f} s after"
        return took

    def rests_after(self, since: float, limit: float) -> float:
        """Return how long after ``since`` the robot came to rest; it is not told to drive on."""
        times, rows = self.body.between(since)
        took = float(times[rows[:, 4] >= RESTING].max(initial=since) - since)
        assert took <= limit, f"at rest after {took:.2f} s"
        return took


def drives_on(nodes, probe, seed: int) -> dict:
    """Do what stops a robot on its way, one after the other; return what was seen."""
    drive = Drive(nodes, probe, seed)
    body, again = drive.body, []

    drive.gate.closed = True
    began = body.time
    body.wait(began + FAULT)
    end = body.time
    drive.gate.closed = False
    safe = drive.commands.safe_after(began, end, STATE_TIMEOUT + SLACK)
    again.append(drive.drives_again(end))

    drive.controller.stop(signal.SIGKILL)
    died = body.time
    body.wait(died + COMMAND_TIMEOUT + BRAKING + SLACK)
    rest = drive.rests_after(died, COMMAND_TIMEOUT + BRAKING)
    drive.start_controller()
    again.append(drive.drives_again(body.time))

    drive.pause(True)
    stood, heard = body.time + SLACK, len(drive.commands)
    wait_for(lambda: len(drive.commands) > heard + 20, what="commands while time stands")
    assert body.time <= stood, f"time went on by {body.time - stood:.2f} s"
    drive.pause(False)
    again.append(drive.drives_again(stood))

    before = body.time
    drive.reset()
    wait_for(
        lambda: np.linalg.norm(body.places(before)[-1, :2]) < 0.1, what="the robot at its start"
    )
    began = body.time
    again.append(drive.drives_again(began))
    probe.wait_for_count("mppi_controller", "epochs", 1)

    wait_for(
        lambda: np.linalg.norm(body.places(began)[-1, :2] - GOAL) < NEAR, 60.0, "it at its goal"
    )
    told = probe.diagnostics("mujoco_simulation")
    assert told["contacts"] == "0", f"{told['contacts']} contacts"
    drive.commands.check()
    return {"safe_s": safe, "rest_s": rest, "again_s": max(again)}


def _seen(outcomes: list[dict]) -> str:
    worst = {name: max(outcome[name] for outcome in outcomes) for name in outcomes[0]}
    return (
        f"stop commanded after {worst['safe_s']:.2f} s; at rest {worst['rest_s']:.2f} s after the "
        f"kill; drives again after at most {worst['again_s']:.1f} s; no contact"
    )


SERIES = (
    Series(
        in_processes(drives_on),
        RUNS,
        (
            Row(
                f"diff_drive on its way: state topic cut for {FAULT:g} s, controller killed and "
                "started again, simulation paused, then reset",
                f"stop commanded within {STATE_TIMEOUT:g} s of the cut; at rest within "
                f"{COMMAND_TIMEOUT + BRAKING:g} s of the kill; drives again within {RECOVERY:g} s "
                "of each, to its goal, no contact",
                _seen,
            ),
        ),
    ),
)

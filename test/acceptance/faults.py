"""What goes wrong around a controller: it stays safe, and recovers by itself.

Most of it on the cartpole, which falls when nobody holds it; a hand pushes it when a fault begins.
But for the delays it is about time, so that simulated time is that of the clock on the wall.
"""

import math
import signal
from collections import deque
from collections.abc import Callable

import numpy as np
from ros_harness import wait_for
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import SetBool, Trigger

from acceptance.cartpole import FALLEN, PERIOD, PUSH, PUSH_TIME, UPRIGHT, WITH_HAND, Hand
from acceptance.robots import (
    Commands,
    Pole,
    carry,
    seconds,
    start_controller,
    start_simulation,
    start_stepped,
)
from acceptance.rows import Row, Series, in_processes
from geoaccel_ros.ros import qos

RUNS = 2
# state_timeout of the controller, command_timeout of the simulation; as their files have them (s).
STATE_TIMEOUT = 0.5
COMMAND_TIMEOUT = 0.2
# For a period, and for messages on their way (s).
SLACK = 0.2
# The pole stands once it was upright for so long, and again so soon after a fault (s).
STANDING = 2.0
RECOVERY = 10.0
FAULT = 1.0  # s


class Scene:
    """A cartpole that stands, in real time, and a hand that pushes it.

    Parameters
    ----------
    nodes : Processes
    probe : Probe
    seed : int
    states : callable
        Where it is given, the probe carries every JointState to the controller, by way of this.
    clock : callable
        Where it is given, the probe carries every Clock to the controller, by way of this.
    """

    def __init__(
        self,
        nodes,
        probe,
        seed: int,
        states: Callable | None = None,
        clock: Callable | None = None,
    ):
        self._nodes, self._probe, self._seed = nodes, probe, seed
        self._hand = Hand(probe)
        remapped = list(WITH_HAND)
        if states is not None:
            carry(probe, JointState, "/true_joint_states", "/joint_states", states)
            remapped += ["-r", "joint_states:=true_joint_states"]
        if clock is not None:
            carry(probe, Clock, "/true_clock", "/clock", clock, qos.CLOCK)
            remapped += ["-r", "/clock:=/true_clock"]
        self.pole = Pole(probe, "/joint_states" if states is None else "/true_joint_states")
        self.commands = Commands(probe, "cartpole", self.pole)
        start_simulation(nodes, "cartpole", *remapped)
        self.start_controller()
        self.recover(0.0, 60.0)
        assert len(self.commands), "no command was heard"

    def push(self) -> float:
        """Push the cart; return the time at which it begins."""
        self._hand.push(PUSH, PUSH_TIME)
        return self.pole.time

    def start_controller(self) -> None:
        self.controller = start_controller(self._nodes, "cartpole", f"seed:={self._seed}")

    def pause(self, paused: bool) -> None:
        request = SetBool.Request(data=paused)
        assert self._probe.call(SetBool, "/mujoco_simulation/pause", request).success

    def recover(self, since: float, limit: float = RECOVERY) -> float:
        """Wait until the pole stands; return the s from ``since`` on until it did."""
        wait_for(
            lambda: self.pole.time > since + STANDING and self.pole.stands(STANDING),
            60.0,
            lambda: f"the pole to stand; it is {self.pole.angle(self.pole.time):.2f} rad off",
        )
        times, rows = self.pole.between(since)
        away = times[np.abs(rows[:, 1]) >= UPRIGHT]
        took = float(away.max() - since) if len(away) else 0.0
        assert took <= limit, f"stood after {took:.1f} s"
        return took


def killed(nodes, probe, seed: int) -> dict:
    """Kill the controller, start it again."""
    scene = Scene(nodes, probe, seed)
    pole = scene.pole
    pole.wait(scene.push() + PUSH_TIME + PERIOD)
    scene.controller.stop(signal.SIGKILL)
    died = pole.time
    pole.wait(died + FAULT)
    times, rows = pole.between(died)
    forced = times[rows[:, 2] != 0.0]
    released = float(forced.max() - died) if len(forced) else 0.0
    assert released < COMMAND_TIMEOUT + SLACK, f"a force {released:.2f} s after the last command"
    scene.start_controller()
    recovery = scene.recover(pole.time)
    scene.commands.check()
    return {"released_s": released, "recovery_s": recovery}


def paused(nodes, probe, seed: int) -> dict:
    """Pause the simulation for a while."""
    scene = Scene(nodes, probe, seed)
    pole, commands = scene.pole, scene.commands
    pushed = scene.push()
    pole.wait(pushed + PUSH_TIME)
    scene.pause(True)
    # What was on its way when it paused.
    stood, heard = pole.time + SLACK, len(commands)
    wait_for(lambda: len(commands) > heard + 2.0 / PERIOD, what="commands while time stands")
    assert pole.time <= stood, f"time went on by {pole.time - stood:.2f} s"
    scene.pause(False)
    recovery = scene.recover(stood)
    tilt = pole.angle(pushed)
    assert tilt < FALLEN, f"the pole fell: {tilt:.2f} rad"
    commands.check()
    return {"tilt": tilt, "recovery_s": recovery}


def reset(nodes, probe, seed: int) -> dict:
    """Put the robot back to its start."""
    scene = Scene(nodes, probe, seed)
    pole, commands = scene.pole, scene.commands
    before = pole.time
    assert probe.call(Trigger, "/mujoco_simulation/reset").success
    wait_for(lambda: pole.angle(before) > 3.0, what="the pole to hang")
    times, rows = pole.between(before)
    began = float(times[np.abs(rows[:, 1]) > 3.0].min())
    pole.wait(began + SLACK)
    first = commands.between(began - SLACK, began + SLACK)
    assert (first == commands.safe).any(), "no safe command when the robot was reset"
    recovery = scene.recover(began)
    probe.wait_for_count("mppi_controller", "epochs", 1)
    commands.check()
    return {"recovery_s": recovery}


def cut(nodes, probe, seed: int) -> dict:
    """Let no state through for a while."""
    gate = Gate()
    scene = Scene(nodes, probe, seed, states=gate)
    return _closed(scene, gate)


def clock_stops(nodes, probe, seed: int) -> dict:
    """Let the clock stand for a while, though states go on."""
    gate = Gate()
    scene = Scene(nodes, probe, seed, clock=gate)
    return _closed(scene, gate)


def not_finite(nodes, probe, seed: int) -> dict:
    """Write what is not finite into every fifth state, then into every one."""
    gate = Gate()
    scene = Scene(nodes, probe, seed, states=gate)
    pole = scene.pole
    count = 0

    def some_broken(message: JointState) -> JointState:
        nonlocal count
        count += 1
        return message if count % 5 else all_broken(message)

    def all_broken(message: JointState) -> JointState:
        message.position[0] = math.nan
        message.velocity[-1] = math.inf
        return message

    gate.change = some_broken
    began = scene.push()
    pole.wait(began + 2.0 * FAULT)
    tilt = pole.angle(began)
    assert tilt < FALLEN, f"the pole fell: {tilt:.2f} rad with every fifth state broken"
    gate.change = all_broken
    began = scene.push()
    pole.wait(began + FAULT)
    gate.change = None
    end = pole.time
    safe = scene.commands.safe_after(began, end, STATE_TIMEOUT + SLACK)
    recovery = scene.recover(end)
    probe.wait_for_count("mppi_controller", "state refused", int(FAULT / 0.01))
    scene.commands.check()
    return {"safe_s": safe, "tilt": tilt, "recovery_s": recovery}


def delayed(nodes, probe, seed: int, delay: float) -> dict:
    """Have commands arrive late, by what ``command_delay`` says."""
    pole = Pole(probe, "/true_joint_states")
    commands = Commands(probe, "cartpole", pole)
    # Time goes on by half a period for each command that arrives: 50 ms are five of them. What is
    # on its way at first is of before the beginning.
    half = PERIOD / 2
    way = deque([Float64MultiArray(data=[0.0])] * round(delay / half))

    def late(command: Float64MultiArray) -> list[Float64MultiArray]:
        way.extend((command, command))
        return [way.popleft(), way.popleft()]

    def every_period(state: JointState) -> list[JointState]:
        return [] if round(seconds(state) / half) % 2 else [state]

    carry(probe, Float64MultiArray, "/commands", "/late_commands", late)
    carry(probe, JointState, "/true_joint_states", "/joint_states", every_period)
    remapped = ("-r", "commands:=late_commands", "-r", "joint_states:=true_joint_states")
    values = (f"seed:={seed}", f"command_delay:={delay}")
    start_stepped(nodes, probe, "cartpole", half, values, remapped)
    pole.wait(10.0)
    times, rows = pole.between(0.0, 10.0)
    upright = float(times[np.abs(rows[:, 1]) >= UPRIGHT].max())
    assert upright <= 3.0, f"upright after {upright:.2f} s"
    commands.check()
    return {"upright_s": upright, "still": pole.angle(5.0, 10.0)}


class Gate:
    """Lets messages through: as they are, as ``change`` makes them, or not while it is closed."""

    def __init__(self):
        self.closed = False
        self.change: Callable | None = None

    def __call__(self, message) -> list:
        if self.closed:
            return []
        return [message if self.change is None else self.change(message)]


def _closed(scene: Scene, gate: Gate) -> dict:
    """Close a gate for a while; return when commands were safe and when the pole stood again."""
    pole = scene.pole
    gate.closed = True
    began = scene.push()
    pole.wait(began + FAULT)
    gate.closed = False
    end = pole.time
    safe = scene.commands.safe_after(began, end, STATE_TIMEOUT + SLACK)
    recovery = scene.recover(end)
    scene.commands.check()
    return {"safe_s": safe, "recovery_s": recovery}


def _series(run: Callable, task: str, must: str, seen: str, **values) -> Series:
    """Return the runs of a fault; ``seen`` is formatted with the largest of each number."""

    def text(outcomes: list[dict]) -> str:
        return seen.format(**{name: max(o[name] for o in outcomes) for name in outcomes[0]})

    return Series(in_processes(run, **values), RUNS, (Row(f"cartpole: {task}", must, text),))


_AGAIN = f"upright again within {RECOVERY:g} s"
_SAFE = f"the safe command (0 N) within {STATE_TIMEOUT:g} s; {_AGAIN}"
SERIES = (
    _series(
        killed,
        "controller killed (SIGKILL) and started again",
        f"no force {COMMAND_TIMEOUT:g} s after the last command; {_AGAIN}",
        "no force after {released_s:.2f} s; upright {recovery_s:.1f} s after the start",
    ),
    _series(
        paused,
        "simulation paused for 2 s",
        f"the pole does not fall ({FALLEN:g} rad)",
        "at most {tilt:.2f} rad",
    ),
    _series(
        reset,
        "simulation reset",
        f"the safe command at once; {_AGAIN}",
        "upright after {recovery_s:.1f} s",
    ),
    _series(
        cut,
        f"state topic cut for {FAULT:g} s",
        _SAFE,
        "safe after {safe_s:.2f} s; upright {recovery_s:.1f} s after the states came back",
    ),
    _series(
        clock_stops,
        f"/clock stands for {FAULT:g} s while states go on",
        _SAFE,
        "safe after {safe_s:.2f} s; upright {recovery_s:.1f} s after the clock went on",
    ),
    _series(
        not_finite,
        f"NaN and infinity in every fifth state for {2 * FAULT:g} s, then in all for {FAULT:g} s",
        f"the pole does not fall; then {_SAFE}",
        "at most {tilt:.2f} rad; then safe after {safe_s:.2f} s, upright {recovery_s:.1f} s after",
    ),
    *(
        _series(
            delayed,
            f"commands arrive {1e3 * delay:g} ms late, as command_delay says",
            f"within {UPRIGHT:g} rad of upright in 3 s, held to 10 s",
            "upright after {upright_s:.2f} s; left alone it is within {still:.3f} rad",
            delay=delay,
        )
        for delay in (0.05, 0.1)
    ),
)

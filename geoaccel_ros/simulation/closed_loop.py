"""A controller and a simulated robot in a closed loop, without ROS.

The robot is MuJoCo's where its system has a MODEL; else the system's own step, in float64 and finer
than the controller's. So a model that is wrong shows wherever MuJoCo knows better.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mujoco
import numpy as np

from geoaccel_ros.config import Configuration, ConfigurationError
from geoaccel_ros.control.mppi import Mppi, MppiUpdate
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.systems import System, load_system

# Longest step of a plant that is the system's own, s; MuJoCo's has the timestep of its model.
_STEP = 0.002
# Before the first command, the safe one has been in force for so long, s: longer than any delay.
_BEFORE = 1e3


@dataclass(frozen=True, eq=False)
class Run:
    """What a closed loop did; N control periods.

    Attributes
    ----------
    success : bool
        Whether the robot stayed at its goal for as long as its task says, seen once a period.
    time_to_goal_s : float
        When that hold began; nan without success.
    times : np.ndarray
        (N+1,) float64, s.
    states : np.ndarray
        (N+1, X) float64, of the plant.
    controls : np.ndarray
        (N, U) float64: commands as they were sent.
    updates : list of MppiUpdate
        N.
    update_ms : np.ndarray
        (N,) float64: what each update took, prediction included.
    misses : int
        Updates that took longer than a period; in simulation they come in time all the same.
    """

    success: bool
    time_to_goal_s: float
    times: np.ndarray
    states: np.ndarray
    controls: np.ndarray
    updates: list[MppiUpdate]
    update_ms: np.ndarray
    misses: int

    def jitter(self) -> np.ndarray:
        """Return the mean change (U,) from command to command since the hold; nan without one."""
        if not self.success:
            return np.full(self.controls.shape[1], math.nan)
        held = self.controls[self.times[:-1] >= self.time_to_goal_s]
        return np.abs(np.diff(held, axis=0)).mean(axis=0)


def drive(
    system: str,
    config: MppiConfig | None = None,
    seconds: float = 5.0,
    *,
    parameters: Configuration | None = None,
    seed: int | None = None,
    delay: float = 0.0,
    start: np.ndarray | None = None,
    goal: np.ndarray | None = None,
    disturb: Callable[[float, np.ndarray], np.ndarray] | None = None,
    model_edit: Callable[[mujoco.MjModel], None] | None = None,
    observe: Callable[[float, Mppi, MppiUpdate], None] | None = None,
) -> Run:
    """Have a robot do its task, an update every ``config.dt``.

    Parameters
    ----------
    system : str
        As :func:`~geoaccel_ros.control.systems.load_system` takes it.
    config : MppiConfig
        By default the system's own sampling.
    parameters : Configuration
        The system's ``Parameters``, of controller and plant alike.
    seed : int
        Instead of the configuration's.
    delay : float
        s from sending a command until the plant acts on it. The controller knows of it only what
        its ``command_delay`` says.
    start, goal : np.ndarray
        Instead of the task's: (X,) and the system's GOAL.
    disturb : callable
        Called before every update with time and state (X,); returns the state to go on from, such
        as one that a push has given other speeds.
    model_edit : callable
        Changes the plant's MjModel only, such as a mass that the controller has wrong.
    observe : callable
        Called after every update with its time, the controller and what it found.

    Raises
    ------
    ConfigurationError
        If the system says no goal and none is given, goal or start have not the components that it
        names, or it cannot be loaded or controlled.
    """
    loaded = load_system(system)
    config = config or MppiConfig.for_system(loaded)
    if seed is not None:
        config = dataclasses.replace(config, seed=seed)
    parameters = parameters or loaded.parameters()
    p = loaded.pack(parameters, np.float64)
    goal = loaded.task.get("goal") if goal is None else goal
    if goal is None:
        raise ConfigurationError(f"system '{system}' has no TASK with a goal, and none was given")
    goal = _components(system, "goal", goal, loaded.goal)
    start = loaded.task.get("start") if start is None else start
    plant = _plant(loaded, parameters, model_edit)
    if start is not None:
        plant.set_state(_components(system, "start", start, loaded.state))
    controller = Mppi(config, system, parameters)

    periods = math.ceil(seconds / config.dt - 1e-9)
    needed = math.ceil(loaded.task.get("hold", 1.0) / config.dt - 1e-9)
    times = config.dt * np.arange(periods + 1)
    states, controls, updates, update_ms = [plant.state()], [], [], []
    line = _DelayLine(delay, loaded.tried_controls(parameters)[0].astype(float))
    for now in times[:-1]:
        if disturb is not None:
            plant.set_state(disturb(now, plant.state()))
        begun = time.perf_counter()
        state = plant.state()
        if config.command_delay:
            state = controller.predict(state, now, line.sent, now)
        update = controller.update(state, goal, now)
        update_ms.append(1e3 * (time.perf_counter() - begun))
        if observe is not None:
            observe(now, controller, update)
        line.send(now, update.command)
        for control, duration in line.in_force(now, now + config.dt):
            plant.step(control, duration)
        states.append(plant.state())
        controls.append(update.command)
        updates.append(update)
    at_goal = [
        loaded.reached is not None
        and np.isfinite(x).all()
        and bool(loaded.reached(tuple(x), tuple(goal), p))
        for x in states
    ]
    first = _first_run(at_goal, needed)
    return Run(
        success=first is not None,
        time_to_goal_s=math.nan if first is None else float(times[first]),
        times=times,
        states=np.array(states),
        controls=np.array(controls),
        updates=updates,
        update_ms=np.array(update_ms),
        misses=int(np.sum(np.array(update_ms) > 1e3 * config.dt)),
    )


class _DelayLine:
    """Commands on their way: each is in force from ``delay`` after it was sent.

    Attributes
    ----------
    sent : list of (instant, control)
        As :meth:`Mppi.predict` takes them; those that matter still.
    """

    def __init__(self, delay: float, safe: np.ndarray):
        self._delay = delay
        self.sent = [(-_BEFORE, safe)]

    def send(self, now: float, control: np.ndarray) -> None:
        self.sent.append((now, control))

    def in_force(self, begin: float, end: float) -> Iterator[tuple[np.ndarray, float]]:
        """Yield what is in force from ``begin`` to ``end``, s, and for how long each."""
        ends = [instant + self._delay for instant, _ in self.sent[1:]] + [math.inf]
        for (_, control), until in zip(self.sent, ends, strict=True):
            if until > begin:
                yield control, min(until, end) - begin
                begin = until
            if until >= end:
                return


class _SystemPlant:
    """The system's own model, in float64 and in finer steps."""

    def __init__(self, system: System, parameters: Configuration):
        self._step = system.step
        self._p = system.pack(parameters, np.float64)
        self._x = np.zeros(len(system.state))

    def state(self) -> np.ndarray:
        return self._x.copy()

    def set_state(self, x: np.ndarray) -> None:
        self._x = np.array(x, float)

    def step(self, control: np.ndarray, duration: float) -> None:
        steps = max(1, math.ceil(duration / _STEP - 1e-9))
        x, u = tuple(self._x), tuple(control)
        try:
            with np.errstate(all="ignore"):
                for _ in range(steps):
                    x = self._step(x, u, self._p, duration / steps)
        except (ArithmeticError, ValueError):
            # Compiled, a sine of infinity is nan.
            x = (math.nan,) * len(x)
        self._x = np.array(x, float)


class _MujocoPlant:
    """The system's MuJoCo model, in steps of its timestep or a little less."""

    def __init__(
        self,
        system: System,
        parameters: Configuration,
        edit: Callable[[mujoco.MjModel], None] | None,
    ):
        self._model = system.mujoco_model(parameters)
        # A plant that diverges shall not begin anew.
        self._model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        if edit is not None:
            edit(self._model)
        self._timestep = self._model.opt.timestep
        self._data = mujoco.MjData(self._model)
        # What MuJoCo derives from the masses when it compiles.
        mujoco.mj_setConst(self._model, self._data)
        mujoco.mj_resetData(self._model, self._data)

    def state(self) -> np.ndarray:
        return np.concatenate((self._data.qpos, self._data.qvel))

    def set_state(self, x: np.ndarray) -> None:
        self._data.qpos[:], self._data.qvel[:] = np.split(x, [self._model.nq])

    def step(self, control: np.ndarray, duration: float) -> None:
        steps = max(1, math.ceil(duration / self._timestep - 1e-9))
        self._model.opt.timestep = duration / steps
        self._data.ctrl[:] = control
        mujoco.mj_step(self._model, self._data, steps)


def _plant(
    system: System,
    parameters: Configuration,
    edit: Callable[[mujoco.MjModel], None] | None,
) -> _SystemPlant | _MujocoPlant:
    if system.model is not None:
        return _MujocoPlant(system, parameters, edit)
    if edit is not None:
        raise ConfigurationError(f"system '{system.name}' has no MODEL that could be edited")
    return _SystemPlant(system, parameters)


def _components(system: str, what: str, values: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return values as float64, one for each name."""
    values = np.array(values, float)
    if values.shape != (len(names),):
        raise ConfigurationError(
            f"system '{system}': the {what} has the shape {values.shape}, must be one value for "
            f"each of {', '.join(names)}"
        )
    return values


def _first_run(held: list[bool], count: int) -> int | None:
    """Return where the first ``count`` + 1 in a row begin that are true; None if nowhere."""
    length = 0
    for i, value in enumerate(held):
        length = length + 1 if value else 0
        if length > count:
            return i - count
    return None

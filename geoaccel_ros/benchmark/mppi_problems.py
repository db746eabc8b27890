"""What an update is timed on: the shipped systems where their task begins."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from geoaccel_ros.control import rollouts
from geoaccel_ros.control.distance_field import empty_field
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.obstacles import ObstacleConfig, ObstacleMap
from geoaccel_ros.control.systems import System, load_system

# A turn warms up and is timed for so long, s: processors that did something else begin slowly.
_WARM_UP, _TIMED = 0.02, 0.1


@dataclass(frozen=True)
class Problem:
    """One update.

    Attributes
    ----------
    system : str
    samples, horizon : int
        K and T.
    dt : float
        s.
    sigma : tuple of float
        Standard deviation of the white noise, which all contenders draw.
    start, goal : tuple of float
    before : tuple of float
        The control in force, which the plan begins with too.
    temperature : float
        Of those who do not solve for it: near what ours finds.
    obstacles : bool
        Whether a wall stands in the way; the peers know none.
    """

    system: str
    samples: int
    horizon: int
    dt: float
    sigma: tuple[float, ...]
    start: tuple[float, ...]
    goal: tuple[float, ...]
    before: tuple[float, ...]
    temperature: float
    obstacles: bool = False

    @property
    def name(self) -> str:
        return f"{self.system}, a wall" if self.obstacles else self.system

    def config(self, **values) -> MppiConfig:
        """Return the sampling as a configuration, with other ``values`` where given."""
        sampling = {
            "samples": self.samples,
            "horizon": self.horizon,
            "dt": self.dt,
            "sigma": self.sigma,
            "noise": "white",
        }
        return MppiConfig(**(sampling | values))

    def loaded(self) -> System:
        return load_system(self.system)


CARTPOLE = Problem(
    "cartpole", 2048, 30, 0.02, (5.0,), (0.0, np.pi, 0.0, 0.0), (0.0,), (0.0,), 0.03
)  # fmt: skip
QUADROTOR = Problem(
    "quadrotor", 2048, 64, 0.02, (2.0, 0.1, 0.1, 0.02),
    (0.0, 0.0, 0.0, 1.0, *[0.0] * 9), (3.0, 0.0, 0.0), (9.81, 0.0, 0.0, 0.0), 10.0,
)  # fmt: skip
DIFF_DRIVE = Problem(
    "diff_drive", 2048, 100, 0.05, (0.3, 0.7), (0.0,) * 5, (5.0, 0.0), (0.0, 0.0), 3.0
)  # fmt: skip
DIFF_DRIVE_16384 = replace(DIFF_DRIVE, samples=16384)
WALL = replace(DIFF_DRIVE, obstacles=True)
# One a robot, with nothing in its way.
BARE = (CARTPOLE, QUADROTOR, DIFF_DRIVE)
PROBLEMS = (*BARE, DIFF_DRIVE_16384, WALL)
SYSTEMS = tuple(problem.system for problem in BARE)


def bare_problem(problem: Problem, noise: np.ndarray) -> rollouts.Problem:
    """Return the rollouts of a problem without obstacles, with noise (T, U, K) around a rest."""
    system = problem.loaded()
    parameters = system.parameters()
    lower, upper = system.limits(parameters)
    nowhere = empty_field()

    def packed(values) -> tuple:
        return tuple(np.float32(value) for value in values)

    return rollouts.Problem(
        start=packed(problem.start),
        control_before=packed(problem.before),
        goal=packed(problem.goal),
        plan=np.tile(np.float32(problem.before), (problem.horizon, 1)),
        noise=noise,
        lower=packed(lower),
        upper=packed(upper),
        p=system.pack(parameters),
        field=nowhere,
        detour=nowhere,
        origin=np.zeros(2),
        clearance_limit=np.float32(0.0),
        dt=np.float32(problem.dt),
    )


def controller(problem: Problem, backend: str, threads: int) -> Mppi:
    """Return our controller of a problem, which knows the obstacles."""
    mppi = Mppi(problem.config(backend=backend, threads=threads), problem.system)
    if problem.obstacles:
        obstacles = ObstacleMap(ObstacleConfig())
        y = np.arange(-1.0, 1.0, 0.05)
        obstacles.add(np.stack([np.full(len(y), 2.0), y], axis=1), 0.0)
        mppi.set_obstacles(obstacles.distance_field(np.zeros(2), 0.0))
    return mppi


def updates(problem: Problem, mppi: Mppi) -> Callable[[], float]:
    """Return a turn of our updates, a step apart, that gives milliseconds an update."""
    state, goal = np.array(problem.start), np.array(problem.goal)
    stamps = itertools.count()

    def update() -> None:
        mppi.update(state, goal, problem.dt * next(stamps))

    return lambda: _turn(update)


def commands(problem: Problem, command: Callable[[np.ndarray], np.ndarray]) -> Callable[[], float]:
    """Return a turn of another package's updates: a state in, a command out."""
    state = np.array(problem.start, np.float32)
    return lambda: _turn(lambda: command(state))


def _turn(update: Callable[[], object]) -> float:
    """Return the mean milliseconds of a turn's updates; at least one warms up, and one counts."""
    for seconds in (_WARM_UP, _TIMED):
        count, begun = 0, time.perf_counter()
        elapsed = 0.0
        while elapsed < seconds:
            update()
            count += 1
            elapsed = time.perf_counter() - begun
    return 1e3 * elapsed / count

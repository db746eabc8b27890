"""Rollouts in MuJoCo itself, for robots that its model describes better than a step in Python."""

import logging

import mujoco
import numba
import numpy as np
from mujoco.rollout import Rollout

from geoaccel_ros.config import Configuration
from geoaccel_ros.control.rollouts import Problem, compile_recorded
from geoaccel_ros.control.systems import System
from geoaccel_ros.threads import Threads

# MuJoCo's mjMAXVAL: beyond it a position, speed or acceleration is bad.
_LARGEST = 1e10

_log = logging.getLogger(__name__)


class MujocoRollouts:
    """Rollouts by MuJoCo's own pool of threads; costs by the system's terms over what it recorded.

    Everything a rollout starts from is in the problem: the accelerations that warm-start MuJoCo's
    solver too. They are what it finds, from a cold start, for the start state under the control
    before the plan; nothing is kept between calls, so that the same problem has the same costs to
    the last bit, whatever was rolled out before and however many threads there are.

    A rollout that MuJoCo warns of (positions, speeds or accelerations that are bad, a control that
    is not finite, a full buffer) ends there and costs infinitely much. Auto-reset is off: MuJoCo
    would put a diverged robot back to the model's own pose, which may be the goal.

    Arrays are made once; a call allocates none of the size of the rollouts.

    Parameters
    ----------
    system : System
        One with a MODEL.
    parameters : Configuration
    samples, horizon : int
        The largest K of a problem, and its T.
    dt : float
        A problem's step, s: a control is held so long.
    threads : int
    timestep : float
        MuJoCo's step in s, 0 for the model's own; shortened so that dt is a multiple of it.

    Raises
    ------
    ConfigurationError
        If the system has no MODEL or it does not fit.
    """

    def __init__(
        self,
        system: System,
        parameters: Configuration,
        samples: int,
        horizon: int,
        dt: float,
        threads: int,
        timestep: float = 0.0,
    ):
        self._system = system
        self._dt = dt
        model = system.mujoco_model(parameters)
        # MuJoCo's own handler writes MUJOCO_LOG.TXT into the current folder, at every rollout that
        # diverges: nothing that a user need hear of.
        if mujoco.get_mju_user_warning() is None:
            mujoco.set_mju_user_warning(_log.debug)
        # The margin keeps a quotient that is whole but for rounding.
        self.substeps = max(1, int(np.ceil(dt / (timestep or model.opt.timestep) - 1e-6)))
        self._models: dict[tuple, mujoco.MjModel] = {}
        self._kernel, self._trace = compile_recorded(system)
        self._terms = len(system.running_terms) + len(system.terminal_terms)
        self._threads = Threads(threads)
        # On one thread the caller rolls out.
        self._rollout = Rollout(nthread=threads if threads > 1 else 0)
        self._data = [mujoco.MjData(model) for _ in range(threads)]
        steps = horizon * self.substeps
        self._starts = np.zeros((samples, 1 + model.nq + model.nv))  # the time before the state
        self._warm_starts = np.empty((samples, model.nv))
        self._controls = np.empty((samples, steps, model.nu))
        self._recorded = np.empty((samples, steps, 1 + model.nq + model.nv))
        self._sensors = np.empty((samples, steps, model.nsensordata))

    def run(self, problem: Problem, costs: np.ndarray, crashed: np.ndarray) -> None:
        """Write the costs (K,) float32 and whether each rollout crashed (K,) bool.

        One that diverged costs infinitely much.
        """
        count = len(costs)
        self._roll_out(problem, count)
        self._threads.split(
            self._kernel,
            count,
            problem.plan,
            (problem.noise, self._states_of(count)),
            problem.field.distances,
            problem.detour.distances,
            problem.setup,
            costs,
            crashed,
        )
        costs[~self._finished(count)] = np.inf

    def states(self, problem: Problem, sample: int) -> np.ndarray:
        """Return the states (T+1, X) float32 that one sample passes through, crash or not.

        After a divergence, the state in which MuJoCo noticed it.
        """
        return self.follow(problem, sample)[0]

    def follow(self, problem: Problem, sample: int) -> tuple[np.ndarray, np.ndarray]:
        """Return these states, and what each term adds to the cost, as CpuRollouts does."""
        noise = np.ascontiguousarray(problem.noise[:, :, sample : sample + 1])
        self._roll_out(problem, 1, noise)
        states = np.empty((len(problem.plan) + 1, len(problem.start)), np.float32)
        terms = np.zeros(self._terms, np.float32)
        self._trace(
            0,
            problem.plan,
            (noise, self._states_of(1)),
            problem.field.distances,
            problem.detour.distances,
            problem.setup,
            states,
            terms,
        )
        return states, terms

    def _roll_out(self, problem: Problem, count: int, noise: np.ndarray | None = None) -> None:
        """Record the first ``count`` samples of ``noise``, or of the problem's."""
        model = self._model(problem.p)
        self._starts[:count, 1:] = problem.start
        # The model's world is absolute.
        if self._system.is_planar:
            self._starts[:count, 1:3] += problem.origin
        self._warm_starts[:count] = self._acceleration(model, problem)
        self._threads.split(
            _write_controls,
            count,
            problem.plan,
            problem.noise if noise is None else noise,
            problem.lower,
            problem.upper,
            self.substeps,
            self._controls,
        )
        self._rollout.rollout(
            [model] * count,
            self._data,
            self._starts[:count],
            self._controls[:count],
            skip_checks=True,
            nstep=self._controls.shape[1],
            initial_warmstart=self._warm_starts[:count],
            state=self._recorded[:count],
            sensordata=self._sensors[:count],
        )
        if self._system.is_planar:
            self._recorded[:count, :, 1:3] -= problem.origin

    def _model(self, p: tuple) -> mujoco.MjModel:
        """Return the model with a problem's parameters."""
        if p not in self._models:
            model = self._system.mujoco_model(p)
            model.opt.timestep = self._dt / self.substeps
            model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
            self._models[p] = model
        return self._models[p]

    def _acceleration(self, model: mujoco.MjModel, problem: Problem) -> np.ndarray:
        """Return the accelerations (nv,) at the start, under the control before the plan."""
        data = self._data[0]
        mujoco.mj_setState(model, data, self._starts[0], mujoco.mjtState.mjSTATE_FULLPHYSICS)
        data.ctrl[:] = problem.control_before
        data.qacc_warmstart[:] = 0.0
        mujoco.mj_forward(model, data)
        return data.qacc

    def _states_of(self, count: int) -> np.ndarray:
        """Return the recorded states (K, T, X) at the end of each step of the problem."""
        return self._recorded[:count, self.substeps - 1 :: self.substeps, 1:]

    def _finished(self, count: int) -> np.ndarray:
        """Return which rollouts (K,) MuJoCo took to the end."""
        # After a warning it takes no more steps and repeats what it recorded, the time too. That of
        # the last step has nothing to repeat it: such a state is seen by its size.
        last = self._recorded[:count, -1]
        largest = np.maximum(last.max(axis=1), -last.min(axis=1))
        finished = largest < _LARGEST  # not so where it is not a number
        if self._recorded.shape[1] > 1:
            finished &= last[:, 0] > self._recorded[:count, -2, 0]
        return finished


@numba.njit(nogil=True, cache=True)
def _write_controls(first, last, plan, noise, lower, upper, substeps, controls):
    """Write the clamped controls (K, T * substeps, U) float64 of samples ``first`` to ``last``."""
    for k in range(first, last):
        for t in range(plan.shape[0]):
            for u in range(plan.shape[1]):
                control = min(max(plan[t, u] + noise[t, u, k], lower[u]), upper[u])
                for s in range(t * substeps, (t + 1) * substeps):
                    controls[k, s, u] = control

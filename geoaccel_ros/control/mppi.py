"""Model predictive path integral control: a plan improved by sampling at every update.

Williams et al. 2017, "Information theoretic MPC for model-based reinforcement learning"; 2018,
"Information-theoretic model predictive control: theory and applications to autonomous driving".
"""

import collections
import copy
import dataclasses
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba.core.errors import NumbaError, UnsupportedBytecodeError

from geoaccel_ros.backend import choose_backend
from geoaccel_ros.config import Configuration, ConfigurationError
from geoaccel_ros.control import delay
from geoaccel_ros.control.covariance import adapt
from geoaccel_ros.control.detour import detour
from geoaccel_ros.control.diagnosis import explain
from geoaccel_ros.control.distance_field import FAR, DistanceField, empty_field, interpolate
from geoaccel_ros.control.evidence import Evidence
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.plan import resample
from geoaccel_ros.control.randomisation import RandomisedRollouts, parameter_sets
from geoaccel_ros.control.rollouts import CpuRollouts, Problem
from geoaccel_ros.control.rollouts_mujoco import MujocoRollouts
from geoaccel_ros.control.search import CpuSearch, Findings
from geoaccel_ros.control.smoothing import limit_plan, past_commands, smoothing_matrix
from geoaccel_ros.control.stopwatch import Stopwatch
from geoaccel_ros.control.systems import load_system

# The mean is followed as long as it costs no more above the best sample than so many temperatures:
# a sample of that cost would have the weight exp(-6), a four-hundredth of the best one's.
_NO_WORSE = 6.0
# Of what Numba says; the function and the line come first.
_LONGEST_REASON = 600


@dataclass(frozen=True)
class MppiUpdate:
    """What an update found.

    Attributes
    ----------
    command : np.ndarray
        (U,) float64: the control to send now, within the limits.
    plan : np.ndarray
        (T+1, X) float64: predicted states, the first one that of the update.
    controls : np.ndarray
        (T, U) float64: the plan, its row i for i * dt after the update's stamp.
    ess, temperature : float
        Effective sample size and the temperature that it was met with; 0 where none took part.
    log_eta : float
        Logarithm of the sum of the weights before they were normalised, when the best has 1.
    at_bound : bool
        Whether the effective sample size misses its target because the temperature is at a bound.
    min_cost, mean_cost : float
        Of the samples that counted.
    collided_fraction, not_finite_fraction : float
        Share of the samples that met an obstacle, and of the others whose cost is not finite.
    rank_correlation : float
        Spearman's, between the model's and MuJoCo's costs of the samples that both rolled out (see
        :class:`geoaccel_ros.control.hybrid.HybridRollouts`); nan where only one does.
    plan_age : float
        Age of the plan that was improved, s; nan if it was begun anew.
    terms : dict
        What each term adds to the cost of the plan with the robot's own parameters; terminal ones
        with the prefix ``final_``. Empty if not ok.
    parameters : dict
        The parameters that are randomised: their mean over the sets, by the sets' weights.
    milliseconds : dict
        What each stage took.
    ok : bool
        False if no plan was found: then the command is the system's safe one, or the plan is held.
    held : bool
        Whether the plan is the last one, which is followed a little longer.
    reason : str
        Why not ok; empty if ok.
    """

    command: np.ndarray
    plan: np.ndarray
    controls: np.ndarray
    ess: float
    temperature: float
    log_eta: float
    at_bound: bool
    min_cost: float
    mean_cost: float
    collided_fraction: float
    not_finite_fraction: float
    rank_correlation: float
    plan_age: float
    terms: dict[str, float]
    parameters: dict[str, float]
    milliseconds: dict[str, float]
    ok: bool
    held: bool
    reason: str


class Mppi:
    """A controller of one robot.

    An update samples perturbations of the plan, clamps the perturbed plans to the limits, rolls
    them out, weights them by cost, averages them (clamped as they were rolled out), smooths the
    average, holds it to the limits and sends its first control. The plan carries a stamp: the next
    update first re-samples it to its own time, so that any control period works.

    Its methods may be called from several threads.

    Parameters
    ----------
    config : MppiConfig
    system : str
        The robot model: a bundled one's name, a module (``package.module``) or a file
        (``/path/robot.py``), as :mod:`geoaccel_ros.control.systems` describes it.
    parameters : Configuration, optional
        The system's own ``Parameters``; its defaults if not given.

    Attributes
    ----------
    backend, backend_reason : str
        "cpu" or "cuda", and why.
    limits : tuple of np.ndarray
        Smallest and largest control, each (U,).
    warning : str
        What in the configuration is likely to be wrong though it is accepted; empty if nothing.

    Raises
    ------
    ConfigurationError
        If the system is unknown, or parameters do not fit its controls or each other.
    BackendError
        If CUDA was asked for and cannot be used, or disagrees with the CPU.
    """

    def __init__(
        self,
        config: MppiConfig,
        system: str = "diff_drive",
        parameters: Configuration | None = None,
    ):
        self._config = config
        self.system = load_system(system)
        parameters = parameters or self.system.parameters()
        config.check(self.system)
        sets = parameter_sets(
            self.system,
            parameters,
            config.randomised,
            config.randomised_by,
            config.parameter_sets,
            config.seed,
        )
        self._sets = [self.system.pack(chosen) for chosen in sets]
        self._sets64 = [self.system.pack(chosen, np.float64) for chosen in sets]
        self._evidence = Evidence(self.system, self._sets64, config.evidence_memory)
        self.system.check_limits(parameters)
        self.limits = tuple(np.array(limit, float) for limit in self.system.limits(parameters))
        self._lower, self._upper = (_float32_tuple(limit) for limit in self.limits)
        self.warning = config.warning(self.system, *self.limits)
        tried = self.system.tried_controls(parameters)
        if len(tried) >= config.samples:
            raise ConfigurationError(
                f"parameter 'samples' is {config.samples}, must be more than the {len(tried)} "
                f"maneuvers of system '{system}'"
            )
        self._safe = np.clip(tried[0].astype(float), *self.limits)
        if self.system.is_planar:
            self._clearance_limit = self.system.clearance_limit(parameters)
        self._smoothing = None
        if config.smoothing_window:
            self._smoothing = smoothing_matrix(
                config.horizon, config.smoothing_window, config.smoothing_order
            )
        self._rates = np.array(config.rate_limits or np.zeros(len(config.sigma)), float)
        self._sigma_most = np.array(config.sigma)
        self._terms = [
            *self.system.running_terms,
            *(f"final_{name}" for name in self.system.terminal_terms),
        ]
        self._lock = threading.Lock()
        self._field = empty_field()
        self._detour_for: tuple | None = None
        self._hybrid = None
        try:
            self._cpu = self._cpu_rollouts(parameters)
            self._search, self.backend, self.backend_reason = self._choose_search(tried)
            self.reset()
            self._warm_up()
        except (NumbaError, UnsupportedBytecodeError, RecursionError) as error:
            reason = " ".join(str(error).split())[:_LONGEST_REASON]
            raise ConfigurationError(
                f"system '{system}' cannot be compiled: {type(error).__name__}: {reason}"
            ) from error

    def predict(
        self,
        state: np.ndarray,
        stamp: float,
        commands_sent: Sequence[tuple[float, np.ndarray]],
        now: float,
    ) -> np.ndarray:
        """Return the state at the instant when a command sent ``now`` takes effect.

        That is ``now + command_delay``; the result is the state to give to :meth:`update` with the
        stamp ``now``.

        Parameters
        ----------
        state : np.ndarray
            (X,) as measured at ``stamp``, s.
        commands_sent : sequence of (instant, command)
            When each command was sent, s, in order of time. Those of the last second are enough.
            If there are none, the robot is taken to be told the safe one.
        now : float
            s, on the same clock.
        """
        commands = list(commands_sent) or [(stamp, self._safe)]
        effective = [(sent + self._config.command_delay, u) for sent, u in commands]
        until = now + self._config.command_delay
        p = self._sets64[0]
        if self._config.evidence_memory:
            with self._lock:
                self._evidence.observe(np.asarray(state, float), stamp, effective)
                p = p._replace(**self._believed())
        return delay.predict(self.system, p, state, stamp, effective, until)

    def update(self, state: np.ndarray, goal: np.ndarray, stamp: float) -> MppiUpdate:
        """Improve the plan and return the command to send.

        Parameters
        ----------
        state : np.ndarray
            (X,) in the order of the system's STATE: the state when this command takes effect, as
            :meth:`predict` returns it.
        goal : np.ndarray
            The system's GOAL; further components are ignored.
        stamp : float
            When the command is sent, s. A stamp before the last one drops the plan.
        """
        with self._lock:
            state = np.asarray(state, float)
            # Where commands act at once, this is the state as measured.
            if self._config.evidence_memory and not self._config.command_delay:
                self._evidence.observe(state, stamp, [(stamp, self._command)])
            update = self._update(state, np.asarray(goal, float), stamp)
            self._remember(stamp, update.command)
            return update

    def go_on_from(self, sent: Sequence[tuple[float, np.ndarray]]) -> None:
        """Take for sent what was, where that is not what updates returned.

        An update may come too late, and its caller have sent what the plan before had for that
        moment. Limits of rate, smoothing and the cost of a change begin with what was sent.

        Parameters
        ----------
        sent : sequence of (instant, command)
            When each command (U,) was sent, s, in order of time; none changes nothing.
        """
        with self._lock:
            if sent:
                self._sent = collections.deque(sent)
                self._command = np.array(sent[-1][1], float)

    def rollouts(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return trajectories of the last update, the ones of most weight first.

        Returns
        -------
        trajectories : np.ndarray
            (count, T+1, X) float64; fewer if fewer were sampled, none before the first update or
            where the last one had no plan.
        weights : np.ndarray
            (count,) float64.
        """
        with self._lock:
            if self._last is None:
                states = len(self.system.state)
                return np.zeros((0, self._config.horizon + 1, states)), np.zeros(0)
            problem, origin = self._last
            noise, weights = self._search.samples(count)
            problem = dataclasses.replace(problem, noise=noise)
            states = [self._states(problem, k, origin) for k in range(len(weights))]
            return np.array(states), weights

    def samples(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all samples of the last update, in the order of :meth:`rollouts`.

        Their costs are found again, on the CPU.

        Returns
        -------
        controls : np.ndarray
            (K, T, U) float32, within the limits; K is 0 where :meth:`rollouts` returns none.
        costs : np.ndarray
            (K,) float32; infinite where a rollout crashed or is not finite.
        weights : np.ndarray
            (K,) float64.
        """
        with self._lock:
            if self._last is None:
                controls = np.zeros((0, self._config.horizon, len(self.system.control)), np.float32)
                return controls, np.zeros(0, np.float32), np.zeros(0)
            problem, _ = self._last
            noise, weights = self._search.samples(self._config.samples)
            problem = dataclasses.replace(problem, noise=np.ascontiguousarray(noise))
            costs, crashed = np.empty(len(weights), np.float32), np.empty(len(weights), bool)
            self._cpu.run(problem, costs, crashed)
            costs[crashed | ~np.isfinite(costs)] = np.inf
            controls = problem.plan + noise.transpose(2, 0, 1)
            return np.clip(controls, problem.lower, problem.upper), costs, weights

    def explain(self) -> str:
        """Return which rollout of the last update is the first that is not finite, and where.

        Its step and stage, found by repeating it in float64; see
        :func:`geoaccel_ros.control.diagnosis.explain`. In a line; empty if all are finite.
        """
        with self._lock:
            return self._explain()

    def set_obstacles(self, field: DistanceField) -> None:
        """Use these obstacles from the next update on.

        Raises
        ------
        ConfigurationError
            If the system knows none: it defines no clearance_limit.
        """
        if not self.system.is_planar:
            raise ConfigurationError(
                f"system '{self.system.name}' knows no obstacles: it defines no clearance_limit"
            )
        with self._lock:
            self._field = field

    def reset(self) -> None:
        """Forget the plan and begin the noise again; obstacles stay."""
        with self._lock:
            self._plan = self._stopped()
            self._stamp: float | None = None
            self._found: float | None = None
            self._sigma = self._widest()
            self._command = self._plan[0].copy()
            self._sent: collections.deque[tuple[float, np.ndarray]] = collections.deque()
            self._last = None
            self._search.reset()
            self._evidence.reset()

    def continue_from(self, other: "Mppi") -> None:
        """Go on from another controller's plan, past and obstacles, with samples of its own.

        Both are of the same system, with a plan of the same horizon and dt, and as many sets of
        parameters. What was learnt of the sets is forgotten where they are others.
        """
        with other._lock, self._lock:
            self._plan, self._stamp, self._found = other._plan, other._stamp, other._found
            self._sigma, self._command = other._sigma, other._command
            self._sent = other._sent.copy()
            if self._sets64 == other._sets64:
                self._evidence = copy.copy(other._evidence)
            self._field = other._field
            self._last = None

    def _update(self, state: np.ndarray, goal: np.ndarray, stamp: float) -> MppiUpdate:
        self._watch = Stopwatch()
        self._last = None
        age = self._age(stamp)
        self._stamp = stamp
        count = len(self.system.goal)
        if state.shape != (len(self.system.state),) or not _all_finite(state):
            return self._no_plan(f"state {state} is not {len(self.system.state)} finite numbers")
        if goal.ndim != 1 or len(goal) < count or not _all_finite(goal[:count]):
            return self._no_plan(f"goal {goal} is not {count} finite numbers")

        dt = self._config.dt
        plan = self._stopped() if age is None else resample(self._plan, dt, age)
        problem, origin = self._problem(state, goal[:count], plan)
        self._watch.lap("prepare")
        sigma = None
        if self._config.sigma_adaptation:
            sigma = self._widest() if age is None else resample(self._sigma, dt, age)
        found = self._search.search(problem, sigma)
        self._watch.split(found.milliseconds)
        if not found.counted:
            return self._nothing_found(found, plan, age, stamp)

        # An update that failed leaves a plan, but nothing was sent.
        known = age is not None and self._sent
        elapsed = max(0.0, stamp - self._sent[-1][0]) if known else dt
        chosen = self._choose(problem, found, self._past(stamp), elapsed)
        self._watch.lap("choose")
        if chosen is None:
            return self._no_plan("every plan within the limits of rate collides", found)
        if sigma is not None:
            floor = self._config.sigma_floor * self._sigma_most
            rate = self._config.sigma_adaptation
            self._sigma = adapt(sigma, found.deviation, rate, floor, self._sigma_most)
        self._last = problem, origin
        self._found = stamp
        controls, states, terms = chosen
        self._follow(controls)
        terms = dict(zip(self._terms, terms.tolist(), strict=True))
        return self._report(found, states + origin, age, terms=terms, ok=True)

    def _nothing_found(
        self, found: Findings, plan: np.ndarray, age: float | None, stamp: float
    ) -> MppiUpdate:
        """Return an update where no sample counted; ``plan`` is the last one, of now.

        Where all collide, the way is blocked: only stopping is safe. Where costs are not finite
        nothing is known but that the last plan was good when it was made; it is followed for a
        bounded time, so that a number that fails now and then does not jerk the robot to a stop.
        """
        if found.collided_fraction == 1.0:
            return self._no_plan("every rollout collides", found)
        reason = "no rollout has a finite cost"
        if found.collided_fraction:
            reason = "no rollout that does not collide has a finite cost"
        reason = f"{reason}: {self._explain()}"
        recent = self._found is not None and stamp - self._found <= self._config.plan_hold
        if found.collided_fraction or age is None or not recent:
            return self._no_plan(reason, found)
        if self._config.sigma_adaptation:
            self._sigma = resample(self._sigma, self._config.dt, age)
        self._follow(plan)
        return self._report(found, None, age, ok=False, held=True, reason=reason)

    def _follow(self, controls: np.ndarray) -> None:
        self._plan = controls
        self._command = controls[0].copy()

    def _report(
        self,
        found: Findings,
        states: np.ndarray | None,
        age: float | None,
        *,
        ok: bool,
        terms: dict[str, float] | None = None,
        held: bool = False,
        reason: str = "",
    ) -> MppiUpdate:
        """Return an update whose plan is the one that is followed."""
        return MppiUpdate(
            command=self._command.copy(),
            plan=np.zeros((0, len(self.system.state))) if states is None else states,
            controls=self._plan.copy(),
            ess=found.ess,
            temperature=found.temperature,
            log_eta=found.log_eta,
            at_bound=found.at_bound,
            min_cost=found.best_cost,
            mean_cost=found.mean_cost,
            collided_fraction=found.collided_fraction,
            not_finite_fraction=found.not_finite_fraction,
            rank_correlation=self._hybrid.rank_correlation if self._hybrid and ok else math.nan,
            plan_age=math.nan if age is None else age,
            terms=terms or {},
            parameters=self._believed(),
            milliseconds=self._watch.milliseconds,
            ok=ok,
            held=held,
            reason=reason,
        )

    def _explain(self) -> str:
        bad = self._search.first_not_finite()
        if bad is None:
            return ""
        problem, sample = bad
        by_step = self._config.rolled_out_by(self.system) == "model"
        found = ""
        for p in self._sets:
            problem = dataclasses.replace(problem, p=p)
            states = None if by_step else self._cpu.states(problem, sample)
            found = explain(self.system, problem, sample, states)
            if not found.endswith("is finite"):
                return found
        return found if by_step else f"rollout {sample}, whose state diverged: MuJoCo ended it"

    def _age(self, stamp: float) -> float | None:
        """Return the plan's age in s; None where it says nothing about ``stamp``."""
        if self._stamp is None:
            return None
        age = stamp - self._stamp
        return age if 0.0 <= age <= self._config.horizon * self._config.dt else None

    def _remember(self, stamp: float, command: np.ndarray) -> None:
        """Keep what was sent as long as smoothing looks back."""
        while self._sent and self._sent[-1][0] >= stamp:
            self._sent.pop()  # of a time that was set back
        self._sent.append((stamp, command.copy()))
        oldest = stamp - self._config.smoothing_window * self._config.dt
        while len(self._sent) > 1 and self._sent[1][0] <= oldest:
            self._sent.popleft()

    def _past(self, stamp: float) -> np.ndarray | None:
        """Return the commands that smoothing continues, a step apart; None if there is none."""
        if self._smoothing is None:
            return None
        sent = self._sent or [(stamp, self._command)]
        return past_commands(sent, stamp, self._config.dt, self._config.smoothing_window // 2)

    def _widest(self) -> np.ndarray:
        return np.tile(self._sigma_most, (self._config.horizon, 1))

    def _believed(self) -> dict[str, float]:
        """Return the mean over the sets of the parameters that they vary."""
        values = {
            name: [getattr(p, name) for p in self._sets64] for name in self._config.randomised
        }
        return {name: float(self._evidence.weights @ value) for name, value in values.items()}

    def _stopped(self) -> np.ndarray:
        return np.tile(self._safe, (self._config.horizon, 1))

    def _problem(
        self, state: np.ndarray, goal: np.ndarray, plan: np.ndarray
    ) -> tuple[Problem, np.ndarray]:
        """Return the rollouts' problem, without samples, and the origin (X,) of its states."""
        origin = np.zeros_like(state)
        relative_goal = goal.copy()
        detours, limit = self._field, 0.0
        if self.system.is_planar:
            origin[:2] = state[:2]
            relative_goal[:2] -= state[:2]
            detours, limit = self._detour_to(goal), self._clearance_limit_at(state[:2])
        problem = Problem(
            start=_float32_tuple(state - origin),
            control_before=_float32_tuple(self._command),
            goal=_float32_tuple(relative_goal),
            plan=plan.astype(np.float32),
            noise=np.empty((*plan.shape, 0), np.float32),
            lower=self._lower,
            upper=self._upper,
            p=self._sets[0],
            field=self._field,
            detour=detours,
            origin=origin[:2],
            clearance_limit=np.float32(limit),
            dt=np.float32(self._config.dt),
        )
        return problem, origin

    def _clearance_limit_at(self, position: np.ndarray) -> float:
        """Return the distance in m below which a rollout from ``position`` has crashed."""
        # A robot that is already too near (the map is noisy, obstacles move) must be able to leave:
        # then only coming nearer still is a crash. The tolerance is a fraction of a cell. Not so
        # where the obstacle is deep inside the robot, or in its centre's own cell: no way is known
        # to lead out, and from there a step may pass through. Nothing is allowed then: it stops.
        field = self._field
        (x, y), origin = position.tolist(), field.origin.tolist()
        here = float(interpolate(field.distances, *origin, 1.0 / field.resolution, x, y, FAR))
        deep = here < max(0.5 * self._clearance_limit, self._field.resolution)
        return self._clearance_limit if deep else min(self._clearance_limit, here - 0.02)

    def _detour_to(self, goal: np.ndarray) -> DistanceField:
        """Return the detours to a goal; computed when the goal or the obstacles have changed."""
        key = (self._field, *goal[:2])
        if self._detour_for != key:
            self._detour = detour(self._field, goal[:2], self._clearance_limit)
            self._detour_for = key
        return self._detour

    def _choose(
        self, problem: Problem, found: Findings, past: np.ndarray | None, elapsed: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Return the new plan (T, U), its states and its cost's terms.

        It is the mean, or the best sample, smoothed and within limits. Between two good ways around
        an obstacle their mean runs into it; then the best sample is the plan. Not where the mean
        costs little more: the best of a thousand is mostly noise. Smoothing is left out
        where it leads into an obstacle. Samples know no limits of rate: None if these leave no plan
        that is free.
        """
        plan = self._finish(found.mean, past, elapsed)
        cost = self._cost(_of_plan(problem, plan))
        # Elites have no temperature; how far they lie above the best one is their scale.
        scale = found.temperature or found.mean_cost - found.best_cost
        if cost > found.best_cost + _NO_WORSE * scale:
            histories = (None,) if past is None else (past, None)
            bests = [self._finish(found.best, history, elapsed) for history in histories]
            costs = [self._cost(_of_plan(problem, best)) for best in bests]
            free = [k for k, best_cost in enumerate(costs) if best_cost < math.inf]
            if free and costs[free[0]] < cost:
                plan, cost = bests[free[0]], costs[free[0]]
        if cost == math.inf:
            return None
        return plan, *self._cpu.follow(_of_plan(problem, plan), 0)

    def _finish(self, controls: np.ndarray, past: np.ndarray | None, elapsed: float) -> np.ndarray:
        """Return controls (T, U) smoothed, unless ``past`` is None, and held to the limits."""
        if past is not None:
            controls = self._smoothing @ np.concatenate((past, controls))
        dt = self._config.dt
        return limit_plan(controls, self._command, *self.limits, self._rates, elapsed, dt)

    def _cost(self, problem: Problem) -> float:
        """Return the cost of a problem's only sample; infinite if not finite or if it crashes."""
        costs, crashed = np.empty(1, np.float32), np.empty(1, bool)
        self._cpu.run(problem, costs, crashed)
        cost = float(costs[0])
        return math.inf if crashed[0] or not math.isfinite(cost) else cost

    def _states(self, problem: Problem, sample: int, origin: np.ndarray) -> np.ndarray:
        return self._cpu.states(problem, int(sample)) + origin

    def _no_plan(self, reason: str, found: Findings | None = None) -> MppiUpdate:
        """Drop the plan and return the safe command."""
        self._follow(self._stopped())
        self._found = None
        self._sigma = self._widest()
        if found is None:
            found = Findings(0, 0.0)
        found = Findings(0, found.collided_fraction, not_finite_fraction=found.not_finite_fraction)
        return self._report(found, None, None, ok=False, reason=reason)

    def _cpu_rollouts(self, parameters: Configuration):
        """Return the rollouts whose costs decide which plan is followed."""
        config = self._config
        if config.rolled_out_by(self.system) == "model":
            return self._with_all_sets(CpuRollouts(self.system, config.threads))
        return self._with_all_sets(
            MujocoRollouts(
                self.system,
                parameters,
                config.samples,
                config.horizon,
                config.dt,
                config.threads,
                config.mujoco_timestep,
            )
        )

    def _with_all_sets(self, rollouts):
        """Return rollouts with every set of parameters, if there are several."""
        if len(self._sets) == 1:
            return rollouts
        return RandomisedRollouts(
            rollouts,
            self._sets,
            self._config.risk,
            self._config.risk_share,
            lambda: self._evidence.weights,
        )

    def _choose_search(self, tried: np.ndarray):
        """Return what searches, the name of where it does and why there."""
        kind = self._config.rolled_out_by(self.system)
        if kind == "mujoco":
            search = CpuSearch(self._config, self._cpu, tried)
            return search, "cpu", "MuJoCo's rollouts run there"
        name, reason = choose_backend(self._config.backend, _cuda_problem)
        if kind == "hybrid":
            return self._hybrid_search(name, tried), name, reason
        if name == "cpu":
            return CpuSearch(self._config, self._cpu, tried), name, reason
        from geoaccel_ros.control.search_cuda import CudaSearch

        if self._config.evidence_memory:
            raise ConfigurationError(
                "parameter 'evidence_memory' is for the CPU: must be 0, or set backend: cpu"
            )
        return CudaSearch(self._config, self.system, self._sets, tried), name, reason

    def _hybrid_search(self, backend: str, tried: np.ndarray) -> CpuSearch:
        # SciPy's statistics take a second to import.
        from geoaccel_ros.control.hybrid import HybridRollouts

        config = self._config
        screen = CpuRollouts(self.system, config.threads)
        if backend == "cuda":
            from geoaccel_ros.control.rollouts_cuda import CudaRollouts

            screen = CudaRollouts(self.system, config.samples, config.horizon, screen)
        self._screen = screen
        self._hybrid = HybridRollouts(
            self._with_all_sets(screen), self._cpu, config.samples, config.hybrid_share
        )
        return CpuSearch(config, self._hybrid, tried, self._hybrid.left_out)

    def _warm_up(self) -> None:
        """Compile everything, and compare CUDA with the CPU, before the first deadline."""
        state = np.zeros(len(self.system.state))
        goal = np.ones(len(self.system.goal))
        self._update(state, goal, 0.0)
        if self.backend == "cuda":
            problem, _ = self._problem(state, goal, self._plan)
            if self._hybrid:
                noise, _ = self._search.samples(self._config.samples)
                self._screen.check(dataclasses.replace(problem, noise=np.ascontiguousarray(noise)))
            else:
                self._search.check(problem, self._cpu)
        self.reset()


def _of_plan(problem: Problem, plan: np.ndarray) -> Problem:
    """Return the problem whose only sample is ``plan`` (T, U)."""
    return problem.sampled(plan.astype(np.float32), np.zeros((*plan.shape, 1), np.float32))


def _all_finite(values: np.ndarray) -> bool:
    """Return what np.isfinite(values).all() does, of a few numbers in a quarter of its time."""
    return all(map(math.isfinite, values.tolist()))


def _float32_tuple(values: np.ndarray) -> tuple:
    return tuple(values.astype(np.float32))


def _cuda_problem() -> str | None:
    try:
        from geoaccel_ros.control.rollouts_cuda import cuda_problem
    except ImportError as error:
        return f"Numba's CUDA target is missing ({error}): pip install 'geoaccel_ros[cuda]'"
    return cuda_problem()

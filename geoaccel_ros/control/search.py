"""The search of an update: samples around the plan, rolled out, weighted by cost, averaged."""

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.plan import weighted_mean
from geoaccel_ros.control.rollouts import Problem
from geoaccel_ros.control.samplers import Sampler, coloured_basis, knot_basis
from geoaccel_ros.control.weights import Weights, elite_weights, importance_weights


@dataclass(frozen=True)
class Findings:
    """What a search found.

    Attributes
    ----------
    counted : int
        Samples that have a weight; where there is none, only ``collided_fraction`` says something.
    collided_fraction : float
        Share of the samples that met an obstacle.
    mean, best : np.ndarray
        (T, U) float64: the weighted mean of the sampled plans, and the one of least cost; within
        the limits, as they were rolled out.
    best_cost, mean_cost : float
        Of the best one; the mean of those that have a weight.
    ess, temperature, log_eta, at_bound
        See :class:`geoaccel_ros.control.weights.Weights`.
    """

    counted: int
    collided_fraction: float
    mean: np.ndarray | None = None
    best: np.ndarray | None = None
    best_cost: float = math.nan
    mean_cost: float = math.nan
    ess: float = 0.0
    temperature: float = 0.0
    log_eta: float = math.nan
    at_bound: bool = False


class CpuSearch:
    """A search whose samples are drawn and averaged here, and rolled out by ``rollouts``.

    Parameters
    ----------
    config : MppiConfig
    rollouts
        What :class:`~geoaccel_ros.control.rollouts.CpuRollouts` is: has its ``run``.
    tried : np.ndarray
        (N, U) constant controls that take the place of the samples after the first one, which is
        the plan as it is.
    """

    def __init__(self, config: MppiConfig, rollouts, tried: np.ndarray):
        self._rollouts = rollouts
        self._tried = tried
        self._free = np.asarray(config.sigma) > 0.0
        self._sampler = Sampler(
            config.samples, noise_basis(config), config.sigma, config.seed, config.antithetic
        )
        self._weigh = _weighting(config)
        self._costs = np.empty(config.samples, np.float32)
        self._crashed = np.empty(config.samples, bool)
        self._last: tuple[Problem, np.ndarray] | None = None

    def reset(self) -> None:
        """Begin the noise again."""
        self._sampler.reset()
        self._last = None

    def search(self, problem: Problem) -> Findings:
        """Sample around ``problem.plan``; the problem's own noise is not looked at."""
        problem = dataclasses.replace(problem, noise=self._sample(problem.plan))
        self._rollouts.run(problem, self._costs, self._crashed)
        collided = float(np.mean(self._crashed))
        weights = self._weigh(self._costs, ~self._crashed)
        if weights is None:
            self._last = None
            return Findings(0, collided)
        self._last = problem, weights.values
        lower, upper = np.array(problem.lower), np.array(problem.upper)
        k = int(np.argmin(np.where(weights.values > 0.0, self._costs, np.inf)))
        counted = self._costs[weights.values > 0.0]
        return Findings(
            counted=len(counted),
            collided_fraction=collided,
            mean=weighted_mean(problem.plan, problem.noise, lower, upper, weights.values),
            best=np.clip(problem.plan + problem.noise[:, :, k], lower, upper).astype(float),
            best_cost=float(self._costs[k]),
            mean_cost=float(counted.mean()),
            ess=weights.ess,
            temperature=weights.temperature,
            log_eta=weights.log_eta,
            at_bound=weights.at_bound,
        )

    def samples(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``count`` samples of most weight in the last search, fewer if there are fewer.

        Returns
        -------
        noise : np.ndarray
            (T, U, count) float32.
        weights : np.ndarray
            (count,) float64, falling.
        """
        problem, weights = self._last
        best = np.argsort(-weights, kind="stable")[:count]
        return problem.noise[:, :, best], weights[best]

    def _sample(self, plan: np.ndarray) -> np.ndarray:
        """Return noise (T, U, K); the first samples are the plan as it is, and those tried."""
        noise = self._sampler.sample()
        noise[:, :, 0] = 0.0
        for k, controls in enumerate(self._tried, start=1):
            noise[:, :, k] = np.where(self._free, controls - plan, 0.0)
        return noise


def noise_basis(config: MppiConfig) -> np.ndarray:
    """Return the basis (T, J) that the noise of a configuration is mixed by."""
    if config.noise == "white":
        return np.eye(config.horizon)
    if config.noise == "coloured":
        return coloured_basis(config.horizon, config.noise_exponent)
    return knot_basis(config.horizon, config.noise_knots, config.noise_order)


def _weighting(config: MppiConfig) -> Callable[[np.ndarray, np.ndarray], Weights | None]:
    # Fractions are of all samples, of which a hybrid's others have no cost.
    have_a_cost = config.hybrid_share if config.rollouts == "hybrid" else 1.0
    if config.weighting == "cem":
        fraction = min(1.0, config.elite_fraction / have_a_cost)
        return functools.partial(elite_weights, elite_fraction=fraction)
    return functools.partial(
        importance_weights,
        ess_fraction=min(1.0, config.ess_fraction / have_a_cost),
        temperature=config.temperature,
        bounds=(config.temperature_min, config.temperature_max or math.inf),
    )

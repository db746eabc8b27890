"""The search of an update: samples around the plan, rolled out, weighted by cost, averaged."""

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.control.covariance import deviation
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.plan import weighted_mean
from geoaccel_ros.control.rollouts import Problem
from geoaccel_ros.control.samplers import Sampler, coloured_basis, knot_basis
from geoaccel_ros.control.stopwatch import Stopwatch
from geoaccel_ros.control.weights import Weights, elite_weights, importance_weights
from geoaccel_ros.threads import Threads


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
    deviation : np.ndarray
        (T, U) float64: how far the weighted samples lie from the plan, by
        :func:`geoaccel_ros.control.covariance.deviation`; None where it was not asked for.
    not_finite_fraction : float
        Share of the samples that met no obstacle and whose cost is not finite.
    milliseconds : dict
        What each stage took.
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
    deviation: np.ndarray | None = None
    not_finite_fraction: float = 0.0
    milliseconds: dict[str, float] = dataclasses.field(default_factory=dict)


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
    left_out : np.ndarray, optional
        (K,) bool: the samples that the last ``run`` did not look at, which get no weight.
    """

    def __init__(
        self,
        config: MppiConfig,
        rollouts,
        tried: np.ndarray,
        left_out: np.ndarray | None = None,
    ):
        self._rollouts = rollouts
        self._left_out = np.zeros(config.samples, bool) if left_out is None else left_out
        self._tried = tried
        self._free = np.asarray(config.sigma) > 0.0
        self._sampler = Sampler(
            config.samples,
            noise_basis(config),
            config.sigma,
            config.seed,
            config.antithetic,
            Threads(config.threads),
        )
        self._weigh = _weighting(config)
        self._costs = np.empty(config.samples, np.float32)
        self._crashed = np.empty(config.samples, bool)
        self._problem: Problem | None = None
        self._weights = np.zeros(config.samples)

    def reset(self) -> None:
        """Begin the noise again."""
        self._sampler.reset()
        self._problem = None

    def search(self, problem: Problem, sigma: np.ndarray | None = None) -> Findings:
        """Sample around ``problem.plan``; the problem's own noise is not looked at.

        With ``sigma`` (T, U), each instant's standard deviation, the samples' own is found too;
        without, the configuration's is drawn with.
        """
        watch = Stopwatch()
        problem = problem.sampled(problem.plan, self._sample(problem.plan, sigma))
        self._problem = problem
        watch.lap("sample")
        self._rollouts.run(problem, self._costs, self._crashed)
        watch.lap("rollouts")
        collided = float(np.mean(self._crashed))
        not_finite = float(np.mean(self._not_finite()))
        weights = self._weigh(self._costs, ~(self._crashed | self._left_out))
        watch.lap("weights")
        if weights is None:
            return Findings(
                0, collided, not_finite_fraction=not_finite, milliseconds=watch.milliseconds
            )
        self._weights = weights.values
        lower, upper = np.array(problem.lower), np.array(problem.upper)
        around = problem.plan, problem.noise, lower, upper, weights.values
        mean = weighted_mean(*around)
        spread = None if sigma is None else deviation(*around)
        k = int(np.argmin(np.where(weights.values > 0.0, self._costs, np.inf)))
        counted = self._costs[weights.values > 0.0]
        watch.lap("mean")
        return Findings(
            counted=len(counted),
            collided_fraction=collided,
            mean=mean,
            best=np.clip(problem.plan + problem.noise[:, :, k], lower, upper).astype(float),
            best_cost=float(self._costs[k]),
            mean_cost=float(counted.mean()),
            ess=weights.ess,
            temperature=weights.temperature,
            log_eta=weights.log_eta,
            at_bound=weights.at_bound,
            deviation=spread,
            not_finite_fraction=not_finite,
            milliseconds=watch.milliseconds,
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
        best = np.argsort(-self._weights, kind="stable")[:count]
        return self._problem.noise[:, :, best], self._weights[best]

    def first_not_finite(self) -> tuple[Problem, int] | None:
        """Return the last search's problem, with its samples, and the first of these that is so.

        None if there is none, or there was no search.
        """
        if self._problem is None:
            return None
        bad = np.flatnonzero(self._not_finite())
        return (self._problem, int(bad[0])) if len(bad) else None

    def _not_finite(self) -> np.ndarray:
        return ~(self._crashed | self._left_out | np.isfinite(self._costs))

    def _sample(self, plan: np.ndarray, sigma: np.ndarray | None) -> np.ndarray:
        """Return noise (T, U, K); the first samples are the plan as it is, and those tried."""
        noise = self._sampler.sample(sigma)
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
    # Fractions are of all samples, not of those that a hybrid looks at.
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

"""Domain randomisation: every sample is rolled out with several sets of the robot's parameters.

Tobin et al. 2017, "Domain randomization for transferring deep neural networks"; for a controller
that samples, Abraham et al. 2020, "Model-based generalization under parameter uncertainty using
path integral control".
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from geoaccel_ros.config import Configuration, ConfigurationError, unknown_name_message
from geoaccel_ros.control.rollouts import Problem
from geoaccel_ros.control.systems import System

# Sets whose weight is less than this share of the largest one hardly change a cost.
_NEGLIGIBLE = 1e-3


class RandomisedRollouts:
    """Rollouts, by ``rollouts``, with every set of parameters; a sample's costs become one.

    Parameters
    ----------
    rollouts
        What :class:`~geoaccel_ros.control.rollouts.CpuRollouts` is.
    sets : list of tuple
        By :func:`parameter_sets`, packed as float32.
    measure, share
        Of :func:`risk`.
    weigh : callable, optional
        Returns the weights (M,) that the sets have now; without, they are equal.
    """

    def __init__(
        self,
        rollouts,
        sets: list[tuple],
        measure: str,
        share: float,
        weigh: Callable[[], np.ndarray] | None = None,
    ):
        self._rollouts = rollouts
        self._sets = sets
        self._measure = measure
        self._share = share
        self._weigh = weigh or (lambda: np.ones(len(sets)))

    def run(self, problem: Problem, costs: np.ndarray, crashed: np.ndarray) -> None:
        """Write the costs (K,) float32 and whether each sample crashed (K,) bool, with any set.

        Sets of negligible weight are not rolled out.
        """
        weights = self._weigh()
        likely = np.flatnonzero(weights > _NEGLIGIBLE * weights.max())
        all_costs = np.empty((len(likely), len(costs)), np.float32)
        all_crashed = np.empty(all_costs.shape, bool)
        for m, *found in zip(likely, all_costs, all_crashed, strict=True):
            self._rollouts.run(dataclasses.replace(problem, p=self._sets[m]), *found)
        costs[:], crashed[:] = risk(
            all_costs, all_crashed, self._measure, self._share, weights[likely]
        )

    def states(self, problem: Problem, sample: int) -> np.ndarray:
        """Return the states (T+1, X) float32 that one sample passes through with the problem's."""
        return self._rollouts.states(problem, sample)

    def follow(self, problem: Problem, sample: int) -> tuple[np.ndarray, np.ndarray]:
        """Return these states and what each term adds to their cost."""
        return self._rollouts.follow(problem, sample)


def parameter_sets(
    system: System,
    parameters: Configuration,
    names: Sequence[str],
    spreads: Sequence[float],
    count: int,
    seed: int,
) -> list[Configuration]:
    """Return ``count`` sets of parameters; the first one is ``parameters`` as they are.

    The others are a Latin hypercube (McKay et al. 1979): of the values between (1 - spread) and
    (1 + spread) times its own, divided into as many intervals as there are sets, a parameter takes
    one from each.

    Parameters
    ----------
    system : System
    parameters : Configuration
        The system's own.
    names, spreads : sequence
        Which parameters vary, and the relative half-range of each.
    count : int
        At least 1.
    seed : int
        The same seed gives the same sets.

    Raises
    ------
    ConfigurationError
        If a name is unknown, is not that of a number, or its value is 0, of which no share is
        another; or if a value is outside the parameter's own bounds.
    """
    known = {declared.name: declared.kind for declared in system.parameters.parameters()}
    for name in names:
        if name not in known:
            raise ConfigurationError(f"parameter 'randomised': {unknown_name_message(name, known)}")
        if known[name] is not float or getattr(parameters, name) == 0.0:
            raise ConfigurationError(
                f"parameter 'randomised' names {name}, which is {getattr(parameters, name)!r}: "
                "only numbers that are not 0 have a relative range"
            )
    sets = [parameters]
    if count > 1 and names:
        rng = np.random.default_rng(seed)
        interval = rng.permuted(np.tile(np.arange(count - 1), (len(names), 1)), axis=1)
        places = (interval + rng.random(interval.shape)) / (count - 1)
        for place in places.T:
            factors = 1.0 + np.asarray(spreads) * (2.0 * place - 1.0)
            values = {
                name: float(factor * getattr(parameters, name))
                for name, factor in zip(names, factors, strict=True)
            }
            sets.append(dataclasses.replace(parameters, **values))
    return sets


def risk(
    costs: np.ndarray,
    crashed: np.ndarray,
    measure: str,
    share: float,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return one cost for each sample, and whether it crashed: with any set.

    Parameters
    ----------
    costs : np.ndarray
        (M, K) float32 with each of the M sets. Where one is not finite, the result is nan.
    crashed : np.ndarray
        (M, K) bool.
    measure : str
        "mean"; "worst"; or "cvar", the mean of the worst ``share`` of the sets (conditional value
        at risk; Rockafellar and Uryasev 2002: where the share ends within a set, that set counts
        for its part).
    share : float
        0 to 1; less than the worst set's weight is that set.
    weights : np.ndarray, optional
        (M,) of the sets; equal if not given. The worst is the worst whatever its weight.
    """
    weights = np.ones(len(costs)) if weights is None else weights
    weights = (weights / weights.sum()).astype(np.float32)
    finite = np.isfinite(costs).all(axis=0)
    costs = np.where(finite, costs, np.float32(np.nan))
    if measure == "worst":
        combined = costs.max(axis=0)
    elif measure == "mean":
        combined = weights @ costs
    else:
        order = np.argsort(-costs, axis=0)
        falling = weights[order]
        counted = np.clip(share - (np.cumsum(falling, axis=0) - falling), 0.0, falling) / share
        combined = (counted.astype(np.float32) * np.take_along_axis(costs, order, 0)).sum(axis=0)
    return combined, crashed.any(axis=0)

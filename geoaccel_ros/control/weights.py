"""Importance weights of rollouts from their costs."""

from dataclasses import dataclass

import numpy as np

# The temperature is sought between these multiples of the mean cost above the best.
_LOWEST, _HIGHEST = 1e-6, 1e3
_HALVINGS = 40


@dataclass(frozen=True)
class Weights:
    """Weights (K,) float64 that sum to one, their effective sample size and temperature."""

    values: np.ndarray
    ess: float
    temperature: float


def importance_weights(
    costs: np.ndarray, usable: np.ndarray, ess_fraction: float
) -> Weights | None:
    """Return weights exp(-(cost - lowest) / temperature), normalised.

    Information-theoretic MPPI (Williams et al. 2018), with the temperature solved so that the
    effective sample size, 1 / sum(w^2) (Kish 1965), meets a share of the usable samples: a fixed
    one would fit only one scale of the costs.

    Parameters
    ----------
    costs : np.ndarray
        (K,) float; computed with in float64.
    usable : np.ndarray
        (K,) bool: samples that may get a weight. Of these, those with a non-finite cost get none.
    ess_fraction : float
        Wanted effective sample size as a share of the usable samples; at least one sample.

    Returns
    -------
    Weights or None
        None if no sample is usable. Uniform, with temperature 0, if all costs are equal.
    """
    usable = usable & np.isfinite(costs)
    count = int(np.count_nonzero(usable))
    if count == 0:
        return None
    excess = np.asarray(costs, np.float64)[usable]
    excess -= excess.min()
    scale = float(excess.mean())
    values = np.zeros(len(costs))
    if scale == 0.0:
        values[usable] = 1.0 / count
        return Weights(values, float(count), 0.0)
    temperature = _solve_temperature(excess, scale, max(1.0, ess_fraction * count))
    weights = np.exp(-excess / temperature)
    weights /= weights.sum()
    values[usable] = weights
    return Weights(values, 1.0 / float(weights @ weights), temperature)


def _solve_temperature(excess: np.ndarray, scale: float, target: float) -> float:
    """Return the temperature whose effective sample size is ``target``; it grows with it."""
    low, high = np.log(_LOWEST * scale), np.log(_HIGHEST * scale)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        weights = np.exp(excess * -np.exp(-middle))
        ess = weights.sum() ** 2 / (weights @ weights)
        if abs(ess - target) < 1e-3 * target:
            break
        low, high = (middle, high) if ess < target else (low, middle)
    return float(np.exp(middle))

"""Weights of rollouts from their costs."""

import math
from dataclasses import dataclass

import numba
import numpy as np

from geoaccel_ros.control import vector_math

# The temperature is sought between these multiples of the mean cost above the best.
LOWEST, HIGHEST = 1e-6, 1e3
HALVINGS = 40
# It is found when the target is met so closely; a target met less closely than MET was not met.
SOLVED, MET = 1e-3, 0.01
# Weights that are added up in float32 while the temperature is sought.
_BLOCK = 2048
_ZERO = np.float32(0.0)


@dataclass(frozen=True)
class Weights:
    """What an average takes of each sample.

    Attributes
    ----------
    values : np.ndarray
        (K,) float64 that sum to one.
    ess : float
        Effective sample size, 1 / sum(values^2) (Kish 1965).
    temperature : float
        That of the weights; 0 where none took part.
    log_eta : float
        Logarithm of the sum of the weights before they were normalised, when the best has 1.
    at_bound : bool
        Whether the effective sample size misses its target because the temperature is at a bound.
    """

    values: np.ndarray
    ess: float
    temperature: float
    log_eta: float
    at_bound: bool


def importance_weights(
    costs: np.ndarray,
    usable: np.ndarray,
    ess_fraction: float,
    temperature: float = 0.0,
    bounds: tuple[float, float] = (0.0, math.inf),
) -> Weights | None:
    """Return weights exp(-(cost - lowest) / temperature), normalised.

    Information-theoretic MPPI (Williams et al. 2018). Unless it is given, the temperature is solved
    so that the effective sample size meets a share of the usable samples: a fixed one fits only one
    scale of the costs.

    Parameters
    ----------
    costs : np.ndarray
        (K,) float; computed with in float64.
    usable : np.ndarray
        (K,) bool: samples that may get a weight. Of these, those with a non-finite cost get none.
    ess_fraction : float
        Wanted effective sample size as a share of the usable samples; at least one sample.
    temperature : float
        In the unit of the costs; 0 to solve for it.
    bounds : tuple of float
        Smallest and largest temperature that is solved for, in the unit of the costs.

    Returns
    -------
    Weights or None
        None if no sample is usable. Uniform if all costs are equal: then no temperature is sought.
    """
    usable = usable & np.isfinite(costs)
    count = int(np.count_nonzero(usable))
    if count == 0:
        return None
    excess = np.asarray(costs, np.float64)[usable]
    excess -= excess.min()
    target = max(1.0, ess_fraction * count)
    sought = temperature == 0.0 and excess.any()
    if sought:
        temperature = min(max(_solve_temperature(excess, target), bounds[0]), bounds[1])
    # The best one's exponent is 0, so that the sum neither overflows nor vanishes.
    weights = np.exp(-excess / temperature) if temperature else np.ones(count)
    eta = weights.sum()
    # Not by a dot product: of many samples that one wakes threads of its own and waits for them.
    ess = float(eta**2 / np.square(weights).sum())
    values = np.zeros(len(costs))
    values[usable] = weights / eta
    missed = bool(sought and abs(ess - target) > MET * target)
    return Weights(values, ess, float(temperature), math.log(eta), missed)


def elite_weights(costs: np.ndarray, usable: np.ndarray, elite_fraction: float) -> Weights | None:
    """Return equal weights for the samples of least cost, and none for the others.

    The cross-entropy method (Rubinstein 1999). Samples that cost the same as the worst elite are
    elites too, so that the order of the samples does not matter.

    Parameters
    ----------
    costs, usable : np.ndarray
        As :func:`importance_weights` takes them.
    elite_fraction : float
        Elites as a share of the usable samples; at least one sample.

    Returns
    -------
    Weights or None
        None if no sample is usable.
    """
    usable = usable & np.isfinite(costs)
    count = int(np.count_nonzero(usable))
    if count == 0:
        return None
    wanted = max(1, round(elite_fraction * count))
    worst = np.partition(costs[usable], wanted - 1)[wanted - 1]
    elites = usable & (costs <= worst)
    number = int(np.count_nonzero(elites))
    return Weights(elites / number, float(number), 0.0, math.log(number), False)


def _solve_temperature(excess: np.ndarray, target: float) -> float:
    """Return the temperature whose effective sample size is ``target``; it grows with it."""
    scale = float(excess.mean())
    # Float32 resolves the target far better than it must be met; relative costs cannot overflow.
    return scale * _bisect((excess / scale).astype(np.float32), target)


@numba.njit(cache=True, nogil=True)
def _bisect(excess, target):
    low, high = math.log(LOWEST), math.log(HIGHEST)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        eta, squares = _sums(excess, np.float32(math.exp(-middle)))
        ess = eta * eta / squares
        if abs(ess - target) < SOLVED * target:
            break
        if ess < target:
            low = middle
        else:
            high = middle
    return math.exp(middle)


# Sums in any order, so that several weights are added at once; that assumes nothing of numbers.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _sums(excess, per_temperature):
    """Return the sum of the weights exp(-excess / temperature) and that of their squares.

    Float32, as costs are, but for the sums of blocks.
    """
    eta = 0.0
    squares = 0.0
    for begin in range(0, len(excess), _BLOCK):
        block_eta = _ZERO
        block_squares = _ZERO
        block = excess[begin : begin + _BLOCK]
        for k in range(len(block)):
            weight = vector_math.exp(-block[k] * per_temperature)
            block_eta += weight
            block_squares += weight * weight
        eta += block_eta
        squares += block_squares
    return eta, squares

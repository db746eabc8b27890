"""A cheap model screens all samples; MuJoCo rolls the best out again, and its costs count."""

import math

import numpy as np
from scipy.stats import rankdata

from geoaccel_ros.control.rollouts import Problem
from geoaccel_ros.control.rollouts_mujoco import MujocoRollouts


class HybridRollouts:
    """Rollouts of which the model's order of costs picks those that MuJoCo looks at.

    Parameters
    ----------
    screen
        The model's rollouts: what has the ``run`` of CpuRollouts.
    mujoco : MujocoRollouts
        With room for a share of the samples.
    samples : int
        K of the problems.
    share : float
        Of the samples, the one that MuJoCo rolls out again; at least two samples.

    Attributes
    ----------
    left_out : np.ndarray
        (K,) bool: the samples that MuJoCo did not roll out in the last call.
    rank_correlation : float
        Spearman's, between the model's and MuJoCo's costs of the samples that both rolled out in
        the last call; nan where these say nothing. Near 1 the model finds what MuJoCo would; near 0
        it picks at random.
    """

    def __init__(self, screen, mujoco: MujocoRollouts, samples: int, share: float):
        self._screen = screen
        self._mujoco = mujoco
        self._count = screened(samples, share)
        self.left_out = np.ones(samples, bool)
        self.rank_correlation = math.nan

    def run(self, problem: Problem, costs: np.ndarray, crashed: np.ndarray) -> None:
        """Write the costs (K,) float32 and whether each rollout crashed (K,) bool.

        Costs are MuJoCo's; a sample that it did not roll out costs infinitely much, and crashed if
        it did by the model.
        """
        self._screen.run(problem, costs, crashed)
        order = np.where(crashed | ~np.isfinite(costs), np.inf, costs)
        count = self._count
        # In the order of the samples, so that noise is read forwards.
        best = np.sort(np.argpartition(order, count - 1)[:count])
        noise = np.ascontiguousarray(problem.noise[:, :, best])
        expected, found, met = costs[best], np.empty(count, np.float32), np.empty(count, bool)
        self._mujoco.run(problem.sampled(problem.plan, noise), found, met)
        self.rank_correlation = rank_correlation(expected, found)
        self.left_out[:] = True
        self.left_out[best] = False
        costs[:] = np.inf
        costs[best] = found
        crashed[best] = met


def screened(samples: int, share: float) -> int:
    """Return how many of the samples MuJoCo rolls out."""
    return min(samples, max(2, round(share * samples)))


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's rank correlation of the entries that are finite in both.

    nan if these are fewer than two, or all the same in one.
    """
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.any():
        return math.nan
    ranks = np.stack((rankdata(a[finite]), rankdata(b[finite])))
    deviations = ranks - ranks.mean(axis=1, keepdims=True)
    spread = np.sqrt((deviations**2).sum(axis=1)).prod()
    return float((deviations[0] * deviations[1]).sum() / spread) if spread else math.nan

"""Perturbations of the plan."""

import math

import numba
import numpy as np


class KnotSampler:
    """Gaussian noise, drawn at a few knots of the horizon and interpolated between them.

    White noise cancels over the horizon: its rollouts all end near the plan's, and their average
    jitters. Noise that lasts explores further with as many samples (Vlahov et al. 2024, "Low
    frequency sampling in model predictive path integral control"; Howell et al. 2022, "Predictive
    sampling", perturb splines likewise).

    Parameters
    ----------
    samples, horizon, knots : int
        K, T, and how many knots span the horizon; as many as T gives white noise.
    sigma : sequence of float
        Standard deviation of each of the U controls, at every instant; 0 freezes that control.
    seed : int
        The same seed gives the same noise, bit for bit.
    """

    def __init__(self, samples: int, horizon: int, knots: int, sigma: tuple[float, ...], seed: int):
        knots = max(2, min(knots, horizon))
        self._sigma = np.asarray(sigma, np.float32)
        self._normals = np.empty((knots, len(sigma), samples), np.float32)
        self._left, self._weights = _interpolation(horizon, knots)
        self._seed = seed
        self.noise = np.zeros((horizon, len(sigma), samples), np.float32)
        self.reset()

    def reset(self) -> None:
        """Begin again with the seed."""
        # The quickest of NumPy's bit generators; statistical quality is far beyond what is needed.
        self._generator = np.random.Generator(np.random.SFC64(self._seed))

    def sample(self) -> np.ndarray:
        """Return new noise (T, U, K) float32: by time, so that neighbouring samples lie together.

        The array is the sampler's own and is overwritten by the next call.
        """
        self._generator.standard_normal(out=self._normals, dtype=np.float32)
        _interpolate(self._normals, self._left, self._weights, self._sigma, self.noise)
        return self.noise


def _interpolation(horizon: int, knots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the left knot of each step (T,) and the weights of it and its neighbour (T, 2)."""
    position = np.linspace(0.0, knots - 1.0, horizon)
    left = np.minimum(position.astype(np.int64), knots - 2)
    angle = 0.5 * math.pi * (position - left)
    # Weights on a circle keep the variance the same between knots; straight lines would halve it.
    return left, np.column_stack((np.cos(angle), np.sin(angle))).astype(np.float32)


@numba.njit(cache=True, nogil=True)
def _interpolate(normals, left, weights, sigma, noise):
    for t in range(noise.shape[0]):
        for u in range(noise.shape[1]):
            first = normals[left[t], u]
            second = normals[left[t] + 1, u]
            a = weights[t, 0] * sigma[u]
            b = weights[t, 1] * sigma[u]
            for k in range(noise.shape[2]):
                noise[t, u, k] = a * first[k] + b * second[k]

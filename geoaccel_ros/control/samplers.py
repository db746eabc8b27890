"""Perturbations of the plan."""

import math

import numba
import numpy as np
from scipy.interpolate import CubicSpline
from scipy.linalg import toeplitz

from geoaccel_ros.control import vector_math
from geoaccel_ros.control.compiling import device_function
from geoaccel_ros.control.philox import philox, two_normals
from geoaccel_ros.threads import Threads

_two_normals = device_function(two_normals.py_func, vector_math.as_math())
_KEY_BITS = 32
_KEY_MASK = (1 << _KEY_BITS) - 1
_ZERO = np.uint32(0)
# Least part of a thread: waking one takes as long as a hundred thousand products.
_COUNTERS = 16384
_PRODUCTS = 262144
_BLOCK = 64


class Sampler:
    """Gaussian noise: at every instant a weighted sum of normal numbers drawn for the horizon.

    White noise cancels over the horizon: its rollouts all end near the plan's, and their average
    jitters. Noise that lasts explores further with as many samples (Vlahov et al. 2024, "Low
    frequency sampling in model predictive path integral control").

    Parameters
    ----------
    samples : int
        K.
    basis : np.ndarray
        (T, J) float64: the weights at each instant of the J numbers drawn, their squares' sum one;
        by :func:`knot_basis`, :func:`coloured_basis`, or the identity, which makes white noise.
    sigma : sequence of float
        Standard deviation of each of the U controls; 0 freezes that control.
    seed : int
        The same seed gives the same noise, bit for bit, with any number of threads.
    antithetic : bool
        Draw half of the samples; the other half, in the same order, is their negative. With an odd
        K the last one drawn has no partner.
    threads : Threads, optional
        What draws; the caller alone if not given.
    """

    def __init__(
        self,
        samples: int,
        basis: np.ndarray,
        sigma: tuple[float, ...],
        seed: int,
        antithetic: bool = False,
        threads: Threads | None = None,
    ):
        horizon, numbers = basis.shape
        drawn = (samples + 1) // 2 if antithetic else samples
        self._basis = basis.astype(np.float32)
        used = self._basis != 0.0
        self._begins = used.argmax(axis=1)
        self._ends = numbers - used[:, ::-1].argmax(axis=1)
        products = len(sigma) * int(np.sum(self._ends - self._begins))
        self._part = -(-_PRODUCTS // (products * _BLOCK)) * _BLOCK
        self._sigma = np.tile(np.asarray(sigma, np.float32), (horizon, 1))
        # Four of each counter, a quarter of the numbers apart; the last of them may be too many.
        self._counters = -(-numbers * len(sigma) * drawn // 4)
        self._flat = np.empty(4 * self._counters, np.float32)
        self._normals = self._flat[: numbers * len(sigma) * drawn].reshape(
            numbers, len(sigma), drawn
        )
        self._key = np.uint32(seed & _KEY_MASK), np.uint32(seed >> _KEY_BITS & _KEY_MASK)
        self._threads = threads or Threads(1)
        self.noise = np.zeros((horizon, len(sigma), samples), np.float32)
        self.reset()

    def reset(self) -> None:
        """Begin again with the seed."""
        self._draws = 0

    def sample(self, sigma: np.ndarray | None = None) -> np.ndarray:
        """Return new noise (T, U, K) float32: by time, so that neighbouring samples lie together.

        The array is the sampler's own and is overwritten by the next call. ``sigma`` (T, U) is each
        instant's standard deviation, the sampler's own everywhere if not given.
        """
        sigma = self._sigma if sigma is None else np.ascontiguousarray(sigma, np.float32)
        draws = np.uint32(self._draws & _KEY_MASK)
        self._draws += 1
        self._threads.split(_draw, self._counters, self._flat, draws, *self._key, block=_COUNTERS)
        self._threads.split(
            _mix,
            self._normals.shape[2],
            self._normals,
            self._basis,
            self._begins,
            self._ends,
            sigma,
            self.noise,
            block=self._part,
        )
        return self.noise


def knot_basis(horizon: int, knots: int, order: int) -> np.ndarray:
    """Return the basis (T, J) of noise drawn at knots and interpolated between them.

    Howell et al. 2022, "Predictive sampling", perturb splines likewise. The variance is the same at
    and between knots.

    Parameters
    ----------
    horizon, knots : int
        T, and how many knots span it; as many as T, or more, give white noise.
    order : int
        0: a knot's value holds for its share of the horizon; 1: knots at both ends and evenly
        between, mixed in pairs; 3: the natural cubic spline through these knots.
    """
    knots = min(knots, horizon)
    steps = np.arange(horizon)
    if order == 0:
        return np.eye(knots)[steps * knots // horizon]
    position = np.linspace(0.0, knots - 1.0, horizon)
    if order == 1:
        left = np.minimum(position.astype(np.int64), knots - 2)
        angle = 0.5 * math.pi * (position - left)
        # Weights on a circle keep the variance; straight lines would halve it between knots.
        basis = np.zeros((horizon, knots))
        basis[steps, left], basis[steps, left + 1] = np.cos(angle), np.sin(angle)
        return basis
    spline = CubicSpline(np.arange(knots), np.eye(knots), bc_type="natural")(position)
    return spline / np.linalg.norm(spline, axis=1, keepdims=True)


def coloured_basis(horizon: int, exponent: float) -> np.ndarray:
    """Return the basis (T, T) of noise whose power falls with the frequency as 1 / f^exponent.

    Timmer & König 1995, "On generating power law noise"; Pinneri et al. 2020, "Sample-efficient
    cross-entropy method for real-time planning", use it for control. It is cut out of noise that
    repeats after two horizons: repeating after one, its end would have to return to its beginning.
    What changes more slowly than that has the power of the slowest wave.
    """
    frequency = np.fft.rfftfreq(2 * horizon)
    frequency[0] = frequency[1]
    covariance = np.fft.irfft(frequency**-exponent, 2 * horizon)[:horizon]
    return np.linalg.cholesky(toeplitz(covariance / covariance[0]))


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz"})
def _draw(first, last, numbers, draws, key0, key1):
    """Write the normal numbers of counters ``first`` to ``last``, as the GPU's kernel does."""
    quarter = numbers.size // 4
    # Slices: an index that could be negative, as far as the compiler knows, costs eight times this.
    as_ = numbers[first:last]
    bs = numbers[quarter + first : quarter + last]
    cs = numbers[2 * quarter + first : 2 * quarter + last]
    ds = numbers[3 * quarter + first : 3 * quarter + last]
    for i in range(len(as_)):
        a, b, c, d = philox(np.uint32(first + i), draws, _ZERO, _ZERO, key0, key1)
        as_[i], bs[i] = _two_normals(a, b)
        cs[i], ds[i] = _two_normals(c, d)


@numba.njit(cache=True, nogil=True)
def _mix(first, last, normals, basis, begins, ends, sigma, noise):
    """Write the noise of the drawn samples ``first`` to ``last``, and of their negatives."""
    drawn, samples = normals.shape[2], noise.shape[2]
    mirrored = min(last, samples - drawn) - first
    for t in range(noise.shape[0]):
        for u in range(noise.shape[1]):
            row = noise[t, u, first:last]
            # Two at a time: half as many passes over the row.
            for j in range(begins[t], ends[t], 2):
                a = basis[t, j] * sigma[t, u]
                one = normals[j, u, first:last]
                if j + 1 < ends[t]:
                    b = basis[t, j + 1] * sigma[t, u]
                    other = normals[j + 1, u, first:last]
                    if j == begins[t]:
                        for k in range(len(row)):
                            row[k] = a * one[k] + b * other[k]
                    else:
                        for k in range(len(row)):
                            row[k] += a * one[k] + b * other[k]
                elif j == begins[t]:
                    for k in range(len(row)):
                        row[k] = a * one[k]
                else:
                    for k in range(len(row)):
                        row[k] += a * one[k]
            if mirrored > 0:
                negatives = noise[t, u, first + drawn : first + drawn + mirrored]
                for k in range(mirrored):
                    negatives[k] = -row[k]

"""Clouds as float32 around a float64 origin: a UTM easting has steps of 0.03 m in float32."""

from typing import NamedTuple

import numpy as np
from numba import njit

from geoaccel_ros.threads import Threads

# Points whose middle and spread stand for those of all.
_SAMPLE = 4096
# Distances count as at most this many medians: a stray point a kilometre off tells nothing of a
# cloud's size.
_FAR = 4.0
# Coordinates beyond this, in metres, are as meaningless as infinity: their squares leave float32.
_LARGEST = 1e15


class Frame(NamedTuple):
    """Where a cloud lies, from a sample of its points.

    Attributes
    ----------
    origin : ndarray (3,) of float64, metres
        Their medians by axis; zeros without points.
    radius : float, metres
        Their root mean square distance from it, each distance counted as at most four medians.
    """

    origin: np.ndarray
    radius: float


def frame_of(points: np.ndarray) -> Frame:
    """Return the frame of points (N, 3), finite, in metres."""
    if not len(points):
        return Frame(np.zeros(3), 0.0)
    # An odd number of points apart: with an even one a sensor's rings would repeat.
    step = len(points) // _SAMPLE | 1
    sample = np.asarray(plain(points)[::step], np.float64)
    origin = np.median(sample, axis=0)
    distances = np.linalg.norm(sample - origin, axis=1)
    counted = np.minimum(distances, _FAR * np.median(distances))
    return Frame(origin, float(np.sqrt(np.mean(counted**2))))


def to_local(
    points: np.ndarray, origin: np.ndarray, threads: Threads, out: np.ndarray | None = None
) -> np.ndarray:
    """Return points (N, 3) relative to an origin (3,), as (3, N) of float32, ``out`` if given."""
    local = np.empty((3, len(points)), np.float32) if out is None else out
    threads.split(_shift, len(points), plain(points), origin, local)
    return local


def usable(points: np.ndarray, name: str) -> np.ndarray:
    """Return the points (M, 3) that are finite, below 1e15 m, and no missing returns.

    Drivers write (0, 0, 0) for no return: where more than one point is exactly that, all are left
    out.

    Raises
    ------
    ValueError
        If these are no points; the message calls them ``name``.
    """
    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"{name} has shape {points.shape}, must be (N, 3)")
    if points.dtype.kind not in "fiu":
        raise ValueError(f"{name} is of {points.dtype}, must be numbers")
    infinite, zeros = _count(plain(points).reshape(-1))
    # Two points at zero have six coordinates that are.
    if not infinite and zeros < 6:
        return points
    kept = (np.abs(points) < _LARGEST).all(axis=1)
    somewhere = (points != 0).any(axis=1)
    if len(points) - np.count_nonzero(somewhere) > 1:
        kept &= somewhere
    return points[kept]


def plain(points: np.ndarray) -> np.ndarray:
    """Return points in one of the two layouts that compiled functions take, read-only."""
    if points.dtype not in (np.float32, np.float64) or not points.flags.c_contiguous:
        points = np.ascontiguousarray(points, np.float64)
    points = points.view()
    points.flags.writeable = False
    return points


@njit(nogil=True, cache=True)
def _count(values):
    """Return how many values are not finite or too large, and how many are zero."""
    infinite = zeros = 0
    for i in range(len(values)):
        # False for NaN.
        infinite += not abs(values[i]) < _LARGEST
        zeros += values[i] == 0.0
    return infinite, zeros


@njit(nogil=True, cache=True)
def _shift(first, last, points, origin, local):
    x, y, z = origin[0], origin[1], origin[2]
    for i in range(first, last):
        local[0, i] = points[i, 0] - x
        local[1, i] = points[i, 1] - y
        local[2, i] = points[i, 2] - z

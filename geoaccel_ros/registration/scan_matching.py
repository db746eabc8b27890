"""The normal equations of one scan against the local map, for a pose that moves during the scan."""

from dataclasses import dataclass

import numpy as np
from numba import njit

from geoaccel_ros.registration.deskew import move_along
from geoaccel_ros.registration.local_map import LINE, NONE, PLANE, POINT, LocalMap
from geoaccel_ros.threads import Threads

# Weights of matches to lines and to things without a plane, against 1 of one with. The means of
# these lie where the sensor's rings happened to fall, and they fall there again from wherever it
# looks; where planes leave a pose open, trees and poles still hold it.
_LINE_WEIGHT, _POINT_WEIGHT = 0.1, 0.01
# A ray that runs along a line tells nothing across it.
_LEAST_SINE = 0.1
# Points that are worth a thread's start.
_SHARE = 8192

# Places in a row of sums: the upper triangle of the pose's Hessian, the same with each point's age
# as a factor, and with its square; two gradients, without age and with; counts and squares; and the
# Hessian without the robust kernel.
_HESSIAN, _AGED, _TWICE_AGED = 0, 21, 42
_GRADIENT, _AGED_GRADIENT = 63, 69
_INLIERS, _OUTLIERS, _SQUARES = 75, 76, 77
_GEOMETRY = 78
LENGTH = 99
# Where each element of a symmetric (6, 6) matrix lies in its upper triangle, row by row, and each
# of the equations' matrices among the sums.
_PLACES = np.zeros((6, 6), np.int64)
_PLACES[np.triu_indices(6)] = _PLACES.T[np.triu_indices(6)] = np.arange(21)
_HESSIAN_PLACES = np.block(
    [[_PLACES + _HESSIAN, _PLACES + _AGED], [_PLACES + _AGED, _PLACES + _TWICE_AGED]]
)
_GEOMETRY_PLACES = _PLACES + _GEOMETRY


@dataclass(frozen=True)
class NormalEquations:
    """One linearisation: the step to take solves ``hessian @ step = -gradient``.

    Attributes
    ----------
    hessian : ndarray (12, 12)
    gradient : ndarray (12,)
        Both for a step [translation, rotation, velocity, angular velocity] of the pose and of its
        twist in the map's axes, the rotation about the pose's own origin
        (:func:`geoaccel_ros.registration.se3.perturbed`).
    geometry : ndarray (6, 6)
        The pose's Hessian as if every residual were small: what the scene fixes, also where the
        pose is still so far off that the kernel leaves out what would fix it.
    inliers : int
        Points on a plane: their distance lies within the tolerance.
    overlap : float
        Share of the inliers among the points that are matched to a plane or not matched at all.
    rmse : float
        Root mean square of the inliers' distances, metres.
    deviation : float
        Robust standard deviation of all matches' residuals, metres.
    """

    hessian: np.ndarray
    gradient: np.ndarray
    geometry: np.ndarray
    inliers: int
    overlap: float
    rmse: float
    deviation: float


class ScanMatcher:
    """One scan's matches in a local map, and the normal equations that they give.

    To a planar voxel the residual is the distance along its normal. A line that lies is mostly a
    ring of the sensor's on a surface seen at a grazing angle, or else neighbouring rings would have
    shown it: across the line and the ray the distance counts, along the ray the ring goes where the
    sensor goes. To other voxels the residual is the vector to the mean, without what it has along
    what is long, with a small weight. All go through the Geman-McClure kernel, whose width is
    three standard deviations; these the residuals themselves tell (median absolute deviation).

    Parameters
    ----------
    local_map : LocalMap
    points : ndarray (N, 3) of float64, metres
        Each in the base's frame at its own time.
    ages : ndarray (N,) of float64, seconds
        Each point's time relative to that of the pose: a change of the twist moves the point by
        the change times this.
    tolerance : float
        Farthest distance from a plane of a point that counts as lying on it, metres.
    least_deviation : float
        Lower bound of the standard deviation, metres.
    threads : Threads
    """

    def __init__(
        self,
        local_map: LocalMap,
        points: np.ndarray,
        ages: np.ndarray,
        tolerance: float,
        least_deviation: float,
        threads: Threads,
    ):
        self._map = local_map
        self._points, self._ages = points, ages
        self._tolerance, self._least_deviation = tolerance, least_deviation
        self._threads = threads
        self._moved = np.empty_like(points)
        self._matches = np.full(len(points), -1, np.int64)
        self._distances = np.empty(len(points))
        self._sums = np.empty((threads.count, LENGTH))

    def linearise(
        self, T_odom_base: np.ndarray, twist: np.ndarray, radius: float | None, bent: bool = True
    ) -> NormalEquations:
        """Linearise the distances of the scan to the map's voxels about a motion.

        Parameters
        ----------
        T_odom_base : ndarray (4, 4)
        twist : ndarray (6,), m/s and rad/s
            Of the base, in the base frame.
        radius : float or None
            Match anew, each point to the nearest mean within this distance (metres); None: the
            matches of the last call serve.
        bent : bool
            Whether the twist shows in the scan's shape; if not it has no part in the residuals.
        """
        # In coordinates of the map, which are small.
        T_map_base = T_odom_base.copy()
        T_map_base[:3, 3] -= self._map.origin
        motion = self._points, self._ages, np.asarray(twist, np.float64), T_map_base
        self._threads.split(move_along, len(self._points), *motion, self._moved, block=_SHARE)
        if radius is not None:
            self._map.nearest(self._moved, radius, self._matches)
        self._threads.split(
            _measure,
            len(self._points),
            self._map.means,
            self._map.normals,
            self._map.kinds,
            self._moved,
            self._matches,
            self._distances,
            block=_SHARE,
        )
        deviation = self._deviation()
        self._sums[:] = 0.0
        parts = max(1, min(self._threads.count, len(self._points) // _SHARE))
        ends = [len(self._points) * part // parts for part in range(parts + 1)]
        shared = (
            self._moved,
            self._ages,
            bent,
            T_map_base[:3, 3].copy(),
            self._matches,
            self._map.means,
            self._map.normals,
            self._map.kinds,
            3.0 * deviation,
            self._tolerance,
        )
        self._threads.run(
            [
                (_accumulate, ends[part], ends[part + 1], *shared, self._sums[part])
                for part in range(parts)
            ]
        )
        return equations_of(self._sums.sum(axis=0), deviation)

    def _deviation(self) -> float:
        """Return the standard deviation of the distances to planes, or without any to means."""
        distances = self._distances[self._distances >= 0.0]
        if not len(distances):
            distances = -self._distances[self._distances < 0.0]
        if not len(distances):
            return self._least_deviation
        # From the median of absolute deviations to the deviation of a normal distribution.
        return max(1.4826 * float(np.median(distances)), self._least_deviation)


def equations_of(sums: np.ndarray, deviation: float) -> NormalEquations:
    """Return what a row of sums (LENGTH,) and the residuals' deviation in metres say."""
    inliers, outliers = int(sums[_INLIERS]), int(sums[_OUTLIERS])
    return NormalEquations(
        sums[_HESSIAN_PLACES],
        sums[_GRADIENT : _GRADIENT + 12].copy(),
        sums[_GEOMETRY_PLACES],
        inliers,
        inliers / max(inliers + outliers, 1),
        float(np.sqrt(sums[_SQUARES] / inliers)) if inliers else np.nan,
        deviation,
    )


@njit(nogil=True, cache=True)
def _measure(first, last, means, normals, kinds, moved, matches, distances):
    """Write the distances to planes, those to means as negative numbers, NaN for all others."""
    for i in range(first, last):
        j = matches[i]
        if j < 0 or kinds[j] == NONE or kinds[j] == LINE:
            distances[i] = np.nan
            continue
        x, y, z = moved[i, 0] - means[j, 0], moved[i, 1] - means[j, 1], moved[i, 2] - means[j, 2]
        if kinds[j] == PLANE:
            distances[i] = abs(normals[j, 0] * x + normals[j, 1] * y + normals[j, 2] * z)
        else:
            distances[i] = -np.sqrt(x * x + y * y + z * z)


@njit(nogil=True, cache=True)
def _accumulate(
    first,
    last,
    moved,
    ages,
    bent,
    position,
    matches,
    means,
    normals,
    kinds,
    width,
    tolerance,
    sums,
):
    products, pull = np.empty(21), np.empty(6)
    for i in range(first, last):
        j = matches[i]
        if j < 0:
            sums[_OUTLIERS] += 1.0
            continue
        if kinds[j] == NONE:
            continue
        x, y, z = moved[i, 0] - means[j, 0], moved[i, 1] - means[j, 1], moved[i, 2] - means[j, 2]
        lx, ly, lz = moved[i, 0] - position[0], moved[i, 1] - position[1], moved[i, 2] - position[2]
        nx, ny, nz = normals[j, 0], normals[j, 1], normals[j, 2]
        kernel = 1.0
        if kinds[j] == POINT:
            _across(nx, ny, nz, lx, ly, lz, x, y, z, _POINT_WEIGHT, products, pull)
        else:
            weight = 1.0
            if kinds[j] == LINE:
                nx, ny, nz = ny * lz - nz * ly, nz * lx - nx * lz, nx * ly - ny * lx
                length = np.sqrt(nx * nx + ny * ny + nz * nz)
                if length <= _LEAST_SINE * np.sqrt(lx * lx + ly * ly + lz * lz):
                    continue
                nx, ny, nz = nx / length, ny / length, nz / length
                weight = _LINE_WEIGHT
            error = nx * x + ny * y + nz * z
            square = error * error
            if kinds[j] == PLANE:
                if square <= tolerance * tolerance:
                    sums[_INLIERS] += 1.0
                    sums[_SQUARES] += square
                else:
                    sums[_OUTLIERS] += 1.0
            kernel = (width * width / (width * width + square)) ** 2
            _along(nx, ny, nz, lx, ly, lz, error, weight, products, pull)
        _add(products, pull, kernel, ages[i] if bent else 0.0, sums)


@njit(nogil=True, cache=True, inline="always")
def _along(nx, ny, nz, lx, ly, lz, error, weight, products, pull):
    """Write what one distance along a unit vector adds: Hessian's upper triangle and gradient.

    By the pose it changes as its row [n, l x n] says, with the lever l from the pose to the point.
    """
    ax, ay, az = ly * nz - lz * ny, lz * nx - lx * nz, lx * ny - ly * nx
    wx, wy, wz = weight * nx, weight * ny, weight * nz
    vx, vy, vz = weight * ax, weight * ay, weight * az
    products[0], products[1], products[2] = wx * nx, wx * ny, wx * nz
    products[3], products[4], products[5] = wx * ax, wx * ay, wx * az
    products[6], products[7] = wy * ny, wy * nz
    products[8], products[9], products[10] = wy * ax, wy * ay, wy * az
    products[11] = wz * nz
    products[12], products[13], products[14] = wz * ax, wz * ay, wz * az
    products[15], products[16], products[17] = vx * ax, vx * ay, vx * az
    products[18], products[19], products[20] = vy * ay, vy * az, vz * az
    pull[0], pull[1], pull[2] = wx * error, wy * error, wz * error
    pull[3], pull[4], pull[5] = vx * error, vy * error, vz * error


@njit(nogil=True, cache=True, inline="always")
def _across(dx, dy, dz, lx, ly, lz, x, y, z, weight, products, pull):
    """Write what a vector adds, without its part along d (a unit vector, or zero for all of it).

    Three rows at once: with M = w (I - d d') and L = [l]x they sum to [M, M L'; L M, L M L'].
    """
    xx, xy, xz = weight * (1.0 - dx * dx), -weight * dx * dy, -weight * dx * dz
    yy, yz, zz = weight * (1.0 - dy * dy), -weight * dy * dz, weight * (1.0 - dz * dz)
    # The rows of L M.
    ax, ay, az = ly * xz - lz * xy, ly * yz - lz * yy, ly * zz - lz * yz
    bx, by, bz = lz * xx - lx * xz, lz * xy - lx * yz, lz * xz - lx * zz
    cx, cy, cz = lx * xy - ly * xx, lx * yy - ly * xy, lx * yz - ly * xz
    products[0], products[1], products[2] = xx, xy, xz
    products[3], products[4], products[5] = ax, bx, cx
    products[6], products[7] = yy, yz
    products[8], products[9], products[10] = ay, by, cy
    products[11] = zz
    products[12], products[13], products[14] = az, bz, cz
    products[15] = ly * az - lz * ay
    products[16] = lz * ax - lx * az
    products[17] = lx * ay - ly * ax
    products[18] = lz * bx - lx * bz
    products[19] = lx * by - ly * bx
    products[20] = lx * cy - ly * cx
    px, py, pz = xx * x + xy * y + xz * z, xy * x + yy * y + yz * z, xz * x + yz * y + zz * z
    pull[0], pull[1], pull[2] = px, py, pz
    pull[3], pull[4], pull[5] = ly * pz - lz * py, lz * px - lx * pz, lx * py - ly * px


@njit(nogil=True, cache=True, inline="always")
def _add(products, pull, kernel, age, sums):
    """Add one match; by the twist its residual changes ``age`` times as much as by the pose."""
    for k in range(21):
        sums[_GEOMETRY + k] += products[k]
        sums[_HESSIAN + k] += kernel * products[k]
    for k in range(6):
        sums[_GRADIENT + k] += kernel * pull[k]
    # Scans without times have no second half.
    if age != 0.0:
        for k in range(21):
            sums[_AGED + k] += age * kernel * products[k]
            sums[_TWICE_AGED + k] += age * age * kernel * products[k]
        for k in range(6):
            sums[_AGED_GRADIENT + k] += age * kernel * pull[k]

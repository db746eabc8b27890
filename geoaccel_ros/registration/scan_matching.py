"""The normal equations of one scan against the local map, for a pose that moves during the scan."""

from dataclasses import dataclass

import numpy as np
from numba import njit

# Weight of a match to a voxel without a plane against one with. Its mean lies where the sensor's
# rings happened to fall, and they fall there again from wherever it looks: at 0.05 the pose sticks
# to the rings in a corridor (3.8 m in 15 m lost), here 0.04 m; trees and poles alone still hold it.
_POINT_WEIGHT = 0.01


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
    inliers: int
    overlap: float
    rmse: float
    deviation: float


def linearise(
    moved: np.ndarray,
    ages: np.ndarray,
    position: np.ndarray,
    matches: np.ndarray,
    means: np.ndarray,
    normals: np.ndarray,
    planar: np.ndarray,
    tolerance: float,
    least_deviation: float,
) -> NormalEquations:
    """Linearise the distances of a scan to the map's voxels about the present pose.

    To a planar voxel the residual is the distance along its normal, to another the vector to its
    mean, with a small weight. Both go through the Geman-McClure kernel, whose width is three
    standard deviations; these the residuals themselves tell (median absolute deviation).

    Parameters
    ----------
    moved : ndarray (N, 3), metres
        The scan's points in the map's frame, each moved by the pose at its own time.
    ages : ndarray (N,), seconds
        Each point's time relative to that of the pose: a change of the twist moves the point by
        the change times this.
    position : ndarray (3,), metres
        The pose's translation, in the map's frame.
    matches : ndarray (N,) of int64
        Index of each point's voxel, -1 for none.
    means, normals : ndarray (M, 3); planar : ndarray (M,) of bool
        The map's voxels.
    tolerance : float
        Farthest distance from a plane of a point that counts as lying on it, metres.
    least_deviation : float
        Lower bound of the standard deviation, metres.
    """
    distances = np.empty(len(moved))
    count = _distances(moved, matches, means, normals, planar, distances)
    if not count:
        return NormalEquations(np.zeros((12, 12)), np.zeros(12), 0, 0.0, np.nan, least_deviation)
    # 1.4826: from the median of absolute deviations to the deviation of a normal distribution.
    deviation = max(1.4826 * float(np.median(distances[:count])), least_deviation)
    hessian, gradient = np.zeros((12, 12)), np.zeros(12)
    inliers, outliers, squares = _accumulate(
        moved,
        ages,
        position,
        matches,
        means,
        normals,
        planar,
        3.0 * deviation,
        tolerance,
        hessian,
        gradient,
    )
    overlap = inliers / max(inliers + outliers, 1)
    rmse = float(np.sqrt(squares / inliers)) if inliers else np.nan
    return NormalEquations(hessian, gradient, inliers, overlap, rmse, deviation)


@njit(cache=True, inline="always")
def _along(normal, x, y, z):
    return normal[0] * x + normal[1] * y + normal[2] * z


@njit(cache=True)
def _distances(moved, matches, means, normals, planar, distances):
    """Write the distances to planes, or where there is not one plane, to means; return how many."""
    for wanted in (True, False):
        count = 0
        for i in range(len(moved)):
            j = matches[i]
            if j < 0 or planar[j] != wanted:
                continue
            x = moved[i, 0] - means[j, 0]
            y = moved[i, 1] - means[j, 1]
            z = moved[i, 2] - means[j, 2]
            if wanted:
                distances[count] = abs(_along(normals[j], x, y, z))
            else:
                distances[count] = np.sqrt(x * x + y * y + z * z)
            count += 1
        if count:
            return count
    return 0


@njit(cache=True)
def _accumulate(
    moved, ages, position, matches, means, normals, planar, width, tolerance, hessian, gradient
):
    inliers, outliers, squares = 0, 0, 0.0
    row = np.empty(12)
    axis = np.empty(3)
    for i in range(len(moved)):
        j = matches[i]
        if j < 0:
            outliers += 1
            continue
        x, y, z = moved[i, 0] - means[j, 0], moved[i, 1] - means[j, 1], moved[i, 2] - means[j, 2]
        lx, ly, lz = moved[i, 0] - position[0], moved[i, 1] - position[1], moved[i, 2] - position[2]
        weight = _POINT_WEIGHT
        rows = 3
        if planar[j]:
            rows = 1
            square = _along(normals[j], x, y, z) ** 2
            weight = (width * width / (width * width + square)) ** 2
            if square <= tolerance * tolerance:
                inliers += 1
                squares += square
            else:
                outliers += 1
        for r in range(rows):
            if planar[j]:
                axis[:] = normals[j]
            else:
                axis[:] = 0.0
                axis[r] = 1.0
            error = _along(axis, x, y, z)
            row[0], row[1], row[2] = axis[0], axis[1], axis[2]
            row[3] = ly * axis[2] - lz * axis[1]
            row[4] = lz * axis[0] - lx * axis[2]
            row[5] = lx * axis[1] - ly * axis[0]
            for a in range(6):
                row[6 + a] = ages[i] * row[a]
            # Scans without times have no second half.
            columns = 12 if ages[i] != 0.0 else 6
            for a in range(columns):
                gradient[a] += weight * row[a] * error
                for b in range(a, columns):
                    hessian[a, b] += weight * row[a] * row[b]
    for a in range(12):
        for b in range(a):
            hessian[a, b] = hessian[b, a]
    return inliers, outliers, squares

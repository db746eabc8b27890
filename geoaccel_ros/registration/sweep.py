"""One revolution of a lidar, thinned twice: for the local map, and once more for matching."""

from dataclasses import dataclass

import numpy as np

from geoaccel_ros.registration.deskew import deskew
from geoaccel_ros.registration.kdtree.tree import KdTree
from geoaccel_ros.registration.preprocess import range_filter, voxel_filter
from geoaccel_ros.threads import Threads

# A sweep is thinned to this part of the map's voxel for the map …
MAP_POINTS_VOXEL = 0.4
# … and to this multiple of it for matching.
MATCHED_POINTS_VOXEL = 1.25
# The map's voxel, unless given, as a part of the first scan's root mean square range, and its
# bounds in metres: 0.8 m on a street, 0.3 m in a yard of 24 m. Half as much costs twice the time
# and gains nothing; twice as much doubles the error.
_VOXEL_PER_RANGE = 0.04
_VOXELS = (0.02, 0.8)
# Points that a normal needs, and how many of a scan's are asked for their neighbours.
_NEIGHBOURS = 6
_ASKED = 2000


@dataclass(frozen=True)
class Sweep:
    """The points of a sweep that odometry uses; all times are relative to the header's stamp.

    Attributes
    ----------
    points : ndarray (N, 3) of float64, metres
        For the map, each in the base's frame at its own time.
    ages : ndarray (N,) of float64, seconds
        Each point's time relative to the ``middle``; zero where times are missing or not used.
    matched : ndarray (M,) of int64
        Which of them are matched.
    middle, end : float, seconds
        Mean and largest time of the points.
    reach : float, metres
        Root mean square range of the matched points: a rotation by an angle moves them about as far
        as a translation by ``reach`` times the angle.
    """

    points: np.ndarray
    ages: np.ndarray
    matched: np.ndarray
    middle: float
    end: float
    reach: float

    def __len__(self) -> int:
        return len(self.points)

    def matched_at_end(self, twist: np.ndarray) -> np.ndarray:
        """Return the matched points (M, 3) in the base's frame as it is at the end of the sweep."""
        return deskew(
            self.points[self.matched], self.ages[self.matched], twist, self.end - self.middle
        )


def thin(
    xyz: np.ndarray, times: np.ndarray | None, voxel: float, min_range: float, max_range: float
) -> Sweep:
    """Thin a sweep by the edge of the local map's voxels.

    Parameters
    ----------
    xyz : ndarray (N, 3) of float32 or float64, metres
        NaN, infinite and out of range points among them are left out.
    times : ndarray (N,) of float64, seconds, or None
        Relative to the header's stamp. Taken as None where the time of a point in use is not
        finite.
    voxel, min_range, max_range : float, metres
    """
    kept = voxel_filter(xyz, MAP_POINTS_VOXEL * voxel, min_range, max_range)
    points = np.ascontiguousarray(xyz[kept], np.float64)
    offsets = np.zeros(len(points))
    if times is not None:
        offsets = np.asarray(times, np.float64)[kept]
        if not np.all(np.isfinite(offsets)):
            offsets = np.zeros(len(points))
    matched = voxel_filter(points, MATCHED_POINTS_VOXEL * voxel)
    if not len(points):
        return Sweep(points, offsets, matched, 0.0, 0.0, 0.0)
    middle, end = float(np.mean(offsets)), float(np.max(offsets))
    reach = float(np.sqrt(np.mean(np.sum(points[matched] ** 2, axis=1))))
    return Sweep(points, offsets - middle, matched, middle, end, reach)


def suitable_voxel(xyz: np.ndarray, min_range: float, max_range: float, threads: Threads) -> float:
    """Return the edge of the local map's voxels that suits what a scan sees, metres.

    Rooms have finer structure than roads: 4 % of the root mean square range. Where points lie wide
    apart, as much as it takes to find in a voxel and its neighbours those that a normal needs.
    """
    points = np.asarray(xyz, np.float64)[range_filter(xyz, min_range, max_range)]
    if len(points) <= _NEIGHBOURS:
        return _VOXELS[1]
    reach = float(np.sqrt(np.mean(np.sum(points**2, axis=1))))
    asked = points[:: max(1, len(points) // _ASKED)]
    _, distances = KdTree(points, threads=threads).neighbours(asked, _NEIGHBOURS + 1)
    # A voxel and its neighbours reach one and a half edges from its middle.
    spacing = float(np.median(distances[:, -1])) / 1.5
    return float(np.clip(max(_VOXEL_PER_RANGE * reach, spacing), *_VOXELS))

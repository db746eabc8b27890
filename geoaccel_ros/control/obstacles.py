"""Obstacles remembered from clouds, on a grid that stands still in the odom frame."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.config import Configuration, parameter
from geoaccel_ros.control.distance_field import DistanceField, distances_to


@dataclass(frozen=True)
class ObstacleConfig(Configuration):
    """How obstacles are remembered."""

    obstacle_resolution: float = parameter(
        0.1, "Side of a cell of the obstacle grid.", unit="m", minimum=0.01, maximum=1.0
    )
    obstacle_window: float = parameter(
        14.0, "Side of the square around the robot in which obstacles count.", unit="m", minimum=1.0
    )
    obstacle_memory: float = parameter(
        5.0, "Obstacles are forgotten when not seen for this long.", unit="s", minimum=0.0
    )
    obstacle_sightings: int = parameter(
        2, "A cell is occupied when so many of the remembered clouds have a point in it.", minimum=1
    )


class ObstacleMap:
    """Cells that recent clouds had points in.

    Cells have integer indices from the origin of the odom frame, so that an obstacle stays in its
    cell while the window moves. Not thread-safe.
    """

    def __init__(self, config: ObstacleConfig):
        self._resolution = config.obstacle_resolution
        self._memory = config.obstacle_memory
        self._sightings = config.obstacle_sightings
        self._size = max(2, round(config.obstacle_window / config.obstacle_resolution))
        self._clouds: deque[tuple[float, np.ndarray]] = deque()

    def add(self, points_xy: np.ndarray, stamp: float) -> None:
        """Remember a cloud's obstacle points.

        Parameters
        ----------
        points_xy : np.ndarray
            (N, 2) float, m, in the odom frame, without ground; points with NaN are ignored.
        stamp : float
            When they were seen, s. A stamp before the last one (time was reset) forgets all else.
        """
        if self._clouds and stamp < self._clouds[-1][0]:
            self._clouds.clear()
        points_xy = np.asarray(points_xy, np.float64).reshape(-1, 2)
        points_xy = points_xy[np.isfinite(points_xy).all(axis=1)]
        cells = np.floor(points_xy / self._resolution).astype(np.int64)
        self._clouds.append((stamp, _unique_rows(cells)))
        self._forget(stamp)

    def distance_field(self, center_xy: np.ndarray, stamp: float) -> DistanceField:
        """Return distances in the window around ``center_xy`` (2,), m, as of ``stamp``, s."""
        self._forget(stamp)
        first = np.floor(np.asarray(center_xy, float) / self._resolution).astype(np.int64)
        first -= self._size // 2
        sightings = np.zeros((self._size, self._size), np.int32)
        for _, cells in self._clouds:
            inside = cells - first
            inside = inside[((inside >= 0) & (inside < self._size)).all(axis=1)]
            sightings[inside[:, 1], inside[:, 0]] += 1
        # The first clouds of all cannot agree with as many as are asked for.
        occupied = sightings >= max(1, min(self._sightings, len(self._clouds)))
        # A point lies anywhere in its cell: the centre is the best guess.
        origin = (first + 0.5) * self._resolution
        return DistanceField(
            distances_to(occupied, self._resolution), origin, self._resolution, stamp
        )

    def _forget(self, stamp: float) -> None:
        while self._clouds and self._clouds[0][0] < stamp - self._memory:
            self._clouds.popleft()


def _unique_rows(cells: np.ndarray) -> np.ndarray:
    """Return the distinct rows of an (N, 2) int64 array, by one sort of 64-bit keys."""
    keys = np.unique((cells[:, 0] << 32) + cells[:, 1])
    column = (keys + 2**31) >> 32
    return np.column_stack((column, keys - (column << 32)))

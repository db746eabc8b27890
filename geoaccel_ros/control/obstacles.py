"""Obstacles remembered from clouds, on a grid that stands still in the odom frame."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.config import Configuration, parameter
from geoaccel_ros.control.distance_field import DistanceField, distances_to

# A map of 450 x 450 m on a grid of 0.1 m.
_MOST_CELLS = 20_000_000


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


@dataclass(frozen=True, eq=False)
class OccupiedCells:
    """Cells of the obstacle grid that are occupied whatever clouds show.

    Attributes
    ----------
    first : np.ndarray
        (2,) int64: x and y index of cell [0, 0], counted from the origin of the odom frame.
    occupied : np.ndarray
        (H, W) bool, rows along y.
    """

    first: np.ndarray
    occupied: np.ndarray


def occupied_cells(
    occupied: np.ndarray, side: float, T_odom_map: np.ndarray, resolution: float
) -> OccupiedCells:
    """Return the cells of the obstacle grid that a map's occupied cells reach into.

    Parameters
    ----------
    occupied : np.ndarray
        (H, W) bool, rows along the map's y.
    side : float
        Of one of them, m.
    T_odom_map : np.ndarray
        (4, 4) of the outer corner of cell [0, 0]; of its turn only that about z counts.
    resolution : float
        Side of a cell of the obstacle grid, m.

    Raises
    ------
    ValueError
        If so many cells of the obstacle grid are too many.
    """
    rows, columns = np.nonzero(occupied)
    # A lattice this fine has a point in every circle that a cell of the grid holds, however turned.
    count = int(np.ceil(1.5 * side / resolution))
    if len(rows) * count**2 > _MOST_CELLS:
        raise ValueError(f"{len(rows)} occupied cells of {side:g} m are too many")
    within = (np.arange(count) + 0.5) / count
    lattice = np.stack(np.meshgrid(within, within), axis=-1).reshape(-1, 2)
    corners = np.stack([columns, rows], axis=1)
    local = side * (corners[:, None] + lattice).reshape(-1, 2)
    points = local @ T_odom_map[:2, :2].T + T_odom_map[:2, 3]
    cells = np.floor(points / resolution).astype(np.int64)
    if not len(cells):
        return OccupiedCells(np.zeros(2, np.int64), np.zeros((0, 0), bool))
    first, last = cells.min(axis=0), cells.max(axis=0)
    width, height = (int(extent) for extent in last - first + 1)
    if width * height > _MOST_CELLS:
        raise ValueError(f"its occupied cells span {width} x {height} cells of {resolution:g} m")
    reached = np.zeros((height, width), bool)
    reached[cells[:, 1] - first[1], cells[:, 0] - first[0]] = True
    return OccupiedCells(first, reached)


class ObstacleMap:
    """Cells that recent clouds had points in, and those of a map.

    Cells have integer indices from the origin of the odom frame, so that an obstacle stays in its
    cell while the window moves. Not thread-safe.
    """

    def __init__(self, config: ObstacleConfig):
        self._resolution = config.obstacle_resolution
        self._memory = config.obstacle_memory
        self._sightings = config.obstacle_sightings
        self._size = max(2, round(config.obstacle_window / config.obstacle_resolution))
        self._clouds: deque[tuple[float, np.ndarray]] = deque()
        # What a map says; None without one.
        self.fixed: OccupiedCells | None = None

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
        if self.fixed is not None:
            self._enter_fixed(occupied, first)
        # A point lies anywhere in its cell: the centre is the best guess.
        origin = (first + 0.5) * self._resolution
        return DistanceField(
            distances_to(occupied, self._resolution), origin, self._resolution, stamp
        )

    def _enter_fixed(self, occupied: np.ndarray, first: np.ndarray) -> None:
        """Occupy what the map does, as far as it lies in the window that begins at ``first``."""
        shift = self.fixed.first - first
        begin = np.maximum(shift, 0)
        end = np.minimum(shift + self.fixed.occupied.shape[::-1], self._size)
        if (begin < end).all():
            (x0, y0), (x1, y1), (dx, dy) = begin, end, shift
            occupied[y0:y1, x0:x1] |= self.fixed.occupied[y0 - dy : y1 - dy, x0 - dx : x1 - dx]

    def _forget(self, stamp: float) -> None:
        while self._clouds and self._clouds[0][0] < stamp - self._memory:
            self._clouds.popleft()


def _unique_rows(cells: np.ndarray) -> np.ndarray:
    """Return the distinct rows of an (N, 2) int64 array, by one sort of 64-bit keys."""
    keys = np.unique((cells[:, 0] << 32) + cells[:, 1])
    column = (keys + 2**31) >> 32
    return np.column_stack((column, keys - (column << 32)))

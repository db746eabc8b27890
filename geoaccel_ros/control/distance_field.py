"""Distance to the nearest obstacle on a grid around the robot."""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

# Distance in m where nothing is known: outside the grid, or without any obstacle.
FAR = 100.0


@dataclass(frozen=True, eq=False)
class DistanceField:
    """Distances sampled at the centres of square cells.

    Attributes
    ----------
    distances : np.ndarray
        (H, W) float32, m; rows along y, columns along x.
    origin : np.ndarray
        (2,) float64, m: x and y of the centre of cell [0, 0].
    resolution : float
        Side of a cell, m.
    stamp : float
        When it was true, s.
    """

    distances: np.ndarray
    origin: np.ndarray
    resolution: float
    stamp: float

    def at(self, points: np.ndarray) -> np.ndarray:
        """Return the distance in m at ``points`` (N, 2), interpolated; FAR outside the grid."""
        points = np.asarray(points, float).reshape(-1, 2)
        relative = (points - self.origin) / self.resolution
        rows_columns = relative[:, ::-1].T
        return ndimage.map_coordinates(
            self.distances, rows_columns, np.float64, order=1, mode="constant", cval=FAR
        )


def empty_field() -> DistanceField:
    """Return a field without obstacles."""
    return DistanceField(np.full((2, 2), FAR, np.float32), np.zeros(2), 1.0, 0.0)


def distances_to(occupied: np.ndarray, resolution: float) -> np.ndarray:
    """Return the distance in m from each cell's centre to that of the nearest occupied one.

    Exact Euclidean distance transform (Maurer et al. 2003, as SciPy has it); ``occupied`` is a
    boolean (H, W), the result float32, FAR everywhere if no cell is occupied.
    """
    if not occupied.any():
        return np.full(occupied.shape, FAR, np.float32)
    return (ndimage.distance_transform_edt(~occupied) * resolution).astype(np.float32)


def interpolate(values, origin_x, origin_y, cells_per_metre, x, y, outside):
    """Return a grid's value at a point, interpolated between four cells; compiled into rollouts.

    Positions in m, in the frame of the origin; ``outside`` beyond the grid, and if x or y is NaN.
    """
    rows, columns = values.shape
    column = (x - origin_x) * cells_per_metre
    row = (y - origin_y) * cells_per_metre
    last_column = np.float32(columns - 1)
    last_row = np.float32(rows - 1)
    inside = column >= 0.0 and row >= 0.0 and column < last_column and row < last_row
    # Without a way around the loads, so that a GPU can have those of several grids on their way.
    j = np.int32(column) if inside else np.int32(0)
    i = np.int32(row) if inside else np.int32(0)
    right = column - np.float32(j)
    up = row - np.float32(i)
    below = values[i, j] + right * (values[i, j + 1] - values[i, j])
    above = values[i + 1, j] + right * (values[i + 1, j + 1] - values[i + 1, j])
    return below + up * (above - below) if inside else outside

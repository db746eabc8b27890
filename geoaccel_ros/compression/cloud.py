"""A cloud as the codec takes it apart: the finite points, their coordinates, and the others."""

from dataclasses import dataclass

import numpy as np

from geoaccel_ros.compression.grid import extents_of
from geoaccel_ros.threads import Threads

# In clouds of so many points it pays to take the axes apart at once.
_MANY = 2**16
_ALONE = Threads(1)


@dataclass(frozen=True)
class Cloud:
    """A cloud and its finite points: those whose x, y and z all are.

    Attributes
    ----------
    points : ndarray, shape (N,), structured
    height : int
    finite : ndarray, shape (N,), bool, or None
        None: all are.
    xyz : ndarray, shape (3, F), float32 or float64
        Coordinates of the finite points in metres, in the cloud's order.
    extents : ndarray, shape (3, 2), float64, or None
        Lowest and highest of them on each axis; None where there are none.
    """

    points: np.ndarray
    height: int
    finite: np.ndarray | None
    xyz: np.ndarray
    extents: np.ndarray | None

    @classmethod
    def of(cls, points: np.ndarray, height: int, threads: Threads = _ALONE) -> "Cloud":
        """Return the cloud of ``points`` in ``height`` rows."""
        wide = np.float64 if any(t.itemsize == 8 for t in types(points.dtype)) else np.float32
        xyz = np.empty((3, len(points)), wide)
        if not len(points):
            return cls(points, height, None, xyz, None)
        extents = np.empty((3, 2))
        columns = [points[axis] for axis in "xyz"]
        (threads if len(points) >= _MANY else _ALONE).run(
            [(_take, *each) for each in zip(columns, xyz, extents, strict=True)]
        )
        # The extremes are NaN or infinite if any coordinate is: a mask is seldom needed.
        if np.isfinite(extents).all():
            return cls(points, height, None, xyz, extents)
        finite = np.isfinite(xyz).all(axis=0)
        # Not by a mask: that would leave x, y and z of a point side by side.
        xyz = xyz.compress(finite, axis=1)
        return cls(points, height, finite, xyz, extents_of(xyz))

    @property
    def types(self) -> list[np.dtype]:
        """Types of x, y and z."""
        return types(self.points.dtype)

    def indices(self, order: np.ndarray) -> np.ndarray:
        """Return the points: the finite ones in an order of theirs, then the others."""
        if self.finite is None:
            return order.astype(np.int64)
        return np.concatenate([np.flatnonzero(self.finite)[order], np.flatnonzero(~self.finite)])


def _take(column: np.ndarray, row: np.ndarray, extents: np.ndarray) -> None:
    row[:] = column
    extents[:] = row.min(), row.max()


def types(dtype: np.dtype) -> list[np.dtype]:
    """Return the types of x, y and z."""
    return [dtype[axis] for axis in "xyz"]

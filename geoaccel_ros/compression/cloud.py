"""A cloud as the codec takes it apart: the finite points, their coordinates, and the others."""

from dataclasses import dataclass

import numpy as np


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
    """

    points: np.ndarray
    height: int
    finite: np.ndarray | None
    xyz: np.ndarray

    @classmethod
    def of(cls, points: np.ndarray, height: int) -> "Cloud":
        """Return the cloud of ``points`` in ``height`` rows."""
        wide = np.float64 if any(t.itemsize == 8 for t in types(points.dtype)) else np.float32
        xyz = np.empty((3, len(points)), wide)
        for row, axis in zip(xyz, "xyz", strict=True):
            row[:] = points[axis]
        # The extremes are NaN or infinite if any coordinate is: a mask is seldom needed.
        if all(np.isfinite([row.min(initial=0), row.max(initial=0)]).all() for row in xyz):
            return cls(points, height, None, xyz)
        finite = np.isfinite(xyz).all(axis=0)
        # Not by a mask: that would leave x, y and z of a point side by side.
        return cls(points, height, finite, xyz.compress(finite, axis=1))

    @property
    def types(self) -> list[np.dtype]:
        """Types of x, y and z."""
        return types(self.points.dtype)

    def values(self, name: str, order: np.ndarray) -> np.ndarray:
        """Return a field of the finite points, (F,) or (F, count), in an order of theirs."""
        column = self.points[name]
        return column[order] if self.finite is None else column[np.flatnonzero(self.finite)[order]]

    def indices(self, order: np.ndarray) -> np.ndarray:
        """Return the points: the finite ones in an order of theirs, then the others."""
        if self.finite is None:
            return order.astype(np.int64)
        return np.concatenate([np.flatnonzero(self.finite)[order], np.flatnonzero(~self.finite)])


def types(dtype: np.dtype) -> list[np.dtype]:
    """Return the types of x, y and z."""
    return [dtype[axis] for axis in "xyz"]

"""The picture of a trajectory: from above over what was seen, and its height along the path."""

from pathlib import Path

import numpy as np

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.truth import Comparison
from geoaccel_ros.registration import se3

# Cells are numbered from the middle, so that the three indices of one fit an integer: a million
# cells each way.
_BITS = 21
_OFFSET = 1 << (_BITS - 1)
# Cells are merged when this many have gathered.
_GATHERED = 1_000_000


class Surroundings:
    """Cells of space in which points were seen, each kept once.

    Parameters
    ----------
    cell : float, metres
    """

    def __init__(self, cell: float):
        self.cell = cell
        self._points, self._squares = 0, 0.0
        self._cells = np.empty(0, np.int64)
        self._gathered: list[np.ndarray] = []
        self._count = 0

    def add(self, T_odom_base: np.ndarray, xyz: np.ndarray) -> None:
        """Add points (N, 3), metres, seen from a pose (4, 4), in whose frame they are."""
        self._points += len(xyz)
        self._squares += float(np.sum(xyz**2))
        indices = np.floor(se3.apply(T_odom_base, xyz) / self.cell) + _OFFSET
        indices = indices[np.all((indices >= 0) & (indices < 2 * _OFFSET), axis=1)].astype(np.int64)
        keys = (indices[:, 0] << 2 * _BITS) | (indices[:, 1] << _BITS) | indices[:, 2]
        self._gathered.append(np.unique(keys))
        self._count += len(self._gathered[-1])
        if self._count > _GATHERED:
            self._merge()

    def reach(self) -> float:
        """Return the root mean square range of all points, metres."""
        return float(np.sqrt(self._squares / max(self._points, 1)))

    def columns(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return how many cells were seen above each other, in a part of the ground plan.

        Floors count one, walls and trees many.

        Parameters
        ----------
        low, high : ndarray (2,), metres
            Corners of the part, x and y.

        Returns
        -------
        ndarray (rows along y, columns along x) of int64, the first at ``low``
        """
        self._merge()
        first = np.floor(low / self.cell).astype(np.int64) + _OFFSET
        width, height = np.ceil((high - low) / self.cell).astype(np.int64)
        x = (self._cells >> 2 * _BITS) - first[0]
        y = ((self._cells >> _BITS) & (2 * _OFFSET - 1)) - first[1]
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        counts = np.bincount(y[inside] * width + x[inside], minlength=width * height)
        return counts.reshape(height, width)

    def _merge(self) -> None:
        self._cells = np.unique(np.concatenate([self._cells, *self._gathered]))
        self._gathered, self._count = [], 0


def draw_trajectory(
    file: Path, poses: np.ndarray, surroundings: Surroundings, comparison: Comparison | None
) -> None:
    """Write a picture.

    Parameters
    ----------
    file : Path
        Its suffix names the format.
    poses : ndarray (N, 4, 4)
    surroundings : Surroundings
    comparison : Comparison or None
        With the truth; the two are laid on each other at their first common pose.

    Raises
    ------
    UserError
        If the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 9.0), layout="constrained")
    top, side = figure.subplots(2, 1, height_ratios=(4, 1))
    lines = [("odometry", poses, "-", "tab:blue")]
    if comparison is not None:
        to_odom = comparison.estimate[0] @ se3.inverse(comparison.truth[0])
        lines.insert(0, ("truth", to_odom @ comparison.truth, "--", "black"))
    for label, trajectory, style, colour in lines:
        top.plot(*trajectory[:, :2, 3].T, style, color=colour, label=label)
        steps = np.linalg.norm(np.diff(trajectory[:, :3, 3], axis=0), axis=1)
        travelled = np.concatenate([[0.0], np.cumsum(steps)])
        side.plot(travelled, trajectory[:, 2, 3], style, color=colour)
    top.plot(*poses[0, :2, 3], "o", color="tab:green", label="start")
    # As far as most points are seen; the whole range would shrink the path to a dot.
    drawn = np.vstack([trajectory[:, :2, 3] for _, trajectory, _, _ in lines])
    low, high = drawn.min(axis=0), drawn.max(axis=0)
    low, high = low - surroundings.reach(), high + surroundings.reach()
    shown = [low[0], high[0], low[1], high[1]]
    seen = np.sqrt(surroundings.columns(low, high))
    top.imshow(seen, cmap="Greys", vmax=max(3.5, 1.2 * seen.max()), origin="lower", extent=shown)
    top.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
    top.legend()
    side.set(xlabel="path [m]", ylabel="z [m]")
    side.grid(alpha=0.3)
    try:
        figure.savefig(file, dpi=120)
    except OSError as error:
        raise UserError(f"cannot write '{file}': {error.strerror}") from None

"""How much further than the straight line the way around the obstacles to a goal is."""

import numba
import numpy as np

from geoaccel_ros.control.distance_field import DistanceField

# A metre through a place where the robot does not fit counts as so many. Finite, so that a robot or
# a goal in such a place (the map is noisy) still has a way that leads out.
BLOCKED = 20.0
# Where it just fits a metre counts as so many, falling to one where it has this much room to spare.
# A narrow passage is found by few samples; and one that noise narrows is not at once closed.
TIGHT = 3.0
ROOM = 0.2  # m

_CELL = 0.2  # m
_UNREACHED = 1e6
_SETTLED = 0.01  # m; sweeps that change less than this are the last ones
_MOST_ROUNDS = 30


def detour(field: DistanceField, goal: np.ndarray, clearance_limit: float) -> DistanceField:
    """Return the length of the shortest way from each place to the goal beyond the straight line.

    Sampling over a horizon of a few metres cannot see around a long wall, and the straight distance
    holds it there. Added to the straight distance, the detour makes the distance to the goal one
    without such traps; where nothing stands in the way it is zero.

    The way's length solves the eikonal equation, by fast sweeping (Zhao 2005). The world beyond the
    field is taken to be free.

    Parameters
    ----------
    field : DistanceField
    goal : np.ndarray
        (2,) float64, m, in the field's frame; inside or outside of it.
    clearance_limit : float
        The robot fits where the obstacles are further away than this, m.

    Returns
    -------
    DistanceField
        Its distances are the detours, m, at least 0, on cells of about 0.2 m.
    """
    stride = max(1, round(_CELL / field.resolution))
    # A distance changes by no more than the way between two cells, so none is missed in between.
    clearance = field.distances[::stride, ::stride]
    resolution = field.resolution * stride
    rows, columns = clearance.shape
    x = field.origin[0] + resolution * np.arange(columns) - goal[0]
    y = field.origin[1] + resolution * np.arange(rows) - goal[1]
    straight = np.hypot(x, y[:, None])
    tightness = np.clip(1.0 - (clearance - clearance_limit) / ROOM, 0.0, 1.0)
    slowness = np.where(clearance < clearance_limit, BLOCKED, 1.0 + (TIGHT - 1.0) * tightness)
    length = np.full(straight.shape, _UNREACHED)
    # Exact values to start from: around the goal, or at the border on the way to it.
    near = straight < 1.5 * resolution
    if not near.any():
        near[[0, -1], :] = True
        near[:, [0, -1]] = True
    length[near] = straight[near]
    _sweep(length, slowness * resolution)
    detours = np.maximum(length - straight, 0.0).astype(np.float32)
    return DistanceField(detours, field.origin, resolution, field.stamp)


@numba.njit(cache=True, nogil=True)
def _sweep(length, cost):
    """Relax ``length`` in the four diagonal orders until it settles."""
    rows, columns = length.shape
    for _ in range(_MOST_ROUNDS):
        change = 0.0
        for order in range(4):
            for a in range(rows):
                i = a if order & 1 == 0 else rows - 1 - a
                for b in range(columns):
                    j = b if order & 2 == 0 else columns - 1 - b
                    across = min(
                        length[i, j - 1] if j > 0 else _UNREACHED,
                        length[i, j + 1] if j < columns - 1 else _UNREACHED,
                    )
                    along = min(
                        length[i - 1, j] if i > 0 else _UNREACHED,
                        length[i + 1, j] if i < rows - 1 else _UNREACHED,
                    )
                    step = cost[i, j]
                    difference = abs(across - along)
                    if difference >= step:
                        new = min(across, along) + step
                    else:
                        new = 0.5 * (across + along + np.sqrt(2.0 * step**2 - difference**2))
                    if new < length[i, j]:
                        change = max(change, length[i, j] - new)
                        length[i, j] = new
        if change < _SETTLED:
            return

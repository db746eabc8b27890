"""What happens to a cloud before it is registered: finite and range mask, voxel filter, deskew."""

import numpy as np
from numba import njit

from geoaccel_ros.registration.voxels import EMPTY, home_slot, table_size, voxel_key


def voxel_filter(
    xyz: np.ndarray, voxel: float, min_range: float = 0.0, max_range: float = np.inf
) -> np.ndarray:
    """Return the indices of the points to keep: in range, finite, the first one of each voxel.

    Parameters
    ----------
    xyz : ndarray (N, 3) of float32 or float64, metres
        Any strides. Points with a NaN or an infinity are dropped, and so are those nearer to the
        frame's origin than ``min_range`` (drivers write (0, 0, 0) for no return) or farther than
        ``max_range``.
    voxel : float
        Edge of the cubic voxels in metres, on a grid fixed to the frame's origin.

    Returns
    -------
    ndarray (M,) of int64, increasing
    """
    table = np.full(table_size(len(xyz)), EMPTY, np.int64)
    return _voxel_filter(xyz, 1.0 / voxel, min_range**2, max_range**2, table)


def deskew(xyz: np.ndarray, times: np.ndarray, twist: np.ndarray, instant: float) -> np.ndarray:
    """Express points measured on the move in the moving frame as it is at one instant.

    With constant ``twist`` the frame's pose at time t is ``T(instant) exp((t - instant) twist)``,
    so each point is moved by ``exp((t - instant) twist)``.

    Parameters
    ----------
    xyz : ndarray (N, 3), metres
        Each point in the frame at its own time.
    times : ndarray (N,), seconds
    twist : ndarray (6,), m/s and rad/s
        Velocity of the frame in the frame itself, [v w].
    instant : float, seconds
        On the clock of ``times``.

    Returns
    -------
    ndarray (N, 3) of float64
    """
    moved = np.empty((len(xyz), 3))
    move_along(
        np.ascontiguousarray(xyz, np.float64),
        np.ascontiguousarray(times, np.float64) - instant,
        np.asarray(twist, np.float64),
        np.eye(4),
        moved,
    )
    return moved


@njit(cache=True)
def move_along(xyz, fractions, twist, transform, moved):
    """Write ``transform exp(fraction twist) p`` for each point p of xyz into ``moved``.

    The axis is the same for all points, so the products with it are taken once and a point costs
    one sine and one cosine: exp is linear in 1, sin, cos and the angle (Rodrigues).
    """
    rate = np.sqrt(twist[3] ** 2 + twist[4] ** 2 + twist[5] ** 2)
    axis = np.zeros(3)
    if rate > 1e-12:
        axis = twist[3:] / rate
    velocity = twist[:3]
    across = _cross(axis, velocity)
    along = _cross(axis, across)
    for i in range(len(xyz)):
        fraction = fractions[i]
        x, y, z = xyz[i, 0], xyz[i, 1], xyz[i, 2]
        angle = rate * fraction
        sine, versine = np.sin(angle), 1.0 - np.cos(angle)
        # axis x p and axis x (axis x p)
        px, py, pz = (
            axis[1] * z - axis[2] * y,
            axis[2] * x - axis[0] * z,
            axis[0] * y - axis[1] * x,
        )
        ppx, ppy, ppz = (
            axis[1] * pz - axis[2] * py,
            axis[2] * px - axis[0] * pz,
            axis[0] * py - axis[1] * px,
        )
        swing, lag = 0.0, 0.0
        if rate > 1e-12:
            swing, lag = versine / rate, (angle - sine) / rate
        x += sine * px + versine * ppx
        y += sine * py + versine * ppy
        z += sine * pz + versine * ppz
        x += fraction * velocity[0] + swing * across[0] + lag * along[0]
        y += fraction * velocity[1] + swing * across[1] + lag * along[1]
        z += fraction * velocity[2] + swing * across[2] + lag * along[2]
        for axis_out in range(3):
            moved[i, axis_out] = (
                transform[axis_out, 0] * x
                + transform[axis_out, 1] * y
                + transform[axis_out, 2] * z
                + transform[axis_out, 3]
            )


@njit(cache=True)
def _cross(a, b):
    return np.array(
        [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    )


@njit(cache=True)
def _voxel_filter(xyz, inverse_voxel, min_square, max_square, table):
    kept = np.empty(len(xyz), np.int64)
    count = 0
    mask = len(table) - 1
    for i in range(len(xyz)):
        x, y, z = np.float64(xyz[i, 0]), np.float64(xyz[i, 1]), np.float64(xyz[i, 2])
        square = x * x + y * y + z * z
        # False for NaN; an infinite coordinate gives an infinite square.
        if not (square >= min_square and square <= max_square and square < np.inf):
            continue
        key = voxel_key(x * inverse_voxel, y * inverse_voxel, z * inverse_voxel)
        slot = home_slot(key, mask)
        while table[slot] != EMPTY and table[slot] != key:
            slot = (slot + 1) & mask
        if table[slot] == EMPTY:
            table[slot] = key
            kept[count] = i
            count += 1
    return kept[:count]

"""Undoing the motion of the sensor during its sweep."""

import numpy as np
from numba import njit


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
        0,
        len(xyz),
        np.ascontiguousarray(xyz, np.float64),
        np.ascontiguousarray(times, np.float64) - instant,
        np.asarray(twist, np.float64),
        np.eye(4),
        moved,
    )
    return moved


@njit(nogil=True, cache=True)
def move_along(first, last, xyz, ages, twist, transform, moved):
    """Write ``transform exp(age twist) p`` into ``moved`` for each point p at its age.

    The exponential as in :func:`geoaccel_ros.registration.se3.exp`, point by point.
    """
    for i in range(first, last):
        age = ages[i]
        vx, vy, vz = age * twist[0], age * twist[1], age * twist[2]
        wx, wy, wz = age * twist[3], age * twist[4], age * twist[5]
        square = wx * wx + wy * wy + wz * wz
        # sin(a)/a, (1 - cos(a))/a^2, (a - sin(a))/a^3
        if square < 0.04:
            # Series: the first terms left out are below 1e-11 up to 0.2 rad, and few sweeps turn
            # as much.
            sine = 1.0 - square / 6.0 * (1.0 - square / 20.0 * (1.0 - square / 42.0))
            versine = 0.5 - square / 24.0 * (1.0 - square / 30.0 * (1.0 - square / 56.0))
            cubic = 1.0 / 6.0 - square / 120.0 * (1.0 - square / 42.0)
        else:
            angle = np.sqrt(square)
            sine = np.sin(angle) / angle
            versine = (1.0 - np.cos(angle)) / square
            cubic = (1.0 - sine) / square
        x, y, z = xyz[i, 0], xyz[i, 1], xyz[i, 2]
        # w x p, w x (w x p), and the same of v.
        px, py, pz = wy * z - wz * y, wz * x - wx * z, wx * y - wy * x
        cx, cy, cz = wy * vz - wz * vy, wz * vx - wx * vz, wx * vy - wy * vx
        x += sine * px + versine * (wy * pz - wz * py) + vx + versine * cx
        y += sine * py + versine * (wz * px - wx * pz) + vy + versine * cy
        z += sine * pz + versine * (wx * py - wy * px) + vz + versine * cz
        x += cubic * (wy * cz - wz * cy)
        y += cubic * (wz * cx - wx * cz)
        z += cubic * (wx * cy - wy * cx)
        for axis in range(3):
            moved[i, axis] = (
                transform[axis, 0] * x
                + transform[axis, 1] * y
                + transform[axis, 2] * z
                + transform[axis, 3]
            )

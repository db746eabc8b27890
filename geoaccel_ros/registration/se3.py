"""Rigid transforms: exponential and logarithm of SE(3), poses as 4 x 4 matrices.

A twist is (6,): translation part first, [v w]. Formulas: Barfoot, State Estimation for Robotics,
chapter 8.
"""

import numpy as np
from numba import njit, types

# Below this angle (radians) the closed forms divide by almost nothing; the series take over, whose
# first omitted terms are of the order of angle^4 = 1e-16.
_SMALL_ANGLE = 1e-4

# Of any layout, writable or not: compiled once, not anew in the middle of a run.
_VECTOR = types.Array(types.float64, 1, "A", readonly=True)
_MATRIX = types.Array(types.float64, 2, "A", readonly=True)
_FLOAT32_MATRIX = types.Array(types.float32, 2, "A", readonly=True)


def cross_matrix(vector: np.ndarray) -> np.ndarray:
    """Return the (3, 3) matrix that multiplies as the cross product with ``vector`` (3,)."""
    x, y, z = vector
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def exp_rotation(rotation_vector: np.ndarray) -> np.ndarray:
    """Return the rotation matrix (3, 3) of a rotation vector (3,) in radians."""
    return _exp_rotation(np.asarray(rotation_vector, np.float64))


def log_rotation(rotation: np.ndarray) -> np.ndarray:
    """Return the rotation vector (3,), of length 0 to pi, of a rotation matrix (3, 3)."""
    return _log_rotation(np.asarray(rotation, np.float64))


def exp(twist: np.ndarray) -> np.ndarray:
    """Return the transform (4, 4) reached by moving with ``twist`` (6,) for one unit of time."""
    translation, rotation_vector = np.asarray(twist[:3], float), np.asarray(twist[3:], float)
    angle = float(np.linalg.norm(rotation_vector))
    cross = cross_matrix(rotation_vector)
    square = cross @ cross
    sine, cosine, cubic = _coefficients(angle)
    transform = np.eye(4)
    transform[:3, :3] = np.eye(3) + sine * cross + cosine * square
    transform[:3, 3] = (np.eye(3) + cosine * cross + cubic * square) @ translation
    return transform


def log(transform: np.ndarray) -> np.ndarray:
    """Return the twist (6,) whose :func:`exp` is ``transform`` (4, 4)."""
    rotation_vector = log_rotation(transform[:3, :3])
    angle = float(np.linalg.norm(rotation_vector))
    cross = cross_matrix(rotation_vector)
    sine, cosine, cubic = _coefficients(angle)
    left_jacobian = np.eye(3) + cosine * cross + cubic * (cross @ cross)
    return np.concatenate([np.linalg.solve(left_jacobian, transform[:3, 3]), rotation_vector])


def inverse(transform: np.ndarray) -> np.ndarray:
    """Return the inverse of a rigid transform (4, 4), without solving."""
    result = np.eye(4)
    result[:3, :3] = transform[:3, :3].T
    result[:3, 3] = -transform[:3, :3].T @ transform[:3, 3]
    return result


def apply(transform: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return ``transform p`` (N, 3) of float64 for each of the points (N, 3)."""
    points = np.asarray(points)
    wanted = np.float32 if points.dtype == np.float32 else np.float64
    moved = np.empty((len(points), 3))
    _apply(np.asarray(transform, np.float64), np.require(points, wanted, "A"), moved)
    return moved


@njit(
    [(_MATRIX, points, types.float64[:, ::1]) for points in (_MATRIX, _FLOAT32_MATRIX)],
    nogil=True,
    cache=True,
)
def _apply(transform, points, moved):
    # Several times as fast as a product of matrices, which first copies what is no float64.
    for i in range(len(points)):
        x, y, z = np.float64(points[i, 0]), np.float64(points[i, 1]), np.float64(points[i, 2])
        for axis in range(3):
            row = transform[axis]
            moved[i, axis] = row[0] * x + row[1] * y + row[2] * z + row[3]


def perturbed(transform: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return ``transform`` moved by ``step`` (6,) = [translation, rotation], in its parent's axes.

    The rotation turns about the transform's own origin, so that coordinates far from the parent's
    origin do not couple rotation with translation (cf. ROS covariances, which mean the same six).
    """
    return _perturbed(np.asarray(transform, np.float64), np.asarray(step, np.float64))


def orthonormal(rotation: np.ndarray) -> np.ndarray:
    """Return the rotation nearest to a matrix (3, 3) that products have rounded."""
    left, _, right = np.linalg.svd(rotation)
    return left @ right


@njit(cache=True)
def _coefficients(angle):
    """sin(a)/a, (1 - cos(a))/a^2 and (a - sin(a))/a^3."""
    square = angle * angle
    if angle < _SMALL_ANGLE:
        return 1.0 - square / 6.0, 0.5 - square / 24.0, 1.0 / 6.0 - square / 120.0
    sine = np.sin(angle)
    return sine / angle, (1.0 - np.cos(angle)) / square, (angle - sine) / (square * angle)


# Compiled, since odometry calls them several times an iteration and NumPy takes microseconds for
# each sum of three numbers.
@njit([types.float64[:, ::1](_VECTOR)], cache=True)
def _exp_rotation(vector):
    square = vector[0] ** 2 + vector[1] ** 2 + vector[2] ** 2
    sine, cosine, _ = _coefficients(np.sqrt(square))
    rotation = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            rotation[i, j] = cosine * vector[i] * vector[j]
    for i in range(3):
        rotation[i, i] += 1.0 - cosine * square
        j, k = (i + 1) % 3, (i + 2) % 3
        rotation[k, j] += sine * vector[i]
        rotation[j, k] -= sine * vector[i]
    return rotation


@njit([types.float64[::1](_MATRIX)], cache=True)
def _log_rotation(rotation):
    axis_sine = np.empty(3)
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        axis_sine[i] = 0.5 * (rotation[k, j] - rotation[j, k])
    sine = np.sqrt(np.sum(axis_sine**2))
    cosine = 0.5 * (rotation[0, 0] + rotation[1, 1] + rotation[2, 2] - 1.0)
    angle = np.arctan2(sine, cosine)
    if sine > 1e-6:
        return axis_sine * (angle / sine)
    if cosine > 0.0:
        return axis_sine
    # Near pi the antisymmetric part vanishes; the axis is the eigenvector of R of eigenvalue 1.
    axis = np.linalg.eigh(0.5 * (rotation + rotation.T))[1][:, 2].copy()
    return np.copysign(angle, np.sum(axis * axis_sine)) * axis


@njit([types.float64[:, ::1](_MATRIX, _VECTOR)], cache=True)
def _perturbed(transform, step):
    turn = _exp_rotation(step[3:])
    product = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            product[i, j] = (
                turn[i, 0] * transform[0, j]
                + turn[i, 1] * transform[1, j]
                + turn[i, 2] * transform[2, j]
            )
    result = np.eye(4)
    # One step of Newton's for the nearest rotation takes off what rounding has added.
    for i in range(3):
        for j in range(3):
            result[i, j] = 1.5 * product[i, j]
            for k in range(3):
                for m in range(3):
                    result[i, j] -= 0.5 * product[i, k] * product[m, k] * product[m, j]
        result[i, 3] = transform[i, 3] + step[i]
    return result

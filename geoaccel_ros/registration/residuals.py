"""What a pass over all matches adds up to: residuals, and what the next pose is solved from.

Three residuals of a source point p, moved to q = R p + t, and its match m in the target:

- point_to_point: the vector q - m (Besl and McKay, PAMI 1992);
- point_to_plane: its length along the normal n of the target at m (Chen and Medioni, 1992);
- gicp: its length in the metric of both surfaces (Segal, Haehnel and Thrun, RSS 2009), with
  covariances of 1 along each surface and epsilon across it. The metric is scaled so that, where
  both normals agree, the residual is the distance along them, in metres.

All sums are float64, a row for each block of points (:data:`.matching.BLOCK`).
"""

import numpy as np
from numba import njit

from geoaccel_ros.registration.matching import BLOCK
from geoaccel_ros.registration.robust import weight

METHODS = {"point_to_point": 0, "point_to_plane": 1, "gicp": 2}

# Thickness of a surface against its width, of the covariances of gicp.
EPSILON = 1e-3

# A row of sums. Its head is the same for all methods: matches, their weights, squared residuals,
# weighted squared residuals, squared distances of the source points from the source's origin.
COUNT, WEIGHTS, SQUARES, ERROR, LEVERS = range(5)
# point_to_point: of w p, w m, w m p', w p p' (upper triangle), w m'm.
SUM_P, SUM_M, CROSS, SECOND, SQUARE_M = 5, 8, 11, 20, 26
# The others: gradient and Hessian (upper triangle) of half the weighted squares, for a step
# [translation, rotation] of the pose in the target's axes, the rotation about R 0 + t.
GRADIENT, HESSIAN = 5, 11
LENGTH = 32


@njit(nogil=True, cache=True)
def sum_point_to_point(
    first, last, pose, trial, limit, kernel, width, source, target, matches, rows
):
    """Add up the matches of source points first to last, ``first`` a multiple of BLOCK.

    Parameters
    ----------
    pose : ndarray (3, 4)
        Where weights and residuals are taken.
    trial : ndarray (3, 4); limit : float
        Matches whose squared residual at ``trial`` is greater than ``limit`` are left out.
    kernel : int; width : float
        See :mod:`.robust`.
    source : ndarray (3, M) of float32
    target : tuple of three ndarrays (N,) of float32
        x, y, z in the tree's order.
    matches : ndarray (M,) of int32
        Places in that order, -1 for none.
    rows : ndarray (blocks, 32)
        Written.
    """
    for block in range(first // BLOCK, -(-last // BLOCK)):
        count = 0
        weights = squares = error = levers = 0.0
        px = py = pz = mx = my = mz = 0.0
        xx = xy = xz = yx = yy = yz = zx = zy = zz = 0.0
        pxx = pxy = pxz = pyy = pyz = pzz = mm = 0.0
        for i in range(block * BLOCK, min((block + 1) * BLOCK, last)):
            match = matches[i]
            if match < 0:
                continue
            a, b, c = _in_float64(source[0, i], source[1, i], source[2, i])
            u, v, w = _in_float64(target[0][match], target[1][match], target[2][match])
            if limit < np.inf and _distance(trial, a, b, c, u, v, w) > limit:
                continue
            square = _distance(pose, a, b, c, u, v, w)
            h = weight(kernel, square, width)
            count += 1
            weights += h
            squares += square
            error += h * square
            levers += a * a + b * b + c * c
            px += h * a
            py += h * b
            pz += h * c
            mx += h * u
            my += h * v
            mz += h * w
            xx += h * u * a
            xy += h * u * b
            xz += h * u * c
            yx += h * v * a
            yy += h * v * b
            yz += h * v * c
            zx += h * w * a
            zy += h * w * b
            zz += h * w * c
            pxx += h * a * a
            pxy += h * a * b
            pxz += h * a * c
            pyy += h * b * b
            pyz += h * b * c
            pzz += h * c * c
            mm += h * (u * u + v * v + w * w)
        row = rows[block]
        row[COUNT], row[WEIGHTS], row[SQUARES] = count, weights, squares
        row[ERROR], row[LEVERS] = error, levers
        row[SUM_P], row[SUM_P + 1], row[SUM_P + 2] = px, py, pz
        row[SUM_M], row[SUM_M + 1], row[SUM_M + 2] = mx, my, mz
        row[CROSS], row[CROSS + 1], row[CROSS + 2] = xx, xy, xz
        row[CROSS + 3], row[CROSS + 4], row[CROSS + 5] = yx, yy, yz
        row[CROSS + 6], row[CROSS + 7], row[CROSS + 8] = zx, zy, zz
        row[SECOND], row[SECOND + 1], row[SECOND + 2] = pxx, pxy, pxz
        row[SECOND + 3], row[SECOND + 4], row[SECOND + 5] = pyy, pyz, pzz
        row[SQUARE_M] = mm


@njit(nogil=True, cache=True)
def sum_to_surfaces(
    first,
    last,
    pose,
    trial,
    limit,
    kernel,
    width,
    source,
    target,
    matches,
    rows,
    source_normals,
    target_normals,
):
    """Add up point_to_plane, or where there are source normals gicp; see the function above.

    Parameters
    ----------
    source_normals : ndarray (3, M) of float32
        M = 0: point_to_plane.
    target_normals : ndarray (3, N) of float32
        In the tree's order.
    """
    metric = np.empty((3, 3))
    jacobian = np.empty((3, 6))
    jacobian[:, :3] = np.eye(3)
    weighted = np.empty((3, 6))
    residual = np.empty(3)
    planes = source_normals.shape[1] == 0
    for block in range(first // BLOCK, -(-last // BLOCK)):
        row = rows[block]
        row[:] = 0.0
        for i in range(block * BLOCK, min((block + 1) * BLOCK, last)):
            match = matches[i]
            if match < 0:
                continue
            a, b, c = _in_float64(source[0, i], source[1, i], source[2, i])
            u, v, w = _in_float64(target[0][match], target[1][match], target[2][match])
            if limit < np.inf:
                _metric(trial, source_normals, i, target_normals, match, planes, metric)
                if _squared(trial, a, b, c, u, v, w, metric, residual) > limit:
                    continue
            _metric(pose, source_normals, i, target_normals, match, planes, metric)
            square = _squared(pose, a, b, c, u, v, w, metric, residual)
            h = weight(kernel, square, width)
            x = pose[0, 0] * a + pose[0, 1] * b + pose[0, 2] * c
            y = pose[1, 0] * a + pose[1, 1] * b + pose[1, 2] * c
            z = pose[2, 0] * a + pose[2, 1] * b + pose[2, 2] * c
            # d(R p) for a rotation about the source's origin: minus the cross product with R p.
            jacobian[0, 3], jacobian[0, 4], jacobian[0, 5] = 0.0, z, -y
            jacobian[1, 3], jacobian[1, 4], jacobian[1, 5] = -z, 0.0, x
            jacobian[2, 3], jacobian[2, 4], jacobian[2, 5] = y, -x, 0.0
            row[COUNT] += 1.0
            row[WEIGHTS] += h
            row[SQUARES] += square
            row[ERROR] += h * square
            row[LEVERS] += a * a + b * b + c * c
            for k in range(3):
                for n in range(6):
                    weighted[k, n] = h * (
                        metric[k, 0] * jacobian[0, n]
                        + metric[k, 1] * jacobian[1, n]
                        + metric[k, 2] * jacobian[2, n]
                    )
            place = HESSIAN
            for m in range(6):
                row[GRADIENT + m] += (
                    weighted[0, m] * residual[0]
                    + weighted[1, m] * residual[1]
                    + weighted[2, m] * residual[2]
                )
                for n in range(m, 6):
                    row[place] += (
                        jacobian[0, m] * weighted[0, n]
                        + jacobian[1, m] * weighted[1, n]
                        + jacobian[2, m] * weighted[2, n]
                    )
                    place += 1


@njit(nogil=True, cache=True, inline="always")
def _in_float64(x, y, z):
    # Not float(), which leaves a float32 as it is in compiled code.
    return np.float64(x), np.float64(y), np.float64(z)


@njit(nogil=True, cache=True, inline="always")
def _distance(pose, a, b, c, u, v, w):
    """Return the squared distance of a moved source point a b c from a target point u v w."""
    x = pose[0, 0] * a + pose[0, 1] * b + pose[0, 2] * c + pose[0, 3] - u
    y = pose[1, 0] * a + pose[1, 1] * b + pose[1, 2] * c + pose[1, 3] - v
    z = pose[2, 0] * a + pose[2, 1] * b + pose[2, 2] * c + pose[2, 3] - w
    return x * x + y * y + z * z


@njit(nogil=True, cache=True, inline="always")
def _squared(pose, a, b, c, u, v, w, metric, residual):
    """Write the vector from match to point; return its squared length in the metric."""
    for k in range(3):
        residual[k] = pose[k, 0] * a + pose[k, 1] * b + pose[k, 2] * c + pose[k, 3]
    residual[0] -= u
    residual[1] -= v
    residual[2] -= w
    square = 0.0
    for k in range(3):
        square += residual[k] * (
            metric[k, 0] * residual[0] + metric[k, 1] * residual[1] + metric[k, 2] * residual[2]
        )
    return square


@njit(nogil=True, cache=True, inline="always")
def _metric(pose, source_normals, i, target_normals, match, planes, metric):
    """Write n n', or with both normals 2 epsilon (C_target + R C_source R')^-1, (3, 3).

    As C = I - (1 - epsilon) n n', the matrix to invert is 2 I - (1 - epsilon) (n n' + m m').
    """
    nx, ny, nz = _in_float64(
        target_normals[0, match], target_normals[1, match], target_normals[2, match]
    )
    if planes:
        metric[0, 0], metric[0, 1], metric[0, 2] = nx * nx, nx * ny, nx * nz
        metric[1, 0], metric[1, 1], metric[1, 2] = nx * ny, ny * ny, ny * nz
        metric[2, 0], metric[2, 1], metric[2, 2] = nx * nz, ny * nz, nz * nz
        return
    a, b, c = _in_float64(source_normals[0, i], source_normals[1, i], source_normals[2, i])
    mx = pose[0, 0] * a + pose[0, 1] * b + pose[0, 2] * c
    my = pose[1, 0] * a + pose[1, 1] * b + pose[1, 2] * c
    mz = pose[2, 0] * a + pose[2, 1] * b + pose[2, 2] * c
    k = 1.0 - EPSILON
    xx = 2.0 - k * (nx * nx + mx * mx)
    yy = 2.0 - k * (ny * ny + my * my)
    zz = 2.0 - k * (nz * nz + mz * mz)
    xy = -k * (nx * ny + mx * my)
    xz = -k * (nx * nz + mx * mz)
    yz = -k * (ny * nz + my * mz)
    c00, c01, c02 = yy * zz - yz * yz, xz * yz - xy * zz, xy * yz - xz * yy
    scale = 2.0 * EPSILON / (xx * c00 + xy * c01 + xz * c02)
    metric[0, 0], metric[0, 1], metric[0, 2] = scale * c00, scale * c01, scale * c02
    metric[1, 0], metric[2, 0] = metric[0, 1], metric[0, 2]
    metric[1, 1] = scale * (xx * zz - xz * xz)
    metric[1, 2] = scale * (xy * xz - xx * yz)
    metric[2, 1] = metric[1, 2]
    metric[2, 2] = scale * (xx * yy - xy * xy)

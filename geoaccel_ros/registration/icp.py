"""Registration of one cloud to another: iterative closest point with a KD-tree.

Point to point: Besl and McKay, PAMI 1992, with the closed-form solution by SVD (Arun et al., PAMI
1987; reflections as in Umeyama, PAMI 1991). Point to plane: Chen and Medioni, 1992.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from geoaccel_ros.registration import se3
from geoaccel_ros.registration.nearest import NearestSearch, make_search
from geoaccel_ros.registration.preprocess import voxel_filter

METHODS = ("point_to_point", "point_to_plane")

# Neighbours, the point itself among them, whose covariance gives a normal.
_NORMAL_NEIGHBOURS = 20
# An eigenvalue of the Hessian (rotations in radii of the cloud) below this part of the largest:
# that direction is not observed. Noisy normals of one plane leave 1e-4, real scans show 0.2.
_DEGENERATE = 1e-3
# Converged when a step is below these, metres and radians, or when the mean squared residual
# changed by less than this part of itself twice running.
_STEP = 1e-8
_RELATIVE_CHANGE = 1e-5


@dataclass(frozen=True)
class Registration:
    """The result of :func:`register`.

    Attributes
    ----------
    T_target_source : ndarray (4, 4) of float64
        Maps the source's coordinates to the target's.
    converged : bool
    reason : str
        Why it stopped, or what went wrong.
    iterations : int
    rmse : float
        Root mean square over the matches, metres: of their distances (point_to_point) or of their
        distances along the normals (point_to_plane). NaN without matches.
    inliers : int
        Source points with a match within the largest distance.
    overlap : float
        Their share of the source's finite points.
    hessian : ndarray (6, 6)
        Of half the sum of squared residuals, for a step [translation, rotation] in the target's
        axes, the rotation about the source's origin.
    """

    T_target_source: np.ndarray
    converged: bool
    reason: str
    iterations: int
    rmse: float
    inliers: int
    overlap: float
    hessian: np.ndarray


def register(
    target: np.ndarray,
    source: np.ndarray,
    method: str = "point_to_plane",
    *,
    max_distance: float = 1.0,
    initial: np.ndarray | None = None,
    voxel: float | None = None,
    max_iterations: int = 50,
    backend: str = "cpu",
    threads: int = 1,
) -> Registration:
    """Find the rigid transform that lays ``source`` onto ``target``.

    Parameters
    ----------
    target, source : ndarray (N, 3) and (M, 3) of float32 or float64, metres
        Points that are not finite are left out.
    method : str
        "point_to_point" or "point_to_plane" (normals from 20 neighbours in the target).
    max_distance : float
        Matches farther apart than this are dropped, metres.
    initial : ndarray (4, 4)
        First guess of T_target_source; identity by default.
    voxel : float
        Edge of the voxels that both clouds are thinned by first, metres; None: not at all.
    max_iterations : int
    backend : str
        "cpu", "cuda" or "auto": where nearest neighbours are searched.
    threads : int
        CPU threads of the search.

    Returns
    -------
    Registration
        ``converged`` is False, with the reason, where too few points match, the geometry leaves a
        direction of the motion open, or the iterations run out.

    Raises
    ------
    ValueError
        If the method is unknown or an array has the wrong shape.
    BackendError
        If the backend cannot be used.
    """
    if method not in METHODS:
        raise ValueError(f"method {method!r}, must be one of {', '.join(METHODS)}")
    target, source = _prepare(target, "target", voxel), _prepare(source, "source", voxel)
    pose = np.eye(4) if initial is None else np.array(initial, np.float64)
    fewest = 3 if method == "point_to_point" else 6
    for name, points in (("target", target), ("source", source)):
        if len(points) < fewest:
            reason = f"{len(points)} finite points in the {name}, {method} needs {fewest}"
            return Registration(pose, False, reason, 0, np.nan, 0, 0.0, np.zeros((6, 6)))

    # Coordinates of UTM size would cost the products below their digits.
    origin = target.mean(axis=0)
    target = target - origin
    pose[:3, 3] -= origin
    search, _, _ = make_search(backend, threads)
    search.set_target(target)
    normals = _normals(target, threads) if method == "point_to_plane" else None
    result = _iterate(search, target, normals, source, pose, max_distance, max_iterations, fewest)
    result.T_target_source[:3, 3] += origin
    return result


def _iterate(
    search: NearestSearch,
    target: np.ndarray,
    normals: np.ndarray | None,
    source: np.ndarray,
    pose: np.ndarray,
    max_distance: float,
    max_iterations: int,
    fewest: int,
) -> Registration:
    """Match and solve until nothing changes; always from the original points."""
    previous, calm, step = np.inf, 0, np.inf
    iterations = 0
    while True:
        moved = se3.apply(pose, source)
        matches, _ = search.nearest(moved, max_distance)
        kept = matches >= 0
        inliers = int(np.count_nonzero(kept))
        hessian, mean_square = np.zeros((6, 6)), np.nan
        reason = ""
        if inliers < fewest:
            reason = (
                f"no overlap: {inliers} of {len(source)} source points have a match within "
                f"{max_distance:g} m, needs {fewest}"
            )
            converged = False
        else:
            points, partners = moved[kept], target[matches[kept]]
            levers = points - pose[:3, 3]
            if normals is None:
                hessian = _point_hessian(levers)
                mean_square = float(np.mean(np.sum((points - partners) ** 2, axis=1)))
            else:
                along = normals[matches[kept]]
                rows = np.hstack([along, np.cross(levers, along)])
                errors = np.sum((points - partners) * along, axis=1)
                hessian = rows.T @ rows
                mean_square = float(np.mean(errors**2))
            unchanged = abs(previous - mean_square) <= _RELATIVE_CHANGE * previous
            calm = calm + 1 if unchanged else 0
            previous = mean_square
            converged = True
            if _is_degenerate(hessian, levers):
                converged, reason = False, "degenerate: the matches leave a direction open"
            elif step < _STEP:
                reason = "the step fell below its bound"
            elif calm >= 2:
                reason = "the residual no longer changes"
            elif iterations == max_iterations:
                converged, reason = False, f"not converged after {max_iterations} iterations"
        if reason:
            return Registration(
                pose,
                converged,
                reason,
                iterations,
                float(np.sqrt(mean_square)),
                inliers,
                inliers / len(source),
                hessian,
            )
        if normals is None:
            moved_pose = rigid_fit(points, partners) @ pose
            moved_pose[:3, :3] = se3.orthonormal(moved_pose[:3, :3])
        else:
            moved_pose = se3.perturbed(pose, -np.linalg.solve(hessian, rows.T @ errors))
        step = float(np.max(np.abs(se3.log(se3.inverse(pose) @ moved_pose))))
        pose = moved_pose
        iterations += 1


def rigid_fit(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the transform (4, 4) that lays matched points onto each other in least squares.

    Parameters
    ----------
    source, target : ndarray (N, 3), metres
        Row by row the same points. The result is a rotation even where a reflection fits better.
    """
    source_mean, target_mean = source.mean(axis=0), target.mean(axis=0)
    left, _, right = np.linalg.svd((target - target_mean).T @ (source - source_mean))
    flip = np.diag([1.0, 1.0, np.sign(np.linalg.det(left @ right))])
    transform = np.eye(4)
    transform[:3, :3] = left @ flip @ right
    transform[:3, 3] = target_mean - transform[:3, :3] @ source_mean
    return transform


def _prepare(points: np.ndarray, name: str, voxel: float | None) -> np.ndarray:
    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"{name} has shape {points.shape}, must be (N, 3)")
    points = points[np.all(np.isfinite(points), axis=1)].astype(np.float64)
    return points[voxel_filter(points, voxel)] if voxel is not None else points


def _normals(points: np.ndarray, threads: int) -> np.ndarray:
    """Return the direction (N, 3) in which each point's neighbourhood is thinnest."""
    count = min(_NORMAL_NEIGHBOURS, len(points))
    _, neighbours = cKDTree(points, balanced_tree=False).query(points, k=count, workers=threads)
    normals = np.empty_like(points)
    # In parts, so that a million points do not take gigabytes.
    for start in range(0, len(points), 50_000):
        group = points[neighbours[start : start + 50_000]]
        group = group - group.mean(axis=1, keepdims=True)
        normals[start : start + 50_000] = np.linalg.eigh(group.transpose(0, 2, 1) @ group)[1][
            :, :, 0
        ]
    return normals


def _point_hessian(levers: np.ndarray) -> np.ndarray:
    """Return J'J for residuals p - q, where J = [I, -[lever]x]."""
    products = levers.T @ levers
    cross = se3.cross_matrix(levers.sum(axis=0))
    hessian = np.empty((6, 6))
    hessian[:3, :3] = len(levers) * np.eye(3)
    hessian[:3, 3:] = -cross
    hessian[3:, :3] = cross
    hessian[3:, 3:] = np.trace(products) * np.eye(3) - products
    return hessian


def _is_degenerate(hessian: np.ndarray, levers: np.ndarray) -> bool:
    """Tell whether some motion leaves all residuals as they are."""
    # About the middle of the points and in radii, so that neither a far origin nor the unit of
    # length decides.
    centre = levers.mean(axis=0)
    radius = float(np.sqrt(np.mean(np.sum((levers - centre) ** 2, axis=1))))
    if radius == 0.0:
        return True
    shift = np.eye(6)
    shift[:3, 3:] = se3.cross_matrix(centre)
    shift[:, 3:] /= radius
    eigenvalues = np.linalg.eigvalsh(shift.T @ hessian @ shift)
    return bool(eigenvalues[0] < _DEGENERATE * eigenvalues[-1])

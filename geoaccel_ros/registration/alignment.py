"""Iterative closest point on prepared clouds: the loop, on the CPU.

:mod:`geoaccel_ros.registration.cuda.alignment` is the same loop on an NVIDIA GPU.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from geoaccel_ros.registration import residuals
from geoaccel_ros.registration.kdtree import search
from geoaccel_ros.registration.kdtree.tree import KdTree
from geoaccel_ros.registration.local_frame import frame_of, to_local
from geoaccel_ros.registration.matching import BLOCK, SHARE, Matcher
from geoaccel_ros.registration.morton import morton_order
from geoaccel_ros.registration.normals import estimate_normals
from geoaccel_ros.registration.residuals import COUNT, LENGTH, LEVERS, METHODS, SQUARES
from geoaccel_ros.registration.robust import KERNELS
from geoaccel_ros.registration.solve import fit, hessian_of, unobserved
from geoaccel_ros.threads import Threads

# Matches that a pose takes; with fewer the equations cannot be solved.
FEWEST = {"point_to_point": 3, "point_to_plane": 6, "gicp": 6}
# Residuals beyond this many times their root mean square are dropped.
_SIGMAS = 3.0
# Squared rounding of float32 coordinates, as a part of the cloud's squared radius: residuals are
# never taken to be smaller, or three sigma of clouds that fit exactly would drop every match.
_ROUNDING = 1e-12
# Points from whose neighbours the spacing of a cloud is told.
SPACING_SAMPLE = 1000


class Stop(IntEnum):
    """Why the loop ended; the CUDA kernel has the same numbers."""

    RESIDUAL = 1
    STEP = 2
    ITERATIONS = 3
    NO_OVERLAP = 4
    DEGENERATE = 5
    NOT_FINITE = 6


# Ends after which the pose is not to be trusted.
FAILURES = (Stop.NO_OVERLAP, Stop.DEGENERATE, Stop.NOT_FINITE)


@dataclass(frozen=True)
class Settings:
    """What the loop needs to know, all decided.

    Attributes
    ----------
    method : str
    max_distance, overlap_distance : float, metres
    three_sigma : bool
    kernel : str; kernel_width : float, metres
    max_iterations : int
    relative_change : float
    least_step : float
        Of the largest change of an element of the pose, metres or radians.
    """

    method: str
    max_distance: float
    overlap_distance: float
    three_sigma: bool
    kernel: str
    kernel_width: float
    max_iterations: int
    relative_change: float
    least_step: float


@dataclass(frozen=True)
class Alignment:
    """How the loop ended.

    Attributes
    ----------
    pose : ndarray (4, 4)
        Between the local origins of source and target.
    stop : Stop
    iterations : int
    matched : int
        Source points with a match within the largest distance.
    near_before, near_after : int
        Those with one within the overlap distance, at the first and at the last pose.
    sums : ndarray (32,)
        Of the matches kept at the last pose; see :mod:`.residuals`.
    trace : ndarray (iterations + 1,)
        Root mean square residual at each pose, metres.
    poses : ndarray (iterations + 1, 4, 4)
    """

    pose: np.ndarray
    stop: Stop
    iterations: int
    matched: int
    near_before: int
    near_after: int
    sums: np.ndarray
    trace: np.ndarray
    poses: np.ndarray


class CpuTarget:
    """A cloud to align others to: its tree, and normals if the method takes them."""

    def __init__(self, points: np.ndarray, method: str, threads: Threads, **tree_options):
        self.tree = KdTree(points, threads=threads, **tree_options)
        self.origin = self.tree.origin
        self.radius = self.tree.radius
        self.spacing = spacing(self.tree)
        wanted = method != "point_to_point" and len(points)
        self.normals = estimate_normals(self.tree, threads) if wanted else None

    def __len__(self) -> int:
        return len(self.tree)


class CpuSource:
    """A cloud to be aligned: in an order in which neighbours in space follow each other."""

    def __init__(self, points: np.ndarray, method: str, threads: Threads):
        if method == "gicp" and len(points):
            tree = KdTree(points, threads=threads)
            self.origin = tree.origin
            self.local = np.vstack([tree.x, tree.y, tree.z])
            self.normals = estimate_normals(tree, threads)
        else:
            self.origin, radius = frame_of(points)
            local = to_local(points, self.origin, threads)
            self.local = local[:, morton_order(local, radius)]
            self.normals = np.empty((3, 0), np.float32)

    def __len__(self) -> int:
        return self.local.shape[1]


def align(
    target: CpuTarget, source: CpuSource, pose: np.ndarray, settings: Settings, threads: Threads
) -> Alignment:
    """Match and solve until nothing changes; always from the original points.

    Parameters
    ----------
    pose : ndarray (4, 4)
        First guess, between the local origins.
    """
    matcher = Matcher(target.tree, source.local, settings.max_distance, target.spacing, threads)
    summation = _Summation(target, source, matcher, settings, threads)
    trace, poses, calm, step = [], [], 0, np.inf
    near_before = None
    while True:
        matcher.update(pose)
        near = int(np.count_nonzero(matcher.squares <= settings.overlap_distance**2))
        near_before = near if near_before is None else near_before
        sums = summation.all(pose)
        matched = int(sums[COUNT])
        stop = _unsolvable(settings.method, pose, sums)
        if not stop and settings.three_sigma:
            trial = fit(settings.method, pose, sums)
            limit = trial.mean_square + _ROUNDING * sums[LEVERS] / sums[COUNT]
            sums = summation.within(pose, trial.pose, _SIGMAS**2 * limit)
            stop = _unsolvable(settings.method, pose, sums)
        mean_square = sums[SQUARES] / sums[COUNT] if sums[COUNT] else np.nan
        if trace and abs(trace[-1] - mean_square) < settings.relative_change * trace[-1]:
            calm += 1
        else:
            calm = 0
        trace.append(mean_square)
        poses.append(pose)
        iterations = len(trace) - 1
        if not stop:
            if step < settings.least_step:
                stop = Stop.STEP
            elif calm == 2:
                stop = Stop.RESIDUAL
            elif iterations == settings.max_iterations:
                stop = Stop.ITERATIONS
            if stop and _is_degenerate(settings.method, pose, sums):
                stop = Stop.DEGENERATE
        if stop:
            return Alignment(
                pose,
                stop,
                iterations,
                matched,
                near_before,
                near,
                sums,
                np.sqrt(trace),
                np.array(poses),
            )
        moved = fit(settings.method, pose, sums).pose
        step = float(np.max(np.abs(moved - pose)))
        pose = moved


def spacing(tree: KdTree) -> float:
    """Return the median distance in metres from a point to the next other one; 0 if there is none.

    Of a sample; points that lie on each other do not count.
    """
    x, y, z = (axis[:: max(1, len(tree) // SPACING_SAMPLE)].copy() for axis in tree.nodes[-3:])
    matches, squares = np.empty((len(x), 2), np.int32), np.empty((len(x), 2), np.float32)
    search.neighbours(0, len(x), x, y, z, tree.nodes, matches, squares)
    return median_distance(squares[:, 1])


def median_distance(squares: np.ndarray) -> float:
    """Return the median of the distances, given as squares, that are not zero and not infinite."""
    apart = squares[(squares > 0.0) & np.isfinite(squares)]
    return float(np.sqrt(np.median(apart))) if len(apart) else 0.0


def _unsolvable(method: str, pose: np.ndarray, sums: np.ndarray) -> Stop | None:
    if sums[COUNT] < FEWEST[method]:
        return Stop.NO_OVERLAP
    if not np.isfinite(sums).all():
        return Stop.NOT_FINITE
    # Where surfaces leave a direction open the others still move; points on a line leave nothing.
    if method == "point_to_point" and _is_degenerate(method, pose, sums):
        return Stop.DEGENERATE
    return None


def _is_degenerate(method: str, pose: np.ndarray, sums: np.ndarray) -> bool:
    return len(unobserved(method, hessian_of(method, pose, sums), sums)) > 0


class _Summation:
    """The sums of a matcher's present matches."""

    def __init__(
        self,
        target: CpuTarget,
        source: CpuSource,
        matcher: Matcher,
        settings: Settings,
        threads: Threads,
    ):
        tree = target.tree
        arrays = (source.local, (tree.x, tree.y, tree.z), matcher.matches)
        self._rows = np.zeros((-(-len(source) // BLOCK), LENGTH))
        self._robust = (KERNELS[settings.kernel], settings.kernel_width)
        self._threads = threads
        if METHODS[settings.method] == 0:
            self._function = residuals.sum_point_to_point
            self._arrays = (*arrays, self._rows)
        else:
            self._function = residuals.sum_to_surfaces
            self._arrays = (*arrays, self._rows, source.normals, target.normals)

    def all(self, pose: np.ndarray) -> np.ndarray:
        """Return the sums (32,) over all matches."""
        return self.within(pose, pose, np.inf)

    def within(self, pose: np.ndarray, trial: np.ndarray, limit: float) -> np.ndarray:
        """Return the sums over the matches whose squared residual at ``trial`` is in the limit."""
        poses = (np.ascontiguousarray(pose[:3]), np.ascontiguousarray(trial[:3]))
        self._threads.split(
            self._function,
            self._arrays[0].shape[1],
            *poses,
            limit,
            *self._robust,
            *self._arrays,
            block=SHARE,
        )
        return self._rows.sum(axis=0)

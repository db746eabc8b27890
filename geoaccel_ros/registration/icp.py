"""Registration of clouds: iterative closest point with a KD-tree, on the CPU or an NVIDIA GPU."""

import functools
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from geoaccel_ros.config import Configuration, parameter
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.alignment import FAILURES, FEWEST, Alignment, Settings, Stop
from geoaccel_ros.registration.engines import choose_engine
from geoaccel_ros.registration.kdtree.tree import AXIS_RULES, LEAF_SIZE
from geoaccel_ros.registration.local_frame import usable
from geoaccel_ros.registration.residuals import COUNT, METHODS
from geoaccel_ros.registration.result import Registration, RegistrationWarning
from geoaccel_ros.registration.robust import KERNELS
from geoaccel_ros.registration.solve import hessian_of, unobserved
from geoaccel_ros.registration.voxels import voxel_means

# Matches are at most ten voxels apart, or without voxels a tenth of the target's radius.
_MAX_DISTANCE_VOXELS = 10.0
_MAX_DISTANCE = 0.1
# Overlap counts what lies nearer than three voxels and than 1.3 spacings of as many points that
# fill space (radius / cube root of their number). The second is what tells a cloud that merely lies
# among the target's points, of whatever density, from one that lies on them: of points that fill
# space 68 % are as near as that by chance. At the true pose of the tests' real pairs more than 80 %
# of a scan are.
_OVERLAP_VOXELS = 3.0
_OVERLAP_SPACINGS = 1.3
# What no residual is smaller than, metres.
_LEAST_WIDTH = 1e-9
_KERNEL_WIDTH = 0.1
# How far an initial rotation may be from one: what six printed digits leave.
_ROTATION_TOLERANCE = 1e-4


@dataclass(frozen=True)
class RegistrationConfig(Configuration):
    """Parameters of a registration."""

    method: str = parameter(
        "point_to_plane",
        "What is minimised: distances of matched points, their distances from the target's "
        "surface, or distances in the metric of both surfaces (generalised ICP)",
        choices=tuple(METHODS),
    )
    voxel: tuple[float, ...] = parameter(
        (),
        "Edges of the voxels whose means stand for the points of both clouds, a registration each, "
        "coarse to fine; 0 or none: all points",
        unit="m",
        minimum=0.0,
        maximum=1e4,
    )
    max_distance: float = parameter(
        0.0,
        "Matches farther apart are dropped; 0: ten voxels, or without voxels a tenth of the "
        "target's radius (RMS distance from its middle)",
        unit="m",
        minimum=0.0,
        maximum=1e6,
    )
    three_sigma: bool = parameter(
        True,
        "After each solve drop matches beyond three times the RMS residual and solve again",
    )
    kernel: str = parameter("none", "Robust kernel of the residuals", choices=tuple(KERNELS))
    kernel_width: float = parameter(
        0.0,
        "Residual from which the kernel takes effect; 0: a tenth of max_distance",
        unit="m",
        minimum=0.0,
        maximum=1e6,
    )
    max_iterations: int = parameter(50, "Most iterations", minimum=1, maximum=10_000)
    relative_change: float = parameter(
        1e-5,
        "Converged when the mean squared residual changes by less than this part twice running",
        minimum=0.0,
        maximum=1.0,
    )
    least_step: float = parameter(
        1e-5,
        "Converged when no element of the transform (metres, radians) changes by as much",
        minimum=0.0,
        maximum=1.0,
    )
    overlap_distance: float = parameter(
        0.0,
        "Source points with a match within it count as overlap; 0: three voxels, and at most 1.3 "
        "times the spacing of as many points that fill space. Not beyond max_distance",
        unit="m",
        minimum=0.0,
        maximum=1e6,
    )
    leaf_size: int = parameter(
        LEAF_SIZE, "Most points of a leaf of the KD-tree", minimum=1, maximum=1024
    )
    axis: str = parameter(
        "spread",
        "Axis that a node of the KD-tree is split across: of the largest spread, or in turn",
        choices=tuple(AXIS_RULES),
    )
    backend: str = parameter(
        "auto",
        "Device; auto: CUDA if there is one and it is faster for that many points",
        choices=("auto", "cpu", "cuda"),
    )
    threads: int = parameter(
        0, "CPU threads; 0: as many as the process may use", minimum=0, maximum=256
    )


def register(
    target: "np.ndarray | Target",
    source: np.ndarray,
    method: str | None = None,
    *,
    initial: np.ndarray | None = None,
    voxel: float | Sequence[float] | None = None,
    **parameters,
) -> Registration:
    """Find the rigid transform that lays ``source`` onto ``target``.

    Parameters
    ----------
    target : ndarray (N, 3) of numbers, metres, or Target
        Points that are not finite are left out, and so are those at exactly (0, 0, 0) if there is
        more than one: drivers write that for no return. A :class:`Target` brings its own
        parameters, and none may be given beside it.
    source : ndarray (M, 3) of numbers, metres
        Likewise.
    method : str
        "point_to_point", "point_to_plane" (the default) or "gicp"; see :mod:`.residuals`.
    initial : ndarray (4, 4)
        First guess of T_target_source; identity by default.
    voxel : float or sequence of float
        Edges of voxels, coarse to fine, metres.
    **parameters
        Others of :class:`RegistrationConfig`.

    Returns
    -------
    Registration
        ``converged`` is False, with the reason, where too few points match, the geometry leaves a
        direction of the motion open, or the iterations run out.

    Warns
    -----
    RegistrationWarning
        If less than 0.8 of the source lies near the target.

    Raises
    ------
    ConfigurationError
        If a parameter is unknown or out of range.
    ValueError
        If an array has the wrong shape or the first guess is no rigid transform.
    BackendError
        If the backend cannot be used.
    """
    given = {"method": method, "voxel": voxel, **parameters}
    given = {name: value for name, value in given.items() if value is not None}
    if isinstance(target, Target):
        if given:
            raise ValueError(
                f"{', '.join(given)} given beside a Target, which has its own: make another Target"
            )
    else:
        if voxel is not None:
            given["voxel"] = tuple(np.atleast_1d(np.asarray(voxel, float)).tolist())
        target = Target(target, RegistrationConfig.from_mapping(given))
    result = target.register(source, initial)
    if result.warning:
        warnings.warn(result.warning, RegistrationWarning, stacklevel=2)
    return result


class Target:
    """A cloud that others are registered to: filtered, its trees and normals made once.

    Parameters
    ----------
    points : ndarray (N, 3) of numbers, metres
    config : RegistrationConfig

    Attributes
    ----------
    backend : str
        "cpu" or "cuda", and ``backend_reason`` why.
    timings : dict of str to float
        Milliseconds of preprocess and tree (with copies and normals).
    """

    def __init__(self, points: np.ndarray, config: RegistrationConfig | None = None):
        self.config = config or RegistrationConfig()
        started = time.perf_counter()
        points = usable(points, "target")
        clouds = [thinned(points, voxel) for voxel in self._voxels]
        filtered = time.perf_counter()
        self._engine = choose_engine(self.config, len(clouds[-1]))
        self.backend, self.backend_reason = self._engine.name, self._engine.reason
        chosen = time.perf_counter()
        self._levels = [self._engine.target(cloud) for cloud in clouds]
        self.timings = {
            "preprocess": 1e3 * (filtered - started),
            "tree": 1e3 * (time.perf_counter() - chosen),
        }

    def register(self, source: np.ndarray, initial: np.ndarray | None = None) -> Registration:
        """Lay a source onto this target; as :func:`register`, but no warning is issued."""
        return self._begin(source, initial)()

    def register_all(
        self, sources: Iterable[np.ndarray], initial: np.ndarray | None = None
    ) -> Iterator[Registration]:
        """Register one source after the other, each from the same first guess.

        On CUDA, a source is filtered and copied to the device while the one before it is aligned.
        What is no cloud gives a result that says so, and the others are done all the same.
        """
        T_target_source = _checked_transform(initial)
        pending = None
        for source in sources:
            try:
                following = self._begin(source, T_target_source)
            except ValueError as error:
                following = functools.partial(
                    _failed, T_target_source, str(error), self.backend, self.timings
                )
            if pending is not None:
                yield pending()
            pending = following
        if pending is not None:
            yield pending()

    @property
    def _voxels(self) -> tuple[float | None, ...]:
        return tuple(voxel or None for voxel in self.config.voxel) or (None,)

    def _begin(self, source: np.ndarray, initial: np.ndarray | None) -> Callable[[], Registration]:
        """Start a registration; return what waits for its end."""
        T_target_source = _checked_transform(initial)
        started = time.perf_counter()
        source = usable(source, "source")
        clouds = [thinned(source, voxel) for voxel in self._voxels]
        timings = {"preprocess": self.timings["preprocess"] + _since(started)}
        problem = self._too_few(clouds[-1])
        if problem:
            return lambda: _failed(T_target_source, problem, self.backend, timings)
        started = time.perf_counter()
        sources = [self._engine.source(cloud) for cloud in clouds]
        timings |= {"upload": _since(started), "tree": self.timings["tree"]}
        begun = time.perf_counter()
        wait = self._start(0, sources[0], T_target_source)

        def finish() -> Registration:
            iterations, near_before = 0, None
            if len(sources) > 1:
                # The coarse levels move the cloud: how it lay before them is asked of the finest.
                near_before = self._start(-1, sources[-1], T_target_source, 0)().near_before
            pose = T_target_source
            for level, local in enumerate(sources):
                found = wait() if level == 0 else self._start(level, local, pose)()
                iterations += found.iterations
                # A coarse level that came to nothing leaves the guess as it was.
                if level == len(sources) - 1 or found.stop not in FAILURES:
                    pose = _to_global(found.pose, self._levels[level].origin, local.origin)
            timings["iterations"] = _since(begun)
            timings["total"] = sum(timings.values())
            if near_before is not None:
                found = replace(found, near_before=near_before)
            return self._result(found, pose, iterations, len(local), local.origin, timings)

        return finish

    def _start(
        self,
        level: int,
        source,
        T_target_source: np.ndarray,
        max_iterations: int | None = None,
    ) -> Callable[[], Alignment]:
        target, settings = self._levels[level], self._settings(level)
        if max_iterations is not None:
            settings = replace(settings, max_iterations=max_iterations)
        pose = T_target_source.copy()
        pose[:3, 3] += pose[:3, :3] @ source.origin - target.origin
        return self._engine.start(target, source, pose, settings)

    def _settings(self, level: int) -> Settings:
        config, voxel, radius = self.config, self._voxels[level], self._levels[level].radius
        usual = _MAX_DISTANCE * radius if voxel is None else _MAX_DISTANCE_VOXELS * voxel
        # Points that are all the same have no radius.
        max_distance = config.max_distance or usual or np.inf
        near = _OVERLAP_SPACINGS * radius / max(len(self._levels[level]), 1) ** (1 / 3)
        if voxel is not None:
            near = min(near, _OVERLAP_VOXELS * voxel)
        return Settings(
            config.method,
            max_distance,
            min(config.overlap_distance or near, max_distance),
            config.three_sigma,
            config.kernel,
            max(config.kernel_width or _KERNEL_WIDTH * max_distance, _LEAST_WIDTH),
            config.max_iterations,
            config.relative_change,
            config.least_step,
        )

    def _too_few(self, source: np.ndarray) -> str:
        fewest = FEWEST[self.config.method]
        for name, count in (("target", len(self._levels[-1])), ("source", len(source))):
            if count < fewest:
                voxel = self._voxels[-1]
                thinned_by = f" after voxels of {voxel:g} m" if voxel else ""
                return (
                    f"{count} usable points in the {name}{thinned_by}, {self.config.method} needs "
                    f"{fewest}"
                )
        return ""

    def _result(
        self,
        found: Alignment,
        T_target_source: np.ndarray,
        iterations: int,
        source_count: int,
        source_origin: np.ndarray,
        timings: dict[str, float],
    ) -> Registration:
        settings, target_origin = self._settings(-1), self._levels[-1].origin
        hessian = hessian_of(settings.method, found.pose, found.sums)
        degenerate = (
            unobserved(settings.method, hessian, found.sums)
            if found.sums[COUNT] >= FEWEST[settings.method]
            else []
        )
        # From turning about the image of the source's mean to turning about that of its origin.
        shift = np.eye(6)
        shift[:3, 3:] = -se3.cross_matrix(found.pose[:3, :3] @ source_origin)
        inliers = int(found.sums[COUNT])
        return Registration(
            T_target_source,
            found.stop in (Stop.RESIDUAL, Stop.STEP),
            _reason(found, settings, source_count),
            iterations,
            float(found.trace[-1]),
            inliers,
            inliers / found.matched if found.matched else 0.0,
            found.near_after / source_count,
            found.near_before / source_count,
            shift.T @ hessian @ shift,
            _unit_rows(np.reshape(degenerate, (-1, 6)) @ np.linalg.inv(shift).T),
            found.trace,
            np.array([_to_global(pose, target_origin, source_origin) for pose in found.poses]),
            settings.max_distance,
            settings.overlap_distance,
            self.backend,
            timings,
        )


def thinned(points: np.ndarray, voxel: float | None) -> np.ndarray:
    """Return the means of the points in each voxel, or without a voxel the points themselves."""
    return points if voxel is None else voxel_means(points, voxel)


def _checked_transform(transform: np.ndarray | None) -> np.ndarray:
    if transform is None:
        return np.eye(4)
    transform = np.array(transform, np.float64)
    if transform.shape != (4, 4) or not np.isfinite(transform).all():
        raise ValueError(f"the first guess has shape {transform.shape}, must be (4, 4) and finite")
    if not np.allclose(transform[3], [0.0, 0.0, 0.0, 1.0]):
        raise ValueError(f"the first guess ends in {transform[3]}, must end in 0 0 0 1")
    rotation = transform[:3, :3]
    error = np.abs(rotation @ rotation.T - np.eye(3)).max()
    if error > _ROTATION_TOLERANCE or np.linalg.det(rotation) < 0.0:
        raise ValueError("the first guess is no rigid transform: its upper left is no rotation")
    transform[:3, :3] = se3.orthonormal(rotation)
    return transform


def _to_global(
    pose: np.ndarray, target_origin: np.ndarray, source_origin: np.ndarray
) -> np.ndarray:
    """Return T_target_source of a pose between the local origins."""
    transform = pose.copy()
    transform[:3, 3] += target_origin - pose[:3, :3] @ source_origin
    return transform


def _reason(found: Alignment, settings: Settings, source_count: int) -> str:
    kept, fewest = int(found.sums[COUNT]), FEWEST[settings.method]
    if found.stop == Stop.NO_OVERLAP and found.matched >= fewest:
        return (
            f"too few matches: three sigma keeps {kept} of {found.matched}, {settings.method} "
            f"needs {fewest}"
        )
    if found.stop == Stop.NO_OVERLAP:
        return (
            f"no overlap: {found.matched} of {source_count} source points have a match within "
            f"{settings.max_distance:.3g} m, {settings.method} needs {fewest}"
        )
    return {
        Stop.RESIDUAL: "the residual no longer changes",
        Stop.STEP: "the step fell below its bound",
        Stop.ITERATIONS: f"not converged after {found.iterations} iterations",
        Stop.DEGENERATE: "degenerate: the matches leave a direction of the motion open",
        Stop.NOT_FINITE: "the sums are not finite",
    }[found.stop]


def _failed(
    T_target_source: np.ndarray, reason: str, backend: str, timings: dict[str, float]
) -> Registration:
    """Return the result where there was nothing to align."""
    nothing = np.empty((0, 6))
    return Registration(
        T_target_source, False, reason, 0, np.nan, 0, 0.0, 0.0, 0.0, np.zeros((6, 6)), nothing,
        np.empty(0), np.empty((0, 4, 4)), np.nan, np.nan, backend,
        {**timings, "upload": 0.0, "tree": 0.0, "iterations": 0.0, "total": sum(timings.values())},
    )  # fmt: skip


def _unit_rows(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _since(started: float) -> float:
    return 1e3 * (time.perf_counter() - started)

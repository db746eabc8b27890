"""Contenders of the registration benchmark: ours, and those of other packages.

A contender does one or several tasks. A run of a task includes all that it takes from the arrays of
points to the result: conversions and copies, the tree, normals where the method wants them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from geoaccel_ros.benchmark.interleaving import Stopwatch
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.benchmark.registration_conditions import ITERATIONS, fixed_iterations
from geoaccel_ros.benchmark.registration_devices import make_device
from geoaccel_ros.benchmark.registration_problem import MAX_DISTANCE
from geoaccel_ros.benchmark.registration_textbook import scipy_search
from geoaccel_ros.registration import RegistrationConfig, Target
from geoaccel_ros.registration.synthetic import SyntheticPair

# The most until converged, for all: our default.
_MOST_ITERATIONS = 50


class Task(NamedTuple):
    """What is compared with each other."""

    work: str
    method: str


THIRTY = Task(f"{ITERATIONS} iterations", "point_to_point")
CONVERGED = {
    method: Task("until converged", method)
    for method in ("point_to_point", "point_to_plane", "gicp")
}
TREE = Task("tree", "")
TASKS = (THIRTY, *CONVERGED.values(), TREE)


class Outcome(NamedTuple):
    """What a run took, and what came of it as far as the task has it."""

    milliseconds: float
    T_target_source: np.ndarray | None = None
    iterations: int | None = None
    converged: bool | None = None


Run = Callable[[], Outcome]


def geoaccel(
    problem: SyntheticPair, backend: str, threads: int, three_sigma: bool
) -> dict[Task, Run]:
    """Return our own runs; the peers have no step like ``three_sigma``."""

    def align(config: RegistrationConfig) -> Run:
        def run() -> Outcome:
            stopwatch = Stopwatch()
            with stopwatch:
                found = Target(problem.target, config).register(problem.source)
            fixed = not config.relative_change
            converged = None if fixed else found.converged
            return Outcome(
                stopwatch.milliseconds, found.T_target_source, found.iterations, converged
            )

        return run

    fixed = fixed_iterations(backend, threads, three_sigma=three_sigma)
    runs = {THIRTY: align(fixed)}
    for method, task in CONVERGED.items():
        config = RegistrationConfig(
            method=method,
            max_distance=MAX_DISTANCE,
            three_sigma=three_sigma,
            max_iterations=_MOST_ITERATIONS,
            backend=backend,
            threads=threads,
        )
        runs[task] = align(config)
    if not three_sigma:
        device = make_device(backend, threads)
        runs[TREE] = _timed(lambda: device.build(problem.target))
    return runs


def small_gicp(problem: SyntheticPair, threads: int) -> dict[Task, Run]:
    """Return the runs of small_gicp, which ends by its own rule."""
    import small_gicp as package

    def align(method: str, prepare: Callable | None) -> Run:
        def run() -> Outcome:
            stopwatch = Stopwatch()
            with stopwatch:
                target = package.PointCloud(problem.target)
                source = package.PointCloud(problem.source)
                tree = package.KdTree(target, num_threads=threads)
                if prepare:
                    prepare(target, tree, num_threads=threads)
                # The only method that takes the source's surface too.
                if method == "GICP":
                    own_tree = package.KdTree(source, num_threads=threads)
                    prepare(source, own_tree, num_threads=threads)
                found = package.align(
                    target,
                    source,
                    tree,
                    registration_type=method,
                    max_correspondence_distance=MAX_DISTANCE,
                    num_threads=threads,
                    max_iterations=_MOST_ITERATIONS,
                )
            return Outcome(
                stopwatch.milliseconds, found.T_target_source, found.iterations, found.converged
            )

        return run

    return {
        CONVERGED["point_to_point"]: align("ICP", None),
        CONVERGED["point_to_plane"]: align("PLANE_ICP", package.estimate_normals),
        CONVERGED["gicp"]: align("GICP", package.estimate_covariances),
        TREE: _timed(lambda: package.KdTree(problem.target, num_threads=threads)),
    }


def open3d(problem: SyntheticPair, threads: int) -> dict[Task, Run]:
    """Return the run of Open3D's legacy pipeline, which builds its tree inside."""
    import open3d as package

    # It follows no environment variable: TBB would take all cores.
    package.utility.set_max_threads(threads)
    registration = package.pipelines.registration
    # Relative changes of fitness and RMSE are never below zero.
    criteria = registration.ICPConvergenceCriteria(0.0, 0.0, ITERATIONS)
    estimation = registration.TransformationEstimationPointToPoint()

    def cloud(points: np.ndarray):
        return package.geometry.PointCloud(package.utility.Vector3dVector(points))

    def run() -> Outcome:
        stopwatch = Stopwatch()
        with stopwatch:
            found = registration.registration_icp(
                cloud(problem.source),
                cloud(problem.target),
                MAX_DISTANCE,
                np.eye(4),
                estimation,
                criteria,
            )
        return Outcome(stopwatch.milliseconds, np.array(found.transformation), ITERATIONS)

    return {THIRTY: run}


def scipy(problem: SyntheticPair, threads: int) -> dict[Task, Run]:
    """Return the run of SciPy's tree; its iterations, of seconds, are among the baselines."""
    return {TREE: _timed(lambda: scipy_search(problem.target, threads))}


PEERS = (
    Peer("Open3D, legacy", "open3d", "open3d", open3d),
    Peer("small_gicp", "small-gicp", "small_gicp", small_gicp),
    Peer("SciPy, cKDTree", "scipy", "scipy.spatial", scipy),
)


def _timed(work: Callable[[], object]) -> Run:
    def run() -> Outcome:
        stopwatch = Stopwatch()
        with stopwatch:
            work()
        return Outcome(stopwatch.milliseconds)

    return run

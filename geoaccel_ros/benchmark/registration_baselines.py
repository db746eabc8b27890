"""Registration beside the textbook's: brute force, and a KD-tree of SciPy's."""

from collections.abc import Callable
from functools import partial

import numpy as np

from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.registration_conditions import (
    ITERATIONS,
    Conditions,
    Part,
    fixed_iterations,
)
from geoaccel_ros.benchmark.registration_problem import make_problem, pose_error
from geoaccel_ros.benchmark.registration_textbook import (
    brute_force_search,
    cuda_brute_force_search,
    scipy_search,
    textbook_icp,
)
from geoaccel_ros.benchmark.report import Table
from geoaccel_ros.registration import Target
from geoaccel_ros.registration.synthetic import SyntheticPair

# A solution T_target_source after so many iterations, from the arrays of points on.
Solve = Callable[[int], np.ndarray]


def baselines(conditions: Conditions, points: int, repetitions: int) -> Part:
    """One and 30 iterations, at a size that brute force ends at."""
    problem = make_problem(points)
    solvers = _solvers(problem, conditions)
    found = {}
    times = interleave(
        {name: _run(solve, partial(found.__setitem__, name)) for name, solve in solvers.items()},
        repetitions,
    )
    ours = times[next(name for name in times if name.startswith("geoaccel"))]
    rows = []
    for name in solvers:
        degrees, metres = pose_error(found[name], problem.T_target_source)
        rows.append(
            {
                "contender": name,
                "points": points,
                "one_iteration_ms": spread(times[name][:, 0]),
                "ms": spread(times[name][:, 1]),
                "times_ours": spread(times[name][:, 1] / ours[:, 1]),
                "rotation_deg": degrees,
                "translation_m": metres,
            }
        )
    title = f"Baselines: one and {ITERATIONS} iterations, point to point"
    return Part(Table(title, rows, f"Trees and copies are included; medians of {repetitions}."))


def _solvers(problem: SyntheticPair, conditions: Conditions) -> dict[str, Solve]:
    threads = conditions.threads

    def textbook(make_search: Callable, *arguments) -> Solve:
        return lambda iterations: textbook_icp(
            problem, make_search(problem.target, *arguments), iterations
        )

    def geoaccel(backend: str) -> Solve:
        def solve(iterations: int) -> np.ndarray:
            config = fixed_iterations(backend, threads, iterations)
            return Target(problem.target, config).register(problem.source).T_target_source

        return solve

    solvers = {"brute force, cpu": textbook(brute_force_search, threads)}
    if "cuda" in conditions.backends:
        solvers["brute force, cuda"] = textbook(cuda_brute_force_search)
    solvers["SciPy, cKDTree and SVD"] = textbook(scipy_search, threads)
    return solvers | {f"geoaccel, {backend}": geoaccel(backend) for backend in conditions.backends}


def _run(solve: Solve, keep: Callable[[np.ndarray], None]) -> Callable[[], list[float]]:
    def run() -> list[float]:
        times = []
        for iterations in (1, ITERATIONS):
            stopwatch = Stopwatch()
            with stopwatch:
                found = solve(iterations)
            times.append(stopwatch.milliseconds)
        keep(found)
        return times

    return run

"""From small clouds to large ones: where the GPU begins to pay."""

from collections.abc import Callable

import numpy as np

from geoaccel_ros.backend import cuda_problem
from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.pictures import draw_times
from geoaccel_ros.benchmark.registration_conditions import (
    ITERATIONS,
    Conditions,
    Part,
    fixed_iterations,
)
from geoaccel_ros.benchmark.registration_problem import make_problem
from geoaccel_ros.benchmark.report import Table
from geoaccel_ros.registration import Target
from geoaccel_ros.registration.synthetic import SyntheticPair

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000, 5_000_000)
# A backend for which a run of the next size would take longer does not take part in it.
_LONGEST_MS = 20e3


def sizes(conditions: Conditions, largest: int) -> Part:
    """Registrations of all sizes up to the largest, on the CPU and on a GPU if there is one."""
    problem_of_cuda = cuda_problem()
    backends = ("cpu",) if problem_of_cuda else ("cpu", "cuda")
    rows, latest = [], {}
    for size in (size for size in SIZES if size <= largest):
        problem = make_problem(size)
        contenders = {
            backend: _run(problem, backend, conditions.threads)
            for backend in backends
            if backend not in latest or latest[backend] * size < _LONGEST_MS
        }
        for backend, times in interleave(contenders, conditions.repetitions).items():
            latest[backend] = float(np.median(times)) / size
            rows.append({"contender": f"geoaccel, {backend}", "points": size, "ms": spread(times)})
    images = conditions.picture("sizes")
    for image in images:
        draw_times(image, rows, "points")
    found = f"The GPU is left out: {problem_of_cuda}." if problem_of_cuda else crossover(rows)
    note = f"{ITERATIONS} iterations, tree and copies included. {found}"
    return Part(Table("Sizes, on each backend", rows, note), images)


def crossover(rows: list[dict]) -> str:
    """Return, as a sentence, from which of the sizes in the rows on the GPU is faster."""
    medians = {(row["contender"], row["points"]): row["ms"]["median"] for row in rows}
    both = sorted(
        size
        for contender, size in medians
        if contender == "geoaccel, cuda" and ("geoaccel, cpu", size) in medians
    )
    faster = [medians["geoaccel, cuda", size] < medians["geoaccel, cpu", size] for size in both]
    if not faster[-1]:
        return f"The GPU is not faster at {both[-1]} points."
    lost = [size for size, won in zip(both, faster, strict=True) if not won]
    first = min(size for size in both if not lost or size > lost[-1])
    return f"The GPU is faster from {first} points on."


def _run(problem: SyntheticPair, backend: str, threads: int) -> Callable[[], float]:
    config = fixed_iterations(backend, threads)

    def run() -> float:
        stopwatch = Stopwatch()
        with stopwatch:
            Target(problem.target, config).register(problem.source)
        return stopwatch.milliseconds

    return run

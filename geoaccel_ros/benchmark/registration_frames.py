"""Several sources, one after the other, against one target."""

from collections.abc import Callable

import numpy as np

from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.registration_conditions import Conditions, Part
from geoaccel_ros.benchmark.registration_problem import MAX_DISTANCE, make_problem
from geoaccel_ros.benchmark.report import Table
from geoaccel_ros.registration import RegistrationConfig, Target

_FRAMES = 8
# A scan is a part of the map that it is laid onto.
_SHARE = 4


def frames_in_sequence(conditions: Conditions) -> Part:
    """Frames a second, with and without copying and aligning side by side."""
    points = conditions.points
    problem = make_problem(points)
    rng = np.random.default_rng(1)
    sources = [problem.source[rng.permutation(points)[: points // _SHARE]] for _ in range(_FRAMES)]
    contenders = {}
    for backend in conditions.backends:
        config = RegistrationConfig(
            method="point_to_point",
            max_distance=MAX_DISTANCE,
            backend=backend,
            threads=conditions.threads,
        )
        target = Target(problem.target, config)
        contenders[backend, "register"] = _run(lambda t=target: [*map(t.register, sources)])
        contenders[backend, "register_all"] = _run(lambda t=target: [*t.register_all(sources)])
    times = interleave(contenders, conditions.repetitions)
    rows = [
        {
            "contender": f"geoaccel, {backend}",
            "call": call,
            "points": points // _SHARE,
            "ms": spread(times[backend, call]),
            "frames_a_second": 1e3 / float(np.median(times[backend, call])),
        }
        for backend, call in contenders
    ]
    note = (
        f"{_FRAMES} sources against one target of {points} points, made once and not counted; "
        "register_all copies a source to the GPU while the one before it is aligned."
    )
    title = "Frames in sequence: milliseconds a source, until converged, point to point"
    return Part(Table(title, rows, note))


def _run(register: Callable[[], list]) -> Callable[[], float]:
    def run() -> float:
        stopwatch = Stopwatch()
        with stopwatch:
            register()
        return stopwatch.milliseconds / _FRAMES

    return run

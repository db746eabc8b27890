"""Sweeps over the loop: order of the source, errors by iteration."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.pictures import draw_bars, save
from geoaccel_ros.benchmark.registration_conditions import (
    ITERATIONS,
    Conditions,
    Part,
    fixed_iterations,
)
from geoaccel_ros.benchmark.registration_devices import Device, make_device
from geoaccel_ros.benchmark.registration_problem import MAX_DISTANCE, make_problem, pose_error
from geoaccel_ros.benchmark.report import Table
from geoaccel_ros.registration import Target
from geoaccel_ros.registration.alignment import Settings
from geoaccel_ros.registration.residuals import METHODS
from geoaccel_ros.registration.synthetic import SyntheticPair


def source_orders(conditions: Conditions) -> Part:
    """A source along a Z-curve, as it always is, and in no order."""
    problem = make_problem(conditions.points)
    contenders = {}
    for backend in conditions.backends:
        device = make_device(backend, conditions.threads)
        for order in ("along a Z-curve", "shuffled"):
            contenders[backend, order] = iterations_alone(device, problem, order == "shuffled")
    times = interleave(contenders, conditions.repetitions)
    rows = [
        {"contender": f"geoaccel, {backend}", "order": order, "ms": spread(times[backend, order])}
        for backend, order in contenders
    ]
    images = conditions.picture("order")
    for image in images:
        bars = {f"{row['contender']}: {row['order']}": row["ms"] for row in rows}
        draw_bars(image, bars, "milliseconds")
    note = f"{conditions.points} points, {ITERATIONS} iterations, without tree and copies."
    return Part(Table("Order of the source", rows, note), images)


def errors_by_iteration(conditions: Conditions) -> Part:
    """How far each pose on the way is from the truth."""
    problem = make_problem(conditions.points)
    errors = {}
    for backend in conditions.backends:
        for method in METHODS:
            config = fixed_iterations(backend, conditions.threads, method=method)
            poses = Target(problem.target, config).register(problem.source).poses
            errors[f"{backend} {method}"] = np.array(
                [pose_error(pose, problem.T_target_source) for pose in poses]
            )
    rows = [
        {"iteration": iteration}
        | {
            f"{name} {unit}": float(error[iteration, column])
            for name, error in errors.items()
            for column, unit in enumerate(("deg", "m"))
        }
        for iteration in range(ITERATIONS + 1)
    ]
    images = conditions.picture("errors")
    for image in images:
        _draw_errors(image, errors)
    note = f"{conditions.points} points; iteration 0 is the first guess."
    return Part(Table("Errors by iteration, against the truth", rows, note), images)


def iterations_alone(
    device: Device, problem: SyntheticPair, shuffled: bool = False, **engine_options
) -> Callable[[], float]:
    """Return a run of the iterations, without tree and copies, that gives milliseconds."""
    engine = device.engine("point_to_point", **engine_options)
    target, source = engine.target(problem.target), engine.source(problem.source)
    if shuffled:
        device.shuffle(source, np.random.default_rng(3).permutation(len(source)))
    pose = np.eye(4)
    pose[:3, 3] = source.origin - target.origin
    settings = Settings(
        "point_to_point",
        max_distance=MAX_DISTANCE,
        overlap_distance=MAX_DISTANCE,
        three_sigma=False,
        kernel="none",
        kernel_width=MAX_DISTANCE,
        max_iterations=ITERATIONS,
        relative_change=0.0,
        least_step=0.0,
    )

    def run() -> float:
        stopwatch = Stopwatch()
        with stopwatch:
            engine.start(target, source, pose, settings)()
        return stopwatch.milliseconds

    return run


def _draw_errors(path: Path, errors: dict[str, np.ndarray]) -> None:
    figure = Figure(figsize=(9.0, 4.5), layout="constrained")
    for column, (axes, label) in enumerate(
        zip(figure.subplots(1, 2), ("rotation [degrees]", "translation [m]"), strict=True)
    ):
        for name, error in errors.items():
            axes.plot(error[:, column], ".-", label=name)
        axes.set(yscale="log", xlabel="iteration", ylabel=f"error of the {label}")
        axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    save(figure, path)

"""Registration of 200,000 points beside small_gicp, Open3D and SciPy, and sweeps of our own."""

import argparse
from collections.abc import Callable, Sequence

from geoaccel_ros.benchmark.interleaving import interleave, spread
from geoaccel_ros.benchmark.options import add_backend, positive_int
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.benchmark.pictures import draw_bars
from geoaccel_ros.benchmark.registration_baselines import baselines
from geoaccel_ros.benchmark.registration_conditions import Conditions
from geoaccel_ros.benchmark.registration_contenders import (
    PEERS,
    TASKS,
    Outcome,
    Run,
    Task,
    geoaccel,
)
from geoaccel_ros.benchmark.registration_frames import frames_in_sequence
from geoaccel_ros.benchmark.registration_launches import launches
from geoaccel_ros.benchmark.registration_loops import errors_by_iteration, source_orders
from geoaccel_ros.benchmark.registration_problem import POINTS, Judge, make_problem
from geoaccel_ros.benchmark.registration_sizes import SIZES, sizes
from geoaccel_ros.benchmark.registration_trees import axis_rules, builds, leaf_sizes
from geoaccel_ros.benchmark.report import Report
from geoaccel_ros.registration import RegistrationConfig, Target
from geoaccel_ros.registration.synthetic import SyntheticPair

__all__ = ["PEERS", "add_options", "run"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the sizes, the sweeps and our own backends."""
    parser.add_argument(
        "--points", type=positive_int, default=POINTS, metavar="N",
        help="points of each cloud (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--baseline-points", type=positive_int, default=10_000, metavar="N",
        help="the same beside brute force (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--baseline-repetitions", type=positive_int, default=10, metavar="N",
        help="runs of each of those (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--sweep", action="store_true",
        help="leaf sizes, axes, orders, launches, sizes, and errors by iteration; takes minutes",
    )  # fmt: skip
    parser.add_argument(
        "--largest", type=positive_int, default=SIZES[-1], metavar="N",
        help="most points in the sweep of sizes (default: %(default)s)",
    )  # fmt: skip
    add_backend(parser)


def run(options: argparse.Namespace, peers: Sequence[Peer]) -> Report:
    """Run the tasks, the baselines, frames in sequence, and the sweeps that were asked for."""
    problem = make_problem(options.points)
    conditions = Conditions(
        options.points,
        _backends(options, problem),
        options.threads,
        options.repetitions,
        options.output,
    )
    rows = compare(problem, _contenders(problem, conditions, peers), conditions)
    images = conditions.picture("times")
    for image in images:
        bars = {
            f"{row['work']} {row['method']}: {row['contender']}": row["times_ours"] for row in rows
        }
        draw_bars(image, bars, "times ours")
    parts = [baselines(conditions, options.baseline_points, options.baseline_repetitions)]
    parts += [frames_in_sequence(conditions)]
    if options.sweep:
        parts += [
            leaf_sizes(conditions),
            axis_rules(conditions),
            source_orders(conditions),
            launches(conditions),
            builds(conditions, options.largest),
            sizes(conditions, options.largest),
            errors_by_iteration(conditions),
        ]
    return Report(
        "Registration: milliseconds from the arrays of points to the result",
        rows,
        tuple(part.table for part in parts),
        images + tuple(image for part in parts for image in part.images),
    )


def compare(
    problem: SyntheticPair, contenders: dict[str, dict[Task, Run]], conditions: Conditions
) -> list[dict]:
    """Return the rows of contenders that take turns, those of a task side by side.

    ``times_ours`` compares, round by round, with the first contender that has the task.
    """
    outcomes = {}

    def recorded(key: tuple[Task, str], run: Run) -> Callable[[], float]:
        def record() -> float:
            outcomes[key] = run()
            return outcomes[key].milliseconds

        return record

    runs = {
        (task, name): recorded((task, name), own[task])
        for task in TASKS
        for name, own in contenders.items()
        if task in own
    }
    times = interleave(runs, conditions.repetitions)
    judge = Judge(problem, conditions.threads)
    rows, ours = [], {}
    for (task, name), measured in times.items():
        ours.setdefault(task, measured)
        rows.append(
            {
                "contender": name,
                "work": task.work,
                "method": task.method,
                "points": len(problem.source),
                "ms": spread(measured),
                "times_ours": spread(measured / ours[task]),
                "repetitions": conditions.repetitions,
                **_result(outcomes[task, name], judge),
            }
        )
    return rows


def _result(outcome: Outcome, judge: Judge) -> dict:
    if outcome.T_target_source is None:
        return {}
    return {
        "iterations": outcome.iterations,
        "converged": outcome.converged,
        **judge(outcome.T_target_source),
    }


def _contenders(
    problem: SyntheticPair, conditions: Conditions, peers: Sequence[Peer]
) -> dict[str, dict[Task, Run]]:
    contenders = {}
    for backend in conditions.backends:
        for suffix, three_sigma in (("", False), (", three sigma", True)):
            contenders[f"geoaccel, {backend}{suffix}"] = geoaccel(
                problem, backend, conditions.threads, three_sigma
            )
    return contenders | {peer.name: peer.contender(problem, conditions.threads) for peer in peers}


def _backends(options: argparse.Namespace, problem: SyntheticPair) -> tuple[str, ...]:
    """Return what was asked for; for auto, what it takes at that size."""
    configs = [
        RegistrationConfig("point_to_point", backend=backend, threads=options.threads)
        for backend in options.backend
    ]
    return tuple(dict.fromkeys(Target(problem.target, config).backend for config in configs))

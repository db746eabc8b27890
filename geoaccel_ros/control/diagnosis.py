"""Where a rollout is not finite: it is repeated step by step, by the functions as written."""

import math
from collections.abc import Sequence

import numpy as np

from geoaccel_ros.control.distance_field import FAR, DistanceField, interpolate
from geoaccel_ros.control.rollouts import Problem
from geoaccel_ros.control.systems import System


def explain(system: System, problem: Problem, sample: int, states: np.ndarray | None = None) -> str:
    """Return in a line which step and stage of a rollout is the first that is not finite.

    A stage is the start, the goal, a parameter, the noise, the plan, a component of the state, or a
    term of the cost. The rollout is repeated in float64; if it is finite there, in float32, and the
    line says so. Steps are counted from 0, as in the plan.

    Parameters
    ----------
    system : System
    problem : Problem
    sample : int
        Which of its samples.
    states : np.ndarray, optional
        (T+1, X) that it passes through, where it is not the system's own step that leads there.
    """
    with np.errstate(all="ignore"):
        found = _first_not_finite(system, problem, sample, states, np.float64)
        if found:
            return f"rollout {sample}, {found}"
        found = _first_not_finite(system, problem, sample, states, np.float32)
    return f"rollout {sample}, {found}; only in float32" if found else f"rollout {sample} is finite"


def _first_not_finite(
    system: System,
    problem: Problem,
    sample: int,
    states: np.ndarray | None,
    dtype: type[np.floating],
) -> str | None:
    """Return step and stage; None if a rollout in ``dtype`` is finite, be it up to its crash."""
    p = type(problem.p)(*(dtype(value) for value in problem.p))
    x, before, goal, lower, upper = (
        tuple(dtype(value) for value in values)
        for values in (
            problem.start,
            problem.control_before,
            problem.goal,
            problem.lower,
            problem.upper,
        )
    )
    for what, names, values in (
        ("parameter", p._fields, p),
        ("start's", system.state, x),
        ("goal's", system.goal, goal),
    ):
        for name, value in zip(names, values, strict=True):
            if not math.isfinite(value):
                return f"before its first step: the {what} {name} is {value}"
    dt, cost = dtype(problem.dt), dtype(0.0)
    around = ()
    for t in range(len(problem.plan)):
        for what, values in (
            ("plan", problem.plan[t]),
            ("noise", problem.noise[t, :, sample]),
        ):
            for name, value in zip(system.control, values, strict=True):
                if not math.isfinite(value):
                    return f"step {t}: the {what} of {name} is {value}"
        sampled = problem.plan[t].astype(dtype) + problem.noise[t, :, sample].astype(dtype)
        u = tuple(np.clip(sampled, lower, upper))
        place = f"{_text(system.state, x, problem)} under {_text(system.control, u)}"
        try:
            after = system.step(x, u, p, dt) if states is None else states[t + 1]
        except (ArithmeticError, ValueError) as error:
            return f"step {t}: step raises {type(error).__name__}: {error}, from {place}"
        x = tuple(dtype(value) for value in after)
        for name, value in zip(system.state, x, strict=True):
            if not math.isfinite(value):
                return f"step {t}: the state's {name} is {value}, from {place}"
        place = f"in {_text(system.state, x, problem)}"
        if system.is_planar:
            near = _value_at(problem.field, problem, x, FAR)
            if near < problem.clearance_limit:
                return None
            around = dtype(near), dtype(_value_at(problem.detour, problem, x, 0.0))
        found, running = _terms(
            system.running, system.running_terms, "", (x, u, before, goal, *around, p), dtype
        )
        if found:
            return f"step {t}: {found}, {place} under {_text(system.control, u)}"
        cost += dt * running
        if not math.isfinite(cost):
            return f"step {t}: the sum of the costs is {cost}"
        before = u
    found, terminal = _terms(
        system.terminal, system.terminal_terms, "final_", (x, goal, *around, p), dtype
    )
    if found:
        return f"its end: {found}, {place}"
    return None if math.isfinite(cost + terminal) else "its end: the sum of the costs is not finite"


def _terms(
    function, names: Sequence[str], prefix: str, arguments: tuple, dtype: type[np.floating]
) -> tuple[str | None, np.floating]:
    """Return which term of a cost is not finite, None if all are, and their sum."""
    try:
        terms = [dtype(term) for term in function(*arguments)]
    except (ArithmeticError, ValueError) as error:
        return f"{function.__name__} raises {type(error).__name__}: {error}", dtype(0.0)
    for name, term in zip(names, terms, strict=True):
        if not math.isfinite(term):
            return f"the cost's term {prefix}{name} is {term}", term
    return None, sum(terms, dtype(0.0))


def _value_at(grid: DistanceField, problem: Problem, x: tuple, outside: float) -> float:
    origin = grid.origin - problem.origin
    return interpolate(grid.distances, *origin, 1.0 / grid.resolution, x[0], x[1], outside)


def _text(names: Sequence[str], values: Sequence[float], problem: Problem | None = None) -> str:
    """Return names and values, of a state of ``problem`` in the frame that the robot is in."""
    values = list(values)
    if problem is not None:
        # Zero where nothing is relative to the robot.
        values[:2] = np.add(values[:2], problem.origin[: len(values[:2])])
    return ", ".join(f"{name} {value:.6g}" for name, value in zip(names, values, strict=True))

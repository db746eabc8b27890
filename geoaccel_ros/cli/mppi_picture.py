"""A closed loop in one picture: the samples of one update, and the run."""

from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure, SubFigure

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.control.mppi import Mppi, MppiUpdate
from geoaccel_ros.control.systems import System
from geoaccel_ros.simulation.closed_loop import Run

# Samples drawn as lines, those of most weight.
_DRAWN = 150
_FAINTEST = 0.06
_PLAN, _SAMPLES, _COUNTED = "tab:red", "tab:blue", "tab:orange"
# Inches: of the picture; of a row of large panels; of one of controls.
_WIDTH, _ROW, _CONTROL_ROW = 14.0, 3.3, 2.4
_CONTROLS_A_ROW = 4
# Lines of a panel, of which no two have the same colour.
_MOST_LINES = 20
# Of legends that would hide lines.
_BESIDE = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The samples of one update, those of most weight first.

    Attributes
    ----------
    time : float
        s.
    costs, weights : np.ndarray
        (K,).
    controls : np.ndarray
        (N, T, U) of those that are drawn.
    trajectories : np.ndarray
        (N, T+1, X) of the same.
    update : MppiUpdate
    dt : float
        s.
    """

    time: float
    costs: np.ndarray
    weights: np.ndarray
    controls: np.ndarray
    trajectories: np.ndarray
    update: MppiUpdate
    dt: float

    @classmethod
    def of(cls, now: float, dt: float, controller: Mppi, update: MppiUpdate) -> "Snapshot":
        """Return that of a controller's last update."""
        controls, costs, weights = controller.samples()
        trajectories, _ = controller.rollouts(_DRAWN)
        drawn = controls[: len(trajectories)].copy()
        return cls(now, costs, weights, drawn, trajectories, update, dt)


def draw(
    path: str,
    system: System,
    limits: tuple[np.ndarray, np.ndarray],
    run: Run,
    snapshot: Snapshot | None,
) -> None:
    """Write a PNG; without a snapshot, of the run alone.

    Parameters
    ----------
    limits : tuple of np.ndarray
        Smallest and largest control, each (U,).

    Raises
    ------
    UserError
        If it cannot be written.
    """
    rows = -(-len(system.control) // _CONTROLS_A_ROW)
    heights = [_ROW] if snapshot is None else [_ROW, 0.3 + _CONTROL_ROW * rows, _ROW]
    figure = Figure(figsize=(_WIDTH, 0.5 + sum(heights)), layout="constrained")
    reached = "goal not reached"
    if run.success:
        reached = f"goal reached after {run.time_to_goal_s:.2f} s"
    figure.get_layout_engine().set(w_pad=0.1)
    figure.suptitle(f"{system.name}: {reached}", fontsize="x-large")
    parts = np.atleast_1d(figure.subfigures(len(heights), 1, height_ratios=heights))
    if snapshot is not None:
        costs, weights, trajectories = parts[0].subplots(1, 3)
        _draw_costs(costs, snapshot)
        _draw_weights(weights, snapshot)
        _draw_trajectories(trajectories, system, run, snapshot)
        _draw_controls(parts[1], rows, system, limits, snapshot)
    _draw_run(parts[-1], system, limits, run, snapshot)
    try:
        figure.savefig(path, dpi=100, format="png")
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror}") from None


def _draw_costs(axes: Axes, snapshot: Snapshot) -> None:
    finite = np.isfinite(snapshot.costs)
    costs, weights = snapshot.costs[finite].astype(float), snapshot.weights[finite]
    # A few samples that flew off would leave one bar of all others.
    least, most = np.percentile(costs, (0.0, 95.0))
    bins = np.linspace(least, max(most, least + 1e-6 * max(abs(least), 1.0)), 50)
    *_, samples = axes.hist(costs, bins, color=_SAMPLES, alpha=0.5)
    axes.set(xlabel="cost", ylabel="samples", title=f"costs of the update at {snapshot.time:.2f} s")
    beside = axes.twinx()
    *_, counted = beside.hist(costs, bins, weights=weights, color=_COUNTED, alpha=0.8)
    beside.set_ylabel("weight")
    crashed = 1.0 - finite.mean()
    of_samples = f"samples, {100.0 * crashed:.0f} % crashed" if crashed else "samples"
    beside.legend((samples, counted), (of_samples, "their weight"), loc="upper right")


def _draw_weights(axes: Axes, snapshot: Snapshot) -> None:
    count = len(snapshot.weights)
    axes.step(np.arange(1, count + 1), np.cumsum(snapshot.weights), color=_SAMPLES, where="post")
    ess = snapshot.update.ess
    axes.axvline(ess, color=_PLAN, label=f"effective: {ess:.0f} of {count}")
    axes.set(xscale="log", xlim=(1, count), ylim=(0, 1.02))
    axes.set(xlabel="samples, the heaviest first", ylabel="cumulated weight")
    axes.set_title(f"weights at temperature {snapshot.update.temperature:.2g}")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")


def _draw_trajectories(axes: Axes, system: System, run: Run, snapshot: Snapshot) -> None:
    """Draw where samples lead: on a plane where the goal is a place, else over time."""
    place = [system.state.index(name) for name in system.goal if name in system.state]
    paths, plan = snapshot.trajectories, snapshot.update.plan
    if len(place) > 1:
        # Of three coordinates, the two that changed most.
        widest = np.sort(np.argsort(-np.ptp(run.states[:, place], axis=0), kind="stable")[:2])
        shown = [place[i] for i in widest]
        lines, followed = paths[:, :, shown], plan[:, shown]
        axes.plot(*run.states[:, shown].T, color="black", linewidth=0.8, label="driven")
        goal = np.array(system.task["goal"])[widest]
        axes.plot(*goal, "*", color="tab:green", markersize=12, label="goal")
        axes.set_aspect("equal", adjustable="datalim")
        labels = [system.state[i] for i in shown]
    else:
        shown = int(np.argmax(np.ptp(run.states[:, : _positions(system)], axis=0)))
        times = snapshot.time + snapshot.dt * np.arange(len(plan))
        lines = _over_time(times, paths[:, :, shown])
        followed = np.column_stack((times, plan[:, shown]))
        labels = "time [s]", system.state[shown]
    _draw_lines(axes, lines, snapshot.weights, followed)
    axes.set(xlabel=labels[0], ylabel=labels[1], title="where samples lead")
    axes.legend(**_BESIDE)


def _draw_controls(
    figure: SubFigure,
    rows: int,
    system: System,
    limits: tuple[np.ndarray, np.ndarray],
    snapshot: Snapshot,
) -> None:
    figure.suptitle("control sequences of the samples, of the plan, and their limits")
    columns = min(len(system.control), _CONTROLS_A_ROW)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True).flat
    times = snapshot.time + snapshot.dt * np.arange(snapshot.controls.shape[1])
    for i, (name, axes) in enumerate(zip(system.control, panels, strict=False)):
        plan = np.column_stack((times, snapshot.update.controls[:, i]))
        _draw_lines(axes, _over_time(times, snapshot.controls[:, :, i]), snapshot.weights, plan)
        for limit in (limit[i] for limit in limits if np.isfinite(limit[i])):
            axes.axhline(limit, color="black", linestyle=":", linewidth=1.0)
        axes.set(ylabel=name)
        if i + columns >= len(system.control):
            axes.set_xlabel("time [s]")
            axes.tick_params(labelbottom=True)
    for axes in panels:
        axes.remove()


def _over_time(times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return lines (N, T, 2) of values (N, T)."""
    return np.stack((np.broadcast_to(times, values.shape), values), axis=2)


def _draw_lines(axes: Axes, lines: np.ndarray, weights: np.ndarray, plan: np.ndarray) -> None:
    """Draw lines (N, T, 2) as opaque as they have weight, the heaviest on top, and the plan."""
    weights = weights[: len(lines)]
    opacity = np.maximum(weights / weights.max(), _FAINTEST)
    colours = [(*to_rgb(_SAMPLES), a) for a in opacity]
    axes.add_collection(LineCollection(lines[::-1], colors=colours[::-1], linewidths=1.0))
    axes.plot(*plan.T, color=_PLAN, linewidth=2.0, label="plan")
    axes.autoscale()
    axes.grid(alpha=0.3)


def _draw_run(
    figure: SubFigure,
    system: System,
    limits: tuple[np.ndarray, np.ndarray],
    run: Run,
    snapshot: Snapshot | None,
) -> None:
    half = _positions(system)
    commands, title = run.controls, "commands"
    if len(system.control) > 1:
        # A thrust of 10 N beside a torque of 0.01 N m: each by its own measure.
        commands, title = commands / _largest(limits), "commands, as shares of their limits"
    panels = (
        ("state", system.state[:half], run.times, run.states[:, :half]),
        ("state, continued", system.state[half:], run.times, run.states[:, half:]),
        (title, system.control, run.times[:-1], commands),
    )
    for axes, (title, names, times, values) in zip(figure.subplots(1, 3), panels, strict=True):
        _draw_curves(axes, names, times, values)
        axes.set(xlabel="time [s]", title=title, xlim=(0.0, run.times[-1]))
        if snapshot is not None:
            axes.axvline(snapshot.time, color="black", linestyle=":", linewidth=1.0)
        if run.success:
            axes.axvline(run.time_to_goal_s, color="tab:green", linestyle="--", linewidth=1.0)


def _draw_curves(axes: Axes, names: tuple[str, ...], times: np.ndarray, values: np.ndarray) -> None:
    """Draw a line for each name, and beside the panel which is which."""
    shown = list(zip(names, values.T, strict=True))[:_MOST_LINES]
    colours = colormaps["tab10" if len(shown) <= 10 else "tab20"].colors
    for (name, line), colour in zip(shown, colours, strict=False):
        axes.plot(times, line, color=colour, label=name, linewidth=1.2)
    if len(names) > len(shown):
        axes.plot([], [], " ", label=f"and {len(names) - len(shown)} more")
    axes.grid(alpha=0.3)
    size = "small" if len(shown) <= 10 else "xx-small"
    axes.legend(**_BESIDE, fontsize=size, handlelength=1.0)


def _largest(limits: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the largest magnitude (U,) of each control; 1 where it has no limit, or is frozen."""
    largest = np.maximum(*np.abs(limits))
    return np.where(np.isfinite(largest) & (largest > 0.0), largest, 1.0)


def _positions(system: System) -> int:
    """Return how many components of the state are positions, or else its first half."""
    return (
        system.mujoco_model(system.parameters()).nq if system.model else -(-len(system.state) // 2)
    )

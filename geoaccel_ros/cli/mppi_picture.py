"""A closed loop in one picture: the samples of one update, and the run."""

import textwrap
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
# Effective samples below which one decides, and share of all above which none does.
_FEW, _ALMOST_ALL = 1.5, 0.9
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
    time, dt : float
        s.
    state_names, control_names, goal_names : tuple of str
    goal : np.ndarray
        (G,).
    lower, upper : np.ndarray
        (U,) limits of the controls.
    costs, weights : np.ndarray
        (K,).
    controls : np.ndarray
        (N, T, U) of those that are drawn.
    trajectories : np.ndarray
        (N, T+1, X) of the same.
    plan_controls, plan_states : np.ndarray
        (T, U) and (T+1, X) of the new plan.
    ess, temperature : float
    """

    time: float
    dt: float
    state_names: tuple[str, ...]
    control_names: tuple[str, ...]
    goal_names: tuple[str, ...]
    goal: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    costs: np.ndarray
    weights: np.ndarray
    controls: np.ndarray
    trajectories: np.ndarray
    plan_controls: np.ndarray
    plan_states: np.ndarray
    ess: float
    temperature: float

    @classmethod
    def of(
        cls, now: float, dt: float, controller: Mppi, update: MppiUpdate, goal: np.ndarray
    ) -> "Snapshot":
        """Return that of a controller's last update."""
        controls, costs, weights = controller.samples()
        trajectories, _ = controller.rollouts(_DRAWN)
        system = controller.system
        return cls(
            now,
            dt,
            system.state,
            system.control,
            system.goal,
            np.array(goal, float),
            *controller.limits,
            costs,
            weights,
            controls[: len(trajectories)].copy(),
            trajectories,
            update.controls,
            update.plan,
            update.ess,
            update.temperature,
        )

    @classmethod
    def from_file(cls, update: dict[str, np.ndarray]) -> "Snapshot":
        """Return that of a file, as :func:`geoaccel_ros.control.update_file.read_update` has it."""
        names = (
            tuple(update[name].tolist()) for name in ("state_names", "control_names", "goal_names")
        )
        trajectories = update["trajectories"][:_DRAWN]
        return cls(
            float(update["stamp"]),
            float(update["dt"]),
            *names,
            update["goal"],
            update["lower"],
            update["upper"],
            update["costs"],
            update["weights"],
            update["controls"][: len(trajectories)],
            trajectories,
            update["plan_controls"],
            update["plan_states"],
            float(update["ess"]),
            float(update["temperature"]),
        )

    @property
    def hint(self) -> str:
        """What an effective sample size near one or near that of all samples means; else empty."""
        if self.ess < _FEW:
            return (
                "one sample decides: raise temperature or ess_fraction, "
                "or take more samples or a smaller sigma"
            )
        if self.ess > _ALMOST_ALL * len(self.weights):
            return (
                "all samples count alike: lower temperature or ess_fraction, "
                "or give sigma or horizon a size that costs depend on"
            )
        return ""


def draw(
    path: str,
    system: System,
    limits: tuple[np.ndarray, np.ndarray],
    run: Run,
    snapshot: Snapshot | None,
) -> None:
    """Write a PNG of a run and of one of its updates; without a snapshot, of the run alone.

    Parameters
    ----------
    limits : tuple of np.ndarray
        Smallest and largest control, each (U,).

    Raises
    ------
    UserError
        If it cannot be written.
    """
    title = f"{system.name}: goal not reached"
    if run.success:
        title = f"{system.name}: goal reached after {run.time_to_goal_s:.2f} s"
    heights = [*_heights(snapshot), _ROW]
    figure, parts = _figure(title, heights)
    if snapshot is not None:
        _draw_snapshot(parts, snapshot, run.states, _positions(system))
    _draw_run(parts[-1], system, limits, run, snapshot)
    _save(figure, path)


def draw_update(path: str, name: str, snapshot: Snapshot) -> None:
    """Write a PNG of one update of the system of that name.

    Raises
    ------
    UserError
        If it cannot be written.
    """
    figure, parts = _figure(f"{name}: an update", _heights(snapshot))
    _draw_snapshot(parts, snapshot, None, -(-len(snapshot.state_names) // 2))
    _save(figure, path)


def _heights(snapshot: Snapshot | None) -> list[float]:
    """Return the heights of an update's parts, inches."""
    if snapshot is None:
        return []
    return [_ROW, 0.3 + _CONTROL_ROW * _control_rows(snapshot)]


def _figure(title: str, heights: list[float]) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(_WIDTH, 0.5 + sum(heights)), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1)
    figure.suptitle(title, fontsize="x-large")
    return figure, np.atleast_1d(figure.subfigures(len(heights), 1, height_ratios=heights))


def _save(figure: Figure, path: str) -> None:
    try:
        figure.savefig(path, dpi=100, format="png")
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror}") from None


def _draw_snapshot(
    parts: np.ndarray, snapshot: Snapshot, driven: np.ndarray | None, positions: int
) -> None:
    """Draw costs, weights, trajectories and controls; a state begins with so many positions."""
    costs, weights, trajectories = parts[0].subplots(1, 3)
    _draw_costs(costs, snapshot)
    _draw_weights(weights, snapshot)
    _draw_trajectories(trajectories, snapshot, driven, positions)
    _draw_controls(parts[1], snapshot)


def _control_rows(snapshot: Snapshot) -> int:
    return -(-len(snapshot.control_names) // _CONTROLS_A_ROW)


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
    ess = snapshot.ess
    axes.axvline(ess, color=_PLAN, label=f"effective: {ess:.0f} of {count}")
    axes.set(xscale="log", xlim=(1, count), ylim=(0, 1.02))
    axes.set(xlabel="samples, the heaviest first", ylabel="cumulated weight")
    axes.set_title(f"weights at temperature {snapshot.temperature:.2g}")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    if snapshot.hint:
        hint = textwrap.fill(snapshot.hint, 40)
        axes.text(0.03, 0.6, hint, transform=axes.transAxes, fontsize="small", color=_PLAN)


def _draw_trajectories(
    axes: Axes, snapshot: Snapshot, driven: np.ndarray | None, positions: int
) -> None:
    """Draw where samples lead: on a plane where the goal is a place, else over time.

    Of more components than are drawn, those are drawn that changed most while it was driven; where
    that is not known, in the samples.
    """
    names, goal_names = snapshot.state_names, snapshot.goal_names
    place = [names.index(name) for name in goal_names if name in names]
    paths, plan = snapshot.trajectories, snapshot.plan_states
    changed = np.ptp(paths.reshape(-1, len(names)) if driven is None else driven, axis=0)
    if len(place) > 1:
        # Of three coordinates, the two that changed most.
        widest = np.sort(np.argsort(-changed[place], kind="stable")[:2])
        shown = [place[i] for i in widest]
        lines, followed = paths[:, :, shown], plan[:, shown]
        if driven is not None:
            axes.plot(*driven[:, shown].T, color="black", linewidth=0.8, label="driven")
        goal = [snapshot.goal[goal_names.index(names[i])] for i in shown]
        axes.plot(*goal, "*", color="tab:green", markersize=12, label="goal")
        axes.set_aspect("equal", adjustable="datalim")
        labels = [names[i] for i in shown]
    else:
        shown = int(np.argmax(changed[:positions]))
        times = snapshot.time + snapshot.dt * np.arange(len(plan))
        lines = _over_time(times, paths[:, :, shown])
        followed = np.column_stack((times, plan[:, shown]))
        labels = "time [s]", names[shown]
    _draw_lines(axes, lines, snapshot.weights, followed)
    axes.set(xlabel=labels[0], ylabel=labels[1], title="where samples lead")
    axes.legend(**_BESIDE)


def _draw_controls(figure: SubFigure, snapshot: Snapshot) -> None:
    names = snapshot.control_names
    figure.suptitle("control sequences of the samples, of the plan, and their limits")
    columns = min(len(names), _CONTROLS_A_ROW)
    panels = figure.subplots(_control_rows(snapshot), columns, squeeze=False, sharex=True).flat
    times = snapshot.time + snapshot.dt * np.arange(snapshot.controls.shape[1])
    for i, (name, axes) in enumerate(zip(names, panels, strict=False)):
        plan = np.column_stack((times, snapshot.plan_controls[:, i]))
        _draw_lines(axes, _over_time(times, snapshot.controls[:, :, i]), snapshot.weights, plan)
        for limit in (snapshot.lower[i], snapshot.upper[i]):
            if np.isfinite(limit):
                axes.axhline(limit, color="black", linestyle=":", linewidth=1.0)
        axes.set(ylabel=name)
        if i + columns >= len(names):
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

"""A registration in one picture: both clouds before and after it, and how it converged."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.registration_report import centre, errors
from geoaccel_ros.registration import Registration, se3

# Points drawn of each cloud.
_DRAWN = 30_000
# Left out at either end of each axis: a few far points would shrink all others to a blot.
_LEFT_OUT = 1.0  # percent
_MARGIN = 0.03
# Beyond it, coordinates are written relative to a round number.
_FAR = 10_000.0
_COLOURS = {"target": "tab:blue", "source": "tab:orange"}
# Inches: of the picture, of a view, of the curves, and what titles and labels of the rows take.
_WIDTH, _VIEW, _CURVES, _LABELS = 13.0, 5.7, 3.2, 2.0


def draw(
    path: str,
    target: np.ndarray,
    source: np.ndarray,
    initial: np.ndarray | None,
    found: Registration,
    truth: np.ndarray | None,
) -> None:
    """Write a PNG.

    Parameters
    ----------
    target : ndarray (N, 3), metres
    source : ndarray (M, 3), metres
    initial : ndarray (4, 4) or None
        First guess of T_target_source; None: identity.
    truth : ndarray (4, 4) or None

    Raises
    ------
    UserError
        If it cannot be written.
    """
    thin_target, thin_source = _thinned(target), _thinned(source)
    offset = np.where(np.abs(centre(target)) > _FAR, np.round(centre(target), -2), 0.0)
    moved = [
        se3.apply(transform, thin_source) - offset
        for transform in (np.eye(4) if initial is None else initial, found.T_target_source)
    ]
    limits = _limits(np.vstack([thin_target - offset, *moved]))
    heights = _heights(limits)
    figure = Figure(figsize=(_WIDTH, sum(heights) + _LABELS), layout="constrained")
    grid = figure.add_gridspec(3, 2, height_ratios=heights)
    for column, title in enumerate(("before", f"after: {100.0 * found.overlap:.1f} % overlap")):
        clouds = thin_target - offset, moved[column]
        top, side = (figure.add_subplot(grid[row, column]) for row in (0, 1))
        _draw_view(top, clouds, limits, (0, 1), offset)
        _draw_view(side, clouds, limits, (0, 2), offset)
        top.set_title(title)
        top.legend(loc="upper left")
    _draw_residuals(figure.add_subplot(grid[2, :] if truth is None else grid[2, 0]), found)
    if truth is not None:
        _draw_errors(figure.add_subplot(grid[2, 1]), found, truth, centre(source))
    try:
        figure.savefig(path, dpi=100, format="png")
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror}") from None


def _thinned(points: np.ndarray) -> np.ndarray:
    """Return some of the points that are finite: at random, since scans have a rhythm."""
    points = points[np.isfinite(points).all(axis=1)]
    chosen = np.random.default_rng(0).permutation(len(points))[:_DRAWN]
    return points[chosen].astype(np.float64)


def _limits(points: np.ndarray) -> np.ndarray:
    """Return the ends (2, 3) of the axes, in metres."""
    if not len(points):
        return np.array([-np.ones(3), np.ones(3)])
    ends = np.percentile(points, [_LEFT_OUT, 100.0 - _LEFT_OUT], axis=0)
    margin = np.maximum(_MARGIN * (ends[1] - ends[0]).max(), 1e-3)
    return ends + [[-margin], [margin]]


def _heights(limits: np.ndarray) -> tuple[float, float, float]:
    """Return the heights of the rows in inches, such that the views fill their width."""
    width, depth, height = limits[1] - limits[0]
    return _VIEW * min(depth / width, 1.5), _VIEW * min(height / width, 1.0), _CURVES


def _draw_view(
    view: Axes,
    clouds: tuple[np.ndarray, np.ndarray],
    limits: np.ndarray,
    axes: tuple[int, int],
    offset: np.ndarray,
) -> None:
    """Draw both clouds along two of the axes, neither always on top of the other."""
    both = np.vstack(clouds)[:, axes]
    counts = [len(cloud) for cloud in clouds]
    colours = np.repeat(list(_COLOURS.values()), counts)
    # A cloud of few points is seen as well as one of many.
    sizes = np.repeat([np.clip(_DRAWN / max(count, 1), 1.0, 20.0) for count in counts], counts)
    order = np.random.default_rng(1).permutation(len(both))
    view.scatter(*both[order].T, 0.6 * sizes[order], colours[order], linewidths=0)
    for name, colour in _COLOURS.items():
        view.scatter([], [], 30.0, colour, label=name)
    across, up = axes
    view.set(xlim=limits[:, across], ylim=limits[:, up], aspect="equal")
    labels = ["xyz"[axis] + (f" - {offset[axis]:.0f}" if offset[axis] else "") for axis in axes]
    view.set(xlabel=f"{labels[0]} [m]", ylabel=f"{labels[1]} [m]")


def _draw_residuals(axes: Axes, found: Registration) -> None:
    axes.plot(_iterations(found), found.trace, ".-", color="black")
    axes.set(ylabel="residual, RMS [m]")
    axes.set_title(f"{'converged' if found.converged else 'not converged'}: {found.reason}")
    _finish_curves(axes, found)


def _draw_errors(axes: Axes, found: Registration, truth: np.ndarray, middle: np.ndarray) -> None:
    steps = [errors(pose, truth, middle) for pose in found.poses]
    for name, label, colour in (
        ("error_centre_m", "of the source's centre [m]", "tab:green"),
        ("error_deg", "of the rotation [degrees]", "tab:red"),
    ):
        values = [step[name] for step in steps]
        axes.plot(_iterations(found), values, ".-", color=colour, label=label)
    axes.set(ylabel="error", title="against the truth")
    axes.legend()
    _finish_curves(axes, found)


def _finish_curves(axes: Axes, found: Registration) -> None:
    coarser = found.iterations >= len(found.poses) > 0
    axes.set(yscale="log", xlabel=f"iteration{', with the finest voxels' if coarser else ''}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(which="both", alpha=0.3)


def _iterations(found: Registration) -> range:
    """Return the numbers of the poses; those of coarser voxels come before."""
    return range(found.iterations + 1 - len(found.poses), found.iterations + 1)

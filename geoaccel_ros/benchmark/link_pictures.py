"""Pictures of what came over a link."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from geoaccel_ros.benchmark.link_run import LinkRun
from geoaccel_ros.benchmark.pictures import save
from geoaccel_ros.pointcloud.layout import coordinates

# Metres around the sensor that are drawn, at most.
_REACH = 30.0


def draw_ages(path: Path, runs: Mapping[str, LinkRun]) -> None:
    """Draw the age of each cloud over the time of its publication, a panel for each run."""
    figure = Figure(figsize=(8.0, 1.0 + 1.7 * len(runs)), layout="constrained")
    panels = figure.subplots(len(runs), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (name, run) in zip(panels, runs.items(), strict=True):
        came = [(c.published, 1e3 * c.age) for c in run.clouds if c.age is not None]
        lost = [c.published for c in run.clouds if c.age is None]
        axes.plot(*np.array(came).reshape(-1, 2).T, ".", markersize=3, label="arrived")
        axes.plot(lost, np.zeros(len(lost)), "rx", markersize=4, label="lost")
        if run.outage is not None:
            axes.axvspan(*run.outage, color="k", alpha=0.1)
        axes.set(ylabel="age [ms]")
        axes.set_title(name, fontsize=9)
        axes.set_ylim(bottom=-10.0)
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize=8)
    panels[-1].set(xlabel="published [s]")
    save(figure, path)


def draw_beside(path: Path, original: np.ndarray, decoded: np.ndarray, title: str) -> None:
    """Draw a decoded cloud beside its original, from above, coloured by height.

    Parameters
    ----------
    original, decoded : ndarray, shape (N,), structured
    title : str
    """
    figure = Figure(figsize=(12.0, 6.4), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    xyz = coordinates(original)
    heights = np.nanpercentile(xyz[:, 2], [2, 98])
    reach = min(_REACH, 1.1 * float(np.nanmax(np.abs(xyz[:, :2]))))
    for axes, points, name in zip(
        panels, (original, decoded), ("original", "decoded"), strict=True
    ):
        xyz = coordinates(points)
        axes.scatter(
            xyz[:, 0], xyz[:, 1], c=xyz[:, 2], s=0.3, lw=0, vmin=heights[0], vmax=heights[1]
        )
        axes.set(title=f"{name}: {len(points):,} points", xlabel="x [m]", aspect="equal")
    panels[0].set(xlim=(-reach, reach), ylim=(-reach, reach), ylabel="y [m]")
    figure.suptitle(title)
    save(figure, path)

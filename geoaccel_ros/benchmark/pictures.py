"""Pictures of what a benchmark found."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from geoaccel_ros.benchmark.errors import BenchmarkError


def draw_times(path: Path, rows: list[dict], size: str) -> None:
    """Draw each contender's median and quartiles over the size, both logarithmic.

    Parameters
    ----------
    rows : list of dict
        As in :class:`.report.Report`.
    size : str
        Name of the column that holds the size.
    """
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.subplots()
    for contender in dict.fromkeys(row["contender"] for row in rows):
        own = [row for row in rows if row["contender"] == contender]
        sizes, times = [row[size] for row in own], [row["ms"] for row in own]
        (line,) = axes.plot(sizes, [t["median"] for t in times], ".-", label=contender)
        axes.fill_between(
            sizes,
            [t["q1"] for t in times],
            [t["q3"] for t in times],
            color=line.get_color(),
            alpha=0.2,
        )
    axes.set(xscale="log", yscale="log", xlabel=size, ylabel="milliseconds")
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)


def draw_bars(path: Path, spreads: Mapping[str, dict[str, float]], quantity: str) -> None:
    """Draw a bar for each label, median and quartiles.

    Parameters
    ----------
    spreads : mapping of str to dict
        As :func:`.interleaving.spread` returns them, from top to bottom.
    quantity : str
        What they are of, with the unit.
    """
    figure = Figure(figsize=(8.0, 1.0 + 0.3 * len(spreads)), layout="constrained")
    axes = figure.subplots()
    medians, low, high = np.array([[s["median"], s["q1"], s["q3"]] for s in spreads.values()]).T
    axes.barh([*spreads], medians, xerr=[medians - low, high - medians])
    axes.invert_yaxis()
    axes.set(xlabel=quantity)
    axes.grid(axis="x", alpha=0.3)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG.

    Raises
    ------
    BenchmarkError
        If it cannot be written.
    """
    try:
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise BenchmarkError(f"cannot write '{path}': {error.strerror}") from None

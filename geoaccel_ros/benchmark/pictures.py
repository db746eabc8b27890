"""Pictures of what a benchmark found."""

from pathlib import Path

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

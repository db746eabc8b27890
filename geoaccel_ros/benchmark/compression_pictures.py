"""Pictures of rates: beside the peers, and against distortion."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from geoaccel_ros.benchmark.compression_contenders import AUTO, MODES
from geoaccel_ros.benchmark.pictures import save


def draw_rates(path: Path, rows: Sequence[dict]) -> None:
    """Draw bits a point at the first step: a panel for each case, a line for each cloud.

    Parameters
    ----------
    rows : sequence of dict
        Of the benchmark.
    """
    # What auto takes is the smaller of the others.
    rows = [r for r in rows if r["step_m"] == rows[0]["step_m"] and r["contender"] != AUTO]
    clouds, cases, contenders = (
        [*dict.fromkeys(row[name] for row in rows)] for name in ("cloud", "case", "contender")
    )
    size = (2.5 + 3.2 * len(cases), 1.8 + 0.25 * len(clouds))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
    for axes, case in zip(panels, cases, strict=True):
        for number, contender in enumerate(contenders):
            own = [r for r in rows if (r["case"], r["contender"]) == (case, contender)]
            axes.plot(
                [row["bits_per_point"] for row in own],
                [clouds.index(row["cloud"]) for row in own],
                "D" if contender in MODES else "o",
                color=f"C{number}",
                markersize=7 if contender in MODES else 5,
                alpha=0.8,
                label=contender,
            )
        axes.set(xscale="log", title=case, xlabel="bits a point")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(alpha=0.3)
    panels[0].set_yticks(range(len(clouds)), clouds, fontsize=8)
    panels[0].set_ylim(len(clouds) - 0.5, -0.5)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    figure.suptitle(f"Cells of {1e3 * rows[0]['step_m']:g} mm")
    save(figure, path)


def draw_distortion(path: Path, rows: Sequence[dict], title: str) -> None:
    """Draw bits a point against D1 PSNR and against the largest error.

    Parameters
    ----------
    rows : sequence of dict
        With ``contender``, ``bits_per_point``, ``d1_psnr_db`` and ``max_error_m``.
    title : str
    """
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for contender in dict.fromkeys(row["contender"] for row in rows):
        own = [row for row in rows if row["contender"] == contender]
        rates = [row["bits_per_point"] for row in own]
        marker = "D-" if contender in MODES else "o--"
        left.plot(rates, [row["d1_psnr_db"] for row in own], marker, label=contender, markersize=4)
        right.plot(rates, [1e3 * row["max_error_m"] for row in own], marker, markersize=4)
    left.set(xlabel="bits a point", ylabel="D1 PSNR [dB]", title=title)
    right.set(xlabel="bits a point", ylabel="largest error of a coordinate [mm]", yscale="log")
    for axes in left, right:
        axes.grid(alpha=0.3)
    left.legend(fontsize=8)
    save(figure, path)

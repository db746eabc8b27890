"""Pictures of what an update takes."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from geoaccel_ros.benchmark.mppi_sweep import PERIOD_MS, SAMPLES, knee
from geoaccel_ros.benchmark.pictures import save

# A slice below this part of a pie has no label.
_SMALL = 0.03
_NO_STAGES = "system", "contender", "whole_at_50_hz"


def draw_sweep(path: Path, rows: Sequence[dict]) -> None:
    """Draw medians and quartiles over the number of samples, logarithmic, with each curve's knee.

    Parameters
    ----------
    rows : sequence of dict
        As :func:`.mppi_sweep.sizes` returns them.
    """
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.subplots()
    curves = dict.fromkeys((row["system"], row["contender"]) for row in rows)
    for system, contender in curves:
        own = [r for r in rows if (r["system"], r["contender"]) == (system, contender)]
        samples, times = [row["samples"] for row in own], [row["ms"] for row in own]
        medians = [t["median"] for t in times]
        found = knee(samples, medians)
        (line,) = axes.plot(
            samples, medians, ".-", label=f"{system}, {contender}; knee {found['knee_samples']}"
        )
        axes.fill_between(
            samples,
            [t["q1"] for t in times],
            [t["q3"] for t in times],
            color=line.get_color(),
            alpha=0.2,
        )
        if SAMPLES[0] <= found["knee_samples"] <= SAMPLES[-1]:
            axes.plot(
                [found["knee_samples"]], [2.0 * found["fixed_ms"]], "v", color=line.get_color()
            )
    axes.axhline(PERIOD_MS, color="0.5", linestyle="--", label="20 ms: a period of 50 Hz")
    axes.set(xscale="log", yscale="log", xlabel="samples", ylabel="milliseconds an update")
    axes.set_xticks(SAMPLES, [str(size) for size in SAMPLES])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    save(figure, path)


def draw_stages(path: Path, rows: Sequence[dict]) -> None:
    """Draw a pie for each row of :func:`.mppi_sweep.stages`."""
    figure = Figure(figsize=(4.2 * len(rows), 4.0), layout="constrained")
    panels = figure.subplots(1, len(rows), squeeze=False)[0]
    names = [*dict.fromkeys(n for row in rows for n in row if n not in _NO_STAGES)]
    for axes, row in zip(panels, rows, strict=True):
        own = {name: row[name] for name in names if row.get(name)}
        total = sum(own.values())
        axes.pie(
            [*own.values()],
            labels=[n if v >= _SMALL * total else "" for n, v in own.items()],
            colors=[f"C{names.index(name)}" for name in own],
            autopct=lambda share: f"{share:.0f} %" if share >= 100.0 * _SMALL else "",
            textprops={"fontsize": 8},
        )
        axes.set_title(f"{row['system']}, {row['contender']}: {total:.2f} ms", fontsize=9)
    save(figure, path)

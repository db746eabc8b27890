"""What a benchmark found, and how people read it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Table:
    """Rows under a title; a row maps a column's name to a string, a number or a spread.

    The note says what they were measured under, or why there are none.
    """

    title: str
    rows: list[dict]
    note: str = ""


@dataclass(frozen=True)
class Report:
    """What a benchmark found.

    Attributes
    ----------
    title : str
        What was measured, and the unit of work that the milliseconds are of.
    rows : list of dict
        One a contender and size: ``contender``, the size under its name (``points``, ``samples``),
        ``ms`` (:func:`.interleaving.spread`), ``repetitions``, and what else the benchmark knows
        (errors in SI units, named as in ``rmse_m``).
    tables : tuple of Table
        What there is to tell beside the main rows: baselines, sweeps.
    images : tuple of Path
        Pictures that were drawn.
    """

    title: str
    rows: list[dict]
    tables: tuple[Table, ...] = ()
    images: tuple[Path, ...] = ()


def markdown(content: dict) -> str:
    """Return the text of a report as :mod:`geoaccel_ros.cli.bench` writes it to JSON."""
    machine = content["machine"]
    parts = [
        f"# {content['title']}",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"GPU: {machine['gpu'] or 'none'}; threads: {machine['threads']}; {machine['os']}, "
        f"Python {machine['python']}; {content['date']}",
        ", ".join(f"{name} {version}" for name, version in content["versions"].items()),
        _table(content["rows"]),
    ]
    for absent in content["left_out"]:
        parts.append(f"Left out: {absent['contender']}, {absent['reason']}")
    for table in content["tables"]:
        parts += [f"## {table['title']}", table["note"], _table(table["rows"])]
    for image in content["images"]:
        parts.append(f"![{Path(image).stem}]({image})")
    return "\n\n".join(part for part in parts if part)


def _table(rows: list[dict]) -> str:
    if not rows:
        return ""
    # Contenders may tell different things: the columns are those of any of them.
    columns = {}
    for row in rows:
        for name, value in row.items():
            header = f"{name} (quartiles)" if isinstance(value, dict) else name
            columns.setdefault(name, header.replace("_", " "))
    lines = [
        columns.values(),
        ["---"] * len(columns),
        *([_cell(row.get(name)) for name in columns] for row in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return f"{_cell(value['median'])} ({_cell(value['q1'])} to {_cell(value['q3'])})"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000.0 else f"{value:.0f}"
    return str(value).replace("|", "\\|")

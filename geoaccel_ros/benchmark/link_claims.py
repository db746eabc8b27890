"""What is claimed of clouds on weak links, and whether a run's rows hold it."""

from collections.abc import Sequence

from geoaccel_ros.benchmark.link_scenarios import OURS, Scenario, name_of
from geoaccel_ros.benchmark.report import Table

# A link that carries more than this part of the uncompressed clouds does not fail.
RAW_MUST = 0.5
# By how much a node's memory may be above what it was early in a run.
MEMORY_MUST = 1.05


def claims(rows: Sequence[dict], scenarios: Sequence[Scenario]) -> Table:
    """Return each claim beside what was seen.

    Parameters
    ----------
    rows : sequence of dict
        Of the benchmark.
    scenarios : sequence of Scenario
        Those that were run.
    """
    result = []
    for scenario in scenarios:
        own = [row for row in rows if row["link"] == name_of(scenario)]
        for row in own:
            result += (
                _of_ours(row, scenario) if row["contender"] == OURS else _of_raw(row, scenario)
            )
    return Table(
        "Claims",
        result,
        "Parts of the clouds published while the link was up; ages from publication to arrival.",
    )


def _of_raw(row: dict, scenario: Scenario) -> list[dict]:
    if not scenario.raw_fails or 1e6 * row["published_mbit_per_s"] < scenario.link.rate:
        return []
    return [_claim(row, "delivered", f"at most {RAW_MUST:g}", row["delivered"] <= RAW_MUST)]


def _of_ours(row: dict, scenario: Scenario) -> list[dict]:
    delivered = row["delivered"]
    found = [
        _claim(
            row, "delivered", f"at least {scenario.delivered:g}", delivered >= scenario.delivered
        ),
        _claim(row, "corrupt", "0", row["corrupt"] == 0),
    ]
    if scenario.age_p99 is not None:
        within = row["p99_ms"] is not None and row["p99_ms"] <= 1e3 * scenario.age_p99
        found.append(_claim(row, "p99_ms", f"at most {1e3 * scenario.age_p99:g}", within))
    if scenario.resumes is not None:
        within = row["resumed_s"] is not None and row["resumed_s"] <= scenario.resumes
        found.append(_claim(row, "resumed_s", f"at most {scenario.resumes:g}", within))
    if scenario.link is not None:
        enough = row["link_mbit_per_s"] >= row["published_mbit_per_s"]
        least = f"at least {row['published_mbit_per_s']:.3g}"
        found.append(_claim(row, "link_mbit_per_s", least, enough))
    for name in ("encoder_growth", "decoder_growth"):
        if row[name] is not None:
            within = row[name] <= MEMORY_MUST
            found.append(_claim(row, name, f"at most {MEMORY_MUST:g}", within))
    return found


def _claim(row: dict, what: str, must: str, is_held: bool) -> dict:
    return {
        "cloud": row["cloud"],
        "link": row["link"],
        "contender": row["contender"],
        "what": what.replace("_", " "),
        "must": must,
        "seen": row[what],
        "held": "yes" if is_held else "no",
    }

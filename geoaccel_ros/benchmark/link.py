"""Clouds across weak links, compressed and as they are: what arrives, how old, and how whole."""

import argparse
import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from geoaccel_ros.benchmark.compression_clouds import read_sequence
from geoaccel_ros.benchmark.errors import BenchmarkError, no_ros
from geoaccel_ros.benchmark.interleaving import spread
from geoaccel_ros.benchmark.link_claims import claims
from geoaccel_ros.benchmark.link_comparison import Difference
from geoaccel_ros.benchmark.link_hosts import problem
from geoaccel_ros.benchmark.link_scenarios import (
    OURS,
    RAW,
    RAW_RELIABLE,
    SCENARIOS,
    Scenario,
    name_of,
)
from geoaccel_ros.benchmark.options import positive_float, positive_int
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.benchmark.report import Report
from geoaccel_ros.benchmark.yard import drive

if TYPE_CHECKING:
    from geoaccel_ros.benchmark.link_model import LinkCounts
    from geoaccel_ros.benchmark.link_run import LinkRun

PEERS: tuple[Peer, ...] = ()

_RATE = 10.0
# A cloud published within that, s, before an outage was still on its way.
_UNDER_WAY = 0.3
# By then the nodes' memory should rest, s; a shorter run says nothing of it.
_EARLY = 60.0
# Under a budget intensity may be rounded: to percents, which recorders often do, or coarser.
_INTENSITY_STEP, _COARSEST = 0.01, 8
_MAX_STEP = 0.1
# Float times are kept that exactly by default, in their own unit.
_TIME_STEP = 1e-6


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the clouds, the links and how long each is measured."""
    parser.add_argument(
        "--data", type=Path, metavar="DIR",
        help="clouds of a recorded drive: a folder of .bin, .npy, .pcd or .ply, in the order of "
        "their names (default: the simulated yard)",
    )  # fmt: skip
    parser.add_argument(
        "--scans", type=positive_int, default=60, metavar="N",
        help="only the first N of the drive, forth and back (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--links", nargs="+", choices=SCENARIOS, default=[*SCENARIOS], metavar="LINK",
        help="30 or 10 Mbit/s, the latter with a byte budget; lossy: 50 Mbit/s, 2 %% lost, 20 ms; "
        "outage: 30 Mbit/s with 10 s of nothing; 'one host': no link (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=positive_float, default=60.0, metavar="S",
        help="each run takes so long, plus the outage (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--step", type=positive_float, default=0.01, metavar="M",
        help="of the encoder, without a budget (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--without-raw", action="store_true", help="leave the uncompressed clouds out"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of what is lost (default: %(default)s)"
    )
    # A run is long enough by itself.
    parser.set_defaults(repetitions=1)


def run(options: argparse.Namespace, peers: Sequence[Peer]) -> Report:
    """Run each contender over each link, with everything started anew."""
    if reason := problem():
        raise BenchmarkError(reason)
    try:
        from geoaccel_ros.benchmark.link_run import Setup, run_link
    # Absent, or without the system libraries that it needs.
    except ImportError as error:
        raise no_ros(error) from None
    name, clouds = _clouds(options)
    size = {"cloud": name, "points": int(np.median([len(points) for points in clouds]))}
    scenarios = [SCENARIOS[link] for link in options.links]
    rows, runs, beside = [], {}, None
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        sources = folder / "clouds"
        sources.mkdir()
        for index, points in enumerate(clouds):
            np.save(sources / f"{index}.npy", points)
        cloud_bytes = float(np.mean([points.nbytes for points in clouds]))
        for scenario in scenarios:
            for contender in _contenders(scenario, options.without_raw):
                setup = Setup(
                    sources, cloud_bytes, _RATE, options.seconds + scenario.outage,
                    _encoder(options.step, scenario, clouds[0]), options.threads, options.seed,
                    folder / "decoded.npy",
                )  # fmt: skip
                made = [
                    run_link(setup, scenario, contender, folder) for _ in range(options.repetitions)
                ]
                rows.append(size | _row(made, scenario, contender, options))
                if contender != OURS:
                    continue
                runs[name_of(scenario)] = made[-1]
                if beside is None and made[-1].decoded is not None:
                    beside = clouds[made[-1].decoded], np.load(setup.decoded)
    images = ()
    if options.output is not None:
        images = _draw(options.output, runs, beside, f"{name}, step {options.step:g} m")
    title = "Link: milliseconds from a cloud's publication to its arrival, and what arrives"
    return Report(title, rows, (claims(rows, scenarios),), images)


def _clouds(options: argparse.Namespace) -> tuple[str, list[np.ndarray]]:
    if options.data is not None:
        return options.data.resolve().name, read_sequence(options.data, options.scans)
    # A second more: the simulation's first scan begins with it.
    scans, _ = drive(1.0 + options.scans / _RATE)
    return "yard, 16 rings", [scan.points for scan in scans[: options.scans]]


def _contenders(scenario: Scenario, without_raw: bool) -> list[str]:
    if without_raw or scenario.link is None:
        return [OURS]
    return [OURS, RAW, RAW_RELIABLE]


def _encoder(step: float, scenario: Scenario, points: np.ndarray) -> dict[str, str]:
    """Return the encoder's parameters: in the order of the points, so that they can be compared."""
    parameters = {"mode": "scan", "step": str(step)}
    if scenario.bytes_per_s:
        parameters["target_bytes_per_s"] = str(scenario.bytes_per_s)
        parameters["max_step"] = str(_MAX_STEP)
        if "intensity" in points.dtype.names:
            parameters["quantise"] = f'["intensity={_INTENSITY_STEP:g}"]'
    return parameters


def _row(
    runs: Sequence["LinkRun"], scenario: Scenario, contender: str, options: argparse.Namespace
) -> dict[str, object]:
    clouds = [cloud for run in runs for cloud in run.clouds]
    counted = [c for run in runs for c in run.clouds if not _in_outage(c.published, run, scenario)]
    ages = [1e3 * cloud.age for cloud in clouds if cloud.age is not None]
    came = [cloud.difference for cloud in clouds if cloud.difference is not None]
    strangers = sum(run.strangers for run in runs)
    wrong = sum(not _is_sound(each, scenario, contender, options.step) for each in came)
    p99, largest = np.percentile(ages, [99, 100]).tolist() if ages else (None, None)
    seconds = len(clouds) / _RATE
    sent = [run.sent for run in runs if run.sent is not None]
    left_out = Counter()
    for run in runs:
        left_out.update(run.left_out)
    last = runs[-1]
    return {
        "link": name_of(scenario),
        "contender": contender,
        "published": len(clouds),
        "arrived": len(ages),
        "delivered": sum(cloud.age is not None for cloud in counted) / len(counted),
        "left_out": ", ".join(f"{name} {count}" for name, count in left_out.items()),
        "ms": spread(np.array(ages)) if ages else None,
        "p99_ms": p99,
        "max_ms": largest,
        "published_mbit_per_s": 8e-6 * sum(run.bytes_published for run in runs) / seconds,
        "link_mbit_per_s": _sum(sent, 8e-6 / seconds, "offered_bytes"),
        "packets_lost": _sum(sent, 1, "lost"),
        "packets_overflowed": _sum(sent, 1, "full"),
        "corrupt": strangers + wrong,
        "max_error_m": max((each["error"] for each in came), default=None),
        "step_m": float(last.encoder["step [m]"]) if contender == OURS else None,
        "encode_p50_ms": _number(last.encoder, "encode p50 [ms]"),
        "encode_p99_ms": _number(last.encoder, "encode p99 [ms]"),
        "resumed_s": _resumed(runs),
        "encoder_growth": _growth(last.memory.get("cloud_encoder")),
        "decoder_growth": _growth(last.memory.get("cloud_decoder")),
        "repetitions": len(runs),
    }


def _sum(sent: Sequence["LinkCounts"], factor: float, name: str) -> float | None:
    return factor * sum(getattr(counts, name) for counts in sent) if sent else None


def _in_outage(published: float, made: "LinkRun", scenario: Scenario) -> bool:
    """Return whether a cloud fell into the outage: on its way then, or before it has to resume."""
    if made.outage is None:
        return False
    return made.outage[0] - _UNDER_WAY <= published < made.outage[1] + (scenario.resumes or 0.0)


def _is_sound(difference: dict, scenario: Scenario, contender: str, step: float) -> bool:
    if contender != OURS:
        return Difference(**difference).is_within(0.0, {})
    steps = {"time": _TIME_STEP}
    if scenario.bytes_per_s:
        step, steps["intensity"] = _MAX_STEP, _COARSEST * _INTENSITY_STEP
    return Difference(**difference).is_within(step, steps)


def _resumed(runs: Sequence["LinkRun"]) -> float | None:
    """Return the longest from the end of an outage to the next cloud; None where none came."""
    waits = []
    for made in runs:
        end = math.inf if made.outage is None else made.outage[1]
        arrivals = [cloud.published + cloud.age for cloud in made.clouds if cloud.age is not None]
        waits.append(min((arrival - end for arrival in arrivals if arrival > end), default=None))
    return None if None in waits else max(waits)


def _growth(memory: np.ndarray | None) -> float | None:
    """Return how many times a node's memory early in the run it occupies at the end."""
    if memory is None or not len(memory) or memory[-1, 0] < 2 * _EARLY:
        return None
    early = memory[np.searchsorted(memory[:, 0], _EARLY), 1]
    return float(memory[-1, 1] / early)


def _number(diagnostics: dict[str, str], name: str) -> float | None:
    return float(diagnostics[name]) if name in diagnostics else None


def _draw(
    output: Path,
    runs: dict[str, "LinkRun"],
    beside: tuple[np.ndarray, np.ndarray] | None,
    title: str,
) -> tuple[Path, ...]:
    from geoaccel_ros.benchmark.link_pictures import draw_ages, draw_beside

    images = [output / "link_ages.png"]
    draw_ages(images[0], runs)
    if beside is not None:
        images.append(output / "link_clouds.png")
        draw_beside(images[1], *beside, title)
    return tuple(images)

"""The drives among unseen obstacles, on the lidar's odometry: runs of ``geoaccel demo``."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from acceptance.rows import Row, Series
from geoaccel_ros.resources import share_path

YARD_SEEDS = 10
CORRIDOR_SEEDS = 5
PATH_RATIO = 1.3
MISSED = 0.01
REALTIME = 0.95
# A demo that says nothing for so long is none (s).
_LONGEST = 240.0


def in_world(config: str | None) -> Callable[[Path, int], dict]:
    """Return a run of the demo, with a file of config/ or its own."""

    def drive(folder: Path, seed: int) -> dict:
        summary = folder / "summary.json"
        command = [sys.executable, "-m", "geoaccel_ros.cli.main", "demo", "--seed", str(seed)]
        command += ["--output", str(folder / "demo"), "--json", str(summary)]
        if config is not None:
            command += ["--config", str(share_path(f"config/{config}"))]
        said = _run(command)
        # Status 1 with a summary is a drive that failed; what of it fails is the rows' to say.
        assert summary.exists(), said[-300:]
        told = json.loads(summary.read_text())
        return {
            "goal_reached": told["goal_reached"],
            "contacts": told["contacts"],
            "path_ratio": told["path_ratio"],
            "realtime_factor": told["simulation"]["realtime_factor"],
            "missed_share": told["deadlines"]["missed_share"],
        }

    return drive


def _run(command: list[str]) -> str:
    """Run a demo and return what it wrote; one that is interrupted takes its nodes along."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            return process.communicate(timeout=_LONGEST)[0].strip()
        except BaseException:
            process.terminate()
            raise


def _is_driven(outcome: dict) -> None:
    assert outcome["goal_reached"], "a goal was not reached"
    assert outcome["contacts"] == 0, f"{outcome['contacts']} contacts"
    ratio = outcome["path_ratio"]
    assert ratio <= PATH_RATIO, f"the path is {ratio:.2f} of the shortest"


def _is_in_time(outcome: dict) -> None:
    missed, factor = outcome["missed_share"], outcome["realtime_factor"]
    assert missed < MISSED, f"{100 * missed:.2f} % of the deadlines missed"
    assert factor >= REALTIME, f"real-time factor {factor:.3f}"


def _path(outcomes: list[dict]) -> str:
    ratios = [outcome["path_ratio"] for outcome in outcomes]
    return f"path {min(ratios):.2f} to {max(ratios):.2f} of the shortest"


def _timing(outcomes: list[dict]) -> str:
    missed = max(outcome["missed_share"] for outcome in outcomes)
    factor = min(outcome["realtime_factor"] for outcome in outcomes)
    return f"at most {100 * missed:.2f} % missed, real-time factor at least {factor:.3f}"


_MUST = f"all reached, no contact, path within {PATH_RATIO:g} of the shortest free one"
SERIES = (
    Series(
        in_world(None),
        YARD_SEEDS,
        (
            Row(
                "yard: 6 goals between unseen obstacles, on lidar_odometry's pose",
                _MUST,
                _path,
                _is_driven,
            ),
            Row(
                "the same, all nodes: control at 20 Hz, lidar at 10 Hz",
                f"missed deadlines below {100 * MISSED:g} %, real-time factor at least "
                f"{REALTIME:g}",
                _timing,
                _is_in_time,
            ),
        ),
    ),
    Series(
        in_world("corridor.yaml"),
        CORRIDOR_SEEDS,
        (Row("corridor: goals along it, on lidar_odometry's pose", _MUST, _path, _is_driven),),
    ),
)

"""Run the rows of the acceptance, print one line a run, write the table to docs/acceptance.md.

The last line is ``PASS n/n`` or ``FAIL k/n``: k of n rows hold. The exit status is 0 only if all
do.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from acceptance import cartpole, drive, drive_faults, faults, quadrotor, quadruped
from acceptance.rows import Row, Series
from geoaccel_ros.benchmark.machine import describe_machine
from geoaccel_ros.cli.demo.processes import demo_environment

SERIES = {
    "cartpole": cartpole.SERIES,
    "quadrotor": quadrotor.SERIES,
    "quadruped": quadruped.SERIES,
    "faults": (*faults.SERIES, *drive_faults.SERIES),
    "drive": drive.SERIES,
}
TABLE = Path(__file__).resolve().parents[2] / "docs" / "acceptance.md"

# Of what is told of a run that failed: a node's whole log may be in it.
_LONGEST = 300


def main() -> int:
    """Run what the options say."""
    parser = argparse.ArgumentParser(prog="acceptance", description=__doc__)
    parser.add_argument(
        "--rows", nargs="+", choices=SERIES, default=list(SERIES), help="only rows of these"
    )
    parser.add_argument("--seeds", type=int, help="so many runs at most of each kind")
    args = parser.parse_args()
    if args.seeds is not None and args.seeds < 1:
        parser.error("argument --seeds: must be at least 1")
    os.environ.update(demo_environment())
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

    begun = time.monotonic()
    results: list[Result] = []
    for name in args.rows:
        for series in SERIES[name]:
            results += run_series(name, series, args.seeds)
    minutes = (time.monotonic() - begun) / 60.0
    print(f"\n{table(results)}\n\n{minutes:.0f} minutes")
    if set(args.rows) == set(SERIES) and args.seeds is None:
        TABLE.write_text(document(results, minutes))
        print(f"written to {TABLE}")
    held = sum(result.holds for result in results)
    print(f"{'PASS' if held == len(results) else 'FAIL'} {held}/{len(results)}")
    return 0 if held == len(results) else 1


class Result:
    """What became of a row.

    Parameters
    ----------
    row : Row
    """

    def __init__(self, row: Row):
        self.row = row
        self._good: list[dict] = []
        self._runs = 0

    def take(self, outcome: dict | None) -> str:
        """Judge a run, None if it failed by itself; return what is wrong with it, or nothing."""
        self._runs += 1
        if outcome is None:
            return ""
        try:
            self.row.check(outcome)
        except AssertionError as error:
            return str(error)
        self._good.append(outcome)
        return ""

    @property
    def holds(self) -> bool:
        return len(self._good) == self._runs > 0

    @property
    def seen(self) -> str:
        """The count of good runs and their numbers."""
        count = f"{len(self._good)} of {self._runs}"
        return f"{count}: {self.row.seen(self._good)}" if self._good else count


def run_series(name: str, series: Series, seeds: int | None) -> list[Result]:
    """Make the runs of a series; print a line for each."""
    results = [Result(row) for row in series.rows]
    count = series.runs if seeds is None else min(seeds, series.runs)
    print(series.rows[0].task, flush=True)
    for seed in range(count):
        folder = Path(tempfile.mkdtemp(prefix=f"acceptance_{name}_{seed}_"))
        start = time.monotonic()
        outcome, wrong = None, ""
        try:
            outcome = series.run(folder, seed)
        except Exception as error:
            # Whatever goes wrong in a run, the others are made.
            wrong = " ".join(f"{error}".split())[:_LONGEST] or type(error).__name__
        wrong = "; ".join(filter(None, [wrong, *(result.take(outcome) for result in results)]))
        if wrong:
            told = f"FAILED {wrong} (logs in {folder})"
        else:
            told = ", ".join(f"{key} {value:.3g}" for key, value in outcome.items())
            shutil.rmtree(folder, ignore_errors=True)
        print(f"  {seed + 1}/{count}  {time.monotonic() - start:5.1f} s  {told}", flush=True)
    return results


def table(results: list[Result]) -> str:
    """Return the rows as a table in Markdown."""
    lines = ["| task | must | seen |", "|---|---|---|"]
    for result in results:
        failed = "" if result.holds else "**fails** "
        lines.append(f"| {result.row.task} | {result.row.must} | {failed}{result.seen} |")
    return "\n".join(lines)


def document(results: list[Result], minutes: float) -> str:
    """Return docs/acceptance.md."""
    machine = describe_machine(os.cpu_count())
    held = sum(result.holds for result in results)
    return f"""# Acceptance

Robots in closed loop: `mppi_controller`, `mujoco_simulation` and for the drives all other nodes,
each a process of its own, over DDS. Made by `make acceptance`, which took {minutes:.0f} minutes on
{machine["cores"]} cores of an {machine["cpu"]}; {held} of {len(results)} rows hold.
`make acceptance ROWS="cartpole faults" SEEDS=2` makes a part and leaves this page as it is.

{table(results)}

Runs that are not about time step by command: the simulation waits for each command of the
controller, which waits for each state. Every run has a seed of its own, for the controller's
samples, the simulation's noise and the start. In all of the robots' runs every command is finite
and within the robot's limits. In the rows of faults, those of delays apart, a push as in the first
row begins with the fault, so that there is something to recover from; the safe command may take
{faults.SLACK:g} s more, for a period and for messages on their way. What each row does is written
in [test/acceptance](../test/acceptance).
"""


if __name__ == "__main__":
    sys.exit(main())

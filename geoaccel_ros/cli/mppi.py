"""geoaccel mppi: a controller and a simulated robot in a closed loop, without ROS."""

import argparse
import functools
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
from tqdm import tqdm

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.options import add_options
from geoaccel_ros.cli.output import check_target, write_json
from geoaccel_ros.control.mppi import Mppi, MppiUpdate
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.systems import System, available, load_system
from geoaccel_ros.control.update_file import read_update
from geoaccel_ros.simulation.closed_loop import Run, drive

_MAIN_OPTIONS = ("samples", "horizon", "seed", "backend", "rollouts", "threads")
# Controls that a line of the results has room for.
_MOST_NAMED = 6
_DESCRIPTION = """\
Has a robot do its task (its module's TASK) with an update every dt, on MuJoCo's plant where the
system has a MODEL, else on its own model in finer steps. However long an update takes, its command
comes in time; those that took longer than dt are counted as misses."""
_EPILOG = """\
What is not given is the system's own SAMPLING, else the default named above. The status is 0 also
where the goal is not reached: `success` tells.

examples:
  geoaccel mppi cartpole --plot swing.png
  geoaccel mppi cartpole --horizon 100 --delay 0.1 --seed 3 --json -
  geoaccel mppi robot.py --samples 4096 --sigma 0.5,2
  geoaccel mppi --plot mppi_update.npz    # what mppi_controller's ~/dump_update wrote, as a .png
"""


def add_parsers(subparsers: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "mppi",
        help="a controller in a closed loop, without ROS",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "system", metavar="SYSTEM", nargs="?",
        help=f"{', '.join(available())}, a module (package.module) or a file (robot.py)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=_seconds, default=8.0, metavar="S",
        help="how long it is simulated (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--delay", type=_seconds_or_none, default=0.0, metavar="S",
        help="from sending a command until the robot acts on it; the controller knows it unless "
        "--command-delay says other (default: %(default)s)",
    )  # fmt: skip
    add_options(parser.add_argument_group("sampling"), MppiConfig, _MAIN_OPTIONS)
    files = parser.add_argument_group("files")
    files.add_argument(
        "--plot", metavar="FILE",
        help="draw a PNG: the samples of an update, and the run. Without SYSTEM, FILE is the .npz "
        "of an update that mppi_controller wrote, and the picture is drawn beside it",
    )  # fmt: skip
    files.add_argument(
        "--json", metavar="FILE", help="write the results as JSON, '-' for standard output"
    )
    names = [declared.name for declared in MppiConfig.parameters()]
    add_options(
        parser.add_argument_group("finer points"),
        MppiConfig,
        [name for name in names if name not in _MAIN_OPTIONS],
    )
    parser.set_defaults(run=functools.partial(run, usage_error=parser.error))


def run(args: argparse.Namespace, usage_error: Callable[[str], NoReturn]) -> int:
    """Run the command; 0 also where the goal is not reached, which the result says."""
    is_update = (args.plot or "").endswith(".npz")
    if args.system is None and not is_update:
        usage_error("give a SYSTEM, or the .npz file of an update to --plot")
    if args.system is not None and is_update:
        usage_error(f"--plot {args.plot}: a picture is a .png; an update is drawn without SYSTEM")
    if is_update:
        return _draw_file(Path(args.plot), args.json)
    if args.plot:
        check_target(args.plot)
    system = load_system(args.system)
    config = _configuration(args, system)
    goal = np.array(system.task.get("goal", ()), float)
    observer = _Observer(args.seconds, config.dt, goal, bool(args.plot))
    with observer.progress:
        driven = drive(
            args.system, config, args.seconds, delay=args.delay, observe=observer.observe
        )
    if observer.controller.warning:
        print(f"geoaccel mppi: {observer.controller.warning}", file=sys.stderr)
    content = _results(args, config, driven, observer.controller)
    if args.plot:
        # matplotlib takes a while to import.
        from geoaccel_ros.cli.mppi_picture import draw

        limits = observer.controller.limits
        draw(args.plot, system, limits, driven, observer.snapshot(driven))
    if args.json:
        write_json(content, args.json)
    if args.json != "-":
        print(_page(content, system))
    return 0


def _draw_file(path: Path, json_target: str | None) -> int:
    """Draw the update in a file, as a PNG beside it."""
    try:
        update = read_update(path)
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"'{path}': {error}") from None
    # matplotlib takes a while to import.
    from geoaccel_ros.cli.mppi_picture import Snapshot, draw_update

    snapshot = Snapshot.from_file(update)
    picture = path.with_suffix(".png")
    check_target(picture)
    draw_update(str(picture), str(update["system"]), snapshot)
    terms = dict(zip(update["term_names"].tolist(), update["terms"].tolist(), strict=True))
    content = {
        "system": str(update["system"]),
        "stamp_s": snapshot.time,
        "samples": len(snapshot.weights),
        "crashed": int(np.isinf(snapshot.costs).sum()),
        "ess": snapshot.ess,
        "temperature": snapshot.temperature,
        "hint": snapshot.hint,
        "terms": terms,
        "picture": str(picture),
    }
    if json_target:
        write_json(content, json_target)
    if json_target != "-":
        costs = ", ".join(f"{name} {value:.3g}" for name, value in terms.items())
        hint = f": {snapshot.hint}" if snapshot.hint else ""
        rows = [
            ("update", f"of {content['system']} at {snapshot.time:.2f} s"),
            ("effective samples", f"{snapshot.ess:.1f} of {content['samples']}{hint}"),
            ("crashed", f"{content['crashed']} samples"),
            ("costs of the plan", costs),
            ("drawn", content["picture"]),
        ]
        print(_table(rows))
    return 0


class _Observer:
    """Looks on: counts updates on a terminal, and keeps the samples of some to draw one of them."""

    _SNAPSHOTS = 25

    def __init__(self, seconds: float, dt: float, goal: np.ndarray, keep: bool):
        updates = math.ceil(seconds / dt - 1e-9)
        self.progress = tqdm(total=updates, disable=not sys.stderr.isatty(), leave=False)
        self.controller: Mppi | None = None
        self._stride = max(1, updates // self._SNAPSHOTS) if keep else 0
        self._snapshots = []
        self._count = 0
        self._dt = dt
        self._goal = goal

    def observe(self, now: float, controller: Mppi, update: MppiUpdate) -> None:
        self.controller = controller
        if self._stride and self._count % self._stride == 0 and update.ok:
            # Here, so that matplotlib is not imported for a run without a picture.
            from geoaccel_ros.cli.mppi_picture import Snapshot

            self._snapshots.append(Snapshot.of(now, self._dt, controller, update, self._goal))
        self._count += 1
        self.progress.update()

    def snapshot(self, driven: Run):
        """Return that of half the way to the goal, or of half the run; None if there is none."""
        middle = 0.5 * (driven.time_to_goal_s if driven.success else driven.times[-1])
        return min(self._snapshots, key=lambda one: abs(one.time - middle), default=None)


def _configuration(args: argparse.Namespace, system: System) -> MppiConfig:
    names = [declared.name for declared in MppiConfig.parameters()]
    given = {name: getattr(args, name) for name in names if hasattr(args, name)}
    return MppiConfig.for_system(system, **{"command_delay": args.delay, **given})


def _results(args: argparse.Namespace, config: MppiConfig, driven: Run, controller: Mppi) -> dict:
    median, p95 = np.percentile(driven.update_ms, [50, 95])
    failed = [update for update in driven.updates if not update.ok]
    return {
        "system": args.system,
        "backend": controller.backend,
        "backend_reason": controller.backend_reason,
        "samples": config.samples,
        "horizon": config.horizon,
        "dt": config.dt,
        "seed": config.seed,
        "delay_s": args.delay,
        "seconds": float(driven.times[-1]),
        "success": driven.success,
        "time_to_goal_s": driven.time_to_goal_s,
        "ess": float(np.median([update.ess for update in driven.updates])),
        "jitter": dict(zip(controller.system.control, driven.jitter().tolist(), strict=True)),
        "update_ms": {"median": float(median), "p95": float(p95)},
        "misses": driven.misses,
        "without_plan": len(failed),
        "reasons": sorted({update.reason for update in failed}),
    }


def _page(content: dict, system: System) -> str:
    """Return the results for people to read."""
    reached = "not reached" if system.reached else "unknown: the system does not define reached"
    if content["success"]:
        reached = f"reached after {content['time_to_goal_s']:.2f} s, and held"
    rows = [
        ("goal", reached),
        ("simulated", f"{content['seconds']:g} s, delay {content['delay_s']:g} s"),
        (
            "update",
            "{median:.2f} ms median, {p95:.2f} ms p95".format(**content["update_ms"])
            + f", {content['misses']} misses of {1e3 * content['dt']:g} ms",
        ),
        ("effective samples", f"{content['ess']:.0f} of {content['samples']}"),
        ("backend", f"{content['backend']} ({content['backend_reason']})"),
    ]
    if content["success"]:
        jitter = content["jitter"]
        changes = ", ".join(f"{name} {value:.2g}" for name, value in jitter.items())
        if len(jitter) > _MOST_NAMED:
            least, most = min(jitter.values()), max(jitter.values())
            changes = f"{least:.2g} to {most:.2g} of {len(jitter)} controls"
        rows.insert(1, ("mean change a step", changes))
    if content["without_plan"]:
        rows.append(
            ("without a plan", f"{content['without_plan']} updates: {content['reasons'][0]}")
        )
    return _table(rows)


def _table(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)


def _seconds(text: str) -> float:
    value = _seconds_or_none(text)
    if value == 0.0:
        raise argparse.ArgumentTypeError(f"{text}: must be more than 0 s")
    return value


def _seconds_or_none(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be a number of seconds, 0 or more")
    return value

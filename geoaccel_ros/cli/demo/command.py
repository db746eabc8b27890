"""``geoaccel demo``: a robot drives itself through a yard, over real topics, and is judged."""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from geoaccel_ros.cli.demo.processes import NodeProcess, demo_environment, stop
from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.output import write_json
from geoaccel_ros.resources import share_path

# In the order in which they start; the simulation waits, paused, for all others.
NODES = ("lidar_odometry", "cloud_encoder", "cloud_decoder", "mppi_controller", "mujoco_simulation")

# Who must have found whom before time may run: by node, its own end of each topic and how many
# others are at the other end, the recorder included.
_CONNECTIONS = {
    "mujoco_simulation": {"subscribers of points": 4, "publishers of cmd_vel": 1},
    "lidar_odometry": {"publishers of points": 1, "subscribers of odom": 2},
    "cloud_encoder": {"publishers of points": 1, "subscribers of points/compressed": 2},
    "cloud_decoder": {
        "publishers of points/compressed": 1,
        "subscribers of points/decompressed": 1,
    },
    "mppi_controller": {
        "publishers of points": 1,
        "publishers of odom": 1,
        "subscribers of cmd_vel": 2,
    },
}
# The first start compiles every kernel; later ones find them in caches.
_START_TIMEOUT = 150.0
# DiagnosticStatus.ERROR, as the recorder writes it.
_LEVEL_ERROR = "2"
# For clouds on their way, and for diagnostics that count them.
_DRAIN = 2.5


def add_parsers(subparsers) -> None:
    """Add ``demo``."""
    parser = subparsers.add_parser(
        "demo", help="a simulated robot drives itself: all nodes, over DDS, judged and drawn"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("demo_output"), metavar="DIR",
        help="folder for summary.json, pictures, logs and the bag (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--config", type=Path, metavar="YAML", help="parameters of the nodes, instead of demo.yaml"
    )
    parser.add_argument(
        "--seed", type=_seed, metavar="N",
        help="of the simulation's and the controller's noise, instead of the parameter file's",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=_positive, default=110.0, metavar="S",
        help="give up after this many simulated seconds (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--video", action="store_true",
        help="also write demo.mp4, rendered after the drive; needs the extra [video] and OpenGL",
    )  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="also write the summary here; - for stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 only if the robot did its task and nothing was lost."""
    config = args.config or share_path("config/demo.yaml")
    os.environ.update(demo_environment())
    # Imported here, as what follows is: `geoaccel --help` and the file commands need no ROS.
    from geoaccel_ros.cli.demo.task import read_task

    task = read_task(config)
    if args.video:
        from geoaccel_ros.cli.demo.film import check_packages

        check_packages()
    output = _empty_folder(args.output, config)
    # Ended from outside, the demo must take its nodes along, as it does on Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    say = _progress(quiet=args.json == "-")

    seed = [] if args.seed is None else ["-p", f"seed:={args.seed}"]
    observed = _drive(config, task, seed, output, args.timeout, say)

    from geoaccel_ros.cli.demo.evaluation import read_bag
    from geoaccel_ros.cli.demo.verdict import judge, report

    say("reading the bag")
    recording = read_bag(output / "bag")
    summary = judge(output, recording, task, observed)
    write_json(summary, output / "summary.json")
    if args.json is not None:
        write_json(summary, args.json)
    if args.video:
        say("rendering the film")
        _film(output / "demo.mp4", recording, task)
    say.end()
    if args.json != "-":
        print(report(summary, output))
    for failure in summary["failures"]:
        print(f"demo failed: {failure}", file=sys.stderr)
    return 1 if summary["failures"] else 0


def _film(path: Path, recording, task) -> None:
    """Write the film, or why there is none: the status is that of the drive."""
    from geoaccel_ros.cli.demo.film import write_film

    truth = recording.truth
    try:
        write_film(
            path, task.model, task.base_body, truth.stamps, truth.poses,
            recording.to_world(task.goals),
        )  # fmt: skip
    except UserError as error:
        print(f"demo.mp4 was not written: {error}", file=sys.stderr)


def _drive(config: Path, task, seed: Sequence[str], output: Path, timeout: float, say) -> dict:
    """Run all nodes until the goals are reached or time is up; return what they last said."""
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    from geoaccel_ros.cli.demo.recorder import Recorder

    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    try:
        with (
            _running(config, seed, output) as nodes,
            contextlib.closing(Recorder(output / "bag")) as recorder,
        ):
            say("starting the nodes (the first time compiles kernels)")
            _wait_until_ready(nodes, recorder, task.prior)
            for node in nodes:
                node.start_measuring()
            at_start = dict(recorder.diagnostics["mppi_controller"])
            if not recorder.pause(False):
                raise UserError("the simulation does not answer ~/pause")
            factor = _watch(nodes, recorder, timeout, len(task.goals), say)
            recorder.pause(True)
            time.sleep(_DRAIN)
            for node in nodes:
                node.check()
            statuses = stop(nodes)
            diagnostics = recorder.diagnostics
    finally:
        rclpy.try_shutdown()
    usage = {
        node.name: {"cpu_share": node.cpu_share, "memory_mib": node.memory_mib} for node in nodes
    }
    return {
        "diagnostics": diagnostics,
        "at_start": at_start,
        "usage": usage,
        "statuses": statuses,
        "realtime_factor": factor,
    }


@contextlib.contextmanager
def _running(config: Path, seed: Sequence[str], output: Path) -> Iterator[list[NodeProcess]]:
    logs = output / "logs"
    logs.mkdir()
    nodes: list[NodeProcess] = []
    try:
        for name in NODES:
            arguments = ["--params-file", str(config)]
            if name == "mujoco_simulation":
                arguments += ["-p", "start_paused:=true", "-r", "odom:=ground_truth/odom"]
            else:
                arguments += ["-p", "use_sim_time:=true"]
            if name in ("mujoco_simulation", "mppi_controller"):
                arguments += seed
            nodes.append(NodeProcess(name, arguments, logs / f"{name}.log"))
        yield nodes
    finally:
        stop(nodes)


def _wait_until_ready(nodes: Sequence[NodeProcess], recorder, prior: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT
    connections = {node: dict(of_node) for node, of_node in _CONNECTIONS.items()}
    if prior != "none":
        connections["lidar_odometry"][f"publishers of {prior}"] = 1
    while waiting := _not_ready(recorder, connections):
        for node in nodes:
            node.check()
        if time.monotonic() > deadline:
            raise UserError(f"not ready after {_START_TIMEOUT:.0f} s: {', '.join(waiting)}")
        time.sleep(0.1)


def _not_ready(recorder, connections: dict[str, dict[str, int]]) -> list[str]:
    """Return what is not there yet, by what the nodes say of themselves."""
    waiting = [] if recorder.hears("/points") else ["the recorder"]
    for name, of_node in connections.items():
        said = recorder.diagnostics.get(name, {})
        if said.get("message", "not active") == "not active":
            waiting.append(name)
            continue
        waiting += [
            f"{name}: {said.get(connection, 0)} {connection}"
            for connection, count in of_node.items()
            if int(said.get(connection, 0)) < count
        ]
    return waiting


def _watch(nodes, recorder, timeout: float, goals: int, say) -> float:
    """Show progress until the robot is done; return the real-time factor."""
    wall_limit = time.monotonic() + 1.5 * timeout + 10.0
    pace = []
    while True:
        time.sleep(0.5)
        for node in nodes:
            node.check()
            node.measure()
        simulation = recorder.diagnostics["mujoco_simulation"]
        if simulation["level"] == _LEVEL_ERROR:
            raise UserError(f"mujoco_simulation says '{simulation['message']}'")
        controller = recorder.diagnostics["mppi_controller"]
        simulated = float(simulation["simulated time [s]"])
        reached = int(controller["goals reached"])
        say(
            f"t {simulated:5.1f} s   goals {reached}/{goals}   contacts {simulation['contacts']}   "
            f"real-time factor {simulation['realtime factor']}   {controller['message']}"
        )
        if simulated > 0.0:
            pace.append(recorder.clock)
        if reached == goals or simulated > timeout or time.monotonic() > wall_limit:
            break
    wall, simulated = np.subtract(pace[-1], pace[0]) if pace else (0.0, 0.0)
    return simulated / wall if wall > 0.0 else 0.0


def _positive(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be positive, is {text}")
    return value


def _seed(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, is {text}")
    return value


def _empty_folder(output: Path, config: Path) -> Path:
    """Return ``output``, made, without what an earlier demo left there.

    A copy of the parameters tells a demo's folder from others: what else is there stays.
    """
    mark = output / "parameters.yaml"
    present = [name for name in ("bag", "logs") if (output / name).exists()]
    if present and not mark.exists():
        raise UserError(
            f"'{output}' holds '{present[0]}', which no demo wrote; choose another --output"
        )
    try:
        output.mkdir(parents=True, exist_ok=True)
        mark.write_bytes(config.read_bytes())
        for name in ("bag", "logs"):
            shutil.rmtree(output / name, ignore_errors=True)
        for name in ("summary.json", "trajectory.png", "latency.png", "demo.mp4"):
            (output / name).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to '{output}': {error.strerror}") from None
    return output


class _Progress:
    """One line that is written over on a terminal; elsewhere a line every few seconds."""

    _PERIOD = 5.0

    def __init__(self, stream):
        self._stream = stream
        self._terminal = stream.isatty()
        self._last = float("-inf")

    def __call__(self, text: str) -> None:
        if self._terminal:
            self._stream.write(f"\r\033[K{text}")
        elif time.monotonic() - self._last >= self._PERIOD:
            self._last = time.monotonic()
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def end(self) -> None:
        if self._terminal:
            self._stream.write("\r\033[K")
            self._stream.flush()


def _progress(quiet: bool) -> _Progress:
    return _Progress(sys.stderr if quiet else sys.stdout)

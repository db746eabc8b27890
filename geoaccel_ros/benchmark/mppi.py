"""One MPPI update of the differential drive, noise included, for several numbers of samples."""

import argparse
from collections.abc import Callable, Sequence

import numpy as np

from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.options import add_backend
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.benchmark.pictures import draw_times
from geoaccel_ros.benchmark.report import Report
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.obstacles import ObstacleConfig, ObstacleMap

_UPDATES = 20

PEERS = ()


def updates(controller: Mppi) -> Callable[[], float]:
    """Return a run of updates towards a goal behind a wall that gives milliseconds an update."""
    obstacles = ObstacleMap(ObstacleConfig())
    y = np.arange(-1.0, 1.0, 0.05)
    obstacles.add(np.stack([np.full(len(y), 2.0), y], axis=1), 0.0)
    controller.set_obstacles(obstacles.distance_field(np.zeros(2), 0.0))

    def run() -> float:
        controller.reset()
        stopwatch = Stopwatch()
        for i in range(_UPDATES):
            with stopwatch:
                controller.update(np.zeros(5), np.array([5.0, 0.0]), 0.05 * i)
        return stopwatch.milliseconds / _UPDATES

    return run


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the numbers of samples, the horizon and our own backends."""
    parser.add_argument(
        "--samples", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192], metavar="K",
        help="rollouts in an update (default: 512 to 8192)",
    )  # fmt: skip
    parser.add_argument(
        "--horizon", type=int, default=50, metavar="T",
        help="steps of a rollout (default: %(default)s)",
    )  # fmt: skip
    add_backend(parser)


def run(options: argparse.Namespace, peers: Sequence[Peer]) -> Report:
    """Update controllers of every number of samples on every backend."""
    controllers = {}
    for samples in options.samples:
        for backend in options.backend:
            config = MppiConfig(
                samples=samples, horizon=options.horizon, backend=backend, threads=options.threads
            )
            controller = Mppi(config)
            controllers[samples, f"geoaccel, {controller.backend}"] = controller
    times = interleave(
        {key: updates(controller) for key, controller in controllers.items()}, options.repetitions
    )
    rows = [
        {
            "contender": contender,
            "samples": samples,
            "horizon": options.horizon,
            "ms": spread(times[samples, contender]),
            "repetitions": options.repetitions,
        }
        for samples, contender in controllers
    ]
    images = ()
    if options.output is not None:
        images = (options.output / "mppi_update.png",)
        draw_times(images[0], rows, "samples")
    return Report("MPPI: differential drive, milliseconds an update", rows, images=images)

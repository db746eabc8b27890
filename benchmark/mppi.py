#!/usr/bin/env python3
"""One MPPI update of the differential drive, noise included, for several numbers of samples."""

import numpy as np
from common import Stopwatch, interleave, parse, report, spread

from geoaccel_ros.control.mppi import Mppi, MppiConfig
from geoaccel_ros.control.obstacles import ObstacleConfig, ObstacleMap

UPDATES = 20


def updates(controller: Mppi):
    """Return a run of :data:`UPDATES` updates towards a goal behind a wall."""
    obstacles = ObstacleMap(ObstacleConfig())
    y = np.arange(-1.0, 1.0, 0.05)
    obstacles.add(np.stack([np.full(len(y), 2.0), y], axis=1), 0.0)
    controller.set_obstacles(obstacles.distance_field(np.zeros(2), 0.0))

    def run() -> float:
        controller.reset()
        stopwatch = Stopwatch()
        for i in range(UPDATES):
            with stopwatch:
                controller.update(np.zeros(5), np.array([5.0, 0.0]), 0.05 * i)
        return stopwatch.milliseconds / UPDATES

    return run


def main() -> None:
    options = parse(__doc__)
    controllers = {
        samples: Mppi(MppiConfig(samples=samples, threads=1, backend="auto"))
        for samples in (512, 1024, 2048, 4096, 8192)
    }
    times = interleave({s: updates(c) for s, c in controllers.items()}, options.repetitions)
    rows = [
        {
            "samples": samples,
            "backend": controllers[samples].backend,
            **{key.replace("_", " "): value for key, value in spread(times[samples]).items()},
        }
        for samples in controllers
    ]
    report("MPPI: one update, horizon 50, CPU with one thread", rows, options.json)


if __name__ == "__main__":
    main()

"""Benchmarks: our own contenders and, where asked for, other packages that do the same work.

A benchmark is a module of this package, named in :data:`BENCHMARKS`, that has

``PEERS : tuple of Peer``
    The other packages; which of them take part is decided by the command, see :mod:`.peers`.
``add_options(parser: argparse.ArgumentParser) -> None``
    Adds the benchmark's own options to those of all: ``repetitions``, ``threads``, and ``output``,
    a folder for pictures as a Path, or None.
``run(options: argparse.Namespace, peers: Sequence[Peer]) -> Report``
    Runs our own contenders and ``peers`` by :func:`.interleaving.interleave`, and returns the rows,
    see :class:`.report.Report`. Raises :class:`.errors.BenchmarkError` where it cannot.

It is imported only when it is to run, so it may import what it likes.
"""

import importlib
from types import ModuleType

BENCHMARKS = {
    "registration": "two clouds laid onto each other, beside small_gicp, Open3D and SciPy",
    "odometry": "drives through a courtyard or recorded, beside KISS-ICP, GenZ-ICP and small_gicp",
    "latency": "the node lidar_odometry over DDS, from a cloud to its odometry",
    "compression": "clouds at given steps, beside Draco, LAZ, cloudini and zstd",
    "mppi": "updates of three robots, beside pytorch_mppi and NumPy; closed loops",
    "link": "clouds over weak links, compressed and as they are: what arrives, and how old",
}


def load(name: str) -> ModuleType:
    """Import a benchmark by its name in :data:`BENCHMARKS`."""
    return importlib.import_module(f"{__name__}.{name}")

"""Where the time and the bits go: a million points by stage, and by section of the stream."""

from collections.abc import Callable, Iterable

import numpy as np

from geoaccel_ros.benchmark.compression_contenders import OCTREE, codecs
from geoaccel_ros.benchmark.courtyard import map_courtyard
from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.report import Table
from geoaccel_ros.compression.codec import Codec, inspect

POINTS = 1_000_000
_STEP = 0.01
# The stages of the published pipeline that the octree follows, and its milliseconds for so many
# points at that step on a mid-range GPU.
PUBLISHED_MS = {
    "load and normalise": 45.0,
    "octree": 180.0,
    "prediction": 150.0,
    "residuals": 60.0,
    "entropy statistics": 80.0,
    "bitstream": 45.0,
}
# Which of them each of ours is part of.
_PUBLISHED_STAGE = {
    "cells": "load and normalise",
    "sort": "octree",
    "beams": "octree",
    "octree": "octree",
    "fields": "prediction",
    "entropy": "entropy statistics",
    "bitstream": "bitstream",
}


def stages(device: str, threads: int, repetitions: int, points: int = POINTS) -> list[Table]:
    """Return tables of a map of simulated scans: time by stage, bits by section.

    Raises
    ------
    BenchmarkError
        If no OpenCL device matches.
    """
    cloud = map_courtyard(points)
    own = codecs(_STEP, device, threads)
    streams = {name: codec.encode(cloud) for name, codec in own.items()}
    runs = {}
    for name, codec in own.items():
        runs["encode", name] = _Run(codec, codec.encode, cloud)
        runs["decode", name] = _Run(codec, codec.decode, streams[name])
    times = interleave(runs, repetitions)
    rows = []
    for (direction, name), each in runs.items():
        # The first round warms up.
        parts = by_stage(each.stages_ms[1:]) | {"all": spread(times[direction, name])}
        rows += [
            {"contender": name, "direction": direction, "stage": stage, "ms": ms}
            for stage, ms in parts.items()
        ]
    six = by_stage(map(published_stages, runs["encode", OCTREE].stages_ms[1:]))
    six |= {"all": spread(times["encode", OCTREE])}
    published = PUBLISHED_MS | {"all": sum(PUBLISHED_MS.values())}
    note = f"{len(cloud)} points of a map, x y z intensity, at {_STEP:g} m, on "
    note += f"{own[OCTREE].device_name}."
    return [
        Table(
            "The octree's encoding in the stages of a published pipeline",
            [{"stage": s, "ms": ms, "published_ms": published.get(s)} for s, ms in six.items()],
            note,
        ),
        Table("Time by stage", rows, note),
        Table("Bits by section", [r for n, s in streams.items() for r in by_section(n, s)], note),
    ]


class _Run:
    """Encodes or decodes when called, and keeps the stages of each time."""

    def __init__(self, codec: Codec, call: Callable, argument: object):
        self._codec, self._call, self._argument = codec, call, argument
        self.stages_ms: list[dict[str, float]] = []

    def __call__(self) -> float:
        stopwatch = Stopwatch()
        with stopwatch:
            self._call(self._argument)
        self.stages_ms.append(self._codec.stages_ms)
        return stopwatch.milliseconds


def published_stages(stages_ms: dict[str, float]) -> dict[str, float]:
    """Return the milliseconds of our stages by the published one; "other" is part of none."""
    result = dict.fromkeys([*PUBLISHED_MS, "other"], 0.0)
    for name, ms in stages_ms.items():
        result[_PUBLISHED_STAGE.get(name, "other")] += ms
    return result


def by_stage(rounds: Iterable[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return the spread of each stage's milliseconds over rounds."""
    rounds = list(rounds)
    return {name: spread(np.array([each[name] for each in rounds])) for name in rounds[0]}


def by_section(contender: str, stream: bytes) -> list[dict]:
    """Return a row for each section of a stream."""
    info = inspect(stream)
    return [
        {
            "contender": contender,
            "section": name,
            "bytes": size,
            "bits_per_point": 8 * size / info.points,
            "percent": 100 * size / len(stream),
        }
        for name, size in info.bytes_by_section.items()
    ]

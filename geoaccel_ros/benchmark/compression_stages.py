"""Where the time and the bits go: a million points by stage, section and level of the octree."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from geoaccel_ros.benchmark.compression_claims import held
from geoaccel_ros.benchmark.compression_clouds import XYZ, Cloud, cases
from geoaccel_ros.benchmark.compression_contenders import OCTREE, SCAN, codecs
from geoaccel_ros.benchmark.compression_profile import Profile, ProfiledModes, open_device
from geoaccel_ros.benchmark.courtyard import map_courtyard
from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.report import Table
from geoaccel_ros.compression import bitstream
from geoaccel_ros.compression.beams import Beams
from geoaccel_ros.compression.bitstream import Stream
from geoaccel_ros.compression.codec import Codec, CodecError, inspect
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.leb128 import decode_counts
from geoaccel_ros.compression.octree import KINDS, OCCUPANCY_CONTEXTS, kind_of
from geoaccel_ros.compression.rans import EntropyCoder, prior
from geoaccel_ros.pointcloud.layout import coordinates, from_xyz

POINTS = 1_000_000
# Of each cloud's octree, so many are told one by one.
_LAST_LEVELS = 5
STEP = 0.01
LOAD, BUILD, PREDICTION, RESIDUALS, STATISTICS, BITSTREAM = (
    "load and normalise", "octree", "prediction", "residuals", "entropy statistics", "bitstream",
)  # fmt: skip
# The stages of the published pipeline that the octree follows, and its milliseconds for so many
# points at that step on a mid-range GPU.
PUBLISHED_MS = {
    LOAD: 45.0, BUILD: 180.0, PREDICTION: 150.0, RESIDUALS: 60.0, STATISTICS: 80.0, BITSTREAM: 45.0,
}  # fmt: skip
# What the host does between the kernels of several of them.
BETWEEN = "between kernels"
# What is claimed of encoding and of decoding so many points.
MUST_MS_OF_MANY, AIM_MS_OF_MANY = 40.0, 10.0
# Which of them each of ours is part of, but for these kernels of ours.
_PUBLISHED_STAGE = {
    "cells": LOAD, "sort": BUILD, "beams": BUILD, "bitstream": BITSTREAM,
}  # fmt: skip
_PUBLISHED_KERNEL = {
    "count_parents": BUILD, "scan_counts": BUILD, "scatter_parents": BUILD,
    "begin_levels": PREDICTION, "describe_nodes": PREDICTION, "descend": PREDICTION,
    "end_levels": PREDICTION, "sum_blocks": PREDICTION, "scan_blocks": PREDICTION,
    "place_codes": PREDICTION, "gather_positions": PREDICTION, "find_neighbours": PREDICTION,
    "gather_values32": PREDICTION, "gather_values64": PREDICTION,
    "count_nodes": RESIDUALS, "code_nodes": RESIDUALS, "code_multiplicity": RESIDUALS,
    "code_values": RESIDUALS, "code_cycles": RESIDUALS, "pack_events": RESIDUALS,
    "count_runs": STATISTICS, "count_in_groups": STATISTICS, "sum_histograms": STATISTICS,
    "encode_chunks": STATISTICS, "gather_words": BITSTREAM,
}  # fmt: skip
# Of the octree: what builds a level, and what codes one; the first of each level.
_BUILDING = ("count_parents", "scan_counts", "scatter_parents")
_FIRST_OF_LEVEL = "describe_nodes"
_CODING = (_FIRST_OF_LEVEL, "code_nodes", "sum_blocks", "scan_blocks", "descend", "end_levels")


def stages(device: str, threads: int, repetitions: int, points: int = POINTS) -> list[Table]:
    """Return tables of a map of simulated scans: by stage, by kernel, by section and by level.

    Raises
    ------
    BenchmarkError
        If no OpenCL device matches.
    """
    cloud = map_courtyard(points)
    # First, so that groups have the sizes that are found for them, which are kept on disk.
    modes = ProfiledModes(open_device(device, threads), STEP)
    stream = modes.warm_up(cloud)["octree"]
    _, _, auto = codecs(STEP, device, threads).values()
    for _ in range(modes.warm_rounds):
        auto.encode(cloud)
    own = codecs(STEP, device, threads)
    bare = from_xyz(coordinates(cloud))
    claimed = [
        {"case": case} | row
        for case, points in (("xyz", bare), ("xyz + intensity", cloud))
        for name, codec in own.items()
        for row in _claims(name, codec, points, repetitions)
    ]
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
    encoded = [modes.encode(cloud, "octree")[1] for _ in range(repetitions)]
    decoded = [modes.decode(stream) for _ in range(repetitions)]
    note = f"{len(cloud)} points of a map, x y z intensity, at {STEP:g} m, on "
    note += f"{own[OCTREE].device_name}."
    six = by_stage(map(published_stages, encoded))
    whole = spread(np.array([profile.all_ms for profile in encoded]))
    return [
        Table(
            "The octree's encoding in the stages of a published pipeline",
            [{"stage": s, "ms": ms, "published_ms": PUBLISHED_MS.get(s)} for s, ms in six.items()]
            + [{"stage": "all", "ms": whole, "published_ms": sum(PUBLISHED_MS.values())}],
            f"{note} Kernels by the device's clock; each stage of ours waits for its own, so that "
            "all takes a little longer here than in time by stage.",
        ),
        Table(
            "Claims on time",
            claimed,
            f"{len(cloud)} points of that map on {own[OCTREE].device_name}. Claimed of an NVIDIA "
            "H200.",
        ),
        Table("Time by stage", rows, note),
        Table("Kernels of the octree", _by_kernel(encoded, decoded), note),
        Table("Bits by section", [r for n, s in streams.items() for r in by_section(n, s)], note),
        Table(
            "The octree level by level",
            levels(modes.device, cloud, stream, encoded, decoded),
            f"{note} Bits are those of the words of a level's chunks, without the "
            "table that they share; milliseconds are those of its "
            "kernels, without the encoder's statistics; the mean error is that of points of which "
            "no more levels are decoded.",
        ),
    ]


def _claims(name: str, codec: Codec, points: np.ndarray, repetitions: int) -> list[dict]:
    """Return what encoding and decoding take beside what was claimed."""
    stream = codec.encode(points)
    runs = {
        "encode": _Run(codec, codec.encode, points),
        "decode": _Run(codec, codec.decode, stream),
    }
    times = interleave(runs, repetitions)
    rows = []
    for direction in runs:
        ms = spread(times[direction])
        rows.append(
            {
                "ours": name,
                "what": f"{direction} ms",
                "ms": ms,
                "must": MUST_MS_OF_MANY,
                "aim": AIM_MS_OF_MANY,
                "held": held(ms["median"], MUST_MS_OF_MANY, AIM_MS_OF_MANY),
            }
        )
    return rows


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


def published_stages(profile: Profile) -> dict[str, float]:
    """Return the milliseconds of an encoding by the published stage.

    What the host does in a stage of ours that is part of several is :data:`BETWEEN` their kernels.
    """
    result = dict.fromkeys([*PUBLISHED_MS, BETWEEN], 0.0)
    rest = dict(profile.stages_ms)
    for (stage, kernel), ms in profile.kernels_ms().items():
        of_kernel = _PUBLISHED_KERNEL.get(kernel, BETWEEN)
        result[_PUBLISHED_STAGE.get(stage, of_kernel)] += ms
        rest[stage] -= ms
    for stage, ms in rest.items():
        result[_PUBLISHED_STAGE.get(stage, BETWEEN)] += ms
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


def sections(cloud: Cloud, codecs: dict[str, Codec]) -> list[dict]:
    """Return the bits a point of each section of a cloud's streams with all its fields, by mode."""
    case, (points, height) = [*cases(cloud).items()][-1]
    rows = []
    for name in (OCTREE, SCAN):
        try:
            stream = codecs[name].encode(points, height)
        except CodecError:
            # That it refuses the cloud is told elsewhere.
            continue
        bits = {row["section"]: row["bits_per_point"] for row in by_section(name, stream)}
        row = {"contender": name, "cloud": cloud.name, "case": case, "all": sum(bits.values())}
        rows.append(row | {section: each for section, each in bits.items() if each})
    return rows


def last_levels(
    cloud: Cloud, codec: Codec, device: Device, tables: Path | None = None
) -> list[dict]:
    """Return the bits a point of the last levels of a cloud's octree, x y z alone; none if refused.

    Parameters
    ----------
    cloud : Cloud
    codec : Codec
        Of mode octree.
    device : Device
    tables : Path or None
        Those of ``codec``.
    """
    points, height = cases(cloud)[XYZ]
    try:
        stream = bitstream.unpack(memoryview(codec.encode(points, height)))
    except CodecError:
        return []
    grid = stream.header.grid
    shown = min(_LAST_LEVELS, grid.depth)
    bits = _level_bits(device, stream, tables)[0] / len(points)
    row = {"cloud": cloud.name, "coarser": float(bits[: grid.depth - shown].sum())}
    for below in reversed(range(shown)):
        row[f"{100 * grid.step * 2**below:g} cm"] = float(bits[grid.depth - 1 - below])
    return [row]


def _by_kernel(encoded: Sequence[Profile], decoded: Sequence[Profile]) -> list[dict]:
    """Return a row for each kernel of a stage that takes a hundredth of all kernels or more."""
    rows = []
    for direction, rounds in (("encode", encoded), ("decode", decoded)):
        of_kernels = [profile.kernels_ms() for profile in rounds]
        least = 0.01 * sum(of_kernels[-1].values())
        for stage, kernel in of_kernels[-1]:
            ms = spread(np.array([each[stage, kernel] for each in of_kernels]))
            if ms["median"] < least:
                continue
            last = [e for e in rounds[-1].launches if (e.stage, e.kernel) == (stage, kernel)]
            row = {"direction": direction, "stage": stage, "kernel": kernel}
            rows.append(row | {"launches": len(last), "group": last[-1].group, "ms": ms})
    return rows


def levels(
    device: Device,
    cloud: np.ndarray,
    stream: bytes,
    encoded: Sequence[Profile],
    decoded: Sequence[Profile],
) -> list[dict]:
    """Return what each level of an octree costs, and what error it leaves.

    Parameters
    ----------
    device : Device
    cloud : ndarray, structured
        Finite points.
    stream : bytes
        What became of it, in mode octree.
    encoded, decoded : sequence of Profile
    """
    unpacked = bitstream.unpack(memoryview(stream))
    depth, grid = unpacked.header.grid.depth, unpacked.header.grid
    bits, sizes = _level_bits(device, unpacked)
    encode_ms, decode_ms = (
        np.median([_level_ms(profile, depth) for profile in rounds], axis=0)
        for rounds in (encoded, decoded)
    )
    xyz = coordinates(cloud).T.astype(np.float64)
    cells = grid.cells(xyz).astype(np.int64)
    xyz = xyz / grid.step - np.array(grid.origin, float)[:, None]
    rows = []
    for level in range(1, depth + 1):
        below = depth - level
        centres = ((cells >> below) << below) + (2**below - 1) / 2
        errors = np.linalg.norm(centres - xyz, axis=0) * grid.step
        rows.append(
            {
                "level": level,
                "cell_m": grid.step * 2**below,
                "nodes": int(sizes[level]),
                "bits_per_point": float(bits[level - 1]) / len(cloud),
                "encode_ms": float(encode_ms[level - 1]),
                "decode_ms": float(decode_ms[level - 1]),
                "mean_error_m": float(errors.mean()),
            }
        )
    return rows


def _level_bits(
    device: Device, stream: Stream, tables: Path | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bits of each level's words (depth,), and the nodes of each (depth + 1,)."""
    depth, section = stream.header.grid.depth, stream.sections["occupancy"]
    beams = Beams.from_bytes(stream.sections["beams"]) if len(stream.sections["beams"]) else None
    content = np.frombuffer(section, np.uint8)
    inner, position = decode_counts(content, 1, depth - 1)
    sizes = np.concatenate([[1], inner, [stream.header.cells]])
    chunks = -(-sizes[:depth] // 2 ** int(content[0]))
    of_kinds = prior("octree_occupancy", tables).reshape(KINDS, OCCUPANCY_CONTEXTS)
    table = of_kinds[kind_of(sizes, beams)]
    opened = EntropyCoder(device).open(section[position:], int(chunks.sum()), table, "levels")
    ends = device.download(opened.chunk_words, opened.chunks + 1, "u4").astype(np.int64)
    return 16 * np.diff(ends[np.concatenate([[0], np.cumsum(chunks)])]), sizes


def _level_ms(profile: Profile, depth: int) -> np.ndarray:
    """Return what the kernels of each level took, from the root's on, (depth,)."""
    result = np.zeros(depth)
    # Levels are built from the last on, and coded from the first.
    built, coded, ended = depth, -1, False
    for launch in profile.launches:
        if launch.stage != "octree":
            continue
        if launch.kernel in _BUILDING:
            built -= launch.kernel == _BUILDING[0]
            result[built] += launch.milliseconds
        elif launch.kernel in _CODING and not ended:
            coded += launch.kernel == _FIRST_OF_LEVEL
            result[coded] += launch.milliseconds
        else:
            # After them come sums of others.
            ended = coded >= 0
    return result

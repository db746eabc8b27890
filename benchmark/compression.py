#!/usr/bin/env python3
"""The codec beside zstd and, where installed, Draco: bits a point and milliseconds, xyz at 1 cm."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zstandard
from common import Stopwatch, drive, interleave, parse, report, spread, version

from geoaccel_ros.compression.codec import Codec, CodecConfig
from geoaccel_ros.pointcloud.layout import packed_dtype

STEP = 0.01
XYZ = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])
SHARED_TOOLS = Path(__file__).resolve().parents[2] / "shared" / "tools"


def clouds() -> dict[str, np.ndarray]:
    """Return clouds (N, 3) float32 by name: one of the simulator's, and real ones where present."""
    scans, _ = drive(1.0)
    points = scans[-1].points
    found = {"yard, 16 rings": np.stack([points[a] for a in "xyz"], axis=1)}
    if SHARED_TOOLS.exists():
        sys.path.insert(0, str(SHARED_TOOLS))
        import lidar_data

        found["KITTI, HDL-64E"] = next(iter(lidar_data.sequence("kitti_raw_0005")))[1][:-1]
    return found


def contenders() -> dict[str, tuple[Callable, Callable]]:
    """Return encoder and decoder by name; all keep N points to within half a step."""
    codec = Codec(CodecConfig(step=STEP))
    compressor = zstandard.ZstdCompressor(level=3)
    decompressor = zstandard.ZstdDecompressor()
    found = {
        f"geoaccel, {codec.device_name}": (
            lambda xyz: codec.encode(xyz.view(XYZ).reshape(-1)),
            lambda data: codec.decode(data)[0],
        ),
        f"zstd {version('zstandard')} on cells": (
            lambda xyz: compressor.compress(np.rint(xyz.T / STEP).astype(np.int16).tobytes()),
            lambda data: np.frombuffer(decompressor.decompress(data), np.int16) * np.float32(STEP),
        ),
    }
    try:
        import DracoPy
    except ImportError:
        return found

    def draco(xyz):
        span = float((xyz.max(axis=0) - xyz.min(axis=0)).max())
        bits = int(np.ceil(np.log2(span / STEP + 1)))
        return DracoPy.encode(
            xyz, quantization_bits=bits, compression_level=10,
            quantization_range=STEP * (2**bits - 1), quantization_origin=xyz.min(axis=0),
        )  # fmt: skip

    found[f"Draco {version('DracoPy')}, kd-tree, drops duplicates"] = (
        draco,
        lambda data: DracoPy.decode(data).points,
    )
    return found


def main() -> None:
    options = parse(__doc__)
    rows = []
    for cloud_name, xyz in clouds().items():
        xyz = np.ascontiguousarray(xyz, np.float32)
        streams = {name: encode(xyz) for name, (encode, _) in contenders().items()}

        def timed(function, argument):
            def run():
                stopwatch = Stopwatch()
                with stopwatch:
                    function(argument)
                return stopwatch.milliseconds

            return run

        pairs = contenders()
        encoding = interleave(
            {name: timed(encode, xyz) for name, (encode, _) in pairs.items()}, options.repetitions
        )
        decoding = interleave(
            {name: timed(decode, streams[name]) for name, (_, decode) in pairs.items()},
            options.repetitions,
        )
        for name in pairs:
            rows.append(
                {
                    "cloud": f"{cloud_name}, {len(xyz)} points",
                    "contender": name,
                    "bits per point": 8 * len(streams[name]) / len(xyz),
                    "encode ms": spread(encoding[name])["ms"],
                    "decode ms": spread(decoding[name])["ms"],
                }
            )
    report("Compression: xyz at 1 cm, medians", rows, options.json)


if __name__ == "__main__":
    main()

"""The codec beside Draco, LAZ, cloudini and zstd: bits a point and milliseconds at a step."""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tqdm import tqdm

from geoaccel_ros.benchmark.compression_claims import best_peers, claims, claims_on_time
from geoaccel_ros.benchmark.compression_clouds import MESSAGE, Cloud, cases, read_clouds
from geoaccel_ros.benchmark.compression_contenders import (
    OCTREE,
    Trial,
    codecs,
    geoaccel,
    largest_error,
)
from geoaccel_ros.benchmark.compression_integers import Unsuitable
from geoaccel_ros.benchmark.compression_kernels import kernels
from geoaccel_ros.benchmark.compression_peers import PEERS, ZSTD_OF_BYTES
from geoaccel_ros.benchmark.compression_pictures import draw_distortion, draw_rates
from geoaccel_ros.benchmark.compression_profile import open_device
from geoaccel_ros.benchmark.compression_stages import last_levels, sections, stages
from geoaccel_ros.benchmark.compression_sweep import sweep
from geoaccel_ros.benchmark.interleaving import interleave, spread
from geoaccel_ros.benchmark.options import positive_float
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.benchmark.report import Report, Table
from geoaccel_ros.compression.codec import Codec, CodecConfig

__all__ = ["PEERS", "add_options", "run"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the clouds, the steps, the further tables and the OpenCL device."""
    parser.add_argument(
        "--cloud", nargs="+", default=[], metavar="FILE",
        help="clouds of your own: .bin (KITTI), .npy, .pcd or .ply (default: a simulated scan)",
    )  # fmt: skip
    parser.add_argument(
        "--data", nargs="+", type=Path, default=[], metavar="DIR",
        help="folders of clouds, or of such folders; of more than three in one the first, the "
        "middle and the last",
    )  # fmt: skip
    parser.add_argument(
        "--step", nargs="+", type=positive_float, default=[0.01, 0.02], metavar="M",
        help="edges of a cell, metres (default: 0.01 0.02)",
    )  # fmt: skip
    parser.add_argument(
        "--sweep", action="store_true", help="rate against distortion of each cloud, 2 mm to 20 cm"
    )
    parser.add_argument(
        "--stages", action="store_true",
        help="bits by section; 1,000,000 points by stage, kernel and level of the octree",
    )  # fmt: skip
    parser.add_argument(
        "--kernels", action="store_true",
        help="1,000,000 points by size of work-groups, prediction, memory and arrangement",
    )  # fmt: skip
    parser.add_argument(
        "--tables-without", type=Path, metavar="DIR",
        help="folder of each sensor's folder of tables that were trained without it "
        "(tools/train_*.py --held-out); clouds of other sensors have the codec's",
    )  # fmt: skip
    (device,) = (each for each in CodecConfig.parameters() if each.name == "device")
    parser.add_argument(
        "--device",
        default=device.default,
        help=f"{device.description.rstrip('.')} (default: %(default)s)",
    )


def run(options: argparse.Namespace, peers: Sequence[Peer]) -> Report:
    """Encode and decode every cloud in each of its cases, all contenders in turn."""
    rows, swept, refused, by_section, kinds = [], [], [], [], {}
    clouds = read_clouds(options.cloud, options.data)
    folder, own, by_level = None, {}, []
    levels_device = open_device(options.device, options.threads) if options.stages else None
    # With None tqdm is silent where standard error is no terminal.
    with tqdm(clouds, "clouds", unit="", disable=None, leave=False) as progress:
        for cloud in progress:
            progress.set_postfix_str(cloud.name)
            kinds[cloud.name] = cloud.kinds
            if not own or folder != _tables(cloud, options.tables_without):
                folder = _tables(cloud, options.tables_without)
                own = {
                    step: codecs(step, options.device, options.threads, folder)
                    for step in options.step
                }
            for step, each in own.items():
                rows += _measure(cloud, step, each, peers, options.repetitions, refused)
            if options.stages:
                first = own[options.step[0]]
                by_section += sections(cloud, first)
                by_level += last_levels(cloud, first[OCTREE], levels_device, folder)
            if options.sweep:
                swept += sweep(cloud, options.device, options.threads, peers, folder)
    device = next(iter(own[options.step[0]].values())).device_name
    tables, images = [], []
    if peers:
        tables += [best_peers(rows), claims(rows, kinds), claims_on_time(rows, kinds, device)]
    tables.append(Table("Who cannot take a cloud", refused))
    if options.sweep:
        tables.append(Table("Rate against distortion", swept, "Of x y z alone."))
    if options.stages:
        note = f"Bits a point at {options.step[0]:g} m."
        tables.append(Table("Bits by section of each cloud", by_section, note))
        note += " Levels of the octree by the edge of their cells; x y z alone."
        tables.append(Table("Bits by level of each cloud", by_level, note))
        tables += stages(options.device, options.threads, options.repetitions)
    if options.kernels:
        tables += kernels(options.device, options.threads, options.repetitions)
    if options.output is not None:
        images.append(options.output / "compression_rates.png")
        draw_rates(images[0], rows)
        for name in dict.fromkeys(row["cloud"] for row in swept):
            stem = "".join(c if c.isalnum() else "_" for c in name)
            images.append(options.output / f"compression_distortion_{stem}.png")
            draw_distortion(images[-1], [row for row in swept if row["cloud"] == name], name)
    title = f"Compression on {device}: milliseconds to encode and decode a cloud"
    return Report(title, rows, tuple(table for table in tables if table.rows), tuple(images))


def _tables(cloud: Cloud, folder: Path | None) -> Path | None:
    """Return the folder of the tables that were trained without the cloud's sensor, if told."""
    return folder / cloud.sensor if folder is not None and cloud.sensor else None


def _measure(
    cloud: Cloud,
    step: float,
    own: dict[str, Codec],
    peers: Sequence[Peer],
    repetitions: int,
    refused: list[dict],
) -> list[dict]:
    """Return the rows of a cloud at a step; add to ``refused`` who cannot take it."""
    rows = []
    for case, (points, height) in cases(cloud).items():
        trials = {}
        makes = {name: partial(geoaccel, points, height, codec) for name, codec in own.items()}
        for peer in peers:
            if peer.name != ZSTD_OF_BYTES or case == MESSAGE:
                makes[peer.name] = partial(peer.contender, points, step)
        for name, make in makes.items():
            try:
                trials[name] = Trial(*make())
            except Unsuitable as error:
                refusal = {"contender": name, "cloud": cloud.name, "case": case, "step_m": step}
                refused.append(refusal | {"why": str(error)})
        times = interleave(trials, repetitions)
        for name, trial in trials.items():
            encoding, decoding = times[name].T
            rows.append(
                {
                    "contender": name,
                    "cloud": cloud.name,
                    "case": case,
                    "step_m": step,
                    "points": len(points),
                    "ms": spread(encoding + decoding),
                    "encode_ms": spread(encoding),
                    "decode_ms": spread(decoding),
                    "repetitions": repetitions,
                    "bits_per_point": 8 * len(trial.stream) / len(points),
                    "decoded_points": len(trial.decoded),
                    "max_error_m": largest_error(points, trial.decoded, step),
                }
            )
    return rows

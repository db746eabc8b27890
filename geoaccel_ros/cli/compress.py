"""geoaccel compress, decompress and inspect: the point-cloud codec on files and bags."""

import argparse
import dataclasses
import os
import sys
from pathlib import Path

import numpy as np

from geoaccel_ros.cli.compressed_bags import compress_bag, decompress_bag
from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.options import add_options, configuration
from geoaccel_ros.cli.output import write_json
from geoaccel_ros.cli.rate_distortion import picture_path, sweep_and_draw
from geoaccel_ros.compression.codec import (
    Codec,
    CodecConfig,
    CodecError,
    DeviceConfig,
    inspect,
)
from geoaccel_ros.compression.distortion import Distortion, distortion
from geoaccel_ros.pointcloud.files import (
    PointFileError,
    losses,
    read_height,
    read_points,
    write_points,
)
from geoaccel_ros.pointcloud.recordings.bag_messages import find_bag
from geoaccel_ros.pointcloud.recordings.cloud import RecordingError


def add_parsers(subparsers: argparse._SubParsersAction) -> None:
    """Add the three commands."""
    compress = subparsers.add_parser(
        "compress",
        help="a cloud to a stream, or the clouds of a bag; with the errors measured",
        description="Compress a cloud, or the clouds of a bag to messages on <topic>/compressed, "
        "all else in the bag as it was; decode the streams again to measure their errors.",
    )
    compress.add_argument(
        "input",
        metavar="IN",
        help="cloud: .bin (KITTI), .npy, .pcd, .ply, .las, .laz or text (.xyz, .txt, .csv, .pts); "
        "or a bag: .bag, .mcap, .db3 or the folder of a rosbag2",
    )
    compress.add_argument(
        "stream", metavar="OUT", help="stream to write; of a bag, a new bag of the same kind"
    )
    _add_topic(compress)
    compress.add_argument(
        "--sweep",
        action="store_true",
        help="also encode at steps of 2 mm to 20 cm, and draw rate against distortion",
    )
    compress.add_argument(
        "--output", type=Path, metavar="DIR", help="where --sweep draws (default: beside OUT)"
    )
    add_options(compress, CodecConfig)
    compress.set_defaults(run=_compress)

    decompress = subparsers.add_parser(
        "decompress", help="a stream to a cloud, or the compressed messages of a bag to clouds"
    )
    decompress.add_argument("input", metavar="IN", help="stream or bag that compress wrote")
    decompress.add_argument(
        "output",
        metavar="OUT",
        help="cloud to write: .npy, .bin, .pcd or .ply; of a bag, a new bag of the same kind",
    )
    _add_topic(decompress)
    decompress.add_argument(
        "--level",
        type=int,
        metavar="N",
        help="of an octree, the centres of the cells of this level alone: 0 (one cell) to the "
        "depth that inspect tells; cells double with each level less",
    )
    add_options(decompress, DeviceConfig)
    decompress.set_defaults(run=_decompress)

    show = subparsers.add_parser("inspect", help="what a stream says of itself; decodes nothing")
    show.add_argument("input", metavar="FILE", help="stream that compress wrote")
    show.set_defaults(run=_inspect)

    for parser in compress, decompress, show:
        parser.add_argument(
            "--json", metavar="FILE", help="write the results as JSON, '-' for standard output"
        )


def _add_topic(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC",
        help="of a bag, a topic to convert, may be repeated (default: all of clouds)",
    )


def _compress(args: argparse.Namespace) -> int:
    config = configuration(args, CodecConfig)
    bag = _bag(args)
    if bag is not None:
        if args.sweep or args.output is not None:
            raise UserError("--sweep and --output are of a cloud in a file: leave them out")
        _check_outside(args.input, args.stream)
        codec = _codec(config)
        result = compress_bag(bag, Path(args.stream), args.topic, codec, args.json == "-")
        return _report(args, result | {"device": codec.device_name})
    if args.output is not None and not args.sweep:
        raise UserError("--output is where --sweep draws: give both")
    if args.sweep and (config.is_lossless or config.targets):
        raise UserError("--sweep goes through steps: leave out targets and lossless x y z")
    if args.sweep and config.max_depth < CodecConfig.max_depth:
        raise UserError("--sweep goes through steps, which --max-depth enlarges: leave it out")
    _check_distinct(args.input, args.stream)
    picture = picture_path(args.stream, args.output) if args.sweep else None
    codec = _codec(config)
    points, height = _read_cloud(args.input)
    try:
        stream = codec.encode(points, height)
        stages = codec.stages_ms
        decoded, _ = codec.decode(stream)
        order = codec.order(points, stream)
    except CodecError as error:
        raise UserError(f"'{args.input}': {error}") from None
    info = inspect(stream)
    errors = distortion(points[order], decoded)
    _check_promise(errors, points, info.step)
    _write(args.stream, stream)
    count = len(points)
    result = {
        "points": count,
        "decoded_points": len(decoded),
        "bytes": len(stream),
        "bits_per_point": 8 * len(stream) / count if count else None,
        "ratio": points.nbytes / len(stream),
        **dataclasses.asdict(errors),
        "mode": info.mode,
        "order_kept": info.order_kept,
        "step": info.step,
        "device": codec.device_name,
        "bytes_by_section": info.bytes_by_section,
        "stages_ms": stages,
    }
    if picture is not None:
        result |= sweep_and_draw(points, config, args.input, picture)
    return _report(args, result)


def _decompress(args: argparse.Namespace) -> int:
    bag = _bag(args)
    if bag is not None and args.level is not None:
        raise UserError("--level is of a stream in a file: leave it out")
    _check_distinct(args.input, args.output)
    if bag is not None:
        _check_outside(args.input, args.output)
    codec = _codec(CodecConfig(**configuration(args, DeviceConfig).as_dict()))
    if bag is not None:
        result = decompress_bag(bag, Path(args.output), args.topic, codec, args.json == "-")
        return _report(args, result | {"device": codec.device_name})
    stream = _read_stream(args.input)
    try:
        if args.level is None:
            points, height = codec.decode(stream)
        else:
            height, points = 1, codec.decode_level(stream, args.level)
        info = inspect(stream)
    except CodecError as error:
        raise UserError(f"'{args.input}': {error}") from None
    try:
        # A message without points may have no rows either; a file has one.
        write_points(args.output, points, max(height, 1))
    except PointFileError as error:
        raise UserError(str(error)) from None
    lost = losses(args.output, points)
    if lost:
        print(
            f"geoaccel decompress: '{args.output}' is float32 x y z intensity: {'; '.join(lost)} "
            "(.npy, .pcd and .ply keep all)",
            file=sys.stderr,
        )
    result = {"points": len(points), "bytes": points.nbytes}
    if args.level is not None:
        result["cell"] = info.step * 2 ** (info.depth - args.level)
    result |= {"device": codec.device_name, "stages_ms": codec.stages_ms}
    return _report(args, result)


def _inspect(args: argparse.Namespace) -> int:
    stream = _read_stream(args.input)
    try:
        info = inspect(stream)
    except CodecError as error:
        raise UserError(f"'{args.input}': {error}") from None
    return _report(args, {"bytes": len(stream), **dataclasses.asdict(info)})


def _bag(args: argparse.Namespace) -> Path | None:
    """Return what to open of the input as a bag, or None if it is none."""
    try:
        bag = find_bag(Path(args.input))
    except RecordingError as error:
        raise UserError(str(error)) from None
    if bag is None and Path(args.input).is_dir():
        raise UserError(
            f"'{args.input}' is a folder without a bag (no metadata.yaml, .bag, .db3 or .mcap): "
            "give a bag or a file"
        )
    if bag is None and args.topic:
        raise UserError(f"'{args.input}' is no bag and has no topics: leave out --topic")
    return bag


def _codec(config: CodecConfig) -> Codec:
    try:
        return Codec(config)
    except CodecError as error:
        raise UserError(str(error)) from None


def _check_distinct(source: str, target: str) -> None:
    try:
        is_same = os.path.samefile(source, target)
    except OSError:
        return
    if is_same:
        raise UserError(f"'{target}' is the input, which would be overwritten: name another output")


def _check_promise(errors: Distortion, points: np.ndarray, step: float) -> None:
    """Refuse a stream whose decoded coordinates are further off than half a step."""
    reach = [np.abs(points[axis][np.isfinite(points[axis])]).max(initial=0) for axis in "xyz"]
    rounding = max(float(np.spacing(value)) for value in reach) if step else 0.0
    if errors.max_error_m > step / 2 + rounding:
        raise UserError(
            f"the stream would decode to coordinates that are {errors.max_error_m:.3g} m off, "
            f"which is more than half a step of {step:g} m: nothing was written; this is a bug, "
            "please report it with the cloud's layout"
        )


def _check_outside(bag: str, target: str) -> None:
    """Refuse a new bag within the input's folder, where it would seem to be part of that."""
    source = Path(os.path.realpath(bag))
    if source.is_file():
        source = source.parent
        # What merely holds the file is no bag's folder.
        if not (source / "metadata.yaml").exists():
            return
    if source in Path(os.path.realpath(target)).parents:
        raise UserError(f"'{target}' lies in the folder of the input: name one outside of it")


def _read_cloud(path: str) -> tuple[np.ndarray, int]:
    """Return a cloud and its rows."""
    try:
        return read_points(path), read_height(path)
    except PointFileError as error:
        raise UserError(str(error)) from None


def _read_stream(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}") from None


def _write(path: str, data: bytes) -> None:
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror}") from None


def _report(args: argparse.Namespace, result: dict) -> int:
    """Print a line for each result, or leave standard output to the JSON that was asked for."""
    if args.json:
        write_json(result, args.json)
    if args.json != "-":
        for name, value in result.items():
            if value != {}:
                print(f"{name:17} {_text(value)}", file=sys.stdout)
    return 0


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], dict):
            return _table(value)
        return ", ".join(map(_text, value))
    return str(value)


def _table(rows: list[dict]) -> str:
    """Return rows under the names of their columns, each on a line of its own."""
    lines = [list(rows[0]), *([_text(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (map(str.ljust, line, widths) for line in lines)
    return "".join("\n  " + "  ".join(cells).rstrip() for cells in padded)

"""The codec beside zstd and Draco: bits a point and milliseconds, of xyz at a step."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import zstandard
from matplotlib.figure import Figure
from scipy.spatial import KDTree

from geoaccel_ros.benchmark.errors import BenchmarkError
from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.benchmark.pictures import save
from geoaccel_ros.benchmark.report import Report
from geoaccel_ros.benchmark.yard import drive
from geoaccel_ros.compression.codec import Codec, CodecConfig, CodecError
from geoaccel_ros.pointcloud.files import PointFileError, read_points
from geoaccel_ros.pointcloud.layout import LayoutError, coordinates, packed_dtype

_XYZ = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])

# A contender encodes its cloud, and decodes what it encoded to coordinates (N, 3).
Encode = Callable[[], bytes]
Decode = Callable[[bytes], np.ndarray]


def geoaccel(xyz: np.ndarray, codec: Codec) -> tuple[Encode, Decode]:
    """Return our codec's encoder of xyz (N, 3) float32, and its decoder."""
    points = xyz.view(_XYZ).reshape(-1)
    return lambda: codec.encode(points), lambda data: coordinates(codec.decode(data)[0])


def zstd_of_cells(xyz: np.ndarray, step: float) -> tuple[Encode, Decode]:
    """Return the same of zstd on cell indices, in the fewest bytes that hold them."""
    compressor, decompressor = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()
    index = np.min_scalar_type(-int(np.abs(xyz).max() / step) - 1)

    def encode() -> bytes:
        # Axis by axis: neighbours are alike.
        return compressor.compress(np.rint(xyz.T / step).astype(index).tobytes())

    def decode(data: bytes) -> np.ndarray:
        cells = np.frombuffer(decompressor.decompress(data), index).reshape(3, -1)
        return cells.T * np.float32(step)

    return encode, decode


def draco(xyz: np.ndarray, step: float) -> tuple[Encode, Decode]:
    """Return the same of Draco's KD-tree, which drops points that are equal."""
    import DracoPy

    def encode() -> bytes:
        origin = xyz.min(axis=0)
        bits = int(np.ceil(np.log2((xyz.max(axis=0) - origin).max() / step + 1)))
        return DracoPy.encode(
            xyz, quantization_bits=bits, compression_level=10,
            quantization_range=step * (2**bits - 1), quantization_origin=origin,
        )  # fmt: skip

    return encode, lambda data: DracoPy.decode(data).points


PEERS = (
    Peer("zstd of cells", "zstandard", "zstandard", zstd_of_cells),
    Peer("Draco, KD-tree", "DracoPy", "DracoPy", draco),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the clouds, the step and the OpenCL device."""
    parser.add_argument(
        "--cloud", nargs="+", default=[], metavar="FILE",
        help="clouds of your own: .bin (KITTI), .npy, .pcd or .ply (default: a simulated scan)",
    )  # fmt: skip
    for declared in CodecConfig.parameters():
        if declared.name in ("step", "device"):
            parser.add_argument(
                f"--{declared.name}",
                type=declared.kind,
                default=declared.default,
                help=f"{declared.description.rstrip('.')} (default: %(default)s)",
            )


def run(options: argparse.Namespace, peers: Sequence[Peer]) -> Report:
    """Encode and decode each cloud."""
    config = CodecConfig(step=options.step, device=options.device, threads=options.threads)
    try:
        codec = Codec(config)
    except CodecError as error:
        raise BenchmarkError(str(error)) from None
    rows = []
    for cloud, xyz in _clouds(options.cloud).items():
        contenders = {f"geoaccel, {codec.device_name}": geoaccel(xyz, codec)}
        contenders |= {peer.name: peer.contender(xyz, config.step) for peer in peers}
        times = interleave(
            {name: _round_trip(*pair) for name, pair in contenders.items()}, options.repetitions
        )
        for name, (encode, decode) in contenders.items():
            stream = encode()
            decoded = decode(stream)
            # Not all keep the order, so each original is held to the nearest decoded point; by its
            # largest coordinate, which is what a step bounds.
            distances, _ = KDTree(decoded).query(xyz, p=np.inf)
            encoding, decoding = times[name].T
            rows.append(
                {
                    "contender": name,
                    "cloud": cloud,
                    "points": len(xyz),
                    "ms": spread(encoding + decoding),
                    "encode_ms": spread(encoding),
                    "decode_ms": spread(decoding),
                    "repetitions": options.repetitions,
                    "bits_per_point": 8 * len(stream) / len(xyz),
                    "decoded_points": len(decoded),
                    "max_error_m": float(distances.max()),
                }
            )
    images = ()
    if options.output is not None:
        images = (options.output / "compression_rates.png",)
        _draw(images[0], rows)
    title = f"Compression: xyz at {config.step:g} m, milliseconds to encode and decode a cloud"
    return Report(title, rows, images=images)


def _clouds(paths: Sequence[str]) -> dict[str, np.ndarray]:
    """Return clouds (N, 3) float32 by name."""
    if not paths:
        scans, _ = drive(1.0)
        return {"yard, 16 rings": _local(coordinates(scans[-1].points))}
    clouds = {}
    for path in paths:
        try:
            clouds[path] = _local(coordinates(read_points(path)))
        except (PointFileError, LayoutError) as error:
            raise BenchmarkError(str(error)) from None
        if not len(clouds[path]):
            raise BenchmarkError(f"'{path}' has no finite points: give a cloud that has")
    return clouds


def _local(xyz: np.ndarray) -> np.ndarray:
    """Return the finite points as float32 around a point of whole metres.

    Map coordinates of millions of metres would lose decimetres otherwise.
    """
    xyz = xyz[np.isfinite(xyz).all(axis=1)].astype(float)
    if len(xyz):
        xyz -= np.rint(xyz.mean(axis=0))
    return np.ascontiguousarray(xyz, np.float32)


def _round_trip(encode: Encode, decode: Decode) -> Callable[[], tuple[float, float]]:
    def run() -> tuple[float, float]:
        encoding, decoding = Stopwatch(), Stopwatch()
        with encoding:
            stream = encode()
        with decoding:
            decode(stream)
        return encoding.milliseconds, decoding.milliseconds

    return run


def _draw(path: Path, rows: list[dict]) -> None:
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.subplots()
    for row in rows:
        label = f"{row['contender']}: {row['cloud']}"
        axes.plot(row["ms"]["median"], row["bits_per_point"], "o", label=label)
    axes.set(xscale="log", xlabel="encode and decode [ms]", ylabel="bits a point", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    save(figure, path)

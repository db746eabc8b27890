"""Other packages that compress clouds: coordinates to a step, every other field exactly."""

import io
import struct

import numpy as np
import zstandard

from geoaccel_ros.benchmark.compression_cloudini import CLOUDINI
from geoaccel_ros.benchmark.compression_clouds import INTENSITIES
from geoaccel_ros.benchmark.compression_contenders import Decode, Encode
from geoaccel_ros.benchmark.compression_integers import Integers, Unsuitable, is_time
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.pointcloud.layout import coordinates

# Those that a claim names.
ZSTD_OF_CELLS, ZSTD_OF_BYTES = "zstd of cells", "zstd of the message"
DRACO, LAZ = "Draco, KD-tree", "LAZ"

_AXES = ("x", "y", "z")
_RINGS = ("ring", "laser_id", "line")


def zstd_of_cells(points: np.ndarray, step: float) -> tuple[Encode, Decode]:
    """Return zstd on columns: cell indices in as few bytes as hold them, then the other fields."""
    xyz = coordinates(points)
    finite = np.isfinite(xyz).all(axis=1)
    origin = _origin(xyz[finite])
    others = [name for name in points.dtype.names if name not in _AXES]
    largest = int(np.abs(xyz[finite] - origin).max(initial=0) / step) + 1
    # One more, for what is no number.
    index = np.min_scalar_type(-largest - 2)
    hole = np.iinfo(index).min
    compressor, decompressor = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()

    def encode() -> bytes:
        # Axis by axis: neighbours are alike.
        cells = np.rint((xyz.T - origin[:, None]) / step)
        if not finite.all():
            cells[:, ~finite] = hole
        parts = [cells.astype(index).tobytes(), *(points[name].tobytes() for name in others)]
        return compressor.compress(b"".join(parts))

    def decode(data: bytes) -> np.ndarray:
        data = decompressor.decompress(data)
        result = np.empty(len(points), points.dtype)
        cells = np.frombuffer(data, index, 3 * len(points)).reshape(3, -1)
        for row, axis, zero in zip(cells, "xyz", origin, strict=True):
            result[axis] = np.where(row == hole, np.nan, row * step + zero)
        at = cells.nbytes
        for name in others:
            result[name] = np.frombuffer(data, points.dtype[name], len(points), at)
            at += result[name].nbytes
        return result

    return encode, decode


def zstd_of_bytes(points: np.ndarray, step: float) -> tuple[Encode, Decode]:
    """Return zstd on the points' bytes as they are, which is lossless: the step is not used."""
    compressor, decompressor = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()
    return (
        lambda: compressor.compress(points.tobytes()),
        lambda data: np.frombuffer(decompressor.decompress(data), points.dtype),
    )


def draco(points: np.ndarray, step: float) -> tuple[Encode, Decode]:
    """Return Draco's KD-tree, which drops points that are equal and keeps no order."""
    return _draco(points, step, preserve_order=False)


def draco_in_order(points: np.ndarray, step: float) -> tuple[Encode, Decode]:
    """Return Draco's sequential coding, which keeps the order."""
    return _draco(points, step, preserve_order=True)


def _draco(points: np.ndarray, step: float, preserve_order: bool) -> tuple[Encode, Decode]:
    import DracoPy

    xyz = _finite(points)
    centre = _origin(xyz)
    others = [name for name in points.dtype.names if name not in _AXES]
    columns = {name: Integers(points[name], np.uint32) for name in others}

    def encode() -> bytes:
        near = np.ascontiguousarray(xyz - centre, np.float32)
        corner = near.min(axis=0)
        bits = max(1, int(np.ceil(np.log2((near.max(axis=0) - corner).max() / step + 1))))
        values = {name: each.encode(points[name])[:, None] for name, each in columns.items()}
        stream = DracoPy.encode(
            near, quantization_bits=bits, compression_level=10,
            quantization_range=step * (2**bits - 1), quantization_origin=corner,
            preserve_order=preserve_order, generic_attributes=values or None,
        )  # fmt: skip
        return _joined([each.table for each in columns.values()], stream)

    def decode(data: bytes) -> np.ndarray:
        cloud = DracoPy.decode(_split(data, len(columns)))
        result = np.empty(len(cloud.points), points.dtype)
        for axis, name in enumerate("xyz"):
            result[name] = cloud.points[:, axis] + centre[axis]
        for name, each in columns.items():
            result[name] = each.decode(cloud.get_attribute_by_name(name)["data"][:, 0])
        return result

    return encode, decode


def laz(points: np.ndarray, step: float) -> tuple[Encode, Decode]:
    """Return LAZ at a scale of the step, fields that LAS does not know as extra bytes."""
    import laspy

    origin = _origin(_finite(points))
    dimensions: dict[str, tuple[str, Integers | None]] = {}
    taken, extra = set(), []
    for name in points.dtype.names:
        if name in _AXES:
            continue
        values = points[name]
        dimension, column = "", None
        if is_time(name) and values.dtype.kind == "f":
            dimension = "gps_time"
        elif name in _RINGS and values.dtype in (np.uint8, np.uint16):
            dimension = "point_source_id"
        elif name in INTENSITIES:
            dimension, column = "intensity", Integers(values, np.uint16)
        if not dimension or dimension in taken:
            dimension, column = f"extra {name}", None
            extra.append(laspy.ExtraBytesParams(dimension, values.dtype.newbyteorder("=")))
        taken.add(dimension)
        dimensions[name] = dimension, column

    def encode() -> bytes:
        header = laspy.LasHeader(version="1.2", point_format=1 if "gps_time" in taken else 0)
        header.scales, header.offsets = np.full(3, step), origin
        header.add_extra_dims(extra)
        cloud = laspy.LasData(header)
        for axis in "xyz":
            cloud[axis] = points[axis]
        for name, (dimension, column) in dimensions.items():
            cloud[dimension] = points[name] if column is None else column.encode(points[name])
        stream = io.BytesIO()
        cloud.write(stream, do_compress=True, laz_backend=laspy.LazBackend.Lazrs)
        tables = [column.table for _, column in dimensions.values() if column]
        return _joined(tables, stream.getvalue())

    def decode(data: bytes) -> np.ndarray:
        tables = sum(column is not None for _, column in dimensions.values())
        cloud = laspy.read(io.BytesIO(_split(data, tables)), laz_backend=laspy.LazBackend.Lazrs)
        result = np.empty(len(cloud), points.dtype)
        for axis in "xyz":
            result[axis] = cloud[axis]
        for name, (dimension, column) in dimensions.items():
            values = np.asarray(cloud[dimension])
            result[name] = values if column is None else column.decode(values)
        return result

    return encode, decode


PEERS = (
    Peer(ZSTD_OF_CELLS, "zstandard", "zstandard", zstd_of_cells),
    Peer(ZSTD_OF_BYTES, "zstandard", "zstandard", zstd_of_bytes),
    Peer(DRACO, "DracoPy", "DracoPy", draco),
    Peer("Draco, sequential", "DracoPy", "DracoPy", draco_in_order),
    Peer(LAZ, "lazrs", "lazrs", laz),
    CLOUDINI,
)


def _origin(xyz: np.ndarray) -> np.ndarray:
    """Return a point of whole metres near the middle: float32 and int32 reach around it."""
    return np.rint(xyz.mean(axis=0, dtype=float)) if len(xyz) else np.zeros(3)


def _finite(points: np.ndarray) -> np.ndarray:
    xyz = coordinates(points)
    if not np.isfinite(xyz).all():
        raise Unsuitable("has coordinates that are no numbers")
    return xyz


def _joined(tables: list[bytes], stream: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(table)) + table for table in tables) + stream


def _split(data: bytes, tables: int) -> bytes:
    """Return the stream behind the tables, which the columns hold already."""
    at = 0
    for _ in range(tables):
        at += 4 + struct.unpack_from("<I", data, at)[0]
    return data[at:]

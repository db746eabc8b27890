"""cloudini, through the C interface that its sources have for browsers."""

import ctypes
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.benchmark.compression_contenders import Decode, Encode
from geoaccel_ros.benchmark.compression_integers import Integers, Unsuitable, is_time
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.pointcloud.layout import fields_of

_LIBRARY = "libcloudini.so"
_STREAM_VERSION = 5
# sensor_msgs/PointField's datatype constants, 1 to 8.
_TYPES = "INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "FLOAT32", "FLOAT64"
# What a stream may need beyond the cloud that it holds.
_HEADROOM = 2**16


@dataclass(frozen=True)
class _Library(Peer):
    """A peer that is a shared library and no package."""

    def problem(self) -> str | None:
        try:
            ctypes.CDLL(_LIBRARY)
        except OSError:
            return f"no {_LIBRARY}: docs/benchmarks.md tells how it is built"
        return None

    def versions(self) -> dict[str, str]:
        return {self.distribution: f"stream version {_STREAM_VERSION}"}


def cloudini(points: np.ndarray, step: float) -> tuple[Encode, Decode]:
    """Return cloudini's encoder with zstd, and its decoder.

    Intensities that are integers divided by a whole number get that resolution, times in float64
    one of 1 us; other fields are exact.

    Raises
    ------
    Unsuitable
        If cloudini refuses the cloud.
    """
    library = ctypes.CDLL(_LIBRARY)
    data, length = ctypes.c_void_p, ctypes.c_uint32
    library.cldn_EncodePointcloudData.argtypes = ctypes.c_char_p, data, length, data
    library.cldn_EncodePointcloudData.restype = length
    library.cldn_DecodeCompressedData.argtypes = data, length, data
    library.cldn_DecodeCompressedData.restype = length
    points = np.ascontiguousarray(points)
    header = _header(points, step)

    def encode() -> bytes:
        stream = np.empty(points.nbytes + _HEADROOM, np.uint8)
        size = library.cldn_EncodePointcloudData(
            header, points.ctypes.data, points.nbytes, stream.ctypes.data
        )
        if not size:
            raise Unsuitable("is refused, or its stream would be larger than the cloud")
        return stream[:size].tobytes()

    def decode(stream: bytes) -> np.ndarray:
        result = np.zeros(len(points), points.dtype)
        if library.cldn_DecodeCompressedData(stream, len(stream), result.ctypes.data) == 0:
            raise RuntimeError("cloudini does not decode its own stream")
        return result

    encode()
    return encode, decode


def _header(points: np.ndarray, step: float) -> bytes:
    """Return what cloudini is told of a cloud, in its subset of YAML."""
    lines = [
        # Its reader takes the character's code for the number.
        f"version: {chr(_STREAM_VERSION)}",
        f"width: {len(points)}",
        "height: 1",
        f"point_step: {points.dtype.itemsize}",
        "encoding_opt: LOSSY",
        "compression_opt: ZSTD",
        "fields:",
    ]
    for field in fields_of(points.dtype):
        lines += [
            f"  - name: {field.name}",
            f"    offset: {field.offset}",
            f"    type: {_TYPES[field.datatype - 1]}",
            f"    resolution: {_resolution(points[field.name], field.name, step)}",
        ]
    return "\n".join([*lines, ""]).encode()


def _resolution(values: np.ndarray, name: str, step: float) -> str:
    if name in ("x", "y", "z"):
        return f"{step:.9g}"
    if values.dtype.kind != "f":
        return "null"
    if is_time(name):
        return "1e-06" if values.dtype.itemsize == 8 else "null"
    divisor = Integers.divisor_of(values, np.uint16)
    return "null" if divisor is None else f"{1 / divisor:.9g}"


CLOUDINI = _Library("cloudini", "cloudini", _LIBRARY, cloudini)

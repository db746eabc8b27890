"""Our codec as a contender, and what any contender's run comes to."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.spatial import KDTree

from geoaccel_ros.benchmark.compression_integers import Unsuitable
from geoaccel_ros.benchmark.errors import BenchmarkError
from geoaccel_ros.benchmark.interleaving import Stopwatch
from geoaccel_ros.compression.codec import Codec, CodecConfig, CodecError
from geoaccel_ros.pointcloud.layout import coordinates

# A contender encodes its cloud, and decodes what it encoded to points of the same dtype.
Encode = Callable[[], bytes]
Decode = Callable[[bytes], np.ndarray]

OCTREE, SCAN, AUTO = MODES = "geoaccel, octree", "geoaccel, scan", "geoaccel, auto"
_MODES = ("octree", "scan", "auto")


def codecs(step: float, device: str, threads: int, tables: Path | None = None) -> dict[str, Codec]:
    """Return our codecs by the name of the contender.

    Parameters
    ----------
    step : float
    device : str
    threads : int
    tables : Path or None
        Folder of the codec's tables; None: the package's.

    Raises
    ------
    BenchmarkError
        If no OpenCL device matches, or the folder has no tables.
    """
    try:
        return {
            f"geoaccel, {mode}": Codec(
                CodecConfig(mode=mode, step=step, device=device, threads=threads), tables
            )
            for mode in _MODES
        }
    except CodecError as error:
        raise BenchmarkError(str(error)) from None
    except OSError as error:
        remedy = "make them with tools/train_*.py --held-out"
        raise BenchmarkError(f"no table '{error.filename}': {remedy}") from None


def geoaccel(points: np.ndarray, height: int, codec: Codec) -> tuple[Encode, Decode]:
    """Return our encoder and decoder.

    Raises
    ------
    Unsuitable
        If the codec refuses the cloud.
    """
    try:
        codec.encode(points, height)
    except CodecError as error:
        raise Unsuitable(str(error)) from None
    return lambda: codec.encode(points, height), lambda data: codec.decode(data)[0]


class Trial:
    """Encodes and decodes when called, and returns the milliseconds of both.

    Attributes
    ----------
    stream : bytes
    decoded : ndarray, structured
        Of the last call.
    """

    def __init__(self, encode: Encode, decode: Decode):
        self._encode, self._decode = encode, decode

    def __call__(self) -> tuple[float, float]:
        encoding, decoding = Stopwatch(), Stopwatch()
        with encoding:
            self.stream = self._encode()
        with decoding:
            self.decoded = self._decode(self.stream)
        return encoding.milliseconds, decoding.milliseconds


def largest_error(points: np.ndarray, decoded: np.ndarray, step: float) -> float:
    """Return the largest error of a coordinate, in metres; points that are not finite do not count.

    Point by point where that keeps within a step, so that the order must have been kept. Otherwise
    each original is held to the nearest decoded point by its largest coordinate.
    """
    original, decoded = coordinates(points), coordinates(decoded)
    if len(original) == len(decoded):
        # float64 first: the difference of two float32 would itself be rounded.
        errors = np.abs(original.astype(float) - decoded)
        in_order = float(errors[np.isfinite(original).all(axis=1)].max(initial=0.0))
        if in_order <= step:
            return in_order
    original, decoded = (xyz[np.isfinite(xyz).all(axis=1)] for xyz in (original, decoded))
    distances, _ = KDTree(decoded.astype(float)).query(original.astype(float), p=np.inf)
    return float(distances.max(initial=0.0))

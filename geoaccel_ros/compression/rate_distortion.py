"""Rate against distortion: what a step costs in bits a point, and what it loses."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree

from geoaccel_ros.compression.codec import Codec, CodecConfig
from geoaccel_ros.compression.distortion import distortion
from geoaccel_ros.pointcloud.layout import coordinates

# Metres.
STEPS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class RatePoint:
    """What one step gives.

    Attributes
    ----------
    step_m : float
    bits_per_point : float
        Of the whole stream, a point of the original.
    d1_psnr_db : float
        See :func:`d1_psnr`.
    max_error_m, mean_m : float
        Largest error of a single coordinate; mean distance.
    """

    step_m: float
    bits_per_point: float
    d1_psnr_db: float
    max_error_m: float
    mean_m: float


def sweep(
    points: np.ndarray, config: CodecConfig, steps: Sequence[float] = STEPS, height: int = 1
) -> list[RatePoint]:
    """Encode and decode a cloud at several steps.

    Parameters
    ----------
    points : ndarray, shape (N,), structured
        At least one is finite.
    config : CodecConfig
        Of all but the step.
    steps : sequence of float, metres
    height : int
        As :meth:`.codec.Codec.encode` takes it.

    Raises
    ------
    CodecError
        If the cloud cannot be encoded with one of the steps.
    """
    results = []
    for step in steps:
        codec = Codec(dataclasses.replace(config, step=step))
        stream = codec.encode(points, height)
        decoded, _ = codec.decode(stream)
        errors = distortion(points[codec.order(points, stream)], decoded)
        results.append(
            RatePoint(
                step_m=step,
                bits_per_point=8 * len(stream) / len(points),
                d1_psnr_db=d1_psnr(coordinates(points), coordinates(decoded)),
                max_error_m=errors.max_error_m,
                mean_m=errors.mean_m,
            )
        )
    return results


def d1_psnr(original: np.ndarray, decoded: np.ndarray) -> float:
    """Return the point-to-point PSNR of MPEG's point cloud coding, in dB.

    The mean squared distance from each point to the other cloud's nearest is taken both ways and
    the larger counts; the peak is the longest edge p of the original's bounding box, and the
    signal 3 p^2, as for the three coordinates of MPEG's pc_error.

    Parameters
    ----------
    original, decoded : ndarray, shapes (N, 3) and (M, 3), metres
        Points that are not finite are left out.

    Returns
    -------
    float
        Infinite for clouds that hold the same places; not a number if one has no finite points.
    """
    original, decoded = (
        xyz[np.isfinite(xyz).all(axis=1)].astype(float) for xyz in (original, decoded)
    )
    if not len(original) or not len(decoded):
        return float("nan")
    error = max(
        float(np.mean(KDTree(b).query(a)[0] ** 2))
        for a, b in ((original, decoded), (decoded, original))
    )
    peak = float(np.ptp(original, axis=0).max())
    with np.errstate(divide="ignore"):
        return float(10 * np.log10(3 * np.float64(peak) ** 2 / error)) if error else float("inf")

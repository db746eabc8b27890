"""How far decoded points lie from the originals."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Distortion:
    """Errors of a decoded cloud in metres; all 0 for a cloud without finite points.

    Attributes
    ----------
    max_error_m : float
        Largest error of a single coordinate: what the codec's step bounds.
    euclidean_max_m, mean_m : float
        Largest and mean distance between a point and its decoded self.
    """

    max_error_m: float
    euclidean_max_m: float
    mean_m: float


def distortion(original: np.ndarray, decoded: np.ndarray) -> Distortion:
    """Compare clouds point by point.

    Parameters
    ----------
    original, decoded : ndarray, shape (N,), structured with x, y and z
        In the same order: of a cloud ``points`` that :class:`.codec.Codec` encoded, compare
        ``points[codec.order(points)]``. Points that are not finite are left out.
    """
    # float64 first: the difference of two float32 would itself be rounded.
    errors = np.stack([original[a].astype(float) for a in "xyz"])
    with np.errstate(invalid="ignore"):
        errors -= np.stack([decoded[axis] for axis in "xyz"])
    errors = errors[:, np.isfinite(errors).all(axis=0)]
    if errors.shape[1] == 0:
        return Distortion(0.0, 0.0, 0.0)
    distances = np.linalg.norm(errors, axis=0)
    return Distortion(float(np.abs(errors).max()), float(distances.max()), float(distances.mean()))

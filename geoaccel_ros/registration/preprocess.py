"""What happens to a cloud before it is registered: finite and range mask, voxel grid, outliers."""

from dataclasses import dataclass

import numpy as np
from numba import njit

from geoaccel_ros.config import Configuration, ConfigurationError, parameter
from geoaccel_ros.registration.outliers import radius_filter, statistical_filter
from geoaccel_ros.registration.voxels import EMPTY, home_slot, table_size, voxel_key


@dataclass(frozen=True)
class PreprocessConfig(Configuration):
    """Parameters of :func:`preprocess`; by default all finite points are kept."""

    min_range: float = parameter(
        0.0,
        "Points nearer to the frame's origin than this are dropped",
        unit="m",
        minimum=0.0,
        maximum=100.0,
    )
    max_range: float = parameter(
        0.0,
        "Points farther than this are dropped; 0: none for that reason",
        unit="m",
        minimum=0.0,
        maximum=100000.0,
    )
    voxel: float = parameter(
        0.0,
        "Edge of voxels that keep one point each; 0: all points are kept",
        unit="m",
        minimum=0.0,
        maximum=100.0,
    )
    outliers: str = parameter(
        "none",
        "Points that are dropped: those whose mean distance to their nearest neighbours is unusual "
        "(statistical), those with too few neighbours within a radius (radius)",
        choices=("none", "statistical", "radius"),
    )
    outlier_neighbours: int = parameter(
        10,
        "How many the mean distance is over (statistical), how few are too few (radius)",
        minimum=1,
        maximum=1000,
    )
    outlier_ratio: float = parameter(
        2.0,
        "Standard deviations above the cloud's mean from which a mean distance is unusual",
        minimum=0.0,
        maximum=100.0,
    )
    outlier_radius: float = parameter(
        1.0,
        "How near neighbours must be to be counted (radius)",
        unit="m",
        minimum=0.0,
        maximum=1000.0,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.max_range and self.min_range >= self.max_range:
            raise ConfigurationError(
                f"parameter 'min_range' is {self.min_range:g}, must be less than 'max_range' "
                f"({self.max_range:g})"
            )


def preprocess(xyz: np.ndarray, config: PreprocessConfig, threads: int = 1) -> np.ndarray:
    """Return the indices of the points to keep.

    In this order: those that are finite and in range, of these the first one in each voxel, of
    these all but the outliers.

    Parameters
    ----------
    xyz : ndarray (N, 3), metres
        In the sensor's frame, whose origin ranges are from.
    config : PreprocessConfig
    threads : int
        Share the search for outliers.

    Returns
    -------
    ndarray (M,) of int64, increasing
    """
    max_range = config.max_range or np.inf
    if config.voxel:
        kept = voxel_filter(xyz, config.voxel, config.min_range, max_range)
    else:
        kept = range_filter(xyz, config.min_range, max_range)
    if config.outliers == "none":
        return kept
    points = np.asarray(xyz)[kept]
    if config.outliers == "statistical":
        near = statistical_filter(points, config.outlier_neighbours, config.outlier_ratio, threads)
    else:
        near = radius_filter(points, config.outlier_radius, config.outlier_neighbours, threads)
    return kept[near]


def range_filter(xyz: np.ndarray, min_range: float = 0.0, max_range: float = np.inf) -> np.ndarray:
    """Return the indices of the points to keep: finite and in range.

    Parameters
    ----------
    xyz : ndarray (N, 3), metres
        Points with a NaN or an infinity are dropped, and so are those nearer to the frame's origin
        than ``min_range`` (drivers write (0, 0, 0) for no return) or farther than ``max_range``.

    Returns
    -------
    ndarray (M,) of int64, increasing
    """
    return _range_filter(_as_compiled(xyz), min_range**2, max_range**2)


def voxel_filter(
    xyz: np.ndarray,
    voxel: float,
    min_range: float = 0.0,
    max_range: float = np.inf,
) -> np.ndarray:
    """Return the indices of the points to keep: in range, finite, the first one of each voxel.

    Parameters
    ----------
    xyz : ndarray (N, 3), metres
        Masked as by :func:`range_filter`.
    voxel : float
        Edge of the cubic voxels in metres, on a grid fixed to the frame's origin.

    Returns
    -------
    ndarray (M,) of int64, increasing
    """
    table = np.empty(table_size(len(xyz)), np.int64)
    return _voxel_filter(_as_compiled(xyz), 1.0 / voxel, min_range**2, max_range**2, table)


def _as_compiled(xyz: np.ndarray) -> np.ndarray:
    # Two types and one layout: each other one would be compiled anew, in the middle of a run.
    wanted = np.float32 if np.asarray(xyz).dtype == np.float32 else np.float64
    return np.require(xyz, wanted, ("C", "W"))


@njit(cache=True, inline="always")
def _in_range(x, y, z, min_square, max_square):
    square = x * x + y * y + z * z
    # False for NaN; an infinite coordinate gives an infinite square.
    return square >= min_square and square <= max_square and square < np.inf


@njit(nogil=True, cache=True)
def _range_filter(xyz, min_square, max_square):
    kept = np.empty(len(xyz), np.int64)
    count = 0
    for i in range(len(xyz)):
        x, y, z = np.float64(xyz[i, 0]), np.float64(xyz[i, 1]), np.float64(xyz[i, 2])
        if _in_range(x, y, z, min_square, max_square):
            kept[count] = i
            count += 1
    return kept[:count]


@njit(nogil=True, cache=True)
def _voxel_filter(xyz, inverse_voxel, min_square, max_square, table):
    table[:] = EMPTY
    kept = np.empty(len(xyz), np.int64)
    count = 0
    mask = len(table) - 1
    previous = EMPTY
    for i in range(len(xyz)):
        x, y, z = np.float64(xyz[i, 0]), np.float64(xyz[i, 1]), np.float64(xyz[i, 2])
        if not _in_range(x, y, z, min_square, max_square):
            continue
        key = voxel_key(x * inverse_voxel, y * inverse_voxel, z * inverse_voxel)
        # Along a ring most points share the voxel of the one before.
        if key == previous:
            continue
        previous = key
        slot = home_slot(key, mask)
        while table[slot] != EMPTY and table[slot] != key:
            slot = (slot + 1) & mask
        if table[slot] == EMPTY:
            table[slot] = key
            kept[count] = i
            count += 1
    return kept[:count]

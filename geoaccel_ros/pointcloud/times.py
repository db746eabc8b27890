"""Times of the points within a sweep, whatever the driver calls them and counts them in.

Livox sends float64 nanoseconds since 1970, Ouster uint32 nanoseconds since the sweep's start,
Velodyne float32 seconds relative to the header's stamp, Hesai and RoboSense float64 seconds since
1970, Luminar seconds and nanoseconds in two fields.
"""

import numpy as np

# In the order of preference, in lower case; a field's name may be in any.
TIME_FIELDS = (
    "t",
    "time",
    "timestamp",
    "timestamps",
    "stamps",
    "time_stamp",
    "offset_time",
    "time_offset",
)
_SECONDS_AND_NANOSECONDS = ("time_sec", "time_nsec")

_SHORTEST_SWEEP, _LONGEST_SWEEP = 1e-3, 1.0
# Tried in this order. A sane sweep spans three decades, and the units are three decades apart, so
# at most two fit, at the edge between them: there a float means the larger, an integer the smaller.
_FLOAT_UNITS = (1.0, 1e-3, 1e-6, 1e-9)
_INTEGER_UNITS = (1e-9, 1e-6, 1e-3, 1.0)
# A sweep's points may lie this far from the header's stamp, before or after it, seconds.
_NEAR_THE_STAMP = 2.0


def point_times(points: np.ndarray, header_stamp_s: float) -> np.ndarray | None:
    """Return each point's time relative to the header's stamp.

    The unit follows from the field's type and the sweep that it would give, 1 ms to 1 s. Values
    within a sweep of zero are relative to the header's stamp; values near the header's stamp are
    absolute; others count from an instant that nobody knows (a sensor's start), and their smallest
    is put at the header's stamp.

    Parameters
    ----------
    points : structured ndarray (N,)
        Points without finite coordinates, or at (0, 0, 0), do not count for unit and sweep (their
        times are often zero), but get a time too.
    header_stamp_s : float, seconds

    Returns
    -------
    ndarray (N,) of float64, seconds, or None
        None where no field is a time, or its values cannot be one: all equal, one of them NaN,
        a sweep that is not sane in any unit.
    """
    raw = _raw_times(points)
    if raw is None:
        return None
    ticks, units = raw
    valid = _has_return(points)
    if not np.any(valid):
        return None
    used = ticks[valid]
    if not np.all(np.isfinite(used)):
        return None
    first = used.min()
    # Differences before any scaling: as float32, seconds since 1970 have steps of 128 s, and as
    # float64 nanoseconds since 1970 have steps of 256 ns, which scaling would only add to.
    since_first = (ticks - first).astype(np.float64)
    span = float(since_first[valid].max())
    for unit in units:
        if _SHORTEST_SWEEP <= span * unit <= _LONGEST_SWEEP:
            return since_first * unit + _offset(float(first) * unit, header_stamp_s)
    return None


def _raw_times(points: np.ndarray) -> tuple[np.ndarray, tuple[float, ...]] | None:
    """Return the ticks in a type wide enough to subtract in, and the units to try."""
    fields = {name.lower(): name for name in reversed(points.dtype.names or ())}
    scalar = {low: name for low, name in fields.items() if points.dtype[name].kind in "iuf"}
    if all(name in scalar for name in _SECONDS_AND_NANOSECONDS):
        seconds, nanoseconds = (
            points[scalar[name]].astype(np.int64) for name in _SECONDS_AND_NANOSECONDS
        )
        return seconds * 1_000_000_000 + nanoseconds, (1e-9,)
    for name in TIME_FIELDS:
        if name not in scalar:
            continue
        values = points[scalar[name]]
        if values.dtype.kind == "f":
            return values.astype(np.float64), _FLOAT_UNITS
        return values.astype(np.int64), _INTEGER_UNITS
    return None


def _has_return(points: np.ndarray) -> np.ndarray:
    if not all(axis in points.dtype.names for axis in "xyz"):
        return np.ones(len(points), bool)
    valid = np.zeros(len(points), bool)
    finite = np.ones(len(points), bool)
    for axis in "xyz":
        valid |= points[axis] != 0
        finite &= np.isfinite(points[axis])
    return valid & finite


def _offset(first: float, header_stamp: float) -> float:
    """Return the first point's time relative to the header's stamp, given it in seconds."""
    # In a simulation's first second absolute and relative look alike; relative is far commoner.
    if abs(first) <= _LONGEST_SWEEP:
        return first
    if abs(first - header_stamp) <= _NEAR_THE_STAMP:
        return first - header_stamp
    return 0.0

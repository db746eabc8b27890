"""Times of the points within a sweep, whatever the driver calls them and counts them in.

Livox sends float64 nanoseconds since 1970, Ouster uint32 nanoseconds since the sweep's start,
Velodyne float32 seconds relative to the header's stamp, Hesai and RoboSense float64 seconds since
1970, Luminar seconds and nanoseconds in two fields.
"""

from dataclasses import dataclass

import numpy as np

from geoaccel_ros.config import Configuration, parameter

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
_SECONDS, _NANOSECONDS = "time_sec", "time_nsec"

_SHORTEST_SWEEP, _LONGEST_SWEEP = 1e-3, 1.0
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
# Tried in this order. A sane sweep spans three decades, and the units are three decades apart, so
# at most two fit, at the edge between them: there a float means the larger, an integer the smaller.
_FLOAT_UNITS = ("s", "ms", "us", "ns")
_INTEGER_UNITS = ("ns", "us", "ms", "s")
# A sweep's points may lie this far from the header's stamp, before or after it, seconds.
_NEAR_THE_STAMP = 2.0


@dataclass(frozen=True)
class PointTimesConfig(Configuration):
    """What a cloud's fields do not tell of its points' times; all is found out unless given."""

    time_field: str = parameter(
        "", "Field of the points' times; empty: the first of the usual names with usable times."
    )
    time_unit: str = parameter(
        "auto",
        "Unit of that field; auto: the one that makes a sweep of 1 ms to 1 s.",
        choices=("auto", *_UNITS),
    )
    time_reference: str = parameter(
        "auto",
        "What the times count from: the header's stamp, the epoch of its clock (absolute), or an "
        "unknown instant, the first or the last point being at the header's stamp.",
        choices=("auto", "header", "absolute", "first", "last"),
    )


AUTOMATIC = PointTimesConfig()


@dataclass(frozen=True)
class PointTimes:
    """Times of a cloud's points, or why there are none.

    Attributes
    ----------
    times : ndarray (N,) of float64, seconds relative to the header's stamp, or None
        None where no field holds usable times.
    field : str
        The field, or the two, that were read; empty where none is a time.
    unit, reference : str
        As in :class:`PointTimesConfig`, never "auto"; empty where ``times`` is None.
    reason : str
        Why ``times`` is None, one line that names the field or the fields present; else empty.
    """

    times: np.ndarray | None
    field: str = ""
    unit: str = ""
    reference: str = ""
    reason: str = ""


def point_times(
    points: np.ndarray, header_stamp_s: float, config: PointTimesConfig = AUTOMATIC
) -> PointTimes:
    """Return each point's time relative to the header's stamp.

    Unless given, the unit follows from the field's type and the sweep that it would give, 1 ms to
    1 s. Values within a sweep of zero are relative to the header's stamp; values near the header's
    stamp are absolute; others count from an instant that nobody knows (a sensor's start), and their
    smallest is put at the header's stamp.

    Parameters
    ----------
    points : structured ndarray (N,)
        Points without finite coordinates, or at (0, 0, 0), do not count for unit and sweep (their
        times are often zero), but get a time too.
    header_stamp_s : float, seconds
    config : PointTimesConfig

    Returns
    -------
    PointTimes
        Without times where no field is a time, or its values cannot be one: all equal, one of them
        not finite, a sweep that is not sane in any unit.
    """
    candidates = _candidates(points.dtype, config.time_field)
    if not candidates:
        named = f"field '{config.time_field}', a number," if config.time_field else "field of times"
        present = " ".join(points.dtype.names or ("none",))
        return PointTimes(None, reason=f"no {named} among {present}")
    valid = _has_return(points)
    found = [_read(points, names, valid, header_stamp_s, config) for names in candidates]
    return next((each for each in found if each.times is not None), found[0])


def _candidates(dtype: np.dtype, wanted: str) -> list[tuple[str, ...]]:
    """Return the fields that may hold times, by preference: one name, or seconds and nanoseconds.

    A name given is taken as it is written, or else in any case.
    """
    names = [name for name in dtype.names or () if dtype[name].kind in "iuf"]
    lower = {name.lower(): name for name in reversed(names)}
    if wanted:
        name = wanted if wanted in names else lower.get(wanted.lower())
        candidates = [name] if name else []
    else:
        candidates = [lower[name] for name in TIME_FIELDS if name in lower]
    pair = lower.get(_SECONDS), lower.get(_NANOSECONDS)
    if all(pair) and (not wanted or candidates == [pair[0]]):
        return [pair, *((name,) for name in candidates if name not in pair)]
    return [(name,) for name in candidates]


def _read(
    points: np.ndarray,
    names: tuple[str, ...],
    valid: np.ndarray,
    header_stamp_s: float,
    config: PointTimesConfig,
) -> PointTimes:
    """Read the times in one field, or in two: seconds and nanoseconds."""
    field = " + ".join(names)
    ticks, units = _ticks(points, names)
    if config.time_unit != "auto" and len(names) == 1:
        units = (config.time_unit,)
    used = ticks[valid]
    if not len(used):
        return PointTimes(None, field, reason=f"field '{field}': no point has a return")
    bad = np.count_nonzero(~np.isfinite(used))
    if bad:
        reason = f"field '{field}': {bad} of {len(used)} times are not finite"
        return PointTimes(None, field, reason=reason)
    first, last = used.min(), used.max()
    if first == last:
        reason = f"field '{field}': all {len(used)} times are equal ({first:.16g})"
        return PointTimes(None, field, reason=reason)
    # Differences before any scaling: as float32, seconds since 1970 have steps of 128 s, and as
    # float64 nanoseconds since 1970 have steps of 256 ns, which scaling would only add to.
    since_first = (ticks - first).astype(np.float64)
    span = float(last - first)
    for unit in units:
        scale = _UNITS[unit]
        if _SHORTEST_SWEEP <= span * scale <= _LONGEST_SWEEP:
            reference, offset = _reference(
                float(first) * scale, span * scale, header_stamp_s, config.time_reference
            )
            return PointTimes(since_first * scale + offset, field, unit, reference)
    reason = (
        f"field '{field}': from {first:.16g} to {last:.16g} is no sweep of 1 ms to 1 s in "
        f"{', '.join(units)}"
    )
    return PointTimes(None, field, reason=reason)


def _ticks(points: np.ndarray, names: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the ticks in a type wide enough to subtract in, and the units to try."""
    if len(names) == 2:
        seconds, nanoseconds = (points[name].astype(np.int64) for name in names)
        return seconds * 1_000_000_000 + nanoseconds, ("ns",)
    values = points[names[0]]
    if values.dtype.kind == "f":
        return values.astype(np.float64), _FLOAT_UNITS
    return values.astype(np.int64), _INTEGER_UNITS


def _has_return(points: np.ndarray) -> np.ndarray:
    if not all(axis in points.dtype.names for axis in "xyz"):
        return np.ones(len(points), bool)
    valid = np.zeros(len(points), bool)
    finite = np.ones(len(points), bool)
    for axis in "xyz":
        valid |= points[axis] != 0
        finite &= np.isfinite(points[axis])
    return valid & finite


def _reference(first: float, span: float, header_stamp: float, reference: str) -> tuple[str, float]:
    """Return what the times count from, and the first point's time relative to the header's stamp.

    All in seconds; ``first`` as the field has it.
    """
    if reference == "auto":
        # In a simulation's first second absolute and relative look alike; relative is far commoner.
        if abs(first) <= _LONGEST_SWEEP:
            reference = "header"
        elif abs(first - header_stamp) <= _NEAR_THE_STAMP:
            reference = "absolute"
        else:
            reference = "first"
    offsets = {"header": first, "absolute": first - header_stamp, "first": 0.0, "last": -span}
    return reference, offsets[reference]

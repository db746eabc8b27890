"""What becomes of each field: kept bit for bit, or to a step; by its name and type, unless told.

Coordinates go by the grid's step. Integers are bit-exact, and so is what is no measure even when it
is typed as one: ring, label, packed colours. Times in floats are kept to a microsecond, whatever
their unit, where that is coarser than their type; other floats are bit-exact.
"""

import math
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.config import Configuration, ConfigurationError, parameter
from geoaccel_ros.pointcloud.times import TIME_FIELDS, PointTimesConfig, point_times

COORDINATES = ("x", "y", "z")
# Bytes in the type of a number.
COLOURS = ("rgb", "rgba", "bgr", "bgra")
_TIME_RESOLUTION = 1e-6  # seconds
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
# A double counts integers without gaps up to here.
_MAX_MULTIPLE = 2**53


@dataclass(frozen=True)
class FieldsConfig(Configuration):
    """Which fields are kept otherwise than their names and types tell."""

    lossless: tuple[str, ...] = parameter(
        (),
        "Fields kept bit for bit: of those that would be rounded (times in floats; x y z, in scan "
        "order). All but these are bit-exact anyway.",
    )
    quantise: tuple[str, ...] = parameter(
        (),
        "Fields rounded to multiples of a step, each as name=step in the field's own unit, as "
        "intensity=0.5: a value is then at most half a step off.",
    )

    def __post_init__(self):
        super().__post_init__()
        steps = self.steps()
        twice = [name for name in self.lossless if name in steps]
        if twice:
            raise ConfigurationError(f"field '{twice[0]}' is in both 'lossless' and 'quantise'")

    def steps(self) -> dict[str, float]:
        """Return the step of each field that is to be quantised.

        Raises
        ------
        ConfigurationError
            If an item is not a name and a positive number, or names a field again.
        """
        steps = {}
        for item in self.quantise:
            name, _, number = item.rpartition("=")
            try:
                step = float(number)
            except ValueError:
                step = math.nan
            if not (name and math.isfinite(step) and step > 0):
                raise ConfigurationError(
                    f"parameter 'quantise' has '{item}', must be name=step with a step above 0, as "
                    "intensity=0.5"
                )
            if name in steps:
                raise ConfigurationError(f"parameter 'quantise' has the field '{name}' twice")
            steps[name] = step
        return steps


def field_steps(points: np.ndarray, config: FieldsConfig) -> dict[str, float]:
    """Return the step of each field beside x, y and z; 0: bit-exact.

    Parameters
    ----------
    points : ndarray, shape (N,), structured
        Of their values those of float times matter, which tell the unit, and those of fields to
        be quantised.
    config : FieldsConfig

    Raises
    ------
    CodecError
        If ``config`` names a field that there is not, x, y or z for a step of its own, packed
        colours for any, or a step that the field's type does not resolve.
    """
    names = points.dtype.names
    wanted = config.steps()
    for name in (*config.lossless, *wanted):
        if name not in names:
            raise CodecError(f"no field '{name}' to keep as told; the cloud has {' '.join(names)}")
    steps = {}
    for name in names:
        if name in wanted:
            _check_step(points[name], name, wanted[name])
            steps[name] = wanted[name]
        elif name not in COORDINATES:
            steps[name] = 0.0 if name in config.lossless else _default_step(points, name)
    return steps


def _default_step(points: np.ndarray, name: str) -> float:
    dtype = points.dtype[name]
    if dtype.kind != "f" or name.lower() not in TIME_FIELDS:
        return 0.0
    # What the times count from does not matter to their unit.
    times = point_times(points, 0.0, PointTimesConfig(time_field=name))
    if times.times is None:
        return 0.0
    step = _TIME_RESOLUTION / _SECONDS[times.unit]
    return step if _resolves(points[name], step) else 0.0


def _check_step(values: np.ndarray, name: str, step: float) -> None:
    """Raise CodecError if a field cannot be rounded to multiples of this step."""
    if name in COORDINATES:
        raise CodecError(f"{name} cannot have a step of its own: x, y and z go by 'step'")
    if name.lower() in COLOURS:
        raise CodecError(f"field '{name}' holds packed colours, which cannot be rounded")
    if values.dtype.kind != "f":
        if step != int(step):
            raise CodecError(f"field '{name}' holds integers: its step must be one, not {step:g}")
    elif not _resolves(values, step):
        reach = _reach(values)
        raise CodecError(
            f"field '{name}' reaches {reach:g}, where {values.dtype.name} does not resolve its "
            f"step of {step:g}: use a larger one, or keep it lossless"
        )


def _resolves(values: np.ndarray, step: float) -> bool:
    """Tell whether the values' type has numbers closer than ``step`` at the largest of them."""
    reach = np.asarray(_reach(values), values.dtype.newbyteorder("="))
    return bool(np.spacing(reach) <= step) and float(reach) <= step * _MAX_MULTIPLE


def _reach(values: np.ndarray) -> float:
    """Return the largest magnitude among the finite values."""
    with np.errstate(invalid="ignore"):
        largest = np.max(np.abs(values), initial=0)
    if not np.isfinite(largest):
        largest = np.max(np.abs(values[np.isfinite(values)]), initial=0)
    return float(largest)

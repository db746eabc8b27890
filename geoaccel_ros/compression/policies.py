"""What becomes of each field: kept bit for bit, or to a step; by its name and type, unless told.

Coordinates go by the grid's step. Integers are bit-exact, and so is what is no measure even when it
is typed as one: ring, label, packed colours. Times in floats are kept to 1e-6 of their own unit,
where that is coarser than their type: a microsecond if they are in seconds, finer if in less. The
unit is not guessed, since a wrong one would lose the times. Other floats are bit-exact.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.config import Configuration, ConfigurationError, parameter
from geoaccel_ros.pointcloud.times import TIME_FIELDS

COORDINATES = ("x", "y", "z")
# Bytes in the type of a number.
COLOURS = ("rgb", "rgba", "bgr", "bgra")
# Of the field's own unit; no unit of a lidar's times is longer than a second.
_TIME_STEP = 1e-6
# A double counts integers without gaps up to here.
_MAX_MULTIPLE = 2**53


@dataclass(frozen=True)
class FieldsConfig(Configuration):
    """Which fields are kept otherwise than their names and types tell."""

    lossless: tuple[str, ...] = parameter(
        (),
        "Fields kept bit for bit: of those that would be rounded (times in floats, to 1e-6 of "
        "their unit; x y z, in scan order). All but these are bit-exact anyway.",
        live=True,
    )
    quantise: tuple[str, ...] = parameter(
        (),
        "Fields rounded to multiples of a step, each as name=step in the field's own unit, as "
        "intensity=0.5: a value is then at most half a step off.",
        live=True,
    )

    def __post_init__(self):
        super().__post_init__()
        check_names("lossless", self.lossless)
        steps = self.steps()
        twice = [name for name in self.lossless if name in steps]
        if twice:
            raise ConfigurationError(f"field '{twice[0]}' is in both 'lossless' and 'quantise'")

    def steps(self) -> dict[str, float]:
        """Return the step of each field that is to be quantised.

        Raises
        ------
        ConfigurationError
            If an item is not a name and a positive number, or names a field again, or x, y or z.
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
            if name in COORDINATES:
                raise ConfigurationError(
                    f"parameter 'quantise' has '{item}': x, y and z have no steps of their own, "
                    "they go by 'step'"
                )
            if name in steps:
                raise ConfigurationError(f"parameter 'quantise' has the field '{name}' twice")
            steps[name] = step
        return steps


def check_names(parameter_name: str, names: tuple[str, ...]) -> None:
    """Raise ConfigurationError if an item of a list of fields is no name."""
    if "" in names:
        raise ConfigurationError(
            f"parameter '{parameter_name}' has an empty name; for no field: []"
        )


def field_steps(points: np.ndarray, config: FieldsConfig) -> dict[str, float]:
    """Return the step of each field beside x, y and z; 0: bit-exact.

    Parameters
    ----------
    points : ndarray, shape (N,), structured
        Of their values those of float times and of fields to be quantised matter: how large
        they get.
    config : FieldsConfig

    Raises
    ------
    CodecError
        If ``config`` names a field that there is not, packed colours for a step, or a step that the
        field's type does not resolve or whose multiples it does not reach; or if a field shares
        bytes with one that is rounded.
    """
    names = points.dtype.names
    wanted = config.steps()
    check_there(names, "lossless", config.lossless)
    check_there(names, "quantise", wanted)
    steps = {}
    for name in names:
        if name in wanted:
            _check_step(points[name], name, wanted[name])
            steps[name] = wanted[name]
        elif name not in COORDINATES:
            steps[name] = 0.0 if name in config.lossless else _default_step(points[name], name)
    rounded = [name for name in COORDINATES if name not in config.lossless]
    _check_overlaps(points.dtype, rounded + [name for name in steps if steps[name]], wanted)
    return steps


def check_there(fields: tuple[str, ...], parameter_name: str, names: Iterable[str]) -> None:
    """Raise CodecError if a parameter names a field that is none of the cloud's."""
    for name in names:
        if name not in fields:
            has = " ".join(fields)
            raise CodecError(
                f"no field '{name}' that '{parameter_name}' names; the cloud has {has}"
            )


def is_measure(name: str, dtype: np.dtype) -> bool:
    """Tell whether a field of this type holds floats that are no times."""
    return dtype.base.kind == "f" and name.lower() not in (*TIME_FIELDS, *COLOURS)


def _default_step(values: np.ndarray, name: str) -> float:
    is_time = values.ndim == 1 and values.dtype.kind == "f" and name.lower() in TIME_FIELDS
    return _TIME_STEP if is_time and _resolves(values, _TIME_STEP) else 0.0


def _check_overlaps(dtype: np.dtype, rounded: list[str], wanted: dict[str, float]) -> None:
    """Raise CodecError if a field shares bytes with one that is rounded.

    Decoding would write one over the other, and neither were as promised.
    """
    begins = {name: dtype.fields[name][1] for name in dtype.names}
    ends = {name: begins[name] + dtype[name].itemsize for name in dtype.names}
    for name in rounded:
        for other in dtype.names:
            if other == name or begins[other] >= ends[name] or begins[name] >= ends[other]:
                continue
            if name in COORDINATES:
                remedy = f"name x, y and z in lossless, or drop '{other}'"
            else:
                remedy = "do not quantise it" if name in wanted else "name it in lossless"
            raise CodecError(f"field '{name}' is rounded and shares bytes with '{other}': {remedy}")


def _check_step(values: np.ndarray, name: str, step: float) -> None:
    """Raise CodecError if a field cannot be rounded to multiples of this step."""
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
    elif round(_reach(values) / step) * step > float(np.finfo(values.dtype).max):
        raise CodecError(
            f"field '{name}' reaches {_reach(values):g}, which a step of {step:g} rounds beyond "
            f"{values.dtype.name}: use a smaller one, or keep it lossless"
        )


def _resolves(values: np.ndarray, step: float) -> bool:
    """Tell whether the values' type has numbers closer than ``step`` at the largest of them."""
    reach = np.asarray(_reach(values), values.dtype.newbyteorder("="))
    return float(np.spacing(reach)) <= step and float(reach) <= step * _MAX_MULTIPLE


def _reach(values: np.ndarray) -> float:
    """Return the largest magnitude among the finite values."""
    with np.errstate(invalid="ignore"):
        largest = np.max(np.abs(values), initial=0)
    if not np.isfinite(largest):
        largest = np.max(np.abs(values[np.isfinite(values)]), initial=0)
    return float(largest)

"""Typed configuration: one definition of each parameter for YAML, ROS, the command line and docs.

A capability declares a frozen dataclass that derives from :class:`Configuration`, each field made
by :func:`parameter`. Everything else (ROS descriptors, YAML files, tables in the docs) is derived.
"""

import dataclasses
import difflib
import math
import numbers
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class ConfigurationError(ValueError):
    """A value that a parameter does not accept, or a name that no parameter has."""


@dataclass(frozen=True)
class Parameter:
    """One parameter as its users see it.

    Attributes
    ----------
    name : str
    kind : type
        bool, int, float or str; for a list, the type of its items.
    is_list : bool
    default : Any
        A tuple for a list.
    description, unit : str
    minimum, maximum : float or None
        Inclusive bounds; of every item for a list.
    choices : tuple of str
        Accepted values of a string; empty: any.
    live : bool
        Whether it may change while the node that has it is active.
    read_only : bool
        Whether it is given when the node starts and stays so: what other parameters there are
        depends on it.
    """

    name: str
    kind: type
    is_list: bool
    default: Any
    description: str
    unit: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    live: bool
    read_only: bool

    def check(self, value: Any) -> Any:
        """Return ``value`` in the parameter's own type.

        An integer is accepted where a float is meant (``1`` for ``1.0``), nothing else is guessed.

        Raises
        ------
        ConfigurationError
            If the type or the range is wrong; the message names the parameter and what it accepts.
        """
        if not self.is_list:
            return self._check_item(value)
        if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
            raise self._error(value, f"a list, each item {_KIND_NAMES[self.kind]}")
        return tuple(self._check_item(item) for item in value)

    def range_text(self) -> str:
        """Return the accepted range for people to read; empty where all is accepted."""
        if self.choices:
            return " | ".join(self.choices)
        if self.minimum is None and self.maximum is None:
            return ""
        if self.maximum is None:
            return f">= {self.minimum:.10g}"
        if self.minimum is None:
            return f"<= {self.maximum:.10g}"
        return f"{self.minimum:.10g} to {self.maximum:.10g}"

    def _check_item(self, value: Any) -> Any:
        # bool is an int to Python: without its own case `true` would pass for 1.
        if self.kind is bool:
            if not isinstance(value, bool):
                raise self._error(value, "true or false")
            return value
        if self.kind is str:
            if not isinstance(value, str):
                raise self._error(value, "a string")
            if self.choices and value not in self.choices:
                raise self._error(value, f"one of {', '.join(self.choices)}")
            return value
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise self._error(value, _KIND_NAMES[self.kind])
        if self.kind is int and not isinstance(value, numbers.Integral):
            raise self._error(value, _KIND_NAMES[int])
        value = self.kind(value)
        if not math.isfinite(value):
            raise self._error(value, "a finite number")
        too_small = self.minimum is not None and value < self.minimum
        too_large = self.maximum is not None and value > self.maximum
        if too_small or too_large:
            raise self._error(value, self.range_text())
        return value

    def _error(self, value: Any, accepted: str) -> ConfigurationError:
        unit = f" (in {self.unit})" if self.unit else ""
        return ConfigurationError(f"parameter '{self.name}' is {value!r}, must be {accepted}{unit}")


_KIND_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


def parameter(
    default: Any,
    description: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    live: bool = False,
    read_only: bool = False,
) -> Any:
    """Declare a field of a :class:`Configuration`; bounds are inclusive."""
    metadata = {
        "description": description,
        "unit": unit,
        "minimum": minimum,
        "maximum": maximum,
        "choices": choices,
        "live": live,
        "read_only": read_only,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Configuration:
    """Base of all configurations: values checked when made, immutable afterwards."""

    def __post_init__(self):
        for declared in self.parameters():
            checked = declared.check(getattr(self, declared.name))
            object.__setattr__(self, declared.name, checked)

    @classmethod
    def parameters(cls) -> tuple[Parameter, ...]:
        """Return the parameters in the order of their declaration."""
        hints = typing.get_type_hints(cls)
        return tuple(_parameter_of(field, hints[field.name]) for field in dataclasses.fields(cls))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "Configuration":
        """Make a configuration from names and values, as read from a YAML file.

        Raises
        ------
        ConfigurationError
            If a name is unknown (the closest known one is suggested) or a value is not accepted.
        """
        known = [declared.name for declared in cls.parameters()]
        for name in values:
            if name not in known:
                raise ConfigurationError(unknown_name_message(name, known))
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """Return names and values; lists as lists, ready for YAML or JSON."""
        values = dataclasses.asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    def subset(self, cls: type["Configuration"]) -> "Configuration":
        """Return the part of this configuration that ``cls`` declares."""
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: getattr(self, name) for name in names})


def unknown_name_message(name: str, known: list[str]) -> str:
    """Return a line that names an unknown parameter and the known ones that it may have meant."""
    close = difflib.get_close_matches(name, known, n=1)
    remedy = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(sorted(known))}"
    return f"unknown parameter '{name}': {remedy}"


def _parameter_of(field: dataclasses.Field, hint: Any) -> Parameter:
    is_list = typing.get_origin(hint) is tuple
    kind = typing.get_args(hint)[0] if is_list else hint
    if kind not in _KIND_NAMES or isinstance(hint, types.UnionType):
        raise TypeError(f"field '{field.name}': {hint} is none of bool, int, float, str, tuple")
    return Parameter(field.name, kind, is_list, field.default, **field.metadata)

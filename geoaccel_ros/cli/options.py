"""Options of a command from a :class:`geoaccel_ros.config.Configuration`, and back.

A parameter ``max_distance`` is the option ``--max-distance``; its unit, range, choices, default and
description are the help.
"""

import argparse
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from geoaccel_ros.config import Configuration, ConfigurationError, Parameter

_Config = TypeVar("_Config", bound=Configuration)

_METAVARS = {int: "N", float: "X", str: "TEXT"}


def add_options(
    parser: argparse._ActionsContainer,
    config: type[Configuration],
    names: Iterable[str] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> None:
    """Add an option for each parameter, or for those called ``names``, in that order.

    A value that is not accepted is wrong usage; the message names what is.

    Parameters
    ----------
    parser : argparse.ArgumentParser, or a group of its arguments
    aliases : dict of str to str
        By name of a parameter, a second option that means the same, such as "--max-dist".
    """
    declared = {parameter.name: parameter for parameter in config.parameters()}
    for name in declared if names is None else names:
        flags = [(aliases or {}).get(name), "--" + name.replace("_", "-")]
        _add_option(parser, [flag for flag in flags if flag], declared[name])


def configuration(args: argparse.Namespace, config: type[_Config]) -> _Config:
    """Return the configuration that the options given make; all else is at its default."""
    names = [declared.name for declared in config.parameters()]
    return config(**{name: getattr(args, name) for name in names if hasattr(args, name)})


def _add_option(parser: argparse._ActionsContainer, flags: list[str], declared: Parameter) -> None:
    # Suppressed: what is not given is not set, and argparse writes no default of its own.
    common = {"dest": declared.name, "default": argparse.SUPPRESS, "help": _help(declared)}
    if declared.kind is bool:
        parser.add_argument(*flags, action=argparse.BooleanOptionalAction, **common)
        return
    # The items of a list may also be given one by one, by the option repeated.
    action = "extend" if declared.is_list else "store"
    parser.add_argument(
        *flags,
        action=action,
        type=lambda text: _value(declared, text),
        metavar=_metavar(declared),
        **common,
    )


def _value(declared: Parameter, text: str) -> Any:
    items = text.split(",") if declared.is_list else [text]
    values = [_number(declared.kind, item) for item in items]
    try:
        return declared.check(values if declared.is_list else values[0])
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _number(kind: type, text: str) -> Any:
    """Return the number that a text is; the text itself, which the check refuses, if it is none."""
    try:
        return kind(text)
    except ValueError:
        return text


def _metavar(declared: Parameter) -> str:
    if declared.choices:
        return "{" + ",".join(declared.choices) + "}"
    item = declared.unit.upper() or _METAVARS[declared.kind]
    return f"{item}[,{item}...]" if declared.is_list else item


def _help(declared: Parameter) -> str:
    accepted = "" if declared.choices else f"{declared.range_text()} {declared.unit}".strip()
    default = f"default: {_text(declared.default)}"
    facts = f"{accepted}; {default}" if accepted else default
    return f"{declared.description.rstrip('.')} ({facts})".replace("%", "%%")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(map(_text, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)

"""From a :class:`~geoaccel_ros.config.Configuration` to ROS parameters and back."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node

from geoaccel_ros.config import (
    Configuration,
    ConfigurationError,
    Parameter,
    unknown_name_message,
)


def declare(node: Node, config_type: type[Configuration]) -> None:
    """Declare every parameter of ``config_type`` on ``node``, with its description and range.

    Values from the command line and from YAML are checked first, by the configuration's own rules:
    they accept 1 for 1.0 and name the parameter in their message, which rclpy's do not.

    Raises
    ------
    ConfigurationError
        If a value is not accepted, or a name is given that the node does not have.
    """
    overrides = _overrides(node)
    declared = {p.name: p for p in config_type.parameters()}
    # rclpy has declared its own by now (use_sim_time and others, by distribution).
    _refuse_unknown(
        [name for name in overrides if not node.has_parameter(name)], [*declared, "use_sim_time"]
    )
    for name, parameter in declared.items():
        given = overrides.get(name)
        # rcl makes nothing of an empty list, which so means what leaving it out does.
        unset = given is None and (parameter.is_list or name not in overrides)
        value = parameter.default if unset else parameter.check(given)
        node.declare_parameter(name, _plain(value), _descriptor(parameter), ignore_override=True)


def given(node: Node, config_type: type[Configuration], name: str) -> Any:
    """Return the value that a parameter will have once it is declared.

    For what decides on the other parameters.

    Raises
    ------
    ConfigurationError
        If that value is not accepted.
    """
    parameter = next(p for p in config_type.parameters() if p.name == name)
    return parameter.check(_overrides(node).get(name, parameter.default))


def read(node: Node, config_type: type[Configuration]) -> Configuration:
    """Return the configuration that the node's parameters hold now."""
    names = [parameter.name for parameter in config_type.parameters()]
    return config_type.from_mapping({name: node.get_parameter(name).value for name in names})


def check(config_type: type[Configuration], changes: Iterable[Any]) -> dict[str, Any]:
    """Return names and values of those parameters to be set that ``config_type`` declares.

    Raises
    ------
    ConfigurationError
        If a value is not accepted.
    """
    declared = {parameter.name: parameter for parameter in config_type.parameters()}
    return {
        change.name: declared[change.name].check(change.value)
        for change in changes
        if change.name in declared
    }


def changed(config: Configuration, values: dict[str, Any], is_active: bool) -> Configuration:
    """Return the configuration of a node once parameters are set.

    Live ones change at once. The others wait for the next configure, and so cannot be set while the
    node is active.

    Raises
    ------
    ConfigurationError
        If one cannot change now, or the new values contradict each other or those that stay.
    """
    live = [parameter.name for parameter in config.parameters() if parameter.live]
    fixed = [name for name in values if name not in live]
    if fixed and is_active:
        others = f"; at any time can: {', '.join(live)}" if live else ""
        raise ConfigurationError(
            f"'{fixed[0]}' cannot change while the node is active: deactivate and clean it up, set "
            f"it, and configure it again{others}"
        )
    return replace(config, **{name: value for name, value in values.items() if name in live})


def _overrides(node: Node) -> dict[str, Any]:
    """Return what the command line and YAML give, also to what nobody declared."""
    # rclpy offers no public way to see that; this attribute has held it in every distribution from
    # Humble to Kilted.
    return {name: p.value for name, p in node._parameter_overrides.items()}


def _refuse_unknown(overrides: Iterable[str], known: list[str]) -> None:
    for name in overrides:
        if name not in known and not name.startswith("qos_overrides."):
            raise ConfigurationError(unknown_name_message(name, known))


def _descriptor(parameter: Parameter) -> ParameterDescriptor:
    unit = f" [{parameter.unit}]" if parameter.unit else ""
    live = "may change while the node is active" if parameter.live else ""
    descriptor = ParameterDescriptor(
        description=parameter.description + unit,
        additional_constraints="; ".join(filter(None, [parameter.range_text(), live])),
        read_only=parameter.read_only,
        # rclpy refuses 1 where the default is 1.0; with dynamic typing our own check decides.
        dynamic_typing=True,
    )
    bounded = parameter.minimum is not None and parameter.maximum is not None
    if bounded and parameter.kind is float:
        bounds = FloatingPointRange(
            from_value=float(parameter.minimum), to_value=float(parameter.maximum)
        )
        descriptor.floating_point_range = [bounds]
    elif bounded and parameter.kind is int:
        bounds = IntegerRange(
            from_value=int(parameter.minimum), to_value=int(parameter.maximum), step=1
        )
        descriptor.integer_range = [bounds]
    return descriptor


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value

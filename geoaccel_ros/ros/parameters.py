"""From a :class:`~geoaccel_ros.config.Configuration` to ROS parameters and back."""

from collections.abc import Iterable
from typing import Any

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
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
    # rclpy offers no public way to see overrides that nobody declared; this attribute has held
    # them in every distribution from Humble to Kilted.
    overrides = {name: p.value for name, p in node._parameter_overrides.items()}
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


def read(node: Node, config_type: type[Configuration]) -> Configuration:
    """Return the configuration that the node's parameters hold now."""
    names = [parameter.name for parameter in config_type.parameters()]
    return config_type.from_mapping({name: node.get_parameter(name).value for name in names})


def check(config_type: type[Configuration], changes: Iterable[Any]) -> SetParametersResult:
    """Answer a request to set parameters: refused with the reason if a value is not accepted."""
    declared = {parameter.name: parameter for parameter in config_type.parameters()}
    try:
        for change in changes:
            if change.name in declared:
                declared[change.name].check(change.value)
    except ConfigurationError as error:
        return SetParametersResult(successful=False, reason=str(error))
    return SetParametersResult(successful=True)


def _refuse_unknown(overrides: Iterable[str], known: list[str]) -> None:
    for name in overrides:
        if name not in known and not name.startswith("qos_overrides."):
            raise ConfigurationError(unknown_name_message(name, known))


def _descriptor(parameter: Parameter) -> ParameterDescriptor:
    unit = f" [{parameter.unit}]" if parameter.unit else ""
    descriptor = ParameterDescriptor(
        description=parameter.description + unit,
        additional_constraints=parameter.range_text(),
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

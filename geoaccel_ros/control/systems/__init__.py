"""Robot models for MPPI: one module each, found by its name.

A module defines, in plain Python that Numba compiles for the CPU and for CUDA alike:

STATE, CONTROL, GOAL : tuple of str
    Names of the components; a state reaches the functions as a tuple in this order.
Parameters : type of Configuration
    Limits, model parameters and weights of the cost terms. The functions get it as ``p``, a named
    tuple of float32 (float64 where a state is predicted).
limits(p) -> (lower, upper), maneuvers(p) -> controls, clearance_limit(p) -> m
    Called once, on the host.
step(x, u, p, dt) -> x
    The state after ``dt`` seconds of control ``u``.
running(x, u, u_before, goal, clearance, detour, p), terminal(x, goal, clearance, detour, p) -> cost
    Cost of a second spent in ``x``, and of ending there; ``clearance`` is the distance from the
    robot's centre to the nearest obstacle, ``detour`` how far the way to the goal exceeds the
    straight line.

STATE and GOAL begin with x and y in the frame of the obstacles.

They may call functions and use constants of their module. Compiled, they compute in float32; so
numbers that take part are written ``2.0``, not ``2``, which Numba would promote to float64.
"""

import dataclasses
import functools
import importlib
import pkgutil
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from geoaccel_ros.config import Configuration, ConfigurationError, unknown_name_message


@dataclass(frozen=True)
class System:
    """A robot model: what :mod:`geoaccel_ros.control.systems` says of its module."""

    name: str
    state: tuple[str, ...]
    control: tuple[str, ...]
    goal: tuple[str, ...]
    parameters: type[Configuration]
    limits: Callable
    maneuvers: Callable
    clearance_limit: Callable
    step: Callable
    running: Callable
    terminal: Callable

    def pack(self, parameters: Configuration, dtype: type = np.float32) -> tuple:
        """Return the parameters as the model's functions take them: a named tuple of ``dtype``."""
        values = dataclasses.astuple(parameters)
        return _parameter_tuple(self)(*(dtype(value) for value in values))


@functools.cache
def _parameter_tuple(system: System) -> type:
    names = [field.name for field in dataclasses.fields(system.parameters)]
    return namedtuple(f"{system.name}_parameters", names)


def available() -> list[str]:
    """Return the names of the bundled systems."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


@functools.cache
def load_system(name: str) -> System:
    """Return the bundled system of that name.

    Raises
    ------
    ConfigurationError
        If there is none; the message names those that exist.
    """
    if name not in available():
        raise ConfigurationError(
            unknown_name_message(name, available()).replace("parameter", "system")
        )
    return _system_of(name, importlib.import_module(f"{__name__}.{name}"))


def _system_of(name: str, module: ModuleType) -> System:
    return System(
        name,
        module.STATE,
        module.CONTROL,
        module.GOAL,
        module.Parameters,
        module.limits,
        module.maneuvers,
        module.clearance_limit,
        module.step,
        module.running,
        module.terminal,
    )

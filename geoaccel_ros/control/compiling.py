"""Plain Python functions to device functions, the same for the CPU and for CUDA."""

import math
from collections.abc import Callable
from types import FunctionType, ModuleType

import numba
import numpy as np


def device_function(function: Callable, mathematics: ModuleType = math) -> Callable:
    """Return ``function`` compiled so that CPU and CUDA kernels can call it, in float32.

    Functions of its module that it calls are compiled with it, and its float constants become
    float32: Numba would promote every expression with a ``0.5`` in it to float64.

    It is inlined into its caller. That costs nothing at run time and lets CUDA kernels be compiled
    where there is no GPU: a device function called otherwise asks for the current device.

    Parameters
    ----------
    function : callable
    mathematics : module
        Takes the place of :mod:`math` in it.
    """
    code = function.__code__
    constants = tuple(_as_float32(constant) for constant in code.co_consts)
    used = {
        name: function.__globals__[name] for name in code.co_names if name in function.__globals__
    }
    replaced = {name: _as_device_value(value, mathematics) for name, value in used.items()}
    compiled = FunctionType(
        code.replace(co_consts=constants),
        {**function.__globals__, **replaced},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    return numba.njit(inline="always")(compiled)


def tuple_sum(count: int) -> Callable:
    """Return a device function: the sum of ``count`` float32, from left to right, without a loop.

    A loop over a tuple would need it in memory.
    """
    last = count - 1
    if last < 0:
        zero = np.float32(0.0)

        def total(values):
            return zero

    elif last == 0:

        def total(values):
            return values[0]

    else:
        others = tuple_sum(last)

        def total(values):
            return others(values) + values[last]

    return numba.njit(inline="always")(total)


def _as_device_value(value, mathematics: ModuleType):
    if value is math:
        return mathematics
    if isinstance(value, FunctionType):
        return device_function(value, mathematics)
    return _as_float32(value)


def _as_float32(value):
    return np.float32(value) if isinstance(value, float) else value

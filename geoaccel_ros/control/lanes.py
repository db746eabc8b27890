"""Rollouts of several samples side by side, so that the CPU steps all of them at once.

One rollout is a chain of steps, each waiting for the last; its neighbours wait for nothing of it.
So the time loop is outside and a loop over a block of samples inside, where the compiler turns
eight of them (with AVX2) into one instruction. What it needs for that decides how this is written:
no calls into the C library (:mod:`.vector_math`), no branches, and in the loops with arithmetic a
single small array, so that nothing that is stored may alter what is still to be loaded.
"""

from collections.abc import Callable

import numba
import numpy as np

from geoaccel_ros.control import vector_math
from geoaccel_ros.control.compiling import device_function, tuple_sum
from geoaccel_ros.control.distance_field import FAR
from geoaccel_ros.control.systems import System

# Samples of a block; twice or four times as many as one instruction holds hide its latency.
LANES = 32

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_FAR = np.float32(FAR)
_VECTOR_MATH = vector_math.as_math()
_LOOK_UP_ROWS = 7


def lane_kernel(system: System, crash_cost: float) -> Callable:
    """Return the function that rolls out samples ``first`` to ``last``, to be compiled.

    It takes what the kernel of :class:`~geoaccel_ros.control.rollouts.CpuRollouts` takes. A block
    that is not full steps unused lanes along, whose costs nobody reads.
    """
    return _planar_kernel(system, crash_cost) if system.is_planar else _free_kernel(system)


def _free_kernel(system: System) -> Callable:
    step, running, terminal = _device_functions(system)
    states, controls = len(system.state), len(system.control)
    # Rows of the block: state, controls, those before, cost.
    get_x, put_x = _getter(0, states), _putter(0, states)
    get_u = _getter(states, controls)
    before = states + controls
    get_before, put_before = _getter(before, controls), _putter(before, controls)
    cost = (before + controls) * LANES
    running_sum = tuple_sum(len(system.running_terms))
    terminal_sum = tuple_sum(len(system.terminal_terms))
    sample_controls = _sampler_of_controls(states, controls)

    def kernel(first, last, plan, noise, field, detour, setup, costs, crashed):
        start, control_before, goal, lower, upper, p = setup[:6]
        dt = setup[9]
        limits = np.array((lower, upper))
        block = np.zeros(cost + LANES, np.float32)
        for begin in range(first, last, LANES):
            count = min(LANES, last - begin)
            for lane in range(LANES):
                put_x(block, lane, start)
                put_before(block, lane, control_before)
                block[cost + lane] = _ZERO
            for t in range(plan.shape[0]):
                sample_controls(block, plan, noise, limits, t, begin, count)
                for lane in range(LANES):
                    u = get_u(block, lane)
                    x = step(get_x(block, lane), u, p, dt)
                    terms = running(x, u, get_before(block, lane), goal, p)
                    block[cost + lane] += dt * running_sum(terms)
                    put_x(block, lane, x)
                    put_before(block, lane, u)
            for lane in range(LANES):
                block[cost + lane] += terminal_sum(terminal(get_x(block, lane), goal, p))
            for lane in range(count):
                costs[begin + lane] = block[cost + lane]
                crashed[begin + lane] = False

    return kernel


def _planar_kernel(system: System, crash_cost: float) -> Callable:
    step, running, terminal = _device_functions(system)
    states, controls = len(system.state), len(system.control)
    # Rows of the block: state, controls, those before, clearance, detour, cost, 1 until it crashes.
    get_x, put_x = _getter(0, states), _putter(0, states)
    get_u = _getter(states, controls)
    before = states + controls
    get_before, put_before = _getter(before, controls), _putter(before, controls)
    near = (before + controls) * LANES
    further, cost, free, work = (near + i * LANES for i in range(1, 5))
    running_sum = tuple_sum(len(system.running_terms))
    terminal_sum = tuple_sum(len(system.terminal_terms))
    sample_controls = _sampler_of_controls(states, controls)
    crash_cost = np.float32(crash_cost)

    def kernel(first, last, plan, noise, field, detour, setup, costs, crashed):
        start, control_before, goal, lower, upper, p = setup[:6]
        field_frame, detour_frame, clearance_limit, dt = setup[6:]
        limits = np.array((lower, upper))
        steps = plan.shape[0]
        cells = np.zeros(LANES, np.int32)
        block = np.zeros(work + _LOOK_UP_ROWS * LANES, np.float32)
        for begin in range(first, last, LANES):
            count = min(LANES, last - begin)
            for lane in range(LANES):
                put_x(block, lane, start)
                put_before(block, lane, control_before)
                block[cost + lane] = _ZERO
                block[free + lane] = _ONE
            for t in range(steps):
                sample_controls(block, plan, noise, limits, t, begin, count)
                for lane in range(LANES):
                    put_x(block, lane, step(get_x(block, lane), get_u(block, lane), p, dt))
                _look_up(block, near, work, cells, field, field_frame, _FAR)
                _look_up(block, further, work, cells, detour, detour_frame, _ZERO)
                lost = crash_cost * dt * np.float32(steps - t)
                for lane in range(LANES):
                    u = get_u(block, lane)
                    clearance = block[near + lane]
                    terms = running(
                        get_x(block, lane),
                        u,
                        get_before(block, lane),
                        goal,
                        clearance,
                        block[further + lane],
                        p,
                    )
                    is_free = block[free + lane]
                    price = lost if clearance < clearance_limit else dt * running_sum(terms)
                    block[cost + lane] += price if is_free > _ZERO else _ZERO
                    block[free + lane] = _ZERO if clearance < clearance_limit else is_free
                    put_before(block, lane, u)
            for lane in range(LANES):
                terms = terminal(
                    get_x(block, lane), goal, block[near + lane], block[further + lane], p
                )
                is_free = block[free + lane] > _ZERO
                block[cost + lane] += terminal_sum(terms) if is_free else _ZERO
            for lane in range(count):
                costs[begin + lane] = block[cost + lane]
                crashed[begin + lane] = block[free + lane] == _ZERO

    return kernel


def _device_functions(system: System) -> tuple[Callable, Callable, Callable]:
    functions = system.step, system.running, system.terminal
    return tuple(device_function(function, _VECTOR_MATH) for function in functions)


@numba.njit(inline="always")
def _look_up(block, row, work, cells, grid, frame, outside):
    """Write a grid's value at every lane's position, the first two rows, into a row.

    As :func:`.distance_field.interpolate` does. Only the loop in the middle goes one by one: where
    it loads from is not known before. ``work`` (:data:`_LOOK_UP_ROWS`) is for what is between.
    """
    rows, columns = grid.shape
    last_column, last_row = np.float32(columns - 1), np.float32(rows - 1)
    origin_x, origin_y, cells_per_metre = frame
    values = grid.reshape(-1)
    for lane in range(LANES):
        column = (block[lane] - origin_x) * cells_per_metre
        line = (block[LANES + lane] - origin_y) * cells_per_metre
        inside = (column >= _ZERO) & (line >= _ZERO) & (column < last_column) & (line < last_row)
        column = column if inside else _ZERO
        line = line if inside else _ZERO
        left, below = np.floor(column), np.floor(line)
        cells[lane] = np.int32(below) * columns + np.int32(left)
        block[work + LANES + lane] = column - left
        block[work + 2 * LANES + lane] = line - below
        block[work + 3 * LANES + lane] = _ONE if inside else _ZERO
    for lane in range(LANES):
        cell = cells[lane]
        block[work + lane] = values[cell]
        block[work + 4 * LANES + lane] = values[cell + 1]
        block[work + 5 * LANES + lane] = values[cell + columns]
        block[work + 6 * LANES + lane] = values[cell + columns + 1]
    for lane in range(LANES):
        right, up = block[work + LANES + lane], block[work + 2 * LANES + lane]
        lower, upper = block[work + lane], block[work + 5 * LANES + lane]
        lower += right * (block[work + 4 * LANES + lane] - lower)
        upper += right * (block[work + 6 * LANES + lane] - upper)
        value = lower + up * (upper - lower)
        block[row + lane] = value if block[work + 3 * LANES + lane] > _ZERO else outside


def _sampler_of_controls(row: int, controls: int) -> Callable:
    """Return a device function: the samples' controls at step t, clamped, go to these rows."""

    def sample(block, plan, noise, limits, t, begin, count):
        for u in range(controls):
            planned, lower, upper = plan[t, u], limits[0, u], limits[1, u]
            into, perturbations = (row + u) * LANES, noise[t, u]
            for lane in range(count):
                control = planned + perturbations[begin + lane]
                block[into + lane] = min(max(control, lower), upper)

    return numba.njit(inline="always")(sample)


def _getter(row: int, count: int) -> Callable:
    """Return a device function: a lane's values in ``count`` rows from ``row`` on, as a tuple.

    The length of a tuple is fixed when compiling, hence one function for each.
    """
    last = (row + count - 1) * LANES
    if count == 1:

        def get(block, lane):
            return (block[last + lane],)

    else:
        others = _getter(row, count - 1)

        def get(block, lane):
            return others(block, lane) + (block[last + lane],)

    return numba.njit(inline="always")(get)


def _putter(row: int, count: int) -> Callable:
    """Return a device function that writes a tuple where the getter finds it."""
    index = count - 1
    last = (row + index) * LANES
    if count == 1:

        def put(block, lane, values):
            block[last + lane] = values[0]

    else:
        others = _putter(row, index)

        def put(block, lane, values):
            others(block, lane, values)
            block[last + lane] = values[index]

    return numba.njit(inline="always")(put)

"""A rollout on CUDA by several lanes of a warp: fewer samples than a device has room for.

States follow each other, so all lanes of a sample compute all of them; of what a state costs, each
lane adds up its own step's. With obstacles that is most of the work, as the maps are looked up.
"""

import functools
from collections.abc import Callable

import numba
import numpy as np
from numba import cuda

from geoaccel_ros.control.compiling import tuple_sum
from geoaccel_ros.control.rollouts import CRASH_COST, step_functions
from geoaccel_ros.control.systems import System

WARP = 32
_EVERY_LANE = 0xFFFFFFFF
_NONE = np.float32(0.0)
_CRASH_COST = np.float32(CRASH_COST)


@functools.cache
def lanes_rollout(system: System, lanes: int) -> Callable:
    """Return the device function that ``lanes`` neighbours in a warp call with the same sample.

    It returns cost and crash as :func:`~geoaccel_ros.control.rollouts.rollout_function`'s does, to
    every lane. All lanes of a warp must call it: they exchange controls and sums.

    Parameters
    ----------
    system : System
    lanes : int
        A power of two, at most a warp's 32.
    """
    controls, advance, clearance, running, terminal = step_functions(system)
    running_sum = tuple_sum(len(system.running_terms))
    terminal_sum = tuple_sum(len(system.terminal_terms))
    of_lane = _of_lane(len(system.control))
    group = np.uint32((1 << lanes) - 1)

    def rollout(k, plan, noise, field, detour, setup):
        x, u_before, limit, dt = setup[0], setup[1], setup[8], setup[9]
        steps = plan.shape[0]
        own = cuda.laneid % lanes
        base = cuda.laneid - own
        cost = _NONE
        crashed = False
        for first in range(0, steps, lanes):
            count = min(lanes, steps - first)
            t = min(first + own, steps - 1)
            u = controls(plan, noise, setup, t, k)
            before = of_lane(u, base + max(own - 1, 0))
            if own == 0:
                before = u_before
            reached = x
            for i in range(count):
                x = advance(x, of_lane(u, base + i), noise, setup, first + i, k)
                if own == i:
                    reached = x
            hit = own < count and clearance(reached, field, setup) < limit
            # One bit a lane; the first is that of the step at which the rollout ends.
            hits = (np.uint32(cuda.ballot_sync(_EVERY_LANE, hit)) >> np.uint32(base)) & group
            end = cuda.ffs(hits) - 1 if hits else count
            if not crashed:
                if own < end:
                    terms = running(reached, u, before, field, detour, setup)
                    cost += dt * running_sum(terms)
                elif own == end and hits:
                    cost += _CRASH_COST * dt * np.float32(steps - t)
            crashed = crashed or hits != 0
            u_before = of_lane(u, base + count - 1)
        offset = lanes // 2
        while offset:
            cost += cuda.shfl_xor_sync(_EVERY_LANE, cost, offset)
            offset //= 2
        if not crashed:
            cost += terminal_sum(terminal(x, field, detour, setup))
        return cost, crashed

    return numba.njit(inline="always")(rollout)


def _of_lane(count: int) -> Callable:
    """Return a device function: the numbers (count,) that a lane of the warp holds, as a tuple."""
    last = count - 1

    def number(values, lane):
        return (cuda.shfl_sync(_EVERY_LANE, values[last], lane),)

    number = numba.njit(inline="always")(number)
    if count == 1:
        return number
    others = _of_lane(last)

    def numbers(values, lane):
        return others(values, lane) + number(values, lane)

    return numba.njit(inline="always")(numbers)

"""The kernels of a search on a GPU, in the order in which they run; plain Python for Numba.

draw -> mix -> roll_out -> (combine) -> weigh -> average: K samples of T steps and U controls, each
mixed from J normal numbers a control, rolled out with M sets of parameters.
"""

import functools
import math
from collections.abc import Callable

import numba
import numpy as np
from numba import cuda

from geoaccel_ros.control import vector_math
from geoaccel_ros.control.compiling import device_function
from geoaccel_ros.control.philox import philox, two_normals
from geoaccel_ros.control.rollouts import rollout_function
from geoaccel_ros.control.rollouts_lanes import lanes_rollout
from geoaccel_ros.control.systems import System
from geoaccel_ros.control.weights import HIGHEST, LOWEST, MET

# What weigh tells; its order in the array of statistics.
STATISTICS = (
    "counted",
    "crashed",
    "not_finite",
    "best_cost",
    "mean_cost",
    "ess",
    "temperature",
    "log_eta",
    "at_bound",
)
COUNTED, CRASHED, NOT_FINITE, BEST_COST, MEAN_COST, ESS, TEMPERATURE, LOG_ETA, AT_BOUND = range(9)
# The measures of risk, as combine takes them.
RISKS = ("mean", "worst", "cvar")
_WORST, _CVAR = 1, 2
# Threads of the one block that weighs, and the registers that they may have on every device.
WEIGHING_THREADS, WEIGHING_REGISTERS = 1024, 64
AVERAGING_THREADS = 512
# By 33 each, these divide nine orders of magnitude of the temperature into parts of two percent.
_ROUNDS = 2
# Steps that a thread mixes: enough to be worth its start.
MIXED_STEPS = 8
_WARP = 32
_EVERY_LANE = 0xFFFFFFFF
_NONE, _ONE = np.float32(0.0), np.float32(1.0)
_INFINITY = np.float32(math.inf)
_NAN = np.float32(math.nan)
_NO_SAMPLE = np.int32(0x7FFFFFFF)
# CUDA's own sine keeps local memory for arguments larger than these are.
_two_normals = device_function(two_normals.py_func, vector_math.trigonometry_as_math())


def draw(updates, seed, normals):
    """Write new normal numbers (N,): the ones of this update, which ``updates`` counts."""
    quarter = (normals.size + 3) // 4
    i = cuda.grid(1)
    if i < quarter:
        key0, key1 = np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)
        a, b, c, d = philox(np.uint32(i), updates[0], np.uint32(0), np.uint32(0), key0, key1)
        a, b = _two_normals(a, b)
        c, d = _two_normals(c, d)
        # A quarter apart, so that neighbours write to neighbours.
        normals[i] = a
        if i + quarter < normals.size:
            normals[i + quarter] = b
        if i + 2 * quarter < normals.size:
            normals[i + 2 * quarter] = c
        if i + 3 * quarter < normals.size:
            normals[i + 3 * quarter] = d


def mix(normals, basis, begins, ends, sigma, plan, tried, noise):
    """Write the noise (T, U, K): a thread a sample, a row of blocks a control and a few steps.

    As on the CPU, the first sample is the plan as it is, those tried follow, and beyond the drawn
    ones come their negatives.
    """
    k = cuda.grid(1)
    u = cuda.blockIdx.y
    first = cuda.blockIdx.z * MIXED_STEPS
    if k < noise.shape[2]:
        drawn = normals.shape[2]
        sign = _ONE
        source = k
        if k >= drawn:
            source = k - drawn
            sign = -_ONE
        for t in range(first, min(first + MIXED_STEPS, noise.shape[0])):
            value = _NONE
            if k > tried.shape[0]:
                for j in range(begins[t], ends[t]):
                    value += basis[t, j] * normals[j, u, source]
                value *= sign * sigma[t, u]
            elif k > 0 and sigma[t, u] > _NONE:
                value = tried[k - 1, u] - plan[t, u]
            noise[t, u, k] = value


@functools.cache
def roll_out(system: System, lanes: int) -> Callable:
    """Return the kernel that writes costs and crashed (M, K): ``lanes`` threads a sample and set.

    ``situation`` holds what changes: the state, the control in force, the goal, where the two grids
    lie, and the clearance that is a crash.
    """
    alone = lanes == 1
    rollout = rollout_function(system) if alone else lanes_rollout(system, lanes)
    states, controls, goals = len(system.state), len(system.control), len(system.goal)
    state_of, control_of, goal_of = _tuple_of(states), _tuple_of(controls), _tuple_of(goals)
    frame_of = _tuple_of(3)
    parameters = type(system.pack(system.parameters()))
    parameters_of = _row_of(len(parameters._fields))
    before = states
    goal = before + controls
    field_frame = goal + goals
    detour_frame = field_frame + 3
    limit = detour_frame + 3

    def kernel(situation, plan, noise, field, detour, sets, lower, upper, dt, costs, crashed):
        sample = cuda.grid(1) // lanes
        m = cuda.blockIdx.y
        # Lanes that are left over repeat the last sample: the others wait for the whole warp.
        k = min(sample, noise.shape[2] - 1)
        if sample == k or not alone:
            setup = (
                state_of(situation, 0),
                control_of(situation, before),
                goal_of(situation, goal),
                lower,
                upper,
                parameters(*parameters_of(sets, m)),
                frame_of(situation, field_frame),
                frame_of(situation, detour_frame),
                situation[limit],
                dt,
            )
            cost, crash = rollout(k, plan, noise, field, detour, setup)
            if sample == k:
                costs[m, k] = cost
                crashed[m, k] = crash

    return kernel


def combine(costs, crashed, measure, share):
    """Make the first row of costs and crashed (M, K) what ``risk`` makes of all; a thread a sample.

    ``measure`` is its place in RISKS.
    """
    k = cuda.grid(1)
    sets = costs.shape[0]
    if k < costs.shape[1]:
        crash = False
        finite = True
        for m in range(sets):
            crash = crash or crashed[m, k]
            finite = finite and math.isfinite(costs[m, k])
        tail = float(sets)
        if measure == _WORST:
            tail = 1.0
        elif measure == _CVAR:
            tail = max(share * sets, 1.0)
        total = 0.0
        # The worst first, as many as the tail has; the last of them for its part.
        for i in range(int(math.ceil(tail))):
            worst = i
            for m in range(i + 1, sets):
                if costs[m, k] > costs[worst, k]:
                    worst = m
            cost = costs[worst, k]
            costs[worst, k] = costs[i, k]
            costs[i, k] = cost
            total += min(tail - i, 1.0) * float(cost)
        costs[0, k] = np.float32(total / tail) if finite else _NAN
        crashed[0, k] = crash


def weigh(
    costs,
    crashed,
    target_share,
    temperature,
    lowest,
    highest,
    excess,
    weights,
    best,
    statistics,
    updates,
):
    """Write weights (K,) as importance_weights does, the best sample, and statistics; one block.

    ``excess`` (K,) float32 is for what costs exceed the best one's by, infinite where unusable.
    """
    scratch = cuda.shared.array((2, _WARP), np.float64)
    samples = costs.shape[0]
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x

    usable = 0.0
    crashes = 0.0
    least = math.inf
    for k in range(thread, samples, threads):
        if crashed[k]:
            crashes += 1.0
        elif math.isfinite(costs[k]):
            usable += 1.0
            least = min(least, float(costs[k]))
    usable, crashes = _block_sums(usable, crashes, scratch)
    least = _block_min(least, scratch)

    total = 0.0
    first = float(_NO_SAMPLE)
    for k in range(thread, samples, threads):
        above = _INFINITY
        if not crashed[k] and math.isfinite(costs[k]):
            above = np.float32(float(costs[k]) - least)
            total += float(above)
            if float(costs[k]) == least:
                first = min(first, float(k))
        excess[k] = above
    total, _ = _block_sums(total, 0.0, scratch)
    first = _block_min(first, scratch)

    target = max(1.0, target_share * usable)
    sought = temperature == 0.0 and total > 0.0
    if sought:
        cuda.syncthreads()  # Every warp is about to read all of ``excess``.
        low = math.log(LOWEST * total / usable)
        high = math.log(HIGHEST * total / usable)
        middle = _log_temperature(excess, low, high, math.log(target), scratch)
        temperature = min(max(math.exp(middle), lowest), highest)

    eta = 0.0
    squares = 0.0
    counted = 0.0
    sum_of_costs = 0.0
    for k in range(thread, samples, threads):
        weight = 0.0
        if excess[k] < _INFINITY:
            weight = 1.0
            if temperature > 0.0:
                weight = math.exp((least - float(costs[k])) / temperature)
        if weight > 0.0:
            eta += weight
            squares += weight * weight
            counted += 1.0
            sum_of_costs += float(costs[k]) - least
        weights[k] = weight
    eta, squares = _block_sums(eta, squares, scratch)
    counted, sum_of_costs = _block_sums(counted, sum_of_costs, scratch)
    for k in range(thread, samples, threads):
        weights[k] /= max(eta, 1.0)

    if thread == 0:
        updates[0] += np.uint32(1)
        statistics[COUNTED] = counted
        statistics[CRASHED] = crashes
        statistics[NOT_FINITE] = float(samples) - crashes - usable
        if counted > 0.0:
            best[0] = np.int32(first)
            ess = eta * eta / squares
            statistics[BEST_COST] = least
            statistics[MEAN_COST] = least + sum_of_costs / counted
            statistics[ESS] = ess
            statistics[TEMPERATURE] = temperature
            statistics[LOG_ETA] = math.log(eta)
            missed = sought and abs(ess - target) > MET * target
            statistics[AT_BOUND] = 1.0 if missed else 0.0


def weigh_elites(costs, crashed, elite_share, weights, best, statistics, updates):
    """Write weights (K,) as elite_weights does, the best sample, and statistics; one block."""
    scratch = cuda.shared.array((2, _WARP), np.float64)
    samples = costs.shape[0]
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x

    usable = 0.0
    crashes = 0.0
    least = math.inf
    greatest = -math.inf
    for k in range(thread, samples, threads):
        if crashed[k]:
            crashes += 1.0
        elif math.isfinite(costs[k]):
            usable += 1.0
            least = min(least, float(costs[k]))
            greatest = max(greatest, float(costs[k]))
    usable, crashes = _block_sums(usable, crashes, scratch)
    least = _block_min(least, scratch)
    greatest = -_block_min(-greatest, scratch)

    # The worst elite's cost is the least one that as many samples as are wanted do not exceed:
    # found by halving, to the last bit of a float32.
    wanted = max(1.0, float(round(elite_share * usable)))
    low, high = np.float32(least), np.float32(greatest)
    if _count_up_to(low, costs, crashed, scratch) >= wanted:
        high = low
    while True:
        middle = np.float32(0.5 * (float(low) + float(high)))
        if not low < middle < high:
            break
        if _count_up_to(middle, costs, crashed, scratch) >= wanted:
            high = middle
        else:
            low = middle

    counted = 0.0
    sum_of_costs = 0.0
    first = float(_NO_SAMPLE)
    for k in range(thread, samples, threads):
        weights[k] = 0.0
        if not crashed[k] and costs[k] <= high:
            weights[k] = 1.0
            counted += 1.0
            sum_of_costs += float(costs[k]) - least
            if float(costs[k]) == least:
                first = min(first, float(k))
    counted, sum_of_costs = _block_sums(counted, sum_of_costs, scratch)
    first = _block_min(first, scratch)
    for k in range(thread, samples, threads):
        weights[k] /= max(counted, 1.0)

    if thread == 0:
        updates[0] += np.uint32(1)
        statistics[COUNTED] = counted
        statistics[CRASHED] = crashes
        statistics[NOT_FINITE] = float(samples) - crashes - usable
        if counted > 0.0:
            best[0] = np.int32(first)
            statistics[BEST_COST] = least
            statistics[MEAN_COST] = least + sum_of_costs / counted
            statistics[ESS] = counted
            statistics[TEMPERATURE] = 0.0
            statistics[LOG_ETA] = math.log(counted)
            statistics[AT_BOUND] = 0.0


def average(plan, noise, lower, upper, weights, best_sample, mean, deviation, best):
    """Write mean and deviation (T, U) of the weighted samples, and the best one; clamped plans.

    As weighted_mean and covariance.deviation do. A block a step and control.
    """
    scratch = cuda.shared.array((2, _WARP), np.float64)
    controls = plan.shape[1]
    row = cuda.blockIdx.x
    t, u = row // controls, row % controls
    total = 0.0
    squares = 0.0
    for k in range(cuda.threadIdx.x, noise.shape[2], cuda.blockDim.x):
        weight = weights[k]
        if weight > 0.0:
            control = float(min(max(plan[t, u] + noise[t, u, k], lower[u]), upper[u]))
            change = control - float(plan[t, u])
            total += weight * control
            squares += weight * change * change
    total, squares = _block_sums(total, squares, scratch)
    if cuda.threadIdx.x == 0:
        k = best_sample[0]
        mean[t, u] = total
        deviation[t, u] = math.sqrt(squares)
        best[t, u] = float(min(max(plan[t, u] + noise[t, u, k], lower[u]), upper[u]))


@numba.njit(inline="always")
def _log_temperature(excess, low, high, log_target, scratch):
    """Return the logarithm of the temperature, between two, that meets the effective sample size.

    Every warp tries a temperature of its own, which divides what is left by one more than there are
    warps; between the last two, logarithms are on a line.
    """
    warps = cuda.blockDim.x // _WARP
    lane, warp = cuda.threadIdx.x % _WARP, cuda.threadIdx.x // _WARP
    low_size, high_size = -math.inf, math.inf
    for _ in range(_ROUNDS):
        step = (high - low) / (warps + 1)
        # Float32 and a quick exponential meet the target as closely as it is asked for.
        rate = np.float32(-math.exp(-(low + (warp + 1) * step)))
        eta, squares = _NONE, _NONE
        k = lane
        # Four at a time, so that a warp waits once for what it loads.
        while k + 3 * _WARP < excess.shape[0]:
            a, b = excess[k], excess[k + _WARP]
            c, d = excess[k + 2 * _WARP], excess[k + 3 * _WARP]
            a, b = cuda.libdevice.fast_expf(a * rate), cuda.libdevice.fast_expf(b * rate)
            c, d = cuda.libdevice.fast_expf(c * rate), cuda.libdevice.fast_expf(d * rate)
            eta += (a + b) + (c + d)
            squares += (a * a + b * b) + (c * c + d * d)
            k += 4 * _WARP
        while k < excess.shape[0]:
            weight = cuda.libdevice.fast_expf(excess[k] * rate)
            eta += weight
            squares += weight * weight
            k += _WARP
        eta, squares = _warp_sum(float(eta)), _warp_sum(float(squares))
        cuda.syncthreads()
        if lane == 0:
            scratch[0, warp] = 2.0 * math.log(eta) - math.log(squares)
        cuda.syncthreads()
        below = 0
        while below < warps and scratch[0, below] < log_target:
            below += 1
        if below < warps:
            high_size = scratch[0, below]
        if below > 0:
            low_size = scratch[0, below - 1]
        low += below * step
        high = low + step
    share = 0.5
    if math.isfinite(low_size) and math.isfinite(high_size) and high_size > low_size:
        share = min(max((log_target - low_size) / (high_size - low_size), 0.0), 1.0)
    return low + share * (high - low)


@numba.njit(inline="always")
def _count_up_to(limit, costs, crashed, scratch):
    count = 0.0
    for k in range(cuda.threadIdx.x, costs.shape[0], cuda.blockDim.x):
        if not crashed[k] and costs[k] <= limit:
            count += 1.0
    count, _ = _block_sums(count, 0.0, scratch)
    return count


@numba.njit(inline="always")
def _block_sums(a, b, scratch):
    """Return two sums over the block, the same to the last bit in all of its threads.

    Of each warp first, all its lanes at once; then every warp adds up what the warps left.
    """
    a, b = _warp_sum(a), _warp_sum(b)
    cuda.syncthreads()  # What was there has been read by all.
    lane, warp = cuda.threadIdx.x % _WARP, cuda.threadIdx.x // _WARP
    if lane == 0:
        scratch[0, warp], scratch[1, warp] = a, b
    cuda.syncthreads()
    a, b = 0.0, 0.0
    if lane < cuda.blockDim.x // _WARP:
        a, b = scratch[0, lane], scratch[1, lane]
    return _warp_sum(a), _warp_sum(b)


@numba.njit(inline="always")
def _block_min(value, scratch):
    """Return the least value of the block in all of its threads."""
    value = _warp_min(value)
    cuda.syncthreads()
    lane, warp = cuda.threadIdx.x % _WARP, cuda.threadIdx.x // _WARP
    if lane == 0:
        scratch[0, warp] = value
    cuda.syncthreads()
    value = math.inf
    if lane < cuda.blockDim.x // _WARP:
        value = scratch[0, lane]
    return _warp_min(value)


@numba.njit(inline="always")
def _warp_sum(value):
    offset = _WARP // 2
    while offset:
        value += cuda.shfl_xor_sync(_EVERY_LANE, value, offset)
        offset //= 2
    return value


@numba.njit(inline="always")
def _warp_min(value):
    offset = _WARP // 2
    while offset:
        value = min(value, cuda.shfl_xor_sync(_EVERY_LANE, value, offset))
        offset //= 2
    return value


def _tuple_of(count: int) -> Callable:
    """Return a device function: ``count`` numbers of an array (N,) from a place on, as a tuple.

    Tuples live in registers; their length is fixed when compiling.
    """
    if count == 0:

        def numbers(array, first):
            return ()

    else:
        others = _tuple_of(count - 1)
        last = count - 1

        def numbers(array, first):
            return others(array, first) + (array[first + last],)

    return numba.njit(inline="always")(numbers)


def _row_of(count: int) -> Callable:
    """Return a device function: a row of ``count`` numbers of an array (M, N), as a tuple."""
    if count == 0:

        def numbers(array, row):
            return ()

    else:
        others = _row_of(count - 1)
        last = count - 1

        def numbers(array, row):
            return others(array, row) + (array[row, last],)

    return numba.njit(inline="always")(numbers)

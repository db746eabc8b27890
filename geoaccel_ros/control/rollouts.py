"""Rollouts of a system, written once in Python; compiled for the CPU here, for CUDA beside it."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np

from geoaccel_ros.control import vector_math
from geoaccel_ros.control.compiling import device_function, tuple_sum
from geoaccel_ros.control.distance_field import FAR, DistanceField, interpolate
from geoaccel_ros.control.kernel_cache import compile_kept
from geoaccel_ros.control.lanes import LANES, lane_kernel
from geoaccel_ros.control.systems import System
from geoaccel_ros.threads import Threads

# Cost of each second that a rollout does not live because it crashed. It only keeps the costs of
# crashed rollouts apart from those of free ones, which alone get weight.
CRASH_COST = 1e3
# As kernels need them.
_FAR = np.float32(FAR)
_NO_DETOUR = np.float32(0.0)
_interpolate = device_function(interpolate)
_MATH = vector_math.trigonometry_as_math()


@dataclass(frozen=True)
class Problem:
    """One update's rollouts, relative to an origin near the robot, so that float32 is enough.

    Attributes
    ----------
    start : tuple
        (X,) float32, the state to start from.
    control_before : tuple
        (U,) float32, the control in force before the plan.
    goal : tuple
        (G,) float32.
    plan : np.ndarray
        (T, U) float32.
    noise : np.ndarray
        (T, U, K) float32.
    lower, upper : tuple
        (U,) float32, limits of the controls.
    p : tuple
        The system's parameters, packed as float32.
    field, detour : DistanceField
        Distance to obstacles, and how far the way to the goal exceeds the straight line; their
        origins are absolute. Nothing looks at them where the system is not planar.
    origin : np.ndarray
        (2,) float64, m: what start, goal and the rollouts are relative to.
    clearance_limit : np.float32
        m; a rollout that comes nearer to an obstacle has crashed.
    dt : np.float32
        s.
    """

    start: tuple
    control_before: tuple
    goal: tuple
    plan: np.ndarray
    noise: np.ndarray
    lower: tuple
    upper: tuple
    p: tuple
    field: DistanceField
    detour: DistanceField
    origin: np.ndarray
    clearance_limit: np.float32
    dt: np.float32

    @functools.cached_property
    def setup(self) -> tuple:
        """Return all but the arrays, as the rollout function unpacks it."""
        return (
            self.start,
            self.control_before,
            self.goal,
            self.lower,
            self.upper,
            self.p,
            self._frame(self.field),
            self._frame(self.detour),
            self.clearance_limit,
            self.dt,
        )

    def sampled(self, plan: np.ndarray, noise: np.ndarray) -> "Problem":
        """Return the same situation with another plan (T, U) and noise (T, U, K) around it."""
        # dataclasses.replace() would forget the setup, and takes as long as a kernel of a search.
        other = object.__new__(Problem)
        other.__dict__.update(self.__dict__, plan=plan, noise=noise)
        return other

    def _frame(self, grid: DistanceField) -> tuple:
        """Return what rollouts need to find a place in a grid: its corner and cells a metre."""
        x, y = (grid.origin - self.origin).tolist()
        return np.float32(x), np.float32(y), np.float32(1.0 / grid.resolution)


def rollout_function(system: System) -> Callable:
    """Return the device function that rolls out sample k and returns its cost and if it crashed."""
    return _device_functions(system)[0]


def step_functions(system: System) -> tuple[Callable, ...]:
    """Return what rollouts consist of, for kernels that go through one in another order.

    Device functions: the controls of sample k at step t; the state that they lead to; how near the
    next obstacle is; the terms of running and terminal cost. The grids are looked at where the
    system is planar.
    """
    if system.is_planar:
        return *_modelled(system), _planar_clearance, *_planar_costs(system)
    return *_modelled(system), _no_obstacle, *_free_costs(system)


class CpuRollouts:
    """Rollouts on CPU threads, the caller's among them; results do not depend on their number.

    Threads of its own, which run the compiled kernel without the interpreter's lock: Numba's
    parallel loops share one pool a process, whose workers may spin while they wait.

    Compiled once a process and system, and kept on disk.
    """

    def __init__(self, system: System, threads: int):
        self._side_by_side = _compile_lanes(system)
        self._one_by_one, self._trace = _compile(system)
        self._terms = len(system.running_terms) + len(system.terminal_terms)
        self._threads = Threads(threads)

    def run(self, problem: Problem, costs: np.ndarray, crashed: np.ndarray) -> None:
        """Write the costs (K,) float32 and whether each rollout crashed (K,) bool."""
        # A block takes the same time however few of its lanes are used.
        few = len(costs) < LANES // 4
        self._threads.split(
            self._one_by_one if few else self._side_by_side,
            len(costs),
            problem.plan,
            problem.noise,
            problem.field.distances,
            problem.detour.distances,
            problem.setup,
            costs,
            crashed,
            block=LANES,
        )

    def states(self, problem: Problem, sample: int) -> np.ndarray:
        """Return the states (T+1, X) float32 that one sample passes through, crash or not."""
        return self.follow(problem, sample)[0]

    def follow(self, problem: Problem, sample: int) -> tuple[np.ndarray, np.ndarray]:
        """Return these states, and what each term adds to the cost, as if nothing could crash.

        The terms are float32: the running ones, each summed over time, and then the terminal ones.
        """
        states = np.empty((len(problem.plan) + 1, len(problem.start)), np.float32)
        terms = np.zeros(self._terms, np.float32)
        self._trace(
            sample,
            problem.plan,
            problem.noise,
            problem.field.distances,
            problem.detour.distances,
            problem.setup,
            states,
            terms,
        )
        return states, terms


def compile_recorded(system: System) -> tuple[Callable, Callable]:
    """Return the kernel and the trace of CpuRollouts for states that something else recorded.

    Their ``noise`` is a pair: the noise, and the states (K, T, X) at the end of each step.
    """
    return _compile(system, _recorded)


def _modelled(system: System) -> tuple[Callable, Callable]:
    """Return device functions: controls of sample k at step t, and the state that they lead to."""
    clamped_controls = _clamped_controls(len(system.control))
    step = device_function(system.step, _MATH)

    def controls(plan, noise, setup, t, k):
        return clamped_controls(plan, noise, setup[3], setup[4], t, k)

    def advance(x, u, noise, setup, t, k):
        return step(x, u, setup[5], setup[9])

    return numba.njit(inline="always")(controls), numba.njit(inline="always")(advance)


def _recorded(system: System) -> tuple[Callable, Callable]:
    """Return device functions: the same controls, and the state that was recorded."""
    clamped_controls = _clamped_controls(len(system.control))
    recorded_state = _recorded_state(len(system.state))

    def controls(plan, noise, setup, t, k):
        return clamped_controls(plan, noise[0], setup[3], setup[4], t, k)

    def advance(x, u, noise, setup, t, k):
        return recorded_state(noise[1], t, k)

    return numba.njit(inline="always")(controls), numba.njit(inline="always")(advance)


@functools.cache
def _device_functions(system: System, motion: Callable = _modelled) -> tuple[Callable, Callable]:
    make_rollout = _planar_rollout if system.is_planar else _free_rollout
    controls, advance = motion(system)
    rollout = numba.njit(inline="always")(make_rollout(system, controls, advance))
    return rollout, _trace(system, controls, advance)


@numba.njit(inline="always")
def _value_at(grid, frame, x, outside):
    return _interpolate(grid, frame[0], frame[1], frame[2], x[0], x[1], outside)


@numba.njit(inline="always")
def _planar_clearance(x, field, setup):
    return _value_at(field, setup[6], x, _FAR)


@numba.njit(inline="always")
def _no_obstacle(x, field, setup):
    return _FAR


def _planar_rollout(system: System, controls: Callable, advance: Callable) -> Callable:
    """Return the rollout of a robot on a plane, which obstacles end and a detour lengthens."""
    running = device_function(system.running, _MATH)
    terminal = device_function(system.terminal, _MATH)
    running_sum = tuple_sum(len(system.running_terms))
    terminal_sum = tuple_sum(len(system.terminal_terms))
    crash_cost = np.float32(CRASH_COST)

    def rollout(k, plan, noise, field, detour, setup):
        start, u_before, goal, _, _, p = setup[:6]
        field_frame, detour_frame, clearance_limit, dt = setup[6:]
        cost = np.float32(0.0)
        last = plan.shape[0] - 1
        near = _FAR
        further = _NO_DETOUR
        u = controls(plan, noise, setup, 0, k)
        u_after = controls(plan, noise, setup, min(1, last), k)
        x = advance(start, u, noise, setup, 0, k)
        x_end = x
        for t in range(plan.shape[0]):
            # A GPU fetches the controls after the next and finds the next state while it adds up
            # what this state costs; none of them waits for another.
            u_later = controls(plan, noise, setup, min(t + 2, last), k)
            x_after = advance(x, u_after, noise, setup, min(t + 1, last), k)
            near = _value_at(field, field_frame, x, _FAR)
            further = _value_at(detour, detour_frame, x, _NO_DETOUR)
            if near < clearance_limit:
                return cost + crash_cost * dt * np.float32(last + 1 - t), True
            cost += dt * running_sum(running(x, u, u_before, goal, near, further, p))
            u_before, u, u_after = u, u_after, u_later
            x_end, x = x, x_after
        return cost + terminal_sum(terminal(x_end, goal, near, further, p)), False

    return rollout


def _free_rollout(system: System, controls: Callable, advance: Callable) -> Callable:
    """Return the rollout of a system that knows no obstacles; the grids are not looked at."""
    running = device_function(system.running, _MATH)
    terminal = device_function(system.terminal, _MATH)
    running_sum = tuple_sum(len(system.running_terms))
    terminal_sum = tuple_sum(len(system.terminal_terms))

    def rollout(k, plan, noise, field, detour, setup):
        start, u_before, goal, _, _, p = setup[:6]
        dt = setup[9]
        cost = np.float32(0.0)
        last = plan.shape[0] - 1
        u = controls(plan, noise, setup, 0, k)
        u_after = controls(plan, noise, setup, min(1, last), k)
        x = advance(start, u, noise, setup, 0, k)
        x_end = x
        for t in range(plan.shape[0]):
            # As on a plane: the next state does not wait for this one's cost.
            u_later = controls(plan, noise, setup, min(t + 2, last), k)
            x_after = advance(x, u_after, noise, setup, min(t + 1, last), k)
            cost += dt * running_sum(running(x, u, u_before, goal, p))
            u_before, u, u_after = u, u_after, u_later
            x_end, x = x, x_after
        return cost + terminal_sum(terminal(x_end, goal, p)), False

    return rollout


def _trace(system: System, controls: Callable, advance: Callable) -> Callable:
    """Return the function that writes the states and the terms of a rollout that may not crash."""
    running, terminal = _free_costs(system) if not system.is_planar else _planar_costs(system)
    first = len(system.running_terms)
    add_running, add_terminal = _add(system.running_terms, 0), _add(system.terminal_terms, first)
    one = np.float32(1.0)

    def trace(k, plan, noise, field, detour, setup, states, terms):
        x, u_before = setup[:2]
        dt = setup[9]
        for t in range(states.shape[0]):
            for i in range(states.shape[1]):
                states[t, i] = x[i]
            if t < plan.shape[0]:
                u = controls(plan, noise, setup, t, k)
                x = advance(x, u, noise, setup, t, k)
                add_running(running(x, u, u_before, field, detour, setup), dt, terms)
                u_before = u
        add_terminal(terminal(x, field, detour, setup), one, terms)

    return trace


def _planar_costs(system: System) -> tuple[Callable, Callable]:
    """Return running and terminal costs that look the place up in the grids."""
    running_at = device_function(system.running, _MATH)
    terminal_at = device_function(system.terminal, _MATH)

    def running(x, u, u_before, field, detour, setup):
        near = _value_at(field, setup[6], x, _FAR)
        further = _value_at(detour, setup[7], x, _NO_DETOUR)
        return running_at(x, u, u_before, setup[2], near, further, setup[5])

    def terminal(x, field, detour, setup):
        near = _value_at(field, setup[6], x, _FAR)
        further = _value_at(detour, setup[7], x, _NO_DETOUR)
        return terminal_at(x, setup[2], near, further, setup[5])

    return numba.njit(inline="always")(running), numba.njit(inline="always")(terminal)


def _free_costs(system: System) -> tuple[Callable, Callable]:
    """Return running and terminal costs with the same arguments, which look at no grid."""
    running_at = device_function(system.running, _MATH)
    terminal_at = device_function(system.terminal, _MATH)

    def running(x, u, u_before, field, detour, setup):
        return running_at(x, u, u_before, setup[2], setup[5])

    def terminal(x, field, detour, setup):
        return terminal_at(x, setup[2], setup[5])

    return numba.njit(inline="always")(running), numba.njit(inline="always")(terminal)


def _add(names: tuple[str, ...], first: int) -> Callable:
    """Return a device function: so many terms, scaled, are added to an array from ``first`` on."""
    last = len(names) - 1
    if last < 0:

        def add(terms, scale, totals):
            pass

    else:
        others = _add(names[:last], first)

        def add(terms, scale, totals):
            others(terms, scale, totals)
            totals[first + last] += scale * terms[last]

    return numba.njit(inline="always")(add)


def _clamped_controls(count: int) -> Callable:
    """Return a device function: the controls (count,) of sample k at step t, clamped, as a tuple.

    Tuples live in registers, arrays would not; their length is fixed when compiling, hence one
    function for each.
    """
    last = count - 1

    def control(plan, noise, lower, upper, t, k):
        return min(max(plan[t, last] + noise[t, last, k], lower[last]), upper[last])

    control = numba.njit(inline="always")(control)
    if count == 1:

        def controls(plan, noise, lower, upper, t, k):
            return (control(plan, noise, lower, upper, t, k),)

    else:
        others = _clamped_controls(last)

        def controls(plan, noise, lower, upper, t, k):
            return others(plan, noise, lower, upper, t, k) + (
                control(plan, noise, lower, upper, t, k),
            )

    return numba.njit(inline="always")(controls)


def _recorded_state(count: int) -> Callable:
    """Return a device function: the recorded state (count,) of sample k at step t, as a tuple."""
    last = count - 1
    float32 = np.float32

    def component(states, t, k):
        return float32(states[k, t, last])

    component = numba.njit(inline="always")(component)
    if count == 1:

        def state(states, t, k):
            return (component(states, t, k),)

    else:
        others = _recorded_state(last)

        def state(states, t, k):
            return others(states, t, k) + (component(states, t, k),)

    return numba.njit(inline="always")(state)


# No flag that assumes finite numbers: a rollout that is not finite must be seen.
_FLAGS = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}


@functools.cache
def _compile_lanes(system: System) -> Callable:
    return compile_kept(lane_kernel(system, CRASH_COST), _made_of(system), **_FLAGS)


@functools.cache
def _compile(system: System, motion: Callable = _modelled) -> tuple[Callable, Callable]:
    rollout, trace = _device_functions(system, motion)

    def one_by_one(first, last, plan, noise, field, detour, setup, costs, crashed):
        for k in range(first, last):
            costs[k], crashed[k] = rollout(k, plan, noise, field, detour, setup)

    made_of = motion.__name__, _made_of(system)
    return (
        compile_kept(one_by_one, made_of, **_FLAGS),
        compile_kept(trace, made_of, nogil=True),
    )


def _made_of(system: System) -> tuple:
    """Return what kernels take from a robot."""
    functions = system.step, system.running, system.terminal
    fields = tuple(field.name for field in dataclasses.fields(system.parameters))
    names = system.state, system.control, system.goal, system.running_terms, system.terminal_terms
    return functions, fields, names, system.is_planar

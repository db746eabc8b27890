"""Rollouts on an NVIDIA GPU: a thread a sample, from the same Python functions as the CPU's."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from numba import cuda

from geoaccel_ros.backend import BackendError
from geoaccel_ros.control.distance_field import DistanceField
from geoaccel_ros.control.rollouts import CpuRollouts, Problem, rollout_function
from geoaccel_ros.control.systems import System

THREADS_PER_BLOCK = 64


class CudaRollouts:
    """Rollouts on the current CUDA device, for a fixed number of samples and horizon.

    Raises
    ------
    BackendError
        If the device disagrees with the CPU on a small problem.
    """

    def __init__(self, system: System, samples: int, horizon: int, cpu: CpuRollouts):
        self._system = system
        self._cpu = cpu
        self._kernel = cuda.jit(fastmath=False)(kernel_function(system))
        controls = len(system.control)
        self._plan = cuda.device_array((horizon, controls), np.float32)
        self._noise = cuda.device_array((horizon, controls, samples), np.float32)
        self._costs = cuda.device_array(samples, np.float32)
        self._crashed = cuda.device_array(samples, np.bool_)
        self._field = _Uploaded()
        self._detour = _Uploaded()

    def run(self, problem: Problem, costs: np.ndarray, crashed: np.ndarray) -> None:
        """Write the costs (K,) float32 and whether each rollout crashed (K,) bool."""
        self._plan.copy_to_device(problem.plan)
        self._noise.copy_to_device(problem.noise)
        blocks = -(-len(costs) // THREADS_PER_BLOCK)
        self._kernel[blocks, THREADS_PER_BLOCK](
            self._plan,
            self._noise,
            self._field.of(problem.field),
            self._detour.of(problem.detour),
            problem.setup,
            self._costs,
            self._crashed,
        )
        self._costs.copy_to_host(costs)
        self._crashed.copy_to_host(crashed)

    def states(self, problem: Problem, sample: int) -> np.ndarray:
        """Return the states (T+1, X) float32 that one sample passes through, crash or not."""
        return self._cpu.states(problem, sample)

    def check(self, problem: Problem) -> None:
        """Compare with the CPU on ``problem``; see the class for errors."""
        samples = problem.noise.shape[2]
        costs, expected = np.empty(samples, np.float32), np.empty(samples, np.float32)
        crashed, expected_crashed = np.empty(samples, bool), np.empty(samples, bool)
        self.run(problem, costs, crashed)
        self._cpu.run(problem, expected, expected_crashed)
        same = crashed == expected_crashed
        # A rollout that grazes the limit may crash on one side only; trigonometry differs in the
        # last bit and a horizon adds up.
        close = np.isclose(costs, expected, rtol=1e-3, atol=1e-3)
        if same.mean() < 0.98 or not close[same].all():
            raise BackendError(
                "CUDA's rollouts differ from the CPU's on the start-up check: update the NVIDIA "
                "driver and numba-cuda, or set backend: cpu"
            )


class _Uploaded:
    """The device's copy of the last grid; grids change at the lidar's rate, not the control's."""

    def __init__(self):
        self._grid = None
        self._values = None

    def of(self, grid: DistanceField):
        """Return the values of ``grid`` on the device."""
        if self._grid is not grid:
            self._values = cuda.to_device(np.ascontiguousarray(grid.distances))
            self._grid = grid
        return self._values


def cuda_problem() -> str | None:
    """Return why Numba cannot use CUDA here, with the remedy, or None if it can."""
    # Numba's built-in target cannot compile the kernels; numba-cuda takes its place when installed.
    if cuda.implementation != "NVIDIA":
        return "numba-cuda is not installed (pip install 'geoaccel_ros[cuda]')"
    if not cuda.is_available():
        return "Numba finds no usable CUDA device; check the NVIDIA driver with nvidia-smi"
    return None


@functools.cache
def kernel_function(system: System) -> Callable:
    """Return the kernel as a Python function, to compile for the present or any other device."""
    rollout = rollout_function(system)

    def kernel(plan, noise, field, detour, setup, costs, crashed):
        k = cuda.grid(1)
        if k < costs.shape[0]:
            costs[k], crashed[k] = rollout(k, plan, noise, field, detour, setup)

    return kernel


def kernel_signature(system: System) -> tuple:
    """Return the types of the kernel's arguments."""
    from numba import types

    float32 = types.float32
    state = types.UniTuple(float32, len(system.state))
    control = types.UniTuple(float32, len(system.control))
    goal = types.UniTuple(float32, len(system.goal))
    frame = types.UniTuple(float32, 3)
    names = [field.name for field in dataclasses.fields(system.parameters)]
    parameters = types.NamedUniTuple(float32, len(names), type(system.pack(system.parameters())))
    setup = types.Tuple(
        (state, control, goal, control, control, parameters, frame, frame, float32, float32)
    )
    plan, noise, grid = float32[:, ::1], float32[:, :, ::1], float32[:, ::1]
    return plan, noise, grid, grid, setup, float32[::1], types.boolean[::1]


def compile_to_ptx(system: System, compute_capability: tuple[int, int]) -> str:
    """Return the kernel's PTX for a compute capability; needs no GPU."""
    kernel, signature = kernel_function(system), kernel_signature(system)
    ptx, _ = cuda.compile_ptx(kernel, signature, cc=compute_capability)
    return ptx

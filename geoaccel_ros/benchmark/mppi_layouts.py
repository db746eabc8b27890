"""Rollouts on CUDA in other shapes: a warp a sample, noise by sample, the plan in shared memory."""

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from geoaccel_ros.backend import cuda_problem
from geoaccel_ros.benchmark.interleaving import interleave, spread
from geoaccel_ros.benchmark.mppi_problems import CARTPOLE, DIFF_DRIVE, QUADROTOR, bare_problem
from geoaccel_ros.benchmark.report import Table
from geoaccel_ros.control.rollouts import Problem, rollout_function
from geoaccel_ros.control.systems import System

_TITLE = "Shapes of the rollouts on CUDA"
SHIPPED = "a thread a sample, noise by time"
_SAMPLES = (2048, 16384)
# Threads of a block: those of the search.
_THREADS = 32
_WARP = 32
# Launches that one time is the mean of.
_LAUNCHES = 20


def layout_table(repetitions: int) -> Table:
    """Return the microseconds of each shape of the rollouts, of each system, in turns."""
    problem = cuda_problem()
    if problem:
        return Table(_TITLE, [], f"None ran: {problem}.")
    shapes = {
        (shipped.system, samples, name): shape
        for shipped in (CARTPOLE, QUADROTOR, DIFF_DRIVE)
        for samples in _SAMPLES
        for name, shape in _shapes_of(replace(shipped, samples=samples)).items()
    }
    times = interleave({key: shape.clock() for key, shape in shapes.items()}, repetitions)
    rows = [
        {
            "system": system,
            "samples": samples,
            "rollouts": name,
            "us": spread(1e3 * own),
            "times_shipped": float(np.median(own / times[system, samples, SHIPPED])),
            "registers": shapes[system, samples, name].registers(),
        }
        for (system, samples, name), own in times.items()
    ]
    return Table(_TITLE, rows, f"Means of {_LAUNCHES} launches of a CUDA graph, in turns.")


def costs_by_shape(system: System, problem: Problem) -> dict[str, np.ndarray]:
    """Return the costs (K,) float32 that each shape finds."""
    return {name: shape.costs() for name, shape in _shapes(system, problem).items()}


@functools.cache
def shared_plan_kernel(system: System, horizon: int) -> Callable:
    """Return the kernel of a thread a sample that reads the plan from shared memory."""
    from numba import cuda

    rollout = rollout_function(system)
    controls = len(system.control)

    def kernel(plan, noise, field, detour, setup, costs, crashed):
        shared = cuda.shared.array((horizon, controls), np.float32)
        for i in range(cuda.threadIdx.x, horizon * controls, cuda.blockDim.x):
            shared[i // controls, i % controls] = plan[i // controls, i % controls]
        cuda.syncthreads()
        k = cuda.grid(1)
        if k < costs.shape[0]:
            costs[k], crashed[k] = rollout(k, shared, noise, field, detour, setup)

    return kernel


@functools.cache
def warp_kernel(system: System) -> Callable:
    """Return the kernel of a warp a sample."""
    from numba import cuda

    from geoaccel_ros.control.rollouts_lanes import lanes_rollout

    rollout = lanes_rollout(system, _WARP)

    def kernel(plan, noise, field, detour, setup, costs, crashed):
        k = cuda.grid(1) // _WARP
        if k < costs.shape[0]:
            cost, crash = rollout(k, plan, noise, field, detour, setup)
            if cuda.laneid == 0:
                costs[k], crashed[k] = cost, crash

    return kernel


def _shapes_of(sized) -> dict[str, "_Shape"]:
    rng = np.random.default_rng(0)
    shape = sized.horizon, len(sized.sigma), sized.samples
    noise = rng.standard_normal(shape, np.float32) * np.float32(sized.sigma)[:, None]
    return _shapes(sized.loaded(), bare_problem(sized, noise))


class _Shape:
    """A kernel of rollouts and its arrays on the device.

    Parameters
    ----------
    kernel : callable
        With the arguments of :func:`~geoaccel_ros.control.rollouts_cuda.kernel_function`'s.
    threads : int
    problem : Problem
    noise : device array, (T, U, K)
    """

    def __init__(self, kernel: Callable, threads: int, problem: Problem, noise):
        from numba import cuda

        samples = noise.shape[2]
        self._kernel = _compiled(kernel)
        self._blocks = -(-threads // _THREADS)
        self._costs = cuda.device_array(samples, np.float32)
        grids = [cuda.to_device(grid.distances) for grid in (problem.field, problem.detour)]
        crashed = cuda.device_array(samples, np.bool_)
        plan = cuda.to_device(problem.plan)
        self._arguments = plan, noise, *grids, problem.setup, self._costs, crashed

    def costs(self) -> np.ndarray:
        self._enqueue(0)
        return self._costs.copy_to_host()

    def registers(self) -> int:
        return max(compiled.regs_per_thread for compiled in self._kernel.overloads.values())

    def clock(self) -> Callable[[], float]:
        """Return a run that gives milliseconds a launch."""
        import cupy
        from numba import cuda

        stream = cupy.cuda.Stream(non_blocking=True)
        self.costs()  # compiled and loaded before it is captured
        stream.begin_capture()
        for _ in range(_LAUNCHES):
            self._enqueue(cuda.external_stream(stream.ptr))
        graph = stream.end_capture()

        def run() -> float:
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(stream)
            graph.launch(stream)
            end.record(stream)
            end.synchronize()
            return cupy.cuda.get_elapsed_time(begin, end) / _LAUNCHES

        return run

    def _enqueue(self, stream) -> None:
        self._kernel[self._blocks, _THREADS, stream](*self._arguments)


@functools.cache
def _compiled(kernel: Callable):
    from numba import cuda

    return cuda.jit(kernel)


def _shapes(system: System, problem: Problem) -> dict[str, _Shape]:
    import cupy
    from numba import cuda

    from geoaccel_ros.control.rollouts_cuda import kernel_function

    horizon, _, samples = problem.noise.shape
    by_time = cuda.to_device(np.ascontiguousarray(problem.noise))
    # The same indices, other strides.
    by_sample = cupy.ascontiguousarray(cupy.asarray(problem.noise).transpose(2, 0, 1))
    by_sample = cuda.as_cuda_array(by_sample.transpose(1, 2, 0))
    thread, shared = kernel_function(system), shared_plan_kernel(system, horizon)
    return {
        SHIPPED: _Shape(thread, samples, problem, by_time),
        "noise by sample": _Shape(thread, samples, problem, by_sample),
        "the plan in shared memory": _Shape(shared, samples, problem, by_time),
        "a warp a sample, noise by sample": _Shape(
            warp_kernel(system), _WARP * samples, problem, by_sample
        ),
    }

"""The search of an update on an NVIDIA GPU: one CUDA graph, and one small copy each way."""

import dataclasses
import functools
import math
import warnings
from collections.abc import Sequence

import cupy
import numpy as np
from numba import cuda
from numba.core.errors import NumbaPerformanceWarning

from geoaccel_ros.backend import BackendError
from geoaccel_ros.control import search_kernels as kernels
from geoaccel_ros.control.distance_field import DistanceField
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.rollouts import CpuRollouts, Problem
from geoaccel_ros.control.rollouts_lanes import WARP
from geoaccel_ros.control.search import Findings, noise_basis
from geoaccel_ros.control.stopwatch import Stopwatch
from geoaccel_ros.control.systems import System

# Rollouts are chains of dependent steps: the fewer share a multiprocessor, the sooner they end.
_ROLLOUT_THREADS = WARP
# Of a multiprocessor, since Maxwell.
_SCHEDULERS = 4
_THREADS = 128


class CudaSearch:
    """What :class:`~geoaccel_ros.control.search.CpuSearch` is, on the current CUDA device.

    Noise is made there from a counter, so that nothing but the situation goes to the device, and
    nothing but two plans and the statistics comes back. The kernels are captured into a graph; a
    search launches it.

    Parameters
    ----------
    config : MppiConfig
    system : System
    parameters : sequence of tuple
        The system's parameters, packed as float32.
    tried : np.ndarray
        (N, U), see :class:`~geoaccel_ros.control.search.CpuSearch`.
    """

    def __init__(
        self, config: MppiConfig, system: System, parameters: Sequence[tuple], tried: np.ndarray
    ):
        self._config = config
        horizon, controls, samples = config.horizon, len(system.control), config.samples
        drawn = (samples + 1) // 2 if config.antithetic else samples
        basis = noise_basis(config).astype(np.float32)
        used = basis != 0.0

        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._on_stream = cuda.external_stream(self._stream.ptr)
        situation = len(system.state) + controls + len(system.goal) + 7
        plan = (horizon, controls)
        self._inputs = _Transfer(np.float32, (situation,), plan, plan)
        self._outputs = _Transfer(np.float64, (len(kernels.STATISTICS),), plan, plan, plan)
        self._basis = cuda.to_device(basis)
        self._begins = cuda.to_device(used.argmax(axis=1).astype(np.int32))
        ends = basis.shape[1] - used[:, ::-1].argmax(axis=1)
        self._ends = cuda.to_device(ends.astype(np.int32))
        self._tried = cuda.to_device(tried.astype(np.float32))
        self._parameters = cuda.to_device(np.array(parameters, np.float32))
        self._drawn = cuda.device_array(basis.shape[1] * controls * drawn, np.float32)
        self._normals = self._drawn.reshape(basis.shape[1], controls, drawn)
        self._noise = cuda.device_array((horizon, controls, samples), np.float32)
        self._costs = cuda.device_array((len(parameters), samples), np.float32)
        self._crashed = cuda.device_array((len(parameters), samples), np.bool_)
        self._excess = cuda.device_array(samples, np.float32)
        self._weights = cuda.device_array(samples, np.float64)
        self._best = cuda.to_device(np.zeros(1, np.int32))
        self._updates = cuda.to_device(np.zeros(1, np.uint32))
        self._field, self._detour = _Grid(), _Grid()
        self._lanes = _lanes(samples * len(parameters)) if system.is_planar else 1
        self._roll_out = _kernel(kernels.roll_out(system, self._lanes))
        self._graph = None
        self._captured = None
        self._problem: Problem | None = None

    def reset(self) -> None:
        """Begin the noise again."""
        self._updates.copy_to_device(np.zeros(1, np.uint32))
        self._problem = None

    def search(self, problem: Problem, sigma: np.ndarray | None = None) -> Findings:
        """See :meth:`geoaccel_ros.control.search.CpuSearch.search`."""
        watch = Stopwatch()
        situation, plan, deviation = self._inputs.host
        situation[:] = [
            *problem.start,
            *problem.control_before,
            *problem.goal,
            *problem.setup[6],
            *problem.setup[7],
            problem.clearance_limit,
        ]
        plan[:] = problem.plan
        deviation[:] = self._config.sigma if sigma is None else sigma
        self._problem = problem
        self._launch(problem)
        watch.lap("graph")
        statistics, mean, deviation, best = self._outputs.host
        statistics = statistics.tolist()
        samples = self._config.samples
        collided = statistics[kernels.CRASHED] / samples
        not_finite = statistics[kernels.NOT_FINITE] / samples
        counted = int(statistics[kernels.COUNTED])
        if not counted:
            return Findings(
                0, collided, not_finite_fraction=not_finite, milliseconds=watch.milliseconds
            )
        return Findings(
            counted=counted,
            collided_fraction=collided,
            mean=mean.copy(),
            best=best.copy(),
            best_cost=statistics[kernels.BEST_COST],
            mean_cost=statistics[kernels.MEAN_COST],
            ess=statistics[kernels.ESS],
            temperature=statistics[kernels.TEMPERATURE],
            log_eta=statistics[kernels.LOG_ETA],
            at_bound=bool(statistics[kernels.AT_BOUND]),
            deviation=None if sigma is None else deviation.copy(),
            not_finite_fraction=not_finite,
            milliseconds=watch.milliseconds,
        )

    def samples(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """See :meth:`geoaccel_ros.control.search.CpuSearch.samples`."""
        weights = self._weights.copy_to_host()
        best = np.argsort(-weights, kind="stable")[:count]
        return np.ascontiguousarray(self._noise.copy_to_host()[:, :, best]), weights[best]

    def first_not_finite(self) -> tuple[Problem, int] | None:
        """See :meth:`geoaccel_ros.control.search.CpuSearch.first_not_finite`."""
        if self._problem is None:
            return None
        finite = np.isfinite(self._costs.copy_to_host()[0]) | self._crashed.copy_to_host()[0]
        if finite.all():
            return None
        noise = self._noise.copy_to_host()
        return dataclasses.replace(self._problem, noise=noise), int(np.argmin(finite))

    def check(self, problem: Problem, cpu: CpuRollouts) -> None:
        """Compare a search with the CPU.

        Raises
        ------
        BackendError
            If its rollouts cost something else.
        """
        self.search(problem)
        costs, crashed = self._costs.copy_to_host()[0], self._crashed.copy_to_host()[0]
        expected, expected_crashed = np.empty_like(costs), np.empty_like(crashed)
        noise = self._noise.copy_to_host()
        cpu.run(dataclasses.replace(problem, noise=noise), expected, expected_crashed)
        same = crashed == expected_crashed
        # A rollout that grazes the limit may crash on one side only; trigonometry differs in the
        # last bit and a horizon adds up.
        close = np.isclose(costs, expected, rtol=1e-3, atol=1e-3, equal_nan=True)
        if same.mean() < 0.98 or not close[same].all():
            raise BackendError(
                "CUDA's rollouts differ from the CPU's on the start-up check: update the NVIDIA "
                "driver and numba-cuda, or set backend: cpu"
            )

    def kernels(self) -> dict[str, tuple]:
        """Return the kernels of a search by name, each with the threads of its blocks."""
        weigh = kernels.weigh_elites if self._config.weighting == "cem" else kernels.weigh
        shared = {
            "draw": (kernels.draw, _THREADS),
            "mix": (kernels.mix, _THREADS),
            "combine": (kernels.combine, _THREADS),
            "weigh": (weigh, kernels.WEIGHING_THREADS),
            "average": (kernels.average, kernels.AVERAGING_THREADS),
        }
        if len(self._parameters) == 1:
            del shared["combine"]
        compiled = {
            name: (_kernel(function), threads) for name, (function, threads) in shared.items()
        }
        return {"roll_out": (self._roll_out, _ROLLOUT_THREADS)} | compiled

    def _launch(self, problem: Problem) -> None:
        """Bring the grids, run the graph and wait for it."""
        field = self._field.of(problem.field, self._on_stream)
        detour = self._detour.of(problem.detour, self._on_stream)
        captured = (field, detour, problem.lower, problem.upper, problem.dt)
        if self._captured != captured:
            self._graph = self._capture(captured)
            self._captured = captured
        self._graph.launch(self._stream)
        self._stream.synchronize()

    def _capture(self, arguments: tuple) -> cupy.cuda.Graph:
        """Return the graph of an update."""
        with warnings.catch_warnings():
            # Few blocks are what a horizon's latency asks for.
            warnings.simplefilter("ignore", NumbaPerformanceWarning)
            # Once as it is, so that everything is compiled and loaded before it is captured.
            drawn = self._updates.copy_to_host()
            self._enqueue(*arguments)
            self._stream.synchronize()
            self._updates.copy_to_device(drawn)
            self._stream.begin_capture()
            self._enqueue(*arguments)
            return self._stream.end_capture()

    def _enqueue(self, field, detour, lower: tuple, upper: tuple, dt: np.float32) -> None:
        """Put an update's copies and kernels on the stream, in order."""
        situation, plan, sigma = self._inputs.device
        statistics, mean, deviation, best = self._outputs.device
        horizon, controls, samples = self._noise.shape
        sets, on = len(self._parameters), self._on_stream
        self._inputs.to_device(self._stream)
        quarter = -(-self._normals.size // 4)
        _kernel(kernels.draw)[-(-quarter // _THREADS), _THREADS, on](
            self._updates, np.uint64(self._config.seed), self._drawn
        )
        rows = -(-samples // _THREADS), controls, -(-horizon // kernels.MIXED_STEPS)
        _kernel(kernels.mix)[rows, _THREADS, on](
            self._normals,
            self._basis,
            self._begins,
            self._ends,
            sigma,
            plan,
            self._tried,
            self._noise,
        )
        blocks = -(-samples * self._lanes // _ROLLOUT_THREADS)
        self._roll_out[(blocks, sets), _ROLLOUT_THREADS, on](
            situation,
            plan,
            self._noise,
            field,
            detour,
            self._parameters,
            lower,
            upper,
            dt,
            self._costs,
            self._crashed,
        )
        if sets > 1:
            _kernel(kernels.combine)[-(-samples // _THREADS), _THREADS, on](
                self._costs,
                self._crashed,
                kernels.RISKS.index(self._config.risk),
                self._config.risk_share,
            )
        self._enqueue_weighing(statistics, on)
        _kernel(kernels.average)[horizon * controls, kernels.AVERAGING_THREADS, on](
            plan, self._noise, lower, upper, self._weights, self._best, mean, deviation, best
        )
        self._outputs.to_host(self._stream)

    def _enqueue_weighing(self, statistics, on) -> None:
        config = self._config
        costs, crashed = self._costs[0], self._crashed[0]
        results = self._weights, self._best, statistics, self._updates
        if config.weighting == "cem":
            _kernel(kernels.weigh_elites)[1, kernels.WEIGHING_THREADS, on](
                costs, crashed, config.elite_fraction, *results
            )
        else:
            _kernel(kernels.weigh)[1, kernels.WEIGHING_THREADS, on](
                costs,
                crashed,
                config.ess_fraction,
                config.temperature,
                config.temperature_min,
                config.temperature_max or math.inf,
                self._excess,
                *results,
            )


class _Transfer:
    """Arrays that lie in one piece of pinned memory here and one there: one copy moves all."""

    def __init__(self, dtype: type, *shapes: tuple[int, ...]):
        sizes = [math.prod(shape) for shape in shapes]
        ends = np.cumsum(sizes)
        self._bytes = int(ends[-1]) * np.dtype(dtype).itemsize
        self._pinned = cupy.cuda.alloc_pinned_memory(self._bytes)
        here = np.frombuffer(self._pinned, dtype, ends[-1])
        here[:] = 0
        self._there = cuda.to_device(here)
        pieces = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
        self.host = [
            here[piece].reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)
        ]
        self.device = [
            self._there[piece].reshape(*shape) for piece, shape in zip(pieces, shapes, strict=True)
        ]

    def to_device(self, stream: cupy.cuda.Stream) -> None:
        self._copy(self._address, self._pinned.ptr, cupy.cuda.runtime.memcpyHostToDevice, stream)

    def to_host(self, stream: cupy.cuda.Stream) -> None:
        self._copy(self._pinned.ptr, self._address, cupy.cuda.runtime.memcpyDeviceToHost, stream)

    @property
    def _address(self) -> int:
        return self._there.__cuda_array_interface__["data"][0]

    def _copy(self, to: int, source: int, kind: int, stream: cupy.cuda.Stream) -> None:
        cupy.cuda.runtime.memcpyAsync(to, source, self._bytes, kind, stream.ptr)


class _Grid:
    """The device's copy of the last grid; grids change at the lidar's rate, not the control's."""

    def __init__(self):
        self._grid = None
        self._values = None

    def of(self, grid: DistanceField, stream):
        """Return the values of ``grid`` on the device, in the same place as long as they fit it."""
        if self._grid is not grid:
            values = np.ascontiguousarray(grid.distances)
            if self._values is None or self._values.shape != values.shape:
                self._values = cuda.device_array(values.shape, np.float32)
            self._values.copy_to_device(values, stream=stream)
            stream.synchronize()
            self._grid = grid
        return self._values


def _lanes(rollouts: int) -> int:
    """Return how many lanes share a rollout, so that every scheduler has a warp at most."""
    warps = _SCHEDULERS * cuda.get_current_device().MULTIPROCESSOR_COUNT
    lanes = 1
    while lanes < WARP and 2 * lanes * rollouts <= WARP * warps:
        lanes *= 2
    return lanes


@functools.cache
def _kernel(function):
    weighs = function in (kernels.weigh, kernels.weigh_elites)
    return cuda.jit(max_registers=kernels.WEIGHING_REGISTERS if weighs else None)(function)

"""Where registration runs: on CPU threads, or on an NVIDIA GPU.

An engine prepares targets and sources, and starts the loop that aligns them.
"""

import functools
import os
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from geoaccel_ros.backend import BackendError, choose_backend
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.alignment import (
    Alignment,
    CpuSource,
    CpuTarget,
    Settings,
    align,
)
from geoaccel_ros.threads import Threads

# Sizes at which both backends are timed to see from where CUDA is the faster.
_CROSSOVER_SIZES = (1_000, 4_000, 16_000, 64_000)
_CROSSOVER_ROUNDS = 3


class Engine(Protocol):
    """What a backend offers; ``name`` is "cpu" or "cuda", ``reason`` why it was taken."""

    name: str
    reason: str

    def target(self, points: np.ndarray):
        """Prepare a target of points (N, 3): its ``origin``, ``radius`` and length are public."""

    def source(self, points: np.ndarray):
        """Prepare a source of points (M, 3): its ``origin`` and length are public."""

    def start(
        self, target, source, pose: np.ndarray, settings: Settings
    ) -> Callable[[], Alignment]:
        """Start aligning from ``pose`` (4, 4), between the origins; return what waits for it."""


class CpuEngine:
    """CPU threads."""

    name = "cpu"

    def __init__(self, method: str, threads: int, reason: str, **tree_options):
        self.reason = reason
        self._method = method
        self._threads = Threads(threads or len(os.sched_getaffinity(0)))
        self._tree_options = tree_options

    def target(self, points: np.ndarray) -> CpuTarget:
        return CpuTarget(points, self._method, self._threads, **self._tree_options)

    def source(self, points: np.ndarray) -> CpuSource:
        return CpuSource(points, self._method, self._threads)

    def start(
        self, target: CpuTarget, source: CpuSource, pose: np.ndarray, settings: Settings
    ) -> Callable[[], Alignment]:
        found = align(target, source, pose, settings, self._threads)
        return lambda: found


def choose_engine(config, count: int) -> Engine:
    """Return the engine for a :class:`.icp.RegistrationConfig` and a target of ``count`` points.

    Raises
    ------
    BackendError
        If CUDA was asked for and cannot be used, or aligns otherwise than the CPU.
    """
    name, reason = choose_backend(config.backend)
    tree_options = {"leaf_size": config.leaf_size, "axis": config.axis}
    if name == "cuda":
        _check_parity(config.method)
        if config.backend == "auto":
            crossover = crossover_points(config.method, config.threads)
            faster = "cuda" if count >= crossover else "cpu"
            name, reason = faster, f"{count} points; CUDA is faster from {crossover} points on"
    if name == "cpu":
        return CpuEngine(config.method, config.threads, reason, **tree_options)
    return _cuda_engine(config.method, reason, **tree_options)


@functools.cache
def crossover_points(method: str, threads: int) -> int:
    """Return the number of points from which a CUDA device registers faster than the CPU.

    Measured once a process, on clouds of up to 64,000 points; beyond them CUDA is taken.
    """
    engines = CpuEngine(method, threads, ""), _cuda_engine(method, "")
    for size in _CROSSOVER_SIZES:
        cpu, cuda = (
            min(_milliseconds(engine, method, size) for _ in range(_CROSSOVER_ROUNDS))
            for engine in engines
        )
        if cuda < cpu:
            return size
    return 2 * _CROSSOVER_SIZES[-1]


@functools.cache
def _cuda_engine(method: str, reason: str, **tree_options) -> Engine:
    from geoaccel_ros.registration.cuda.alignment import CudaEngine

    return CudaEngine(method, reason, **tree_options)


def _milliseconds(engine: Engine, method: str, size: int) -> float:
    target, source, settings = _problem(method, size)
    started = time.perf_counter()
    _align(engine, target, source, settings)
    return 1e3 * (time.perf_counter() - started)


@functools.cache
def _check_parity(method: str) -> None:
    """Refuse a device that aligns otherwise than the CPU: some drivers fail in silence."""
    target, source, settings = _problem(method, 3_000)
    expected = _align(CpuEngine(method, 1, ""), target, source, settings)
    found = _align(_cuda_engine(method, ""), target, source, settings)
    # Two points equally near in float32 may change places.
    if not np.allclose(found.pose, expected.pose, atol=1e-5):
        raise BackendError(
            "CUDA aligns otherwise than the CPU on the start-up check: update the NVIDIA driver "
            "or set backend: cpu"
        )


@functools.cache
def _problem(method: str, size: int) -> tuple[np.ndarray, np.ndarray, Settings]:
    """Return a target, a source and settings: a small motion, ten iterations whatever happens."""
    generator = np.random.default_rng(1)
    target = generator.uniform(-10.0, 10.0, (size, 3))
    moved = se3.apply(se3.exp(np.array([0.05, -0.02, 0.03, 0.005, 0.01, -0.01])), target)
    source = moved + generator.normal(0.0, 0.01, target.shape)
    return target, source, Settings(method, 2.0, 0.2, True, "none", 0.2, 10, 0.0, 0.0)


def _align(engine: Engine, target: np.ndarray, source: np.ndarray, settings: Settings) -> Alignment:
    prepared_target, prepared_source = engine.target(target), engine.source(source)
    pose = np.eye(4)
    pose[:3, 3] = prepared_source.origin - prepared_target.origin
    return engine.start(prepared_target, prepared_source, pose, settings)()

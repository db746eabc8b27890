"""The .cu files beside this one, compiled for the present GPU. Imports CuPy at once."""

import functools
from pathlib import Path

import cupy
from cupy.cuda import driver

_FOLDER = Path(__file__).parent


@functools.cache
def module(name: str, defines: tuple[str, ...] = (), cooperative: bool = False) -> cupy.RawModule:
    """Return the compiled ``name``.cu; CuPy keeps the binary on disk for the next process."""
    return cupy.RawModule(
        code=(_FOLDER / f"{name}.cu").read_text(),
        options=("--std=c++17", f"-I{_FOLDER}", *defines),
        enable_cooperative_groups=cooperative,
    )


def multiprocessors() -> int:
    """Return how many the present device has."""
    return cupy.cuda.Device().attributes["MultiProcessorCount"]


def resident_blocks(kernel: cupy.RawKernel, threads: int) -> int:
    """Return how many blocks of a kernel the present device runs at once."""
    each = driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, threads, 0)
    return each * multiprocessors()


def blocks(count: int, threads: int) -> tuple[int]:
    """Return the grid that has a thread for each of ``count``."""
    return (-(-count // threads),)

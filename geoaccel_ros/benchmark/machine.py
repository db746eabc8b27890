"""What a benchmark was measured on."""

import os
import platform
import re
from pathlib import Path

import psutil

from geoaccel_ros.backend import cuda_device_name, cuda_problem

# Those whose versions decide a time; the peers that took part come in addition.
PACKAGES = (
    "geoaccel_ros", "numpy", "scipy", "numba", "numba-cuda", "cupy-cuda13x", "cupy-cuda12x",
    "pyopencl", "pocl-binary-distribution", "zstandard", "mujoco-core", "torch",
)  # fmt: skip


def describe_machine(threads: int) -> dict:
    """Return the machine's facts for a report; ``threads`` is what the contenders may use."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": threads,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpu": None if cuda_problem() else cuda_device_name(),
        "os": platform.platform(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    # Only x86 has the line; elsewhere the architecture must do.
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1].strip() if found else platform.machine()

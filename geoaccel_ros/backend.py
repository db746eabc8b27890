"""What the accelerated capabilities share about their devices."""

from collections.abc import Callable


class BackendError(RuntimeError):
    """A backend that was asked for cannot be used; the message says why and what helps."""


def cuda_problem() -> str | None:
    """Return why CUDA cannot be used here through CuPy, with the remedy, or None if it can."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed (pip install 'geoaccel_ros[cuda]')"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no usable CUDA device ({error}); check the NVIDIA driver with nvidia-smi"
    return None if count else "no CUDA device; check the NVIDIA driver with nvidia-smi"


def cuda_device_name() -> str:
    """Return the name and the compute capability of the CUDA device, where there is one."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    capability = f"{properties['major']}.{properties['minor']}"
    return f"{properties['name'].decode()} (compute capability {capability})"


def choose_backend(
    requested: str, find_problem: Callable[[], str | None] = cuda_problem
) -> tuple[str, str]:
    """Return the backend to use ("cpu" or "cuda") for a request of auto, cpu or cuda, and why.

    ``find_problem`` says why CUDA cannot be used, or None; by default, why CuPy cannot.

    Raises
    ------
    BackendError
        If CUDA is asked for and cannot be used; never a silent fallback.
    """
    if requested == "cpu":
        return "cpu", "asked for"
    problem = find_problem()
    if requested == "cuda":
        if problem:
            raise BackendError(f"backend cuda was asked for, but {problem}; or set backend: cpu")
        return "cuda", "asked for"
    return ("cpu", problem) if problem else ("cuda", "a CUDA device is present")

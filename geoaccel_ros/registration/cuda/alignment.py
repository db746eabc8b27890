"""Iterative closest point on an NVIDIA GPU: the loop of alignment.cu. Imports CuPy at once."""

import functools
import itertools
from collections.abc import Callable

import cupy
import cupyx
import numpy as np

from geoaccel_ros.registration.alignment import Alignment, Settings, Stop
from geoaccel_ros.registration.cuda.kernels import blocks, module, resident_blocks
from geoaccel_ros.registration.cuda.tree import CudaTree, Upload
from geoaccel_ros.registration.morton import RADII
from geoaccel_ros.registration.residuals import LENGTH, METHODS
from geoaccel_ros.registration.robust import KERNELS

# Found by measurement on an H200 (docs/benchmarks.md).
THREADS = 256
BLOCKS_PER_MULTIPROCESSOR = 2

# As in alignment.cu.
_STATE = np.dtype(
    [
        ("pose", "f8", 12),
        ("trial", "f8", 12),
        ("limit", "f8"),
        ("sums", "f8", LENGTH),
        ("stop", "i4"),
        ("iterations", "i4"),
        ("matched", "i4"),
        ("barrier", "u4"),
        ("searched", "i4"),
    ],
    align=True,
)


class CudaTarget:
    """A cloud to align others to, in GPU memory: its tree, and normals if the method takes them."""

    def __init__(self, points: np.ndarray, method: str, **tree_options):
        self.tree = CudaTree(points, **tree_options)
        self.origin, self.radius = self.tree.origin, self.tree.radius
        self.spacing = self.tree.spacing()
        wanted = method != "point_to_point" and len(points)
        self.normals = self.tree.normals() if wanted else None

    def __len__(self) -> int:
        return len(self.tree)


class CudaSource:
    """A cloud to be aligned, in GPU memory, along a Z-curve or in its tree's order.

    All that is done with it is done on its own ``stream``.
    """

    def __init__(self, points: np.ndarray, method: str, stream: cupy.cuda.Stream):
        self.stream = stream
        with stream:
            if method == "gicp" and len(points):
                tree = CudaTree(points)
                # With it the memory that is being copied from.
                self._kept = tree
                self.origin, self.local, self.normals = tree.origin, tree.points, tree.normals()
            else:
                self._kept = Upload(points)
                self.origin = self._kept.origin
                self.local = _along_curve(self._kept.local, self._kept.radius)
                self.normals = None

    def __len__(self) -> int:
        return self.local.shape[1]


class CudaEngine:
    """See :class:`geoaccel_ros.registration.engines.Engine`.

    Sources take turns on two streams: while one is aligned the next is copied to the device.
    ``launch`` is the shape of the loop's: see :func:`loop_kernel`.
    """

    name = "cuda"

    def __init__(
        self,
        method: str,
        reason: str,
        launch: tuple[int, int] = (THREADS, BLOCKS_PER_MULTIPROCESSOR),
        **tree_options,
    ):
        self.reason = reason
        self._launch = launch
        self._method = method
        self._tree_options = tree_options
        self._streams = itertools.cycle([cupy.cuda.Stream(non_blocking=True) for _ in range(2)])

    def target(self, points: np.ndarray) -> CudaTarget:
        target = CudaTarget(points, self._method, **self._tree_options)
        # The sources' streams do not wait for this one.
        cupy.cuda.get_current_stream().synchronize()
        return target

    def source(self, points: np.ndarray) -> CudaSource:
        return CudaSource(points, self._method, next(self._streams))

    def start(
        self, target: CudaTarget, source: CudaSource, pose: np.ndarray, settings: Settings
    ) -> Callable[[], Alignment]:
        with source.stream:
            return _start(target, source, pose, settings, *self._launch)


def _start(
    target: CudaTarget,
    source: CudaSource,
    pose: np.ndarray,
    settings: Settings,
    threads: int,
    per_multiprocessor: int,
) -> Callable[[], Alignment]:
    """Launch the loop of :func:`geoaccel_ros.registration.alignment.align`, and the copy back."""
    kernel, grid = loop_kernel(settings.method, threads, per_multiprocessor)
    count = len(source)
    layout = _outcome(settings.max_iterations + 1)
    outcome = cupyx.empty_pinned(1, layout)
    outcome.view(np.uint8)[:] = 0
    outcome["state"]["pose"] = pose[:3].ravel()
    device = cupy.empty(layout.itemsize, np.uint8)
    device.set(outcome.view(np.uint8))
    state, poses, trace, near = (device[layout.fields[name][1] :] for name in layout.names)
    scratch = (
        cupy.full((3, count), np.inf, np.float32),
        cupy.full(count, -np.inf, np.float32),
        cupy.full(count, -1, np.int32),
        cupy.empty((grid, LENGTH)),
    )
    kernel(
        (grid,),
        (threads,),
        (
            source.local,
            source.normals if source.normals is not None else 0,
            np.int32(count),
            *target.tree.arguments,
            target.normals if target.normals is not None else 0,
            np.float32(settings.max_distance),
            np.float32(settings.overlap_distance),
            np.float32(target.spacing),
            np.int32(settings.three_sigma),
            np.int32(KERNELS[settings.kernel]),
            np.float64(settings.kernel_width),
            np.int32(settings.max_iterations),
            np.float64(settings.relative_change),
            np.float64(settings.least_step),
            *scratch,
            state,
            poses,
            trace,
            near,
        ),
    )
    device.get(out=outcome.view(np.uint8), blocking=False)

    def wait() -> Alignment:
        source.stream.synchronize()
        return _read(outcome[0])

    return wait


def _outcome(steps: int) -> np.dtype:
    """Return the layout of what one copy brings back, for as many poses."""
    return np.dtype(
        [
            ("state", _STATE),
            ("poses", "f8", (steps, 12)),
            ("trace", "f8", steps),
            ("near", "i4", steps),
        ],
        align=True,
    )


def _read(outcome: np.void) -> Alignment:
    state = outcome["state"]
    iterations = int(state["iterations"])
    poses = np.tile(np.eye(4), (iterations + 1, 1, 1))
    poses[:, :3] = outcome["poses"][: iterations + 1].reshape(-1, 3, 4)
    return Alignment(
        poses[-1],
        Stop(int(state["stop"])),
        iterations,
        int(state["matched"]),
        int(outcome["near"][0]),
        int(outcome["near"][iterations]),
        state["sums"].copy(),
        np.sqrt(outcome["trace"][: iterations + 1]),
        poses,
    )


@functools.cache
def loop_kernel(
    method: str, threads: int = THREADS, per_multiprocessor: int = BLOCKS_PER_MULTIPROCESSOR
) -> tuple[cupy.RawKernel, int]:
    """Return the loop for a method, and how many of its blocks the device runs at once.

    Parameters
    ----------
    threads : int
        Of a block.
    per_multiprocessor : int
        Blocks that the compiler leaves registers for.
    """
    defines = (
        f"-DMETHOD={METHODS[method]}",
        f"-DBLOCK_THREADS={threads}",
        f"-DBLOCKS_PER_MULTIPROCESSOR={per_multiprocessor}",
    )
    kernel = module("alignment", defines, cooperative=True).get_function("align")
    return kernel, resident_blocks(kernel, threads)


def _along_curve(local: cupy.ndarray, radius: float) -> cupy.ndarray:
    count = local.shape[1]
    if not count:
        return local
    keys = cupy.empty(count, np.uint64)
    clouds = module("clouds")
    clouds.get_function("morton_keys")(
        blocks(count, 256), (256,), (local, np.int32(count), np.float32(RADII * radius), keys)
    )
    keys.sort()
    ordered = cupy.empty_like(local)
    clouds.get_function("gather")(
        blocks(count, 256), (256,), (local, np.int32(count), keys, ordered)
    )
    return ordered

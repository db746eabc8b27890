"""A sweep thinned on an NVIDIA GPU, where it stays. Imports CuPy at once."""

from dataclasses import dataclass

import cupy
import numpy as np

from geoaccel_ros.registration.cuda.kernels import blocks, module
from geoaccel_ros.registration.cuda.workspace import Workspace, address, cooperative_kernel
from geoaccel_ros.registration.sweep import MAP_POINTS_VOXEL, MATCHED_POINTS_VOXEL
from geoaccel_ros.registration.voxels import table_size

# FirstTable of voxels.cuh.
TABLE = np.dtype([("keys", "u8"), ("firsts", "u8"), ("mask", "u4")], align=True)
# As in sweep.cu.
_THREADS = 256
_ARGUMENTS = np.dtype(
    [
        ("xyz", "u8"),
        ("times", "u8"),
        ("mapped_voxels", TABLE),
        ("matched_voxels", TABLE),
        ("slots", "u8"),
        ("matched_slots", "u8"),
        ("points", "u8"),
        ("ages", "u8"),
        ("matched", "u8"),
        ("matched_ages", "u8"),
        ("counts", "u8"),
        ("matched_counts", "u8"),
        ("sums", "u8"),
        ("largest", "u8"),
        ("broken", "u8"),
        ("squares", "u8"),
        ("outcome", "u8"),
        ("barrier", "u8"),
        ("per_metre", "f8"),
        ("matched_per_metre", "f8"),
        ("min_square", "f8"),
        ("max_square", "f8"),
        ("count", "i4"),
        ("is_double", "i4"),
    ],
    align=True,
)
_OUTCOME = np.dtype(
    [("middle", "f8"), ("end", "f8"), ("reach", "f8"), ("count", "i4"), ("matched", "i4")],
    align=True,
)
_END_THREADS = 128
_END_ARGUMENTS = np.dtype(
    [
        ("points", "u8"),
        ("ages", "u8"),
        ("moved", "u8"),
        ("twist", "f8", 6),
        ("instant", "f8"),
        ("count", "i4"),
    ],
    align=True,
)

# By their names in sweep.cu.
STRUCTURES = {
    "FirstTable": TABLE,
    "Arguments": _ARGUMENTS,
    "Outcome": _OUTCOME,
    "EndArguments": _END_ARGUMENTS,
}


@dataclass(frozen=True)
class CudaSweep:
    """See :class:`geoaccel_ros.registration.sweep.Sweep`.

    ``points`` (N, 3) and ``ages`` (N,) lie on the device, and what of them is matched beside them:
    ``matched`` (M, 3) and ``matched_ages`` (M,).
    """

    points: cupy.ndarray
    ages: cupy.ndarray
    matched: cupy.ndarray
    matched_ages: cupy.ndarray
    middle: float
    end: float
    reach: float
    workspace: Workspace

    def __len__(self) -> int:
        return len(self.points)

    def matched_at_end(self, twist: np.ndarray) -> np.ndarray:
        """See :meth:`geoaccel_ros.registration.sweep.Sweep.matched_at_end`."""
        count = len(self.matched)
        moved = self.workspace.pinned("at end", 3 * count, np.float64)
        if not count:
            return moved.reshape(0, 3).copy()
        arguments = np.zeros(1, _END_ARGUMENTS)
        arguments["points"] = self.matched.data.ptr
        arguments["ages"] = self.matched_ages.data.ptr
        arguments["moved"] = address(moved)
        arguments["twist"] = twist
        arguments["instant"] = self.end - self.middle
        arguments["count"] = count
        kernel = module("sweep", cooperative=True).get_function("at_end")
        self.workspace.launch(kernel, *blocks(count, _END_THREADS), _END_THREADS, arguments)
        self.workspace.stream.synchronize()
        return moved.reshape(-1, 3).copy()


def thin(
    xyz: np.ndarray,
    times: np.ndarray | None,
    voxel: float,
    min_range: float,
    max_range: float,
    workspace: Workspace,
) -> CudaSweep:
    """See :func:`geoaccel_ros.registration.sweep.thin`."""
    count = len(xyz)
    kernel, resident = cooperative_kernel("sweep", "thin", _THREADS)
    size = table_size(count)
    scratch = workspace.scratch
    # Points, ages, matched points, matched ages, each with room for all.
    with workspace.stream:
        kept = cupy.empty(8 * count, np.float64)
    outcome = workspace.pinned("sweep", 1, _OUTCOME)
    arguments = np.zeros(1, _ARGUMENTS)
    single = xyz.dtype == np.float32
    if single:
        arguments["xyz"] = workspace.upload("singles", xyz, np.float32)
    else:
        arguments["xyz"] = workspace.upload("doubles", xyz, np.float64)
    if times is not None:
        arguments["times"] = workspace.upload("times", np.asarray(times), np.float64)
    for name in ("mapped_voxels", "matched_voxels"):
        keys, firsts = scratch(f"{name} keys", size, "u8"), scratch(f"{name} firsts", size, "u4")
        arguments[name] = keys, firsts, size - 1
    arguments["slots"] = scratch("slots", count, "u4")
    arguments["matched_slots"] = scratch("matched slots", count, "u4")
    for name, column in (("points", 0), ("ages", 3), ("matched", 4), ("matched_ages", 7)):
        arguments[name] = kept.data.ptr + 8 * column * count
    for name in ("counts", "matched_counts", "broken"):
        arguments[name] = scratch(name, resident, "i4")
    for name in ("sums", "largest", "squares"):
        arguments[name] = scratch(name, resident, "f8")
    arguments["outcome"] = address(outcome)
    arguments["barrier"] = workspace.barrier
    arguments["per_metre"] = 1.0 / (MAP_POINTS_VOXEL * voxel)
    arguments["matched_per_metre"] = 1.0 / (MATCHED_POINTS_VOXEL * voxel)
    arguments["min_square"], arguments["max_square"] = min_range**2, max_range**2
    arguments["count"], arguments["is_double"] = count, not single
    grid = max(1, min(resident, *blocks(count, _THREADS)))
    workspace.launch(kernel, grid, _THREADS, arguments)
    workspace.stream.synchronize()
    middle, end, reach, mapped, matched = outcome[0].item()
    return CudaSweep(
        kept[: 3 * mapped].reshape(-1, 3),
        kept[3 * count :][:mapped],
        kept[4 * count :][: 3 * matched].reshape(-1, 3),
        kept[7 * count :][:matched],
        middle,
        end,
        reach,
        workspace,
    )

"""The normal equations of one scan against the local map on an NVIDIA GPU. Imports CuPy at once."""

import cupy
import numpy as np

from geoaccel_ros.registration.cuda.kernels import blocks
from geoaccel_ros.registration.cuda.local_map import MAP, CudaLocalMap
from geoaccel_ros.registration.cuda.sweep import CudaSweep
from geoaccel_ros.registration.cuda.workspace import Workspace, address, cooperative_kernel
from geoaccel_ros.registration.scan_matching import LENGTH, NormalEquations, equations_of

# As in scan_matching.cu.
_THREADS = 128
_TILE = 32
_BINS = 2048 + 2048 + 1024
_ARGUMENTS = np.dtype(
    [
        ("map", MAP),
        ("points", "u8"),
        ("ages", "u8"),
        ("moved", "u8"),
        ("matches", "u8"),
        ("distances", "u8"),
        ("rows", "u8"),
        ("histograms", "u8"),
        ("above", "u8"),
        ("outcome", "u8"),
        ("barrier", "u8"),
        ("pose", "f8", 12),
        ("twist", "f8", 6),
        ("radius", "f8"),
        ("voxel", "f8"),
        ("tolerance", "f8"),
        ("least_deviation", "f8"),
        ("count", "i4"),
        ("bent", "i4"),
    ],
    align=True,
)

# By their names in scan_matching.cu.
STRUCTURES = {"Arguments": _ARGUMENTS}


class MatcherMemory:
    """What every launch leaves as it found it: histograms of zeros, a least number of none."""

    def __init__(self, workspace: Workspace):
        with workspace.stream:
            self._histograms = cupy.zeros(_BINS, np.uint32)
            self._above = cupy.full(1, 0xFFFFFFFF, np.uint32)
        self.histograms, self.above = self._histograms.data.ptr, self._above.data.ptr


class CudaScanMatcher:
    """See :class:`geoaccel_ros.registration.scan_matching.ScanMatcher`.

    One at a time: the next one takes over its matches' memory.
    """

    def __init__(
        self,
        local_map: CudaLocalMap,
        sweep: CudaSweep,
        tolerance: float,
        least_deviation: float,
        memory: MatcherMemory,
        workspace: Workspace,
    ):
        count = len(sweep.matched)
        self._workspace = workspace
        self._origin = local_map.origin
        # Kept with the memory that is pointed to.
        self._sweep, self._map = sweep, local_map
        self._kernel, resident = cooperative_kernel("scan_matching", "linearise", _THREADS)
        self._grid = max(1, min(resident, *blocks(count, _TILE)))
        self._outcome = workspace.pinned("sums", LENGTH + 1, np.float64)
        self._arguments = arguments = np.zeros(1, _ARGUMENTS)
        arguments["map"] = local_map.on_device
        arguments["points"] = sweep.matched.data.ptr
        arguments["ages"] = sweep.matched_ages.data.ptr
        arguments["moved"] = workspace.scratch("matched moved", 3 * count, "f8")
        arguments["matches"] = workspace.scratch("matches", count, "i4")
        arguments["distances"] = workspace.scratch("distances", count, "u4")
        arguments["rows"] = workspace.scratch("rows", LENGTH * resident, "f8")
        arguments["histograms"], arguments["above"] = memory.histograms, memory.above
        arguments["outcome"] = address(self._outcome)
        arguments["barrier"] = workspace.barrier
        arguments["voxel"] = local_map.voxel
        arguments["tolerance"], arguments["least_deviation"] = tolerance, least_deviation
        arguments["count"] = count
        # Views: what changes from call to call.
        self._pose, self._twist = arguments["pose"][0], arguments["twist"][0]
        cupy.cuda.runtime.memsetAsync(
            int(arguments["matches"][0]), 0xFF, 4 * count, workspace.stream.ptr
        )

    def linearise(
        self, T_odom_base: np.ndarray, twist: np.ndarray, radius: float | None, bent: bool = True
    ) -> NormalEquations:
        """See :meth:`geoaccel_ros.registration.scan_matching.ScanMatcher.linearise`."""
        self._pose[:] = T_odom_base[:3].ravel()
        self._pose[3::4] -= self._origin
        self._twist[:] = twist
        self._arguments["radius"] = -1.0 if radius is None else radius
        self._arguments["bent"] = bent
        self._workspace.launch(self._kernel, self._grid, _THREADS, self._arguments)
        self._workspace.stream.synchronize()
        return equations_of(self._outcome[:LENGTH], float(self._outcome[LENGTH]))

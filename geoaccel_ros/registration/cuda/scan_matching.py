"""The normal equations of one scan against the local map on an NVIDIA GPU. Imports CuPy at once."""

import cupy
import cupyx
import numpy as np

from geoaccel_ros.registration.cuda.local_map import MAP, CudaLocalMap
from geoaccel_ros.registration.cuda.sweep import CudaSweep
from geoaccel_ros.registration.cuda.workspace import Launch, Workspace, address
from geoaccel_ros.registration.scan_matching import (
    _LEAST_SINE,
    _LINE_WEIGHT,
    _POINT_WEIGHT,
    LENGTH,
    NormalEquations,
    equations_of,
)

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
        ("line_weight", "f8"),
        ("point_weight", "f8"),
        ("least_sine", "f8"),
        ("count", "i4"),
        ("bent", "i4"),
    ],
    align=True,
)

# By their names in scan_matching.cu.
STRUCTURES = {"Arguments": _ARGUMENTS}


class MatcherMemory:
    """What matchers of one engine work in, one at a time."""

    def __init__(self, workspace: Workspace):
        self.stream = workspace.stream
        self.launch = Launch(
            workspace,
            "scan_matching",
            "linearise",
            _THREADS,
            _ARGUMENTS,
            per_block={"rows": 8 * LENGTH},
            per_element={"moved": 24, "matches": 4, "distances": 4},
        )
        # Every launch leaves them as it found them.
        with workspace.stream:
            self._histograms = cupy.zeros(_BINS, np.uint32)
            self._above = cupy.full(1, 0xFFFFFFFF, np.uint32)
        self.outcome = cupyx.empty_pinned(LENGTH + 1, np.float64)
        arguments = self.launch.arguments
        arguments["histograms"] = self._histograms.data.ptr
        arguments["above"] = self._above.data.ptr
        arguments["outcome"] = address(self.outcome)
        arguments["line_weight"], arguments["point_weight"] = _LINE_WEIGHT, _POINT_WEIGHT
        arguments["least_sine"] = _LEAST_SINE
        # Views: what changes from call to call.
        self.pose, self.twist = arguments["pose"][0], arguments["twist"][0]


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
    ):
        self._origin = local_map.origin
        # Kept with the memory that is pointed to.
        self._sweep, self._map, self._memory = sweep, local_map, memory
        memory.launch.reserve(sweep.matched)
        arguments = memory.launch.arguments
        arguments["map"] = local_map.on_device
        arguments["points"] = sweep.address("matched")
        arguments["ages"] = sweep.address("matched_ages")
        arguments["voxel"] = local_map.voxel
        arguments["tolerance"], arguments["least_deviation"] = tolerance, least_deviation
        arguments["count"] = sweep.matched
        if sweep.matched:
            cupy.cuda.runtime.memsetAsync(
                int(arguments["matches"][0]), 0xFF, 4 * sweep.matched, memory.stream.ptr
            )

    def linearise(
        self, T_odom_base: np.ndarray, twist: np.ndarray, radius: float | None, bent: bool = True
    ) -> NormalEquations:
        """See :meth:`geoaccel_ros.registration.scan_matching.ScanMatcher.linearise`."""
        memory = self._memory
        memory.pose[:] = T_odom_base[:3].ravel()
        memory.pose[3::4] -= self._origin
        memory.twist[:] = twist
        memory.launch.arguments["radius"] = -1.0 if radius is None else radius
        memory.launch.arguments["bent"] = bent
        memory.launch(self._sweep.matched, _TILE)
        memory.stream.synchronize()
        return equations_of(memory.outcome[:LENGTH], float(memory.outcome[LENGTH]))

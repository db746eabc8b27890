"""LiDAR odometry's engine on an NVIDIA GPU. Imports CuPy at once."""

import numpy as np

from geoaccel_ros.registration.cuda.local_map import CudaLocalMap, MapMemory
from geoaccel_ros.registration.cuda.scan_matching import CudaScanMatcher, MatcherMemory
from geoaccel_ros.registration.cuda.sweep import CudaSweep, Thinner
from geoaccel_ros.registration.cuda.workspace import Workspace
from geoaccel_ros.registration.sweep import suitable_voxel
from geoaccel_ros.threads import Threads


class CudaEngine:
    """See :class:`geoaccel_ros.registration.odometry_engines.Engine`.

    Points go to the device once; sweeps and maps stay there.
    """

    name = "cuda"

    def __init__(self, config, reason: str):
        self.reason = reason
        self._config = config
        self._threads = Threads(config.threads)
        workspace = Workspace()
        self._thinner = Thinner(workspace)
        self._maps, self._matchers = MapMemory(workspace), MatcherMemory(workspace)

    def suitable_voxel(self, xyz: np.ndarray) -> float:
        """On the CPU, once: see :func:`geoaccel_ros.registration.sweep.suitable_voxel`."""
        config = self._config
        return suitable_voxel(xyz, config.min_range, config.max_range, self._threads)

    def thin(self, xyz: np.ndarray, times: np.ndarray | None, voxel: float) -> CudaSweep:
        config = self._config
        return self._thinner.thin(xyz, times, voxel, config.min_range, config.max_range)

    def local_map(self, voxel: float, origin: np.ndarray) -> CudaLocalMap:
        config = self._config
        return CudaLocalMap(
            voxel, config.max_range, config.max_voxels, origin, config.planar, self._maps
        )

    def matcher(
        self,
        local_map: CudaLocalMap,
        sweep: CudaSweep,
        tolerance: float,
        least_deviation: float,
    ) -> CudaScanMatcher:
        return CudaScanMatcher(local_map, sweep, tolerance, least_deviation, self._matchers)

    def add(
        self,
        local_map: CudaLocalMap,
        sweep: CudaSweep,
        T_odom_base: np.ndarray,
        twist: np.ndarray,
    ) -> None:
        local_map.add(sweep, T_odom_base, twist)

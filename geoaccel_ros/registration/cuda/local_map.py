"""The local map in the memory of an NVIDIA GPU. Imports CuPy at once."""

import cupy
import cupyx
import numpy as np

from geoaccel_ros.registration.cuda.sweep import CudaSweep
from geoaccel_ros.registration.cuda.workspace import TABLE, Launch, Workspace, address
from geoaccel_ros.registration.local_map import (
    _COUNT_CAP,
    _ELONGATED,
    _FEWEST_FOR_A_NORMAL,
    _FLAT,
    _STANDING,
    _STRAIGHT,
    _WIDE,
)
from geoaccel_ros.registration.voxels import table_size

# As in local_map.cu.
_THREADS = 256
_TOUCHED = np.dtype([("voxel", "i4"), ("start", "i4"), ("count", "i4")])
# As in local_map.cuh.
MAP = np.dtype(
    [
        ("keys", "u8"),
        ("gaussians", "u8"),
        ("normals", "u8"),
        ("counts_at_normal", "u8"),
        ("kinds", "u8"),
        ("table", "u8"),
        ("size", "u8"),
        ("per_metre", "f8"),
        ("mask", "u4"),
        ("capacity", "i4"),
    ],
    align=True,
)
# What there is of each voxel: its length and type.
_ROWS = {
    "keys": (1, np.int64),
    "gaussians": (10, np.float64),
    "normals": (3, np.float64),
    "counts_at_normal": (1, np.float64),
    "kinds": (1, np.int8),
}
_THRESHOLDS = np.dtype(
    [
        ("count_cap", "f8"),
        ("fewest_for_a_normal", "f8"),
        ("flat", "f8"),
        ("wide", "f8"),
        ("standing", "f8"),
        ("elongated", "f8"),
        ("straight", "f8"),
    ]
)
_ADD = np.dtype(
    [
        ("map", MAP),
        ("thresholds", _THRESHOLDS),
        ("points", "u8"),
        ("ages", "u8"),
        ("voxels", TABLE),
        ("counts", "u8"),
        ("starts", "u8"),
        ("moved", "u8"),
        ("slots", "u8"),
        ("found", "u8"),
        ("list", "u8"),
        ("touched", "u8"),
        ("cursors", "u8"),
        ("new_counts", "u8"),
        ("host_size", "u8"),
        ("barrier", "u8"),
        ("pose", "f8", 12),
        ("twist", "f8", 6),
        ("count", "i4"),
        ("planar", "i4"),
    ],
    align=True,
)
_FORGET = np.dtype(
    [
        ("map", MAP),
        ("keys", "u8"),
        ("gaussians", "u8"),
        ("normals", "u8"),
        ("counts_at_normal", "u8"),
        ("kinds", "u8"),
        ("counts", "u8"),
        ("host_size", "u8"),
        ("barrier", "u8"),
        ("centre", "f8", 3),
        ("limit", "f8"),
    ],
    align=True,
)

# By their names in local_map.cu.
STRUCTURES = {
    "LocalMap": MAP,
    "Touched": _TOUCHED,
    "Thresholds": _THRESHOLDS,
    "AddArguments": _ADD,
    "ForgetArguments": _FORGET,
}


class MapMemory:
    """What maps of one engine work in, one at a time: adding and forgetting."""

    def __init__(self, workspace: Workspace):
        self.stream = workspace.stream
        self.add = Launch(
            workspace,
            "local_map",
            "add",
            _THREADS,
            _ADD,
            per_block={"new_counts": 4, "cursors": 8},
            per_element={
                "moved": 24,
                "slots": 4,
                "found": 4,
                "list": 4,
                "touched": _TOUCHED.itemsize,
            },
            per_slot={"counts": 4, "starts": 4},
            tables=("voxels",),
        )
        self.add.arguments["thresholds"] = (
            _COUNT_CAP,
            _FEWEST_FOR_A_NORMAL,
            _FLAT,
            _WIDE,
            _STANDING,
            _ELONGATED,
            _STRAIGHT,
        )
        self.forget = Launch(
            workspace, "local_map", "forget", _THREADS, _FORGET, per_block={"counts": 4}
        )


class CudaLocalMap:
    """See :class:`geoaccel_ros.registration.local_map.LocalMap`.

    Attributes
    ----------
    on_device : ndarray (1,)
        The map as kernels take it: LocalMap of local_map.cuh.
    """

    def __init__(
        self,
        voxel: float,
        radius: float,
        capacity: int,
        origin: np.ndarray,
        planar: bool,
        memory: MapMemory,
    ):
        self.voxel = voxel
        self.radius = radius
        self.origin = np.array(origin, np.float64)
        self._capacity = capacity
        self._planar = planar
        self._memory = memory
        self._pruned_at = np.zeros(3)
        # Written by the device after each change.
        self._host_size = cupyx.empty_pinned(1, np.int32)
        self._host_size[0] = 0
        slots = table_size(capacity)
        with memory.stream:
            self._rows = self._room()
            self._table = cupy.empty((slots, 2), np.int64)
            self._table.data.memset_async(0xFF, self._table.nbytes)
            self._size = cupy.zeros(1, np.int32)
        self.on_device = np.zeros(1, MAP)
        self.on_device["table"] = self._table.data.ptr
        self.on_device["size"] = self._size.data.ptr
        self.on_device["per_metre"] = 1.0 / voxel
        self.on_device["mask"], self.on_device["capacity"] = slots - 1, capacity
        self._point_at_rows()

    @property
    def size(self) -> int:
        """Voxels held."""
        self._memory.stream.synchronize()
        return int(self._host_size[0])

    def rows(self, name: str) -> np.ndarray:
        """Return what there is of each voxel (M, length), a copy.

        Parameters
        ----------
        name : str
            "keys", "gaussians" (count, mean, scatter), "normals", "counts_at_normal" or "kinds".
        """
        with self._memory.stream:
            return self._rows[name][: self.size].get()

    def points(self) -> np.ndarray:
        """See :meth:`geoaccel_ros.registration.local_map.LocalMap.points`."""
        return self.rows("gaussians")[:, 1:4] + self.origin

    def add(self, sweep: CudaSweep, T_odom_base: np.ndarray, twist: np.ndarray) -> None:
        """Add a sweep, at a pose (4, 4) at its middle with a twist (6,).

        And forget what is far from the pose.
        """
        pose = T_odom_base[:3].copy()
        pose[:, 3] -= self.origin
        self._make_room(pose[:, 3])
        count = len(sweep)
        self._memory.add.reserve(count)
        arguments = self._memory.add.arguments
        arguments["map"] = self.on_device
        arguments["points"], arguments["ages"] = sweep.address("points"), sweep.address("ages")
        arguments["host_size"] = address(self._host_size)
        arguments["pose"], arguments["twist"] = pose.ravel(), twist
        arguments["count"], arguments["planar"] = count, self._planar
        self._memory.add(count)

    def _make_room(self, centre: np.ndarray) -> None:
        # As the CPU's.
        moved = np.linalg.norm(centre - self._pruned_at) > 0.1 * self.radius
        size = self.size
        full = size > 0.75 * self._capacity
        if not (moved or full) or size == 0:
            return
        limit = self.radius**2
        room = self._capacity // 2
        if full and size > room:
            with self._memory.stream:
                apart = self._rows["gaussians"][:size, 1:4] - cupy.asarray(centre)
                squares = cupy.sort(cupy.sum(apart**2, axis=1))
                limit = min(limit, float(squares[room - 1]))
        self._forget(centre, limit)
        self._pruned_at = centre

    def _forget(self, centre: np.ndarray, limit: float) -> None:
        with self._memory.stream:
            kept = self._room()
        arguments = self._memory.forget.arguments
        arguments["map"] = self.on_device
        for name, array in kept.items():
            arguments[name] = array.data.ptr
        arguments["host_size"] = address(self._host_size)
        arguments["centre"], arguments["limit"] = centre, limit
        self._memory.forget(self._capacity)
        self._rows = kept
        self._point_at_rows()

    def _room(self) -> dict[str, cupy.ndarray]:
        return {
            name: cupy.empty((self._capacity, length), dtype)
            for name, (length, dtype) in _ROWS.items()
        }

    def _point_at_rows(self) -> None:
        for name, array in self._rows.items():
            self.on_device[name] = array.data.ptr

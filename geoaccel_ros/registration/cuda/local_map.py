"""The local map in the memory of an NVIDIA GPU. Imports CuPy at once."""

import cupy
import cupyx
import numpy as np

from geoaccel_ros.registration.cuda.kernels import blocks
from geoaccel_ros.registration.cuda.sweep import TABLE, CudaSweep
from geoaccel_ros.registration.cuda.workspace import Workspace, address, cooperative_kernel
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
_ADD = np.dtype(
    [
        ("map", MAP),
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
    "AddArguments": _ADD,
    "ForgetArguments": _FORGET,
}


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
        workspace: Workspace,
    ):
        self.voxel = voxel
        self.radius = radius
        self.origin = np.array(origin, np.float64)
        self._capacity = capacity
        self._workspace = workspace
        self._pruned_at = np.zeros(3)
        # Written by the device after each change.
        self._host_size = cupyx.empty_pinned(1, np.int32)
        self._host_size[0] = 0
        slots = table_size(capacity)
        with workspace.stream:
            self._rows = self._room()
            self._table = cupy.empty((slots, 2), np.int64)
            self._table.data.memset_async(0xFF, self._table.nbytes)
            self._size = cupy.zeros(1, np.int32)
        self.on_device = np.zeros(1, MAP)
        self.on_device["table"], self.on_device["size"] = _addresses(self._table, self._size)
        self.on_device["per_metre"] = 1.0 / voxel
        self.on_device["mask"], self.on_device["capacity"] = slots - 1, capacity
        self._point_at_rows()
        self._adding = np.zeros(1, _ADD)
        self._adding["planar"] = planar

    @property
    def size(self) -> int:
        """Voxels held."""
        self._workspace.stream.synchronize()
        return int(self._host_size[0])

    def rows(self, name: str) -> np.ndarray:
        """Return what there is of each voxel (M, length), a copy.

        Parameters
        ----------
        name : str
            "keys", "gaussians" (count, mean, scatter), "normals", "counts_at_normal" or "kinds".
        """
        with self._workspace.stream:
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
        kernel, resident = cooperative_kernel("local_map", "add", _THREADS)
        size = table_size(count)
        scratch = self._workspace.scratch
        arguments = self._adding
        arguments["map"] = self.on_device
        arguments["points"], arguments["ages"] = _addresses(sweep.points, sweep.ages)
        keys, firsts = scratch("added keys", size, "u8"), scratch("added firsts", size, "u4")
        arguments["voxels"] = keys, firsts, size - 1
        for name in ("counts", "starts"):
            arguments[name] = scratch(f"added {name}", size, "i4")
        for name in ("slots", "found", "list"):
            arguments[name] = scratch(f"added {name}", count, "i4")
        arguments["moved"] = scratch("added moved", 3 * count, "f8")
        arguments["touched"] = scratch("touched", count, _TOUCHED)
        arguments["cursors"] = scratch("cursors", 2, "i4")
        arguments["new_counts"] = scratch("new counts", resident, "i4")
        arguments["host_size"] = address(self._host_size)
        arguments["barrier"] = self._workspace.barrier
        arguments["pose"], arguments["twist"] = pose.ravel(), twist
        arguments["count"] = count
        grid = max(1, min(resident, *blocks(count, _THREADS)))
        self._workspace.launch(kernel, grid, _THREADS, arguments)

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
            with self._workspace.stream:
                apart = self._rows["gaussians"][:size, 1:4] - cupy.asarray(centre)
                squares = cupy.sort(cupy.sum(apart**2, axis=1))
                limit = min(limit, float(squares[room - 1]))
        self._forget(centre, limit)
        self._pruned_at = centre

    def _forget(self, centre: np.ndarray, limit: float) -> None:
        kernel, resident = cooperative_kernel("local_map", "forget", _THREADS)
        with self._workspace.stream:
            kept = self._room()
        arguments = np.zeros(1, _FORGET)
        arguments["map"] = self.on_device
        for name, array in kept.items():
            arguments[name] = array.data.ptr
        arguments["counts"] = self._workspace.scratch("counts", resident, "i4")
        arguments["host_size"] = address(self._host_size)
        arguments["barrier"] = self._workspace.barrier
        arguments["centre"], arguments["limit"] = centre, limit
        grid = max(1, min(resident, *blocks(self._capacity, _THREADS)))
        self._workspace.launch(kernel, grid, _THREADS, arguments)
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


def _addresses(*arrays: cupy.ndarray) -> list[int]:
    return [array.data.ptr for array in arrays]

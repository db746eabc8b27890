"""A sweep thinned on an NVIDIA GPU, where it stays. Imports CuPy at once."""

from dataclasses import dataclass

import cupy
import cupyx
import numpy as np

from geoaccel_ros.registration.cuda.workspace import TABLE, Launch, Workspace, address
from geoaccel_ros.registration.sweep import MAP_POINTS_VOXEL, MATCHED_POINTS_VOXEL

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
        ("point_stride", "i4"),
        ("axis_stride", "i4"),
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

# Where things stand in a sweep's memory, in numbers a point, and how many there are.
_COLUMNS = {"points": 0, "ages": 3, "matched": 4, "matched_ages": 7}
_WIDTH = 8
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

    Attributes
    ----------
    kept : cupy.ndarray
        Points, ages, points matched, their ages, each with ``room`` for so many points.
    mapped, matched : int
        How many there are.
    """

    kept: cupy.ndarray
    room: int
    mapped: int
    matched: int
    middle: float
    end: float
    reach: float
    thinner: "Thinner"

    def __len__(self) -> int:
        return self.mapped

    def address(self, name: str) -> int:
        """Return where "points", "ages", "matched" or "matched_ages" lie on the device."""
        return self.kept.data.ptr + 8 * self.room * _COLUMNS[name]

    def array(self, name: str) -> np.ndarray:
        """Return a copy of one of them: (N, 3), (N,), (M, 3), (M,)."""
        count = self.matched if name.startswith("matched") else self.mapped
        ages = name.endswith("ages")
        flat = self.kept[self.room * _COLUMNS[name] :][: count if ages else 3 * count].get()
        return flat if ages else flat.reshape(-1, 3)

    def matched_at_end(self, twist: np.ndarray) -> np.ndarray:
        """See :meth:`geoaccel_ros.registration.sweep.Sweep.matched_at_end`."""
        return self.thinner.matched_at_end(self, twist)


class Thinner:
    """Thins sweeps in memory of its own."""

    def __init__(self, workspace: Workspace):
        self._workspace = workspace
        self._thin = Launch(
            workspace,
            "sweep",
            "thin",
            _THREADS,
            _ARGUMENTS,
            per_block={
                "counts": 4,
                "matched_counts": 4,
                "broken": 4,
                "sums": 8,
                "largest": 8,
                "squares": 8,
            },
            per_element={"slots": 4, "matched_slots": 4},
            tables=("mapped_voxels", "matched_voxels"),
        )
        self._outcome = cupyx.empty_pinned(1, _OUTCOME)
        self._thin.arguments["outcome"] = address(self._outcome)
        self._at_end = Launch(workspace, "sweep", "at_end", _END_THREADS, _END_ARGUMENTS)

    def thin(
        self,
        xyz: np.ndarray,
        times: np.ndarray | None,
        voxel: float,
        min_range: float,
        max_range: float,
    ) -> CudaSweep:
        """See :func:`geoaccel_ros.registration.sweep.thin`."""
        count = len(xyz)
        workspace, arguments = self._workspace, self._thin.arguments
        self._thin.reserve(count)
        with workspace.stream:
            kept = cupy.empty(_WIDTH * count, np.float64)
        for name, column in _COLUMNS.items():
            arguments[name] = kept.data.ptr + 8 * column * count
        # As it lies: to turn it round takes longer than all the rest.
        by_axis = xyz.flags.f_contiguous
        as_it_lies = xyz.T if by_axis else xyz
        single = xyz.dtype == np.float32
        if single:
            arguments["xyz"] = workspace.upload("singles", as_it_lies, np.float32)
        else:
            arguments["xyz"] = workspace.upload("doubles", as_it_lies, np.float64)
        arguments["is_double"] = not single
        arguments["point_stride"], arguments["axis_stride"] = (1, count) if by_axis else (3, 1)
        arguments["times"] = 0
        if times is not None:
            arguments["times"] = workspace.upload("times", np.asarray(times), np.float64)
        arguments["per_metre"] = 1.0 / (MAP_POINTS_VOXEL * voxel)
        arguments["matched_per_metre"] = 1.0 / (MATCHED_POINTS_VOXEL * voxel)
        arguments["min_square"], arguments["max_square"] = min_range**2, max_range**2
        arguments["count"] = count
        self._thin(count)
        workspace.stream.synchronize()
        middle, end, reach, mapped, matched = self._outcome[0].item()
        return CudaSweep(kept, count, mapped, matched, middle, end, reach, self)

    def matched_at_end(self, sweep: CudaSweep, twist: np.ndarray) -> np.ndarray:
        """See :meth:`CudaSweep.matched_at_end`."""
        count = sweep.matched
        if not count:
            return np.empty((0, 3))
        moved = self._workspace.pinned("at end", 3 * count, np.float64)
        arguments = self._at_end.arguments
        arguments["points"] = sweep.address("matched")
        arguments["ages"] = sweep.address("matched_ages")
        arguments["moved"] = address(moved)
        arguments["twist"] = twist
        arguments["instant"] = sweep.end - sweep.middle
        arguments["count"] = count
        self._at_end(count)
        self._workspace.stream.synchronize()
        return moved.reshape(-1, 3).copy()

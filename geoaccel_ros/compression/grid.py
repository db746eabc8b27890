"""The global grid: cells of an edge ``step`` centred on its multiples, the same for every cloud."""

import math
from dataclasses import dataclass

import numpy as np

from geoaccel_ros.compression.errors import CodecError

# A Morton code of 64 bits has 21 for each axis.
MAX_DEPTH = 21
# Of a scan, from its origin on either side; and what a decoder allows for.
_SCAN_CELLS = 2**31 - 1
SCAN_REACH = 2**31
# A double counts integers without gaps up to here, and so does the grid.
_MAX_CELL = 2**53


@dataclass(frozen=True)
class Grid:
    """A cube of cells that holds a cloud.

    Cell k of an axis spans [(k - 1/2) step, (k + 1/2) step]; coordinates become its centre k step.

    Attributes
    ----------
    step : float
        Edge of a cell in metres.
    origin : tuple of int
        Lowest cell on x, y and z.
    depth : int
        The cube has 2**depth cells an edge; 0 to 21.
    """

    step: float
    origin: tuple[int, int, int]
    depth: int

    @classmethod
    def around(
        cls,
        extents: np.ndarray | None,
        step: float,
        types: list[np.dtype],
        max_depth: int = MAX_DEPTH,
    ) -> "Grid":
        """Return the grid of a cloud as an octree has it.

        Parameters
        ----------
        extents : ndarray, shape (3, 2), float64, or None
            Lowest and highest coordinate on each axis in metres; None of a cloud without points.
        step : float
            Edge of a cell in metres.
        types : list of dtype
            Type in which each coordinate is stored.
        max_depth : int
            The step is doubled until the depth is no more than this.

        Raises
        ------
        CodecError
            If a coordinate's type is coarser than the step at that range, so that the decoded
            coordinate would be further off than half a step, or if an axis has more than 2**21
            cells of the step that was asked for.
        """
        if extents is None:
            return cls(step, (0, 0, 0), 0)
        origin, depth = [], 0
        for axis, (low, high), dtype in zip("xyz", extents.tolist(), types, strict=True):
            _check_resolution(axis, max(abs(low), abs(high)), dtype, step)
            first, last = round(low / step), round(high / step)
            depth = max(depth, (last - first).bit_length())
            if depth > MAX_DEPTH == max_depth:
                needed = (high - low) / (2**MAX_DEPTH - 2)
                raise CodecError(
                    f"{axis} spans {high - low:g} m, more than {2**MAX_DEPTH} cells of {step:g} m: "
                    f"use a step of at least {_round_up(needed):g} m, or remove outliers or split "
                    "the cloud"
                )
            origin.append(first)
        if depth > max_depth:
            return cls.around(extents, 2 * step, types, max_depth)
        return cls(step, tuple(origin), depth)

    @classmethod
    def of_scan(cls, extents: np.ndarray | None, step: float, types: list[np.dtype]) -> "Grid":
        """Return the grid of a cloud in scan order: of depth 0, whose origin is the frame's.

        That is where the sensor is, as a rule. Clouds too far from there for cells of 31 bits begin
        at their own lowest cell. Parameters and errors are those of :meth:`around`, but an axis
        may have 2**31 cells.
        """
        if extents is None:
            return cls(step, (0, 0, 0), 0)
        origin = []
        for axis, (low, high), dtype in zip("xyz", extents.tolist(), types, strict=True):
            _check_resolution(axis, max(abs(low), abs(high)), dtype, step)
            first, last = round(low / step), round(high / step)
            if last - first >= _SCAN_CELLS:
                raise CodecError(
                    f"{axis} spans {high - low:g} m, more than {_SCAN_CELLS} cells of {step:g} m: "
                    f"use a step of at least {_round_up((high - low) / _SCAN_CELLS):g} m, or "
                    "remove outliers or split the cloud"
                )
            reach = max(abs(first), abs(last))
            if reach > _MAX_CELL - SCAN_REACH:
                raise CodecError(
                    f"{axis} reaches {max(abs(low), abs(high)):g} m, which is too many cells of "
                    f"{step:g} m: use a larger step, or shift the cloud towards 0"
                )
            origin.append(0 if reach < _SCAN_CELLS else first)
        return cls(step, tuple(origin), 0)

    def cells(self, xyz: np.ndarray) -> np.ndarray:
        """Return the cells of coordinates (3, N), relative to the origin, as uint32 (3, N)."""
        indices = np.rint(xyz.astype(np.float64) / self.step).astype(np.int64)
        return (indices - np.array(self.origin, np.int64)[:, None]).astype(np.uint32)

    def centres(self, cells: np.ndarray, axis: int) -> np.ndarray:
        """Return the centres in metres, float64 (M,), of cells (M,) relative to the origin."""
        first = self.origin[axis]
        return (cells.astype(np.int64) + first if first else cells) * np.float64(self.step)


def extents_of(xyz: np.ndarray) -> np.ndarray | None:
    """Return the lowest and the highest of coordinates (3, N) on each axis, float64 (3, 2)."""
    if not xyz.shape[1]:
        return None
    return np.array([(row.min(), row.max()) for row in xyz], np.float64)


def check_grid(grid: Grid, cells: int, types: list[np.dtype]) -> None:
    """Check what a stream says of its grid, whose cells are within ``cells`` of the origin.

    Raises
    ------
    CodecError
        If the step is no length, or a coordinate within the grid would exceed its type.
    """
    if not (math.isfinite(grid.step) and grid.step > 0):
        raise CodecError("damaged stream: the step is not a positive number")
    for first, dtype in zip(grid.origin, types, strict=True):
        reach = abs(first) + cells
        if reach > _MAX_CELL or reach * grid.step > float(np.finfo(dtype).max):
            raise CodecError("damaged stream: coordinates beyond their type's range")


def _check_resolution(axis: str, reach: float, dtype: np.dtype, step: float) -> None:
    resolution = float(np.spacing(np.array(reach, dtype.newbyteorder("="))))
    if step < resolution:
        raise CodecError(
            f"{axis} reaches {reach:g} m, where {dtype.name} resolves {resolution:.3g} m, "
            f"coarser than the step {step:g} m: use a larger step, shift the cloud towards "
            "0, or store x y z as float64"
        )


def _round_up(value: float) -> float:
    """Return ``value`` rounded up to three significant digits, as a person types it."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit) * unit

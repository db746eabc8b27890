"""Morton codes (Z-order): the cells of an octree in the order of its leaves."""

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.grid import Grid
from geoaccel_ros.compression.positions import WINDOW, CodedPositions, plane_stride


class Morton:
    """Interleaves the bits of cell indices: bit 3k of a code is bit k of x, then come y and z."""

    def __init__(self, device: Device):
        self._device = device
        program = device.program("morton.cl", ("-DUSE_FP64",) if device.has_fp64 else ())
        self._interleave = program.interleave
        self._deinterleave = program.deinterleave
        self._place = program.place_codes
        self._gather = program.gather_positions
        if device.has_fp64:
            self._of_float = {4: program.codes_of_float32, 8: program.codes_of_float64}
            self._centres = {4: program.centres_as_float32, 8: program.centres_as_float64}

    def encode(self, xyz: np.ndarray, grid: Grid) -> cl.Buffer:
        """Return the codes, uint64 (N,), of the cells that hold finite points.

        Parameters
        ----------
        xyz : ndarray, shape (3, N), float32 or float64, native byte order
            Coordinates in metres, all within ``grid``.
        grid : Grid
        """
        count = xyz.shape[1]
        device = self._device
        codes = device.buffer("codes", 8 * count)
        if count == 0:
            return codes
        if device.has_fp64:
            origin = [np.int64(cell) for cell in grid.origin]
            kernel = self._of_float[xyz.dtype.itemsize]
            source = device.upload("coordinates", xyz)
            device.launch(kernel, count, source, count, np.float64(grid.step), *origin, codes)
        else:
            # A float32 division would misplace points: without fp64 the cells come from the host.
            source = device.upload("coordinates", grid.cells(xyz))
            device.launch(self._interleave, count, source, count, codes)
        return codes

    def decode(self, codes: cl.Buffer, count: int) -> np.ndarray:
        """Return the cells, uint32 (3, count), relative to the grid's origin, of uint64 codes."""
        if count == 0:
            return np.empty((3, 0), np.uint32)
        device = self._device
        cells = device.buffer("coordinates", 12 * count)
        device.launch(self._deinterleave, count, codes, count, cells)
        return device.download(cells, 3 * count, "u4").reshape(3, count)

    def positions(
        self, codes: cl.Buffer, count: int, points: int, starts: cl.Buffer | None, grid: Grid
    ) -> CodedPositions:
        """Return where the points of cells are.

        Parameters
        ----------
        codes : Buffer
            uint64 (count,).
        count, points : int
            Cells, and their points.
        starts : Buffer or None
            uint32 (count + 1,): where each cell's points begin, and ``points``; None: one each.
        grid : Grid
        """
        device, stride = self._device, plane_stride(points)
        planes = device.buffer("positions", 12 * stride)
        device.launch(
            self._place, count,
            codes, count, starts is None, codes if starts is None else starts,
            stride, WINDOW, planes,
        )  # fmt: skip
        return CodedPositions(device, planes, points, grid.origin, self._gather)

    def centres(
        self,
        codes: cl.Buffer,
        count: int,
        points: int,
        starts: cl.Buffer | None,
        grid: Grid,
        dtype: np.dtype,
        room: int,
    ) -> np.ndarray:
        """Return the points of cells, at the cells' centres in metres, structured (room,).

        Parameters
        ----------
        codes, count, points, starts, grid
            As of :meth:`positions`.
        dtype : dtype
            Of the points; all but x, y and z is 0.
        room : int
            ``points`` or more; those behind are 0.
        """
        device = self._device
        layout = _layout(dtype) if device.has_fp64 else None
        if layout is None:
            result = np.zeros(room, dtype)
            cells = self.positions(codes, count, points, starts, grid).all()
            for row, name in zip(cells, "xyz", strict=True):
                result[name][:points] = row * np.float64(grid.step)
            return result
        size, *places = layout
        records = device.zeros("records", room * dtype.itemsize)
        origin = [np.int64(cell) for cell in grid.origin]
        device.launch(
            self._centres[size], count, codes, count, np.float64(grid.step), *origin,
            starts is None, codes if starts is None else starts, *places, records,
        )  # fmt: skip
        return device.download(records, room, dtype)


def _layout(dtype: np.dtype) -> tuple[int, int, int, int, int] | None:
    """Return the bytes of x, y and z, and in numbers of that size the points' and their places.

    None where that is not possible: of types that differ or are not this machine's, or that lie
    askew.
    """
    kinds = {dtype[axis] for axis in "xyz"}
    size = dtype["x"].itemsize
    numbers = [dtype.itemsize, *(dtype.fields[axis][1] for axis in "xyz")]
    if len(kinds) > 1 or not dtype["x"].isnative or any(number % size for number in numbers):
        return None
    return size, *(number // size for number in numbers)

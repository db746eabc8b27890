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
        itemsize: int,
    ) -> np.ndarray:
        """Return the points of cells, which are at the cells' centres in metres, (points, 3).

        Parameters
        ----------
        codes, count, points, starts, grid
            As of :meth:`positions`.
        itemsize : int
            Of the floats: 4 or 8 bytes.
        """
        device = self._device
        if not device.has_fp64:
            cells = self.positions(codes, count, points, starts, grid).all()
            return (cells.T * np.float64(grid.step)).astype(f"f{itemsize}")
        origin = [np.int64(cell) for cell in grid.origin]
        centres = device.buffer("centres", 3 * itemsize * points)
        device.launch(
            self._centres[itemsize], count, codes, count, np.float64(grid.step), *origin,
            starts is None, codes if starts is None else starts, centres,
        )  # fmt: skip
        return device.download(centres, 3 * points, f"f{itemsize}").reshape(points, 3)

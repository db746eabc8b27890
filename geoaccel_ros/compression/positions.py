"""Where points are, in their coding order: the cells of the global grid that they lie in."""

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression.device import Device

# As in window.cl: neighbours are looked for in a chunk, and among so many points before each.
CHUNK = 2048
WINDOW = 32
# Of a position on the device.
_BITS = 21


class Positions:
    """Positions that the host knows.

    Parameters
    ----------
    cells : ndarray, shape (3, N), integer
        Of the points in their coding order.
    """

    def __init__(self, cells: np.ndarray):
        self._cells = cells

    @property
    def count(self) -> int:
        """N."""
        return self._cells.shape[1]

    def at(self, indices: np.ndarray | slice) -> np.ndarray:
        """Return the cells of some points, integer (3, n)."""
        # Rows for themselves: NumPy would lay out the columns of all three one after another.
        return np.stack([row[indices] for row in self._cells])

    def all(self) -> np.ndarray:
        """Return the cells of all points, integer (3, N)."""
        return self._cells

    def planes(self, device: Device, place: cl.Kernel) -> tuple[cl.Buffer, int]:
        """Return positions as neighbours.cl takes them: three planes, and the places of each.

        They are relative to the cloud's lowest cell. Where that would take more than 21 bits they
        are relative to the lowest of their chunk, and as coarse as that wants it.

        Parameters
        ----------
        device : Device
        place : Kernel
            place_cells of neighbours.cl.
        """
        planes = np.zeros((3, plane_stride(self.count)), np.int32)
        if self.count:
            cells = self._cells
            lowest = cells.min(axis=1).astype(np.int64)
            span = int((cells.max(axis=1) - lowest).max())
            own = planes[:, WINDOW : WINDOW + self.count]
            if span.bit_length() <= _BITS:
                for plane, row, low in zip(own, cells, lowest, strict=True):
                    np.subtract(row, low, out=plane, casting="unsafe")
            else:
                own[:] = _coarse(cells)
        return device.upload("positions", planes), planes.shape[1]


class ArrangedPositions(Positions):
    """Positions of a cloud's points in another order than the cloud's.

    Parameters
    ----------
    cells : ndarray, shape (3, F), int32
        In the order of the cloud.
    order : ndarray, shape (F,), uint32
        Which of them is the i-th.
    count : int
        N, F or more: those behind are at cell 0.
    """

    def __init__(self, cells: np.ndarray, order: np.ndarray, count: int):
        self._cells = cells
        self._order = order
        self._count = count

    @property
    def count(self) -> int:
        return self._count

    def at(self, indices: np.ndarray | slice) -> np.ndarray:
        indices = _indices(indices, self._count)
        is_placed = indices < len(self._order)
        found = np.zeros((3, len(indices)), np.int32)
        found[:, is_placed] = self._cells[:, self._order[indices[is_placed]]]
        return found

    def all(self) -> np.ndarray:
        arranged = np.zeros((3, self._count), np.int32)
        for row, of_cloud in zip(arranged, self._cells, strict=True):
            np.take(of_cloud, self._order, out=row[: len(self._order)])
        return arranged

    def planes(self, device: Device, place: cl.Kernel) -> tuple[cl.Buffer, int]:
        placed, stride = len(self._order), plane_stride(self._count)
        # Those behind count, too.
        beside = {} if placed == self._count else {"initial": 0}
        lows = [int(row.min(**beside)) for row in self._cells] if placed else [0]
        highs = [int(row.max(**beside)) for row in self._cells] if placed else [2**_BITS]
        if max(high - low for high, low in zip(highs, lows, strict=True)) >= 2**_BITS:
            return Positions(self.all()).planes(device, place)
        planes = device.buffer("positions", 12 * stride)
        device.launch(
            place, self._count,
            device.upload("cells_of_cloud", self._cells),
            device.upload("order_of_cells", self._order), placed, self._count,
            *map(np.int32, lows), stride, WINDOW, planes,
        )  # fmt: skip
        return planes, stride


class CodedPositions(Positions):
    """Positions that Morton codes on the device tell; good until the next cloud's.

    Parameters
    ----------
    device : Device
    planes : Buffer
        int32 (3, plane_stride(count)): relative to the lowest cell, below 2**21.
    count : int
        N.
    lowest : tuple of int
    gather : Kernel
        gather_positions of morton.cl.
    """

    def __init__(
        self,
        device: Device,
        planes: cl.Buffer,
        count: int,
        lowest: tuple[int, int, int],
        gather: cl.Kernel,
    ):
        self._device = device
        self._planes = planes
        self._count = count
        self._lowest = np.array(lowest, np.int64)[:, None]
        self._gather = gather

    @property
    def count(self) -> int:
        return self._count

    def at(self, indices: np.ndarray | slice) -> np.ndarray:
        indices = _indices(indices, self._count)
        device, count = self._device, len(indices)
        wanted = device.upload("wanted_positions", indices.astype(np.uint32))
        gathered = device.buffer("gathered_positions", 12 * count)
        device.launch(
            self._gather, count,
            self._planes, plane_stride(self._count), WINDOW, wanted, count, gathered,
        )  # fmt: skip
        return device.download(gathered, 3 * count, "i4").reshape(3, count) + self._lowest

    def all(self) -> np.ndarray:
        stride = plane_stride(self._count)
        planes = self._device.download(self._planes, 3 * stride, "i4").reshape(3, stride)
        return planes[:, WINDOW : WINDOW + self._count] + self._lowest

    def planes(self, device: Device, place: cl.Kernel) -> tuple[cl.Buffer, int]:
        return self._planes, plane_stride(self._count)


def plane_stride(count: int) -> int:
    """Return the places of a plane: those of the window before the first point, and the points'.

    The latter are filled up to a multiple of 8.
    """
    return WINDOW + -(-count // 8) * 8


def _indices(indices: np.ndarray | slice, count: int) -> np.ndarray:
    return np.arange(*indices.indices(count)) if isinstance(indices, slice) else indices


def _coarse(cells: np.ndarray) -> np.ndarray:
    """Return positions relative to the lowest of their chunk, as coarse as 21 bits want it."""
    begins = np.arange(0, cells.shape[1], CHUNK)
    chunk = np.arange(cells.shape[1]) // CHUNK
    lowest = np.minimum.reduceat(cells, begins, axis=1).astype(np.int64)
    spans = (np.maximum.reduceat(cells, begins, axis=1) - lowest).max(axis=0)
    excess = [max(int(span).bit_length() - _BITS, 0) for span in spans]
    return (cells - lowest[:, chunk]) >> np.array(excess)[chunk]

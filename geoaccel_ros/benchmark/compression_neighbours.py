"""What a field's prediction costs and gains: parent nodes, neighbours, their memory."""

from importlib import resources

import numpy as np
import pyopencl as cl

from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.report import Table
from geoaccel_ros.compression.attributes import NeighbourSearch
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.positions import CHUNK, Positions
from geoaccel_ros.compression.prefix_sums import PrefixSums
from geoaccel_ros.compression.rans import EntropyCoder, prior

# Points of a parent node, about.
_MEMBERS = 8


def predictions(device: Device, cells: np.ndarray, values: np.ndarray, repetitions: int) -> Table:
    """Return bits and milliseconds of a field by what it is predicted from.

    Parameters
    ----------
    device : Device
    cells : ndarray, shape (3, N), integer
        Of points in the order of an octree's leaves.
    values : ndarray, shape (N,), int64
        Of the same points.
    repetitions : int
    """
    trials = {
        _named(used, is_adaptive): _Trial(device, cells, values, used, is_adaptive)
        for used, is_adaptive in ((0, False), (3, False), (3, True), (6, False), (6, True))
    }
    times = interleave(trials, repetitions)
    rows = [
        {"prediction": name, "bits_per_point": trial.bits, "ms": spread(times[name])}
        for name, trial in trials.items()
    ]
    note = f"{len(values)} points on {device.name}; search, prediction and entropy coding."
    return Table("Prediction of a field", rows, note)


def memories(device: Device, cells: np.ndarray, repetitions: int) -> Table:
    """Return the milliseconds of the search for neighbours by the memory that positions lie in."""
    searches = {
        "local memory": NeighbourSearch(device, tile_in_local_memory=True),
        "global memory": NeighbourSearch(device, tile_in_local_memory=False),
    }

    positions = _Placed(device, cells)

    def timed(search: NeighbourSearch) -> float:
        stopwatch = Stopwatch()
        with stopwatch:
            search.find(positions)
            device.queue.finish()
        return stopwatch.milliseconds

    runs = {name: lambda each=each: timed(each) for name, each in searches.items()}
    times = interleave(runs, repetitions)
    rows = [{"positions in": name, "ms": spread(times[name])} for name in runs]
    return Table("Search for neighbours", rows, f"{cells.shape[1]} points on {device.name}.")


def _named(used: int, is_adaptive: bool) -> str:
    if not used:
        return "parent"
    return f"parent + {used} neighbours, {'adaptive' if is_adaptive else 'fixed'}"


class _Placed(Positions):
    """Positions that are on the device already, as those of an octree's points."""

    def __init__(self, device: Device, cells: np.ndarray):
        super().__init__(cells)
        place = device.program("neighbours.cl").place_cells
        self._planes = super().planes(device, place)

    def planes(self, device: Device, place: cl.Kernel) -> tuple[cl.Buffer, int]:
        return self._planes


class _Trial:
    """Encodes a field when called; ``bits`` are those of a point."""

    def __init__(
        self, device: Device, cells: np.ndarray, values: np.ndarray, used: int, is_adaptive: bool
    ):
        self._device, self._values = device, values
        self._positions = _Placed(device, cells)
        self._used, self._is_adaptive = used, is_adaptive
        self._search = NeighbourSearch(device, max(used, 1))
        self._entropy, self._sums = EntropyCoder(device), PrefixSums(device)
        source = resources.files(__package__).joinpath("parent_prediction.cl").read_text("utf-8")
        options = f"-DNEIGHBOURS={max(used, 1)}"
        self._count, self._emit = (
            device.build(source, (way, options)).code_by_parent for way in ("-DCOUNT", "-DEMIT")
        )
        self._parents = _parents(cells)
        self.bits = 0.0

    def __call__(self) -> float:
        stopwatch = Stopwatch()
        with stopwatch:
            section = self._encode()
        self.bits = 8 * len(section) / len(self._values)
        return stopwatch.milliseconds

    def _encode(self) -> bytes:
        device, count = self._device, len(self._values)
        chunks = -(-count // CHUNK)
        words, stride = device.buffer("none", 2), 0
        if self._used:
            found = self._search.find(self._positions)
            words, stride = found.words, found.stride
        starts = device.buffer("attribute_starts", 4 * (chunks + 1))
        arguments = (
            device.upload("attribute_values", self._values), count, chunks,
            np.int64(self._values[0]), device.upload("parents", self._parents), words, stride,
            self._used, int(self._is_adaptive), starts,
        )  # fmt: skip
        device.launch_serial(self._count, chunks, *arguments)
        self._sums.exclusive(starts, chunks)
        on_host = device.download(starts, chunks + 1, "u4")
        events = device.buffer("attribute_events", 2 * int(on_host[-1]))
        device.launch_serial(self._emit, chunks, *arguments, events)
        return self._entropy.encode(events, on_host, prior("attributes"))


def _parents(cells: np.ndarray) -> np.ndarray:
    """Return the number of each point's node, uint32, at the level of about so many points each."""
    level = 0
    while True:
        nodes = cells >> level
        numbers = np.concatenate([[0], np.cumsum((np.diff(nodes) != 0).any(axis=0))])
        if _MEMBERS * (int(numbers[-1]) + 1) <= len(numbers) or level == 21:
            return numbers.astype(np.uint32)
        level += 1

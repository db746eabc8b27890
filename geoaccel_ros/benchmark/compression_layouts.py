"""Arrays against structures: what the arrangement of coordinates costs host and device."""

from collections.abc import Callable
from importlib import resources

import numpy as np

from geoaccel_ros.benchmark.compression_profile import ProfiledDevice
from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.report import Table

# A usual record of x y z, 4 bytes of padding, intensity and 12 more.
_RECORD = np.dtype({"names": [*"xyz"], "formats": ["f4"] * 3, "offsets": [0, 4, 8], "itemsize": 32})


# Makes an arrangement of records; returns it, and by how many floats a point and an axis are apart.
Arrange = Callable[[np.ndarray], tuple[np.ndarray, tuple[int, int]]]


def _planes(records: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    return np.stack([records[axis] for axis in "xyz"]), (1, len(records))


def _triples(records: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    triples = np.empty((len(records), 3), np.float32)
    for axis, name in enumerate("xyz"):
        triples[:, axis] = records[name]
    return triples, (3, 1)


def _as_they_are(records: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    return records.view(np.float32), (records.dtype.itemsize // 4, 1)


ARRANGEMENTS: dict[str, Arrange] = {
    "arrays: three planes": _planes,
    "structures: x y z": _triples,
    "structures: records as they come": _as_they_are,
}


def layouts(device: ProfiledDevice, xyz: np.ndarray, step: float, repetitions: int) -> Table:
    """Return the milliseconds of Morton codes by how the coordinates lie in memory.

    Parameters
    ----------
    device : ProfiledDevice
    xyz : ndarray, shape (3, N), float32
        Metres.
    step : float
        Edge of a cell.
    repetitions : int
    """
    records = np.zeros(xyz.shape[1], _RECORD)
    for axis, row in zip("xyz", xyz, strict=True):
        records[axis] = row
    trials = {name: Trial(device, records, step, each) for name, each in ARRANGEMENTS.items()}
    times = interleave(trials, repetitions)
    rows = []
    for name, trial in trials.items():
        making, uploading, coding = times[name].T
        rows.append(
            {
                "coordinates": name,
                "made_ms": spread(making),
                "uploaded_ms": spread(uploading),
                "kernel_ms": spread(coding),
                "bytes": trial.size,
            }
        )
    note = f"{len(records)} points on {device.name}: of records as a driver sends them the host "
    note += "makes the arrangement, which is copied to the device, where a kernel codes the cells."
    return Table("Arrays against structures", rows, note)


class Trial:
    """Arranges, uploads and codes when called; returns the milliseconds of each.

    Parameters
    ----------
    device : ProfiledDevice
    records : ndarray, shape (N,), structured
        With x, y and z, float32.
    step : float
    arrange : callable
        Of :data:`ARRANGEMENTS`.

    Attributes
    ----------
    size : int
        Bytes that are uploaded.
    codes : ndarray, uint64
        Of the last call.
    """

    def __init__(
        self,
        device: ProfiledDevice,
        records: np.ndarray,
        step: float,
        arrange: Arrange,
    ):
        source = resources.files(__package__).joinpath("coordinate_layouts.cl").read_text("utf-8")
        self._kernel = device.build(source).codes_of
        self._device, self._records, self._arrange = device, records, arrange
        lowest = [np.float32(records[axis].min()) for axis in "xyz"]
        self._scale = *lowest, np.float32(1 / step)

    def __call__(self) -> tuple[float, float, float]:
        device, count = self._device, len(self._records)
        making, uploading = Stopwatch(), Stopwatch()
        with making:
            arranged, strides = self._arrange(self._records)
        self.size = arranged.nbytes
        with uploading:
            source = device.upload("layout", arranged)
        codes = device.buffer("layout codes", 8 * count)
        group = device.group_size(self._kernel)
        event = device.launch_groups(
            self._kernel, -(-count // group), group,
            source, count, *strides, *self._scale, codes,
        )  # fmt: skip
        self.codes = device.download(codes, count, "u8")
        kernel_ms = 1e-6 * (event.profile.end - event.profile.start)
        return making.milliseconds, uploading.milliseconds, kernel_ms

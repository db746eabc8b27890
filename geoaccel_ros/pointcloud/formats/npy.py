"""NumPy's .npy: structured points, or a table of coordinates."""

from pathlib import Path

import numpy as np

from geoaccel_ros.pointcloud.formats.malformed import Malformed
from geoaccel_ros.pointcloud.layout import from_xyz


def read(path: Path) -> np.ndarray:
    """Return a structured array flat; N x 3 or N x 4 numbers as x y z intensity."""
    try:
        # Mapped: otherwise NumPy allocates what the header declares before it reads on.
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:
        # NumPy parses the header as Python, which fails in many ways.
        raise Malformed(f"not a NumPy array ({error})") from None
    if not isinstance(mapped, np.ndarray):
        raise Malformed("not a NumPy array")
    array = np.array(mapped)
    if array.dtype.names:
        return array.ravel()
    if array.ndim != 2 or array.shape[1] not in (3, 4) or array.dtype.kind not in "fiu":
        raise Malformed(
            f"an array of shape {array.shape} and type {array.dtype}; "
            "a cloud is structured, or N x 3 or N x 4 numbers"
        )
    # What float32 cannot hold becomes infinite.
    with np.errstate(all="ignore"):
        return from_xyz(array[:, :3], array[:, 3] if array.shape[1] == 4 else None)


def write(path: Path, points: np.ndarray) -> None:
    """Write the points as they are."""
    with path.open("wb") as file:
        np.save(file, points)

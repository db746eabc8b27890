"""Point clouds in files, to and from structured arrays; the suffix names the format."""

import textwrap
from pathlib import Path

import numpy as np

from geoaccel_ros.pointcloud.formats import kitti_bin, las, npy, pcd, ply, text
from geoaccel_ros.pointcloud.formats.malformed import Malformed
from geoaccel_ros.pointcloud.layout import from_xyz

__all__ = [
    "EmptyPointFile",
    "PointFileError",
    "from_xyz",
    "losses",
    "read_height",
    "read_points",
    "write_points",
]

_READERS = {
    ".bin": kitti_bin.read,
    ".csv": text.read,
    ".las": las.read,
    ".laz": las.read,
    ".npy": npy.read,
    ".pcd": pcd.read,
    ".ply": ply.read,
    ".pts": text.read,
    ".txt": text.read,
    ".xyz": text.read,
}
_WRITERS = {".bin": kitti_bin.write, ".npy": npy.write, ".pcd": pcd.write, ".ply": ply.write}
_LONGEST_REASON = 300  # characters


class PointFileError(ValueError):
    """A file that is no point cloud that can be read; one line names it and says why."""


class EmptyPointFile(PointFileError):
    """A sound file without points."""


def read_points(path: str | Path) -> np.ndarray:
    """Read a cloud.

    Parameters
    ----------
    path : str or Path
        By its suffix: .bin (KITTI: x y z intensity as float32), .pcd.bin (nuScenes: ring too),
        .npy (structured, or N x 3 or N x 4 numbers: x y z intensity), .pcd (ascii, binary,
        binary_compressed), .ply (ascii, binary of either byte order), .las and .laz (need laspy),
        .xyz, .txt, .csv and .pts (text; :mod:`geoaccel_ros.pointcloud.formats.text` says how
        columns are named).

    Returns
    -------
    structured ndarray (N,) with at least x, y and z, every value as in the file

    Raises
    ------
    PointFileError
        If the file cannot be read, is malformed, or has no points (:class:`EmptyPointFile`) or
        no x, y, z.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(_READERS)
        raise PointFileError(f"{path}: unknown kind of file '{path.suffix}' (known: {known})")
    try:
        points = reader(path)
    except OSError as error:
        raise _refusal(path, error.strerror or error) from None
    except Malformed as error:
        raise _refusal(path, error) from None
    except MemoryError:
        raise _refusal(path, "larger than the memory that is free") from None
    missing = [axis for axis in "xyz" if axis not in points.dtype.names]
    if missing:
        present = " ".join(points.dtype.names)
        raise _refusal(path, f"no {', '.join(missing)}; the fields are {present}")
    for axis in "xyz":
        if points.dtype[axis].kind not in "fiu":
            raise _refusal(path, f"{axis} is no number but {points.dtype[axis]}")
    if not len(points):
        raise EmptyPointFile(f"{path}: no points")
    return points


def read_height(path: str | Path) -> int:
    """Return how many rows a cloud has that :func:`read_points` reads; 1 unless a .pcd has more.

    Raises
    ------
    PointFileError
        If the file cannot be read, or is no PCD though it is called so.
    """
    path = Path(path)
    if path.suffix.lower() != ".pcd":
        return 1
    try:
        return pcd.read_height(path)
    except OSError as error:
        raise _refusal(path, error.strerror or error) from None
    except Malformed as error:
        raise _refusal(path, error) from None


def losses(path: str | Path, points: np.ndarray) -> list[str]:
    """Return what :func:`write_points` would lose of a cloud, each in a few words; only of a .bin.

    Fields that are left out, and by how much float32 rounds values.
    """
    return kitti_bin.losses(points) if Path(path).suffix.lower() == ".bin" else []


def write_points(path: str | Path, points: np.ndarray, height: int = 1) -> None:
    """Write a cloud in the format that the suffix names: .bin, .npy, .pcd or .ply (binary).

    A .bin keeps x, y, z and intensity (0 where there is none) as float32 (:func:`losses` tells what
    that costs); the others keep all. Rows are kept by .pcd alone.

    Parameters
    ----------
    path : str or Path
    points : structured ndarray (N,) with x, y and z
    height : int
        Rows of an organised cloud; N is a multiple of it.

    Raises
    ------
    PointFileError
        If the suffix is unknown, a field has no type or name in that format, or the file cannot be
        written.
    """
    path = Path(path)
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        known = ", ".join(_WRITERS)
        raise PointFileError(
            f"{path}: cannot write a cloud as '{path.suffix}' (can be written: {known})"
        )
    try:
        if writer is pcd.write:
            writer(path, points, height)
        else:
            writer(path, points)
    except OSError as error:
        raise _refusal(path, error.strerror or error) from None
    except Malformed as error:
        raise _refusal(path, error) from None


def _refusal(path: Path, reason: object) -> PointFileError:
    """Return an error of one line, however long and strange what it quotes of a file is."""
    printable = "".join(c if c.isprintable() else " " for c in str(reason))
    return PointFileError(f"{path}: {textwrap.shorten(printable, _LONGEST_REASON)}")

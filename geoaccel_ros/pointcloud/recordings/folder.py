"""Folders of scans, one file each; KITTI's odometry folders are such."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from geoaccel_ros.pointcloud.files import EmptyPointFile, PointFileError, read_points
from geoaccel_ros.pointcloud.layout import packed_dtype
from geoaccel_ros.pointcloud.recordings.cloud import RecordedCloud, RecordingError
from geoaccel_ros.pointcloud.stamps import parse_stamp

SUFFIXES = (".bin", ".las", ".laz", ".npy", ".pcd", ".ply", ".pts", ".xyz")
# What else lies in a folder of scans is of these kinds too.
SUFFIXES_IF_ALONE = (".csv", ".txt")
_NO_SCANS = ("times.txt", "poses.txt", "calib.txt")
# Where a folder has no times.txt.
_PERIOD_NS = 100_000_000
_NO_POINTS = np.empty(0, packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4")]))


class ScanFolder:
    """Scans in the order of their names, with the stamps of times.txt, or 0.1 s apart.

    Digits in names count as numbers: 2.bin comes before 10.bin.

    Parameters
    ----------
    path : Path
        A KITTI folder (velodyne/ with scans, times.txt), or a folder of scans with or without a
        times.txt. Files of .csv and .txt are scans only where there are no others: they may as
        well be poses.

    Attributes
    ----------
    notice : str
        What of times.txt is not used, one line; empty if all is.

    Raises
    ------
    RecordingError
        If there are no scans, or times.txt does not fit them.
    """

    def __init__(self, path: Path):
        folder = path / "velodyne" if (path / "velodyne").is_dir() else path
        self._files = _of_kind(folder, SUFFIXES) or _of_kind(folder, SUFFIXES_IF_ALONE)
        if not self._files:
            known = ", ".join(SUFFIXES + SUFFIXES_IF_ALONE)
            raise RecordingError(f"'{folder}' holds no scans ({known}) and is no bag")
        scans = len(self._files)
        self._stamps = [index * _PERIOD_NS for index in range(scans)]
        self.notice = ""
        times_file = path / "times.txt"
        if times_file.exists():
            self._stamps, number = _read_times(times_file, scans)
            if number > scans:
                self.notice = (
                    f"'{times_file}': {number} stamps for {scans} scans, the first {scans} are used"
                )

    def __len__(self) -> int:
        return len(self._files)

    def __enter__(self) -> "ScanFolder":
        return self

    def __exit__(self, *exception) -> None:
        pass

    def static_transforms(self) -> Iterator[object]:
        """Return none: files have no frames."""
        return iter(())

    def clouds(self) -> Iterator[RecordedCloud]:
        """Yield the scans, one at a time in memory."""
        for file, stamp_ns in zip(self._files, self._stamps, strict=True):
            try:
                points, problem = read_points(file), ""
            except EmptyPointFile:
                points, problem = _NO_POINTS, ""
            except PointFileError as error:
                points, problem = None, str(error)
            yield RecordedCloud(file.name, stamp_ns, "", points, problem)


def _of_kind(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    files = (file for file in folder.iterdir() if file.suffix.lower() in suffixes)
    scans = (file for file in files if file.name not in _NO_SCANS and file.is_file())
    return sorted(scans, key=_natural)


def _natural(file: Path) -> tuple[list[str | int], str]:
    """Return a key that sorts names with the digits in them as numbers."""
    # Text and digits take turns, so that like is compared with like.
    parts: list[str | int] = re.split("([0-9]+)", file.name)
    parts[1::2] = map(int, parts[1::2])
    # 1.bin and 01.bin are two.
    return parts, file.name


def _read_times(file: Path, scans: int) -> tuple[list[int], int]:
    """Return the stamps of the scans in nanoseconds, and how many the file holds."""
    try:
        lines = [line.strip() for line in file.read_text().splitlines() if line.strip()]
        stamps = [parse_stamp(line) for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RecordingError(f"cannot read '{file}': {reason}") from None
    except ValueError as error:
        raise RecordingError(f"'{file}': {error}") from None
    if len(stamps) < scans:
        raise RecordingError(f"'{file}': {len(stamps)} stamps for {scans} scans")
    number, stamps = len(stamps), stamps[:scans]
    if any(after <= before for before, after in zip(stamps, stamps[1:], strict=False)):
        raise RecordingError(f"'{file}': its stamps do not rise")
    return stamps, number

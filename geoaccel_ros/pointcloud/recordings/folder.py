"""Folders of scans, one file each; KITTI's odometry folders are such."""

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

    Parameters
    ----------
    path : Path
        A KITTI folder (velodyne/ with scans, times.txt), or a folder of scans with or without a
        times.txt. Files of .csv and .txt are scans only where there are no others: they may as
        well be poses.

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
        self._stamps = [index * _PERIOD_NS for index in range(len(self._files))]
        times_file = path / "times.txt"
        if times_file.exists():
            self._stamps = _read_times(times_file, len(self._files))

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
    return sorted(file for file in files if file.name not in _NO_SCANS and file.is_file())


def _read_times(file: Path, scans: int) -> list[int]:
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
    stamps = stamps[:scans]
    if any(after <= before for before, after in zip(stamps, stamps[1:], strict=False)):
        raise RecordingError(f"'{file}': its stamps do not rise")
    return stamps

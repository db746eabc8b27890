"""Trajectories in files: KITTI (3 x 4 matrices) and TUM (stamp, position, quaternion)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.pointcloud.stamps import format_stamp, parse_stamp
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.frames import quaternion_of

# KITTI's and TUM's numbers on a line.
_KITTI, _TUM = 12, 8


@dataclass(frozen=True)
class Trajectory:
    """Poses (N, 4, 4) from a file, with their stamps in nanoseconds where it has them."""

    poses: np.ndarray
    stamps_ns: list[int] | None = None


def read_trajectory(path: Path) -> Trajectory:
    """Return the poses of a file: KITTI's 12 numbers on each line, or TUM's 8.

    Lines that begin with # are comments.

    Raises
    ------
    UserError
        If it cannot be read, holds something else, or TUM's stamps do not rise.
    """
    rows = _rows(path)
    columns = len(rows[0]) if rows else 0
    if columns not in (_KITTI, _TUM) or any(len(row) != columns for row in rows):
        raise UserError(
            f"'{path}': {columns} numbers on its first line; poses have 12 on each (KITTI: 3 x 4, "
            "row by row) or 8 (TUM: stamp x y z qx qy qz qw)"
        )
    try:
        table = np.array(rows, dtype=np.float64)
        stamps = [parse_stamp(row[0]) for row in rows] if columns == _TUM else None
    except ValueError as error:
        raise UserError(f"'{path}': {error}") from None
    if not np.all(np.isfinite(table)):
        raise UserError(f"'{path}': holds a number that is not finite")
    poses = np.tile(np.eye(4), (len(table), 1, 1))
    if stamps is None:
        poses[:, :3] = table.reshape(-1, 3, 4)
        return Trajectory(poses)
    if any(after <= before for before, after in zip(stamps, stamps[1:], strict=False)):
        raise UserError(f"'{path}': its stamps do not rise")
    if np.any(np.abs(np.linalg.norm(table[:, 4:], axis=1) - 1.0) > 0.01):
        raise UserError(f"'{path}': a quaternion's norm is not 1")
    poses[:, :3, 3] = table[:, 1:4]
    poses[:, :3, :3] = Rotation.from_quat(table[:, 4:]).as_matrix()
    return Trajectory(poses, stamps)


def read_transform(path: Path) -> np.ndarray:
    """Return a transform (4, 4) from 16 or 12 numbers, row-major, on any number of lines.

    White space or commas separate them. A rotation written with few digits is made one again.

    Raises
    ------
    UserError
        If the file holds something else, or its upper left part is no rotation (to 1e-3).
    """
    try:
        values = np.array(path.read_text().replace(",", " ").split(), dtype=np.float64)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read '{path}': {getattr(error, 'strerror', error)}") from None
    except ValueError:
        raise UserError(f"'{path}': a transform is 16 numbers, row by row") from None
    if values.size not in (12, 16):
        raise UserError(f"'{path}': {values.size} numbers, a transform is 16, row by row")
    if not np.isfinite(values).all():
        raise UserError(f"'{path}': holds a number that is not finite")
    transform = np.eye(4)
    transform.flat[: values.size] = values
    if np.any(transform[3] != [0, 0, 0, 1]):
        raise UserError(f"'{path}': its last row is not 0 0 0 1; the 16 numbers go row by row")
    rotation = transform[:3, :3]
    if not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-3) or np.linalg.det(rotation) < 0:
        raise UserError(f"'{path}': its upper left 3 x 3 part is no rotation")
    transform[:3, :3] = se3.orthonormal(rotation)
    return transform


def write_kitti_poses(path: Path, poses: np.ndarray) -> None:
    """Write poses (N, 4, 4) as rows of 12 numbers, every digit of a float64 kept."""
    rows = np.asarray(poses)[:, :3].reshape(-1, 12)
    _save(path, "".join(" ".join(f"{value:.17g}" for value in row) + "\n" for row in rows))


def write_tum_poses(path: Path, stamps_ns: Sequence[int], poses: np.ndarray) -> None:
    """Write rows of stamp, x y z and the quaternion x y z w, every digit kept."""
    rows = ((*pose[:3, 3], *quaternion_of(pose)) for pose in np.asarray(poses))
    lines = [
        f"{format_stamp(stamp)} {' '.join(f'{value:.17g}' for value in row)}\n"
        for stamp, row in zip(stamps_ns, rows, strict=True)
    ]
    _save(path, "".join(lines))


def _rows(path: Path) -> list[list[str]]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read '{path}': {getattr(error, 'strerror', error)}") from None
    return [line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _save(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror}") from None

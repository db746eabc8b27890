"""Trajectories in files: KITTI (3 x 4 matrices) and TUM (stamp, position, quaternion)."""

from pathlib import Path

import numpy as np

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.registration import se3


def read_numbers(path: Path, columns: int | None = None) -> np.ndarray:
    """Return a text file of numbers as (N, columns) float64.

    Raises
    ------
    UserError
        If it cannot be read, or a line has other than ``columns`` finite numbers.
    """
    try:
        rows = [line.split() for line in path.read_text().splitlines() if line.strip()]
        table = np.array(rows, dtype=np.float64)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read '{path}': {getattr(error, 'strerror', error)}") from None
    except ValueError:
        raise UserError(f"'{path}': its lines are not numbers, equally many on each") from None
    if table.ndim != 2 or (columns is not None and table.shape[1] != columns):
        found = table.shape[1] if table.ndim == 2 else 0
        raise UserError(f"'{path}': {found} numbers on a line, must be {columns or 'some'}")
    if not np.all(np.isfinite(table)):
        raise UserError(f"'{path}': holds a number that is not finite")
    return table


def read_kitti_poses(path: Path) -> np.ndarray:
    """Return the poses (N, 4, 4) of a file with a row-major 3 x 4 matrix on each line."""
    table = read_numbers(path, 12)
    poses = np.tile(np.eye(4), (len(table), 1, 1))
    poses[:, :3] = table.reshape(-1, 3, 4)
    return poses


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
    _save(path, np.asarray(poses)[:, :3].reshape(-1, 12), "%.17g")


def write_tum_poses(path: Path, stamps: np.ndarray, poses: np.ndarray) -> None:
    """Write rows of stamp, x y z and the quaternion x y z w, every digit kept."""
    from scipy.spatial.transform import Rotation

    poses = np.asarray(poses)
    quaternions = Rotation.from_matrix(poses[:, :3, :3]).as_quat()
    _save(path, np.column_stack([stamps, poses[:, :3, 3], quaternions]), "%.17g")


def _save(path: Path, table: np.ndarray, number_format: str) -> None:
    try:
        np.savetxt(path, table, fmt=number_format)
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror}") from None

"""The true trajectory beside the one that odometry found."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.trajectories import Trajectory, read_trajectory
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.metrics import (
    absolute_trajectory_error,
    interpolate_poses,
    kitti_error,
    path_length,
    relative_pose_error,
)

# Frames over which the relative error is taken where the path is too short for KITTI's 100 m.
_RELATIVE_FRAMES = 10
# True poses farther apart than this are not interpolated between, nanoseconds.
_WIDEST_GAP_NS = 1_000_000_000


@dataclass(frozen=True)
class Estimate:
    """Poses that odometry found, (N, 4, 4), with their stamps and the numbers of their clouds."""

    poses: np.ndarray
    stamps_ns: list[int]
    clouds: np.ndarray


@dataclass(frozen=True)
class Comparison:
    """Pairs of found and true poses of the same instants, both (M, 4, 4)."""

    estimate: np.ndarray
    truth: np.ndarray

    def errors(self) -> dict[str, float]:
        """Return the errors under the names that say which definition they follow."""
        errors = {
            "truth_frames": len(self.truth),
            "truth_path_m": path_length(self.truth),
            "ate_rmse_m": absolute_trajectory_error(self.estimate, self.truth),
        }
        kitti = kitti_error(self.estimate, self.truth)
        if kitti is not None:
            errors["rpe_trans_percent"] = 100.0 * kitti[0]
            errors["rpe_rot_deg_per_100m"] = float(np.degrees(100.0 * kitti[1]))
        elif len(self.truth) > _RELATIVE_FRAMES:
            translation, rotation = relative_pose_error(self.estimate, self.truth, _RELATIVE_FRAMES)
            errors[f"rpe_{_RELATIVE_FRAMES}_frames_m"] = translation
            errors[f"rpe_{_RELATIVE_FRAMES}_frames_deg"] = float(np.degrees(rotation))
        return errors


class Truth:
    """True poses from a file.

    Parameters
    ----------
    file : Path
        KITTI (a line a cloud) or TUM (by stamps).
    calibration : Path or None
        KITTI's calib.txt, whose Tr is T_camera_lidar: with it, poses of KITTI are the camera's.

    Raises
    ------
    UserError
        If a file cannot be read.
    """

    def __init__(self, file: Path, calibration: Path | None = None):
        self._file = file
        self._trajectory = read_trajectory(file)
        if self._trajectory.stamps_ns is None and calibration is not None:
            T_camera_lidar = _read_calibration(calibration)
            poses = se3.inverse(T_camera_lidar) @ self._trajectory.poses @ T_camera_lidar
            self._trajectory = Trajectory(poses)

    def check(self, clouds: int) -> None:
        """Complain, before the work, where there are fewer lines than clouds."""
        poses = len(self._trajectory.poses)
        if self._trajectory.stamps_ns is None and poses < clouds:
            raise UserError(f"'{self._file}': {poses} poses for {clouds} clouds")

    def notice(self, clouds: int) -> str:
        """Return one line where there are more lines than clouds in the recording, else none."""
        poses = len(self._trajectory.poses)
        if self._trajectory.stamps_ns is not None or poses <= clouds:
            return ""
        return f"'{self._file}': {poses} poses for {clouds} clouds, the first {clouds} are used"

    def compare(self, estimate: Estimate) -> Comparison:
        """Return the pairs of poses: by the clouds' numbers, or by interpolation at the stamps.

        Raises
        ------
        UserError
            If fewer than two of the stamps lie within those of the truth.
        """
        if self._trajectory.stamps_ns is None:
            return Comparison(estimate.poses, self._trajectory.poses[estimate.clouds])
        stamps = self._trajectory.stamps_ns
        first = stamps[0]
        times = np.array([stamp - first for stamp in stamps])
        wanted = np.array([stamp - first for stamp in estimate.stamps_ns])
        after = np.searchsorted(times, wanted).clip(1, len(times) - 1)
        within = (wanted >= times[0]) & (wanted <= times[-1])
        within &= times[after] - times[after - 1] <= _WIDEST_GAP_NS
        if np.count_nonzero(within) < 2:
            raise UserError(
                f"'{self._file}' covers {1e-9 * stamps[0]:.3f} to {1e-9 * stamps[-1]:.3f} s, the "
                f"clouds {1e-9 * estimate.stamps_ns[0]:.3f} to "
                f"{1e-9 * estimate.stamps_ns[-1]:.3f} s: fewer than two of them have a true pose"
            )
        truth = interpolate_poses(1e-9 * times, self._trajectory.poses, 1e-9 * wanted[within])
        return Comparison(estimate.poses[within], truth)


def _read_calibration(file: Path) -> np.ndarray:
    """Return T_camera_lidar of the line Tr of KITTI's calib.txt."""
    try:
        lines = file.read_text().splitlines()
        row = next(line.split()[1:] for line in lines if line.split()[:1] == ["Tr:"])
        numbers = np.array(row, dtype=np.float64).reshape(3, 4)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read '{file}': {getattr(error, 'strerror', error)}") from None
    except (StopIteration, ValueError):
        raise UserError(f"'{file}': has no line 'Tr:' with 12 numbers") from None
    transform = np.eye(4)
    transform[:3] = numbers
    transform[:3, :3] = se3.orthonormal(transform[:3, :3])
    return transform

"""Odometry on a recording: every cloud of it, in its order, as the node does it without loss."""

import csv
import itertools
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.trajectory_picture import Surroundings
from geoaccel_ros.cli.truth import Estimate
from geoaccel_ros.pointcloud.layout import LayoutError
from geoaccel_ros.pointcloud.recordings import Bag, RecordedCloud, RecordingError, ScanFolder
from geoaccel_ros.pointcloud.sensors import describe
from geoaccel_ros.pointcloud.stamps import format_stamp
from geoaccel_ros.pointcloud.times import PointTimes, PointTimesConfig
from geoaccel_ros.registration.frames import (
    FramesConfig,
    StaticTransforms,
    clean_frame,
    mount_matrix,
)
from geoaccel_ros.registration.odometry import Odometry, OdometryConfig
from geoaccel_ros.registration.scans import ScanReader

# Why a cloud led to no pose, beside what odometry itself skips; as in the node's diagnostics.
MALFORMED, EMPTY, NO_TRANSFORM, SKIPPED = "malformed", "empty", "no transform", "skipped"
# Complaints about clouds that are printed; the rest is counted.
_COMPLAINTS = 10
# Cells of the picture, as a part of the map's voxel: walls become lines.
_CELL = 0.33


@dataclass(frozen=True)
class RecordedOdometryConfig(FramesConfig, PointTimesConfig, OdometryConfig):
    """Parameters of the node lidar_odometry that matter on a recording."""


class Mounts:
    """T_base_sensor of the frames of a recording, and where they come from.

    As the node has it, the parameter ``lidar_mount`` is that of the first frame in which a cloud
    comes; /tf_static tells of all others. Where neither connects the first cloud's frame with the
    base, that frame is taken for the base.
    """

    def __init__(self, config: FramesConfig, recording: Bag | ScanFolder):
        self._base = config.base_frame
        self._fixed = mount_matrix(config.lidar_mount)
        self._fixed_frame: str | None = None
        self._transforms = StaticTransforms()
        for message in recording.static_transforms():
            self._transforms.add(message)
        self._sources: dict[str, str] = {}
        self._standing_in: str | None = None

    def lookup(self, frame_id: str) -> np.ndarray | None:
        """Return T_base_sensor (4, 4), or None where nothing tells it."""
        frame = clean_frame(frame_id)
        if self._fixed is not None:
            if self._fixed_frame is None:
                self._fixed_frame = frame
                self._sources[frame] = "lidar_mount"
            if frame == self._fixed_frame:
                return self._fixed
        T_base_sensor = self._transforms.lookup(self._base, frame)
        if T_base_sensor is not None:
            self._sources.setdefault(frame, "/tf_static")
            return T_base_sensor
        if not self._sources:
            self._standing_in = frame
            self._sources[frame] = "taken for the base, no lidar_mount and no /tf_static"
        return np.eye(4) if frame == self._standing_in else None

    def missing(self, frame_id: str) -> str:
        """Return the complaint about a frame of which nothing tells, one line."""
        text = f"none from '{frame_id}' to the base"
        if self._fixed is None:
            return text
        return f"{text} (lidar_mount is that of '{self._fixed_frame}')"

    def describe(self) -> str:
        """Return each sensor's frame and where its mount comes from, one line."""
        named = {f"'{frame}'" if frame else "the sensor": of for frame, of in self._sources.items()}
        return ", ".join(f"{frame}: {source}" for frame, source in named.items())


@dataclass(frozen=True)
class Row:
    """What one cloud gave, as timing.csv has it; of directions, how many were held back."""

    cloud: str
    stamp_ns: int
    status: str
    ms: float = float("nan")
    correspondences: int = 0
    overlap: float = float("nan")
    rmse_m: float = float("nan")
    degenerate: int = 0


class RecordedOdometry:
    """Runs odometry over a recording and keeps what there is to tell.

    Attributes
    ----------
    odometry : Odometry
    mounts : Mounts
    rows : list of Row, one a cloud
    dropped : Counter
        Clouds that led to no pose, by the kind of reason.
    restarts : int
        Times that the map began anew after the first scan.
    degenerate : int
        Scans of which directions were held to the prediction, for the scene does not fix them.
    lost : int
        Scans that came while odometry was lost.
    layout : str
        The first cloud's fields, and its sensor where it is known.
    point_times : PointTimes or None
        Of the first cloud that was registered.
    without_times : int
        Clouds whose times were missing or of no use.
    surroundings : Surroundings or None
        What was seen; None before the first pose.
    broke_off : str
        Why the run ended before the last cloud; empty if it did not.
    """

    def __init__(self, config: RecordedOdometryConfig, recording: Bag | ScanFolder):
        self._recording = recording
        self.mounts = Mounts(config, recording)
        self.odometry = Odometry(config.subset(OdometryConfig))
        self._scans = ScanReader(config.subset(PointTimesConfig))
        self.rows: list[Row] = []
        self.dropped = Counter()
        self.restarts = 0
        self.degenerate = 0
        self.lost = 0
        self.layout = ""
        self.point_times: PointTimes | None = None
        self.without_times = 0
        self.surroundings: Surroundings | None = None
        self.broke_off = ""
        self._poses: list[np.ndarray] = []
        self._estimated: list[int] = []
        self._complaints: list[str] = []
        self._told = 0

    def run(self, clouds: int, quiet: bool) -> None:
        """Register the first ``clouds`` clouds, or those before the recording breaks off.

        Raises
        ------
        UserError
            If none of the clouds leads to a pose.
        KeyboardInterrupt
            Before the first pose; later it ends the run as a broken recording does.
        """
        progress = tqdm(
            itertools.islice(self._recording.clouds(), clouds),
            total=clouds,
            unit="scan",
            disable=quiet or not sys.stderr.isatty(),
        )
        try:
            for cloud in progress:
                self._take(cloud)
                self._tell()
        except RecordingError as error:
            self.broke_off = f"{error} (after {len(self.rows)} clouds)"
        except KeyboardInterrupt:
            if not self._estimated:
                raise
            self.broke_off = f"interrupted after {len(self.rows)} of {clouds} clouds"
        if not self._estimated:
            complaint = self._complaints[0] if self._complaints else "there are none"
            raise UserError(self.broke_off or f"no cloud that can be used: {complaint}")
        more = len(self._complaints) - self._told
        if more:
            print(f"{more} more complaints", file=sys.stderr)

    def poses(self) -> np.ndarray:
        """Return the poses (N, 4, 4), one a cloud: of a cloud that led to none, the one before."""
        return np.array(self._poses)

    def estimate(self) -> Estimate:
        """Return the poses that odometry found or predicted, as the node publishes them."""
        poses = self.poses()[self._estimated]
        stamps = [self.rows[index].stamp_ns for index in self._estimated]
        return Estimate(poses, stamps, np.array(self._estimated))

    def write_timing(self, file: Path) -> None:
        """Write a line of CSV for each cloud.

        Raises
        ------
        UserError
            If the file cannot be written.
        """
        try:
            with file.open("w", newline="") as stream:
                writer = csv.writer(stream)
                writer.writerow(
                    ["cloud", "stamp", "status", "ms"]
                    + ["correspondences", "overlap", "rmse_m", "degenerate"]
                )
                for row in self.rows:
                    writer.writerow(
                        [row.cloud, format_stamp(row.stamp_ns), row.status, f"{row.ms:.3f}"]
                        + [row.correspondences, f"{row.overlap:.4f}", f"{row.rmse_m:.6f}"]
                        + [row.degenerate]
                    )
        except OSError as error:
            raise UserError(f"cannot write '{file}': {error.strerror}") from None

    def _take(self, cloud: RecordedCloud) -> None:
        if cloud.points is None:
            self._drop(cloud, MALFORMED, cloud.problem)
            return
        self.layout = self.layout or describe(cloud.points.dtype)
        T_base_lidar = self.mounts.lookup(cloud.frame_id)
        if T_base_lidar is None:
            self._drop(cloud, NO_TRANSFORM, self.mounts.missing(cloud.frame_id))
            return
        started = time.perf_counter()
        try:
            scan = self._scans.read(cloud.points, cloud.stamp_ns, T_base_lidar)
        except LayoutError as error:
            self._drop(cloud, MALFORMED, str(error))
            return
        if not len(scan.xyz):
            self._drop(cloud, EMPTY, "it has no points")
            return
        result = self.odometry.register(scan.xyz, scan.point_times.times, scan.stamp)
        ms = 1e3 * (time.perf_counter() - started)
        self.point_times = self.point_times or scan.point_times
        self.without_times += scan.point_times.times is None
        self.lost += result.lost
        if result.status == "skipped":
            self._drop(cloud, SKIPPED, result.reason, ms)
            return
        if result.status == "failed":
            self._complain(cloud, f"pose predicted: {result.reason}")
        elif result.status == "seeded" and result.reason != "first scan":
            self.restarts += 1
            self._complain(cloud, f"the map began anew: {result.reason}")
        # What a scan that failed left open does not matter: its pose is all prediction.
        held = len(result.degenerate) if result.status == "registered" else 0
        self.degenerate += held > 0
        self.surroundings = self.surroundings or Surroundings(_CELL * self.odometry.voxel)
        self.surroundings.add(result.T_odom_base, result.points)
        self._estimated.append(len(self.rows))
        self._poses.append(result.T_odom_base)
        stamp_ns = self._scans.nanoseconds(result.stamp)
        quality = (result.correspondences, result.overlap, result.rmse, held)
        self.rows.append(Row(cloud.name, stamp_ns, result.status, ms, *quality))

    def _drop(self, cloud: RecordedCloud, kind: str, why: str, ms: float = float("nan")) -> None:
        self.dropped[kind] += 1
        self._complain(cloud, f"dropped: {why}")
        # A line of KITTI's format is a cloud: one left out would shift all that follow.
        self._poses.append(self._poses[-1] if self._poses else np.eye(4))
        self.rows.append(Row(cloud.name, cloud.stamp_ns, f"dropped: {kind}", ms))

    def _complain(self, cloud: RecordedCloud, what: str) -> None:
        # A file's own message names it.
        self._complaints.append(what if cloud.name in what else f"{cloud.name}: {what}")

    def _tell(self) -> None:
        """Print the first complaints, once a cloud was used: else the first becomes the error."""
        if self._estimated:
            for complaint in self._complaints[self._told : _COMPLAINTS]:
                tqdm.write(complaint, file=sys.stderr)
                self._told += 1

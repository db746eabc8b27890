"""What a demo's bag says: pose error against the truth, codec error point by point, latencies."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rosbags.rosbag2 import Reader

from geoaccel_ros.cli.demo.recorder import typestore
from geoaccel_ros.pointcloud.layout import dtype_of
from geoaccel_ros.registration.metrics import (
    absolute_trajectory_error,
    interpolate_poses,
    path_length,
)
from geoaccel_ros.ros.transforms import matrix_from_pose

# A cloud's pose is stamped with the end of its sweep, so at most this long after the cloud (s).
_SWEEP_MAX = 0.15


@dataclass
class Trajectory:
    """Poses by their stamps: stamps (N,) s, poses (N, 4, 4), arrivals (N,) wall seconds."""

    stamps: np.ndarray
    poses: np.ndarray
    arrivals: np.ndarray


@dataclass
class CodecComparison:
    """Distances between each point and its decoded self, over all clouds compared."""

    clouds: int = 0
    points: int = 0
    bytes_original: int = 0
    bytes_compressed: int = 0
    max_coordinate: float = 0.0
    damaged: list[float] = field(default_factory=list)  # stamps of clouds whose points differ

    def add(self, original: np.ndarray, decoded: np.ndarray, compressed_bytes: int) -> bool:
        """Compare one cloud with its decoded self; return False if a point is not there.

        Ring and time are lossless and tell each point of a sweep from the others, so points are
        compared one by one, whatever order the codec gave them.
        """
        self.clouds += 1
        self.points += len(original)
        self.bytes_original += original.nbytes
        self.bytes_compressed += compressed_bytes
        if original.dtype != decoded.dtype or len(original) != len(decoded):
            return False
        original = original[np.lexsort((original["ring"], original["time"]))]
        decoded = decoded[np.lexsort((decoded["ring"], decoded["time"]))]
        for name in original.dtype.names:
            if name in "xyz":
                error = np.abs(original[name].astype(np.float64) - decoded[name])
                # np.maximum, since max() would lose a NaN.
                largest = np.maximum(self.max_coordinate, error.max(initial=0.0))
                self.max_coordinate = float(largest)
            elif not np.array_equal(original[name], decoded[name]):
                return False
        return True


@dataclass
class Recording:
    """A demo's bag, read once."""

    odometry: Trajectory
    truth: Trajectory
    codec: CodecComparison
    cloud_stamps: np.ndarray  # (N,) s
    decoded_stamps: np.ndarray  # (N,) s
    latency_ms: dict[str, np.ndarray]  # from a cloud's arrival to its result's, as the recorder saw

    @property
    def T_world_odom(self) -> np.ndarray:
        """The odometry's frame in the world: where the robot stood when it began."""
        return self.truth_at_odometry[0] @ np.linalg.inv(self.odometry.poses[0])

    @property
    def truth_at_odometry(self) -> np.ndarray:
        """True poses (N, 4, 4), in the world, at the odometry's stamps."""
        return interpolate_poses(self.truth.stamps, self.truth.poses, self.odometry.stamps)

    def to_world(self, points: np.ndarray) -> np.ndarray:
        """Return points (N, 2) of the odometry's frame in the world's, as seen from above."""
        T_world_odom = self.T_world_odom
        return points @ T_world_odom[:2, :2].T + T_world_odom[:2, 3]

    def ate_rmse(self) -> float:
        """Return the RMSE of the odometry's position in metres, no alignment but the start."""
        return absolute_trajectory_error(
            self.T_world_odom @ self.odometry.poses, self.truth_at_odometry
        )

    def path_length(self) -> float:
        """Return the length of the true path in metres."""
        return path_length(self.truth.poses)


def read_bag(bag: Path) -> Recording:
    """Read a demo's bag; every cloud is compared with its decoded self."""
    store = typestore()
    odometry, truth = [], []
    arrivals = {"/points": {}, "/points/compressed": {}, "/points/decompressed": {}}
    # By stamp, what is there of a cloud: a recorder may hear the three topics in any order.
    waiting: dict[float, dict[str, np.ndarray]] = defaultdict(dict)
    codec = CodecComparison()
    with Reader(bag) as reader:
        for connection, arrival_ns, data in reader.messages():
            topic, arrival = connection.topic, 1e-9 * arrival_ns
            if topic in arrivals:
                message = store.deserialize_cdr(data, connection.msgtype)
                stamp = _seconds(message.header.stamp)
                arrivals[topic][stamp] = arrival
                is_compressed = topic == "/points/compressed"
                waiting[stamp][topic] = (
                    message.compressed_data if is_compressed else _points(message)
                )
                if len(waiting[stamp]) == len(arrivals):
                    cloud = waiting.pop(stamp)
                    original, decoded = cloud["/points"], cloud["/points/decompressed"]
                    if not codec.add(original, decoded, len(cloud["/points/compressed"])):
                        codec.damaged.append(stamp)
            elif topic in ("/odom", "/ground_truth/odom"):
                message = store.deserialize_cdr(data, connection.msgtype)
                pose = matrix_from_pose(message.pose.pose)
                row = (_seconds(message.header.stamp), pose, arrival)
                (odometry if topic == "/odom" else truth).append(row)
    trajectory = _trajectory(odometry)
    clouds = arrivals["/points"]
    return Recording(
        odometry=trajectory,
        truth=_trajectory(truth),
        codec=codec,
        cloud_stamps=np.array(sorted(clouds)),
        decoded_stamps=np.array(sorted(arrivals["/points/decompressed"])),
        latency_ms={
            "cloud to pose": _pose_latency(clouds, trajectory),
            "cloud to compressed": _latency(clouds, arrivals["/points/compressed"]),
            "cloud to decompressed": _latency(clouds, arrivals["/points/decompressed"]),
        },
    )


def _points(message) -> np.ndarray:
    dtype = dtype_of(message.fields, message.point_step, message.is_bigendian)
    return message.data.view(dtype)


def _trajectory(rows: list[tuple]) -> Trajectory:
    rows = sorted(rows, key=lambda row: row[0])
    return Trajectory(
        stamps=np.array([row[0] for row in rows]),
        poses=np.array([row[1] for row in rows]).reshape(-1, 4, 4),
        arrivals=np.array([row[2] for row in rows]),
    )


def _latency(start: dict[float, float], end: dict[float, float]) -> np.ndarray:
    return np.array([1e3 * (end[stamp] - start[stamp]) for stamp in end if stamp in start])


def _pose_latency(clouds: dict[float, float], odometry: Trajectory) -> np.ndarray:
    """Match each pose to the last cloud that began before it."""
    stamps = np.array(sorted(clouds))
    index = np.searchsorted(stamps, odometry.stamps, side="right") - 1
    if not len(stamps):
        return np.array([])
    latency = []
    for i, stamp, arrival in zip(index, odometry.stamps, odometry.arrivals, strict=True):
        if i >= 0 and stamp - stamps[i] < _SWEEP_MAX:
            latency.append(1e3 * (arrival - clouds[stamps[i]]))
    return np.array(latency)


def _seconds(stamp) -> float:
    # Rounded to whole nanoseconds in float64, so that equal stamps give equal keys.
    return stamp.sec + 1e-9 * stamp.nanosec

"""The yard as PointCloud2 messages, and what odometry makes of them in the test's own process."""

import numpy as np
from registration.ray_cast_yard import PERIOD, YARD, scan
from std_msgs.msg import Header

from geoaccel_ros.pointcloud.layout import coordinates, packed_dtype
from geoaccel_ros.pointcloud.times import PointTimesConfig
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.odometry import Odometry, OdometryConfig
from geoaccel_ros.registration.scans import ScanReader
from geoaccel_ros.ros.pointcloud2 import message_from_points, points_from_message

# An epoch as robots have it: float64 seconds of it have steps of 0.24 us.
EPOCH_NS = 1_700_000_000_123_456_789
SECOND_NS = 1_000_000_000

XYZT = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("time", "f8")])


def header(stamp_ns, frame="base_link"):
    """A header; the frame is the base's own, whose mount needs no telling."""
    made = Header(frame_id=frame)
    made.stamp.sec, made.stamp.nanosec = divmod(int(stamp_ns), SECOND_NS)
    return made


def sweep(pose_at, begin, seed=0, boxes=YARD, T_base_lidar=None):
    """Points (N,) with x y z in the lidar's frame and float64 ``time`` since the sweep's start."""
    xyz, times = scan(pose_at, begin, seed=seed, boxes=boxes)
    if T_base_lidar is not None:
        xyz = se3.apply(se3.inverse(T_base_lidar), xyz)
    points = np.empty(len(xyz), XYZT)
    points["x"], points["y"], points["z"] = xyz.T
    points["time"] = times
    return points


def cloud(points, seconds, frame="base_link"):
    """A message, ``seconds`` after the epoch."""
    return message_from_points(header(EPOCH_NS + round(seconds * SECOND_NS), frame), points)


def drive_of(pose_at, count, begin=0.0, **kwargs):
    """Messages of ``count`` sweeps one after the other, the first at ``begin``."""
    begins = [begin + k * PERIOD for k in range(count)]
    return [cloud(sweep(pose_at, at, seed=round(10 * at), **kwargs), at) for at in begins]


def with_fields(points, fields):
    """Points with other fields: pairs of a name and its values; x y z are kept."""
    dtype = packed_dtype(
        [("x", "f4"), ("y", "f4"), ("z", "f4")] + [(n, v.dtype.str[1:]) for n, v in fields]
    )
    made = np.empty(len(points), dtype)
    for axis in "xyz":
        made[axis] = points[axis]
    for name, values in fields:
        made[name] = values
    return made


def stamp_ns(message):
    stamp = message.header.stamp
    return stamp.sec * SECOND_NS + stamp.nanosec


def registered_here(messages, T_initial=None, prior=None, **parameters):
    """Results of the same clouds registered by this process, and their stamps in nanoseconds."""
    reader, odometry = ScanReader(PointTimesConfig()), Odometry(OdometryConfig(**parameters))
    odometry.reset(T_initial)
    odometry.prior = prior
    results = []
    for message in messages:
        taken = reader.read(points_from_message(message), stamp_ns(message), np.eye(4))
        results.append(odometry.register(taken.xyz, taken.point_times.times, taken.stamp))
    return results, [reader.nanoseconds(result.stamp) for result in results]


def xyz_of(message):
    return coordinates(points_from_message(message)).astype(float)

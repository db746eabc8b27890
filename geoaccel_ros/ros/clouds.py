"""PointCloud2 messages as scans in the base frame, for every node that looks at clouds."""

import numpy as np
from rclpy.time import Time
from sensor_msgs.msg import PointCloud2

from geoaccel_ros.pointcloud.layout import LayoutError, coordinates
from geoaccel_ros.pointcloud.times import PointTimes, PointTimesConfig
from geoaccel_ros.registration.frames import FramesConfig, mount_matrix
from geoaccel_ros.registration.scans import Scan, ScanReader
from geoaccel_ros.ros.mount import SensorMounts
from geoaccel_ros.ros.node import ManagedNode
from geoaccel_ros.ros.pointcloud2 import points_from_message

MALFORMED = "dropped: malformed"
NO_TRANSFORM = "dropped: no transform"
# Of clouds that are used all the same.
NO_TIMES = "without point times"


class StampError(ValueError):
    """An instant before time 0, which no stamp of a pose can tell; the message says which."""


class CloudReader:
    """Turns a node's clouds into scans; what is wrong with one is counted and logged by the node.

    Parameters
    ----------
    node : ManagedNode
    frames : FramesConfig
        Its ``lidar_mount``, if any, is that of the first frame in which a cloud comes.
    times : PointTimesConfig
    mounts : SensorMounts
        Tells of all other frames.

    Attributes
    ----------
    reason : str
        Why the newest of the clouds that could not be used could not.

    Raises
    ------
    ConfigurationError
        If ``lidar_mount`` is not a pose.
    """

    def __init__(
        self,
        node: ManagedNode,
        frames: FramesConfig,
        times: PointTimesConfig,
        mounts: SensorMounts,
    ):
        self._node = node
        self._mounts = mounts
        self._fixed = mount_matrix(frames.lidar_mount)
        self._fixed_frame: str | None = None
        self._scans = ScanReader(times)
        self.reason = ""

    def read(self, message: PointCloud2) -> Scan | None:
        """Return the message as a scan, of no points if it has none; None if it cannot be used."""
        counters, logger = self._node.counters, self._node.get_logger()
        T_base_lidar = self._mount(message.header.frame_id)
        if T_base_lidar is None:
            self.reason = f"no transform from '{message.header.frame_id}'"
            counters.count(NO_TRANSFORM, reason=self.reason)
            return None
        try:
            points = points_from_message(message)
            stamp_ns = _nanoseconds(message.header.stamp)
            scan = self._scans.read(points, stamp_ns, T_base_lidar)
            _check_begin(points, scan, stamp_ns)
        except (LayoutError, StampError) as error:
            self.reason = str(error)
            counters.count(MALFORMED, reason=self.reason)
            logger.warning(f"cloud dropped: {error}", throttle_duration_sec=5.0)
            return None
        if len(points) and scan.point_times.times is None:
            counters.count(NO_TIMES, reason=scan.point_times.reason)
            self._tell(scan.point_times)
        return scan

    def seconds(self, stamp) -> float:
        """Return a builtin_interfaces/Time on the clock of the scans, in seconds.

        Raises
        ------
        StampError
            If it lies before time 0.
        """
        return self._scans.seconds(_nanoseconds(stamp))

    def stamp(self, seconds: float):
        """Return an instant of a scan's clock as builtin_interfaces/Time, in whole nanoseconds."""
        return Time(nanoseconds=self._scans.nanoseconds(seconds)).to_msg()

    def _mount(self, frame_id: str) -> np.ndarray | None:
        if self._fixed is None:
            return self._mounts.lookup(frame_id, " (or set the parameter 'lidar_mount')")
        frame = self._mounts.clean(frame_id)
        self._fixed_frame = frame if self._fixed_frame is None else self._fixed_frame
        if frame == self._fixed_frame:
            return self._fixed
        alternative = f" (the parameter 'lidar_mount' is that of '{self._fixed_frame}')"
        return self._mounts.lookup(frame_id, alternative)

    def _tell(self, point_times: PointTimes) -> None:
        text = f"motion during the sweep is not undone: {point_times.reason}"
        if point_times.field:
            self._node.get_logger().warning(text, throttle_duration_sec=5.0)
        else:
            # The sensor's layout, which stays so.
            self._node.get_logger().warning(f"{text} (parameter 'time_field')", once=True)


def _nanoseconds(stamp) -> int:
    """Return a builtin_interfaces/Time in nanoseconds; rclpy knows none before time 0."""
    if stamp.sec < 0:
        raise StampError(f"its stamp, {stamp.sec} s, lies before time 0")
    return Time.from_msg(stamp).nanoseconds


def _check_begin(points: np.ndarray, scan: Scan, stamp_ns: int) -> None:
    """Refuse a sweep that begins before time 0: so might the pose's stamp, that of its end."""
    times = scan.point_times.times
    if times is None or not len(times) or stamp_ns + 1e9 * times.min() >= 0.0:
        return
    # Only of points that have a return: others may have any time.
    xyz = coordinates(points)
    used = times[np.isfinite(xyz).all(axis=1) & (xyz != 0.0).any(axis=1)]
    before = -1e-9 * stamp_ns - used.min(initial=np.inf)
    if before > 0.0:
        raise StampError(f"its points begin {before:.3f} s before time 0")

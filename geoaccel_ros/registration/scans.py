"""Clouds as odometry takes them: points in the base frame, their times, a stamp.

The node and the command both come through here, so that the same clouds lead to the same poses.
"""

from dataclasses import dataclass

import numpy as np

from geoaccel_ros.pointcloud.layout import coordinates
from geoaccel_ros.pointcloud.times import PointTimes, PointTimesConfig, point_times
from geoaccel_ros.registration import se3


@dataclass(frozen=True)
class Scan:
    """The arguments of :meth:`geoaccel_ros.registration.odometry.Odometry.register`.

    Attributes
    ----------
    xyz : ndarray (N, 3) of float64, metres
        In the base frame, each point as the base was at the point's own time.
    point_times : PointTimes
        Relative to the header's stamp; its ``times`` may be None, its ``reason`` says why.
    stamp : float, seconds
        The header's stamp on the clock of the :class:`ScanReader` that made the scan.
    """

    xyz: np.ndarray
    point_times: PointTimes
    stamp: float


class ScanReader:
    """Makes scans of clouds, and stamps of poses.

    float64 seconds since 1970 have steps of 0.24 us. So odometry counts seconds from the first
    cloud's stamp, in which whole nanoseconds survive for a hundred days.

    Parameters
    ----------
    config : PointTimesConfig
    """

    def __init__(self, config: PointTimesConfig):
        self._config = config
        self._first_ns: int | None = None

    def read(self, points: np.ndarray, stamp_ns: int, T_base_lidar: np.ndarray) -> Scan:
        """Return a cloud as a scan.

        Parameters
        ----------
        points : structured ndarray (N,) with x, y and z
        stamp_ns : int, nanoseconds
            The header's stamp.
        T_base_lidar : ndarray (4, 4)

        Raises
        ------
        LayoutError
            If x, y or z is missing or not a number; the message lists the fields present.
        """
        xyz = se3.apply(T_base_lidar, coordinates(points))
        times = point_times(points, 1e-9 * stamp_ns, self._config)
        return Scan(xyz, times, self.seconds(stamp_ns))

    def seconds(self, stamp_ns: int) -> float:
        """Return a stamp in seconds since the first one that was asked for."""
        if self._first_ns is None:
            self._first_ns = stamp_ns
        return 1e-9 * (stamp_ns - self._first_ns)

    def nanoseconds(self, stamp: float) -> int:
        """Return the stamp, in nanoseconds, of an instant such as ``OdometryResult.stamp``."""
        return (self._first_ns or 0) + round(1e9 * stamp)

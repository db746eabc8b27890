"""Obstacles from clouds: each waits for the pose at its end, is deskewed, and goes onto the map."""

import collections

import numpy as np
from sensor_msgs.msg import PointCloud2

from geoaccel_ros.control.distance_field import DistanceField
from geoaccel_ros.control.obstacles import ObstacleConfig, ObstacleMap, OccupiedCells
from geoaccel_ros.pointcloud.times import PointTimesConfig
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.deskew import deskew
from geoaccel_ros.ros.clouds import CloudReader
from geoaccel_ros.ros.controller_config import PlanarControllerConfig
from geoaccel_ros.ros.diagnostics import Latency
from geoaccel_ros.ros.mount import SensorMounts
from geoaccel_ros.ros.node import ManagedNode
from geoaccel_ros.ros.robot_state import Odometer, seconds

# A cloud's end and its pose's stamp may differ by this and still be the same instant (s).
_SAME_INSTANT = 0.01
# Clouds that wait for the pose at their end; a pose source that is slower than this is too slow.
_WAITING = 5
# After so many metres the window of an occupancy grid moves along, though no cloud came.
_MOVED = 0.5


class ObstacleClouds:
    """The obstacle map of a robot on a plane.

    Parameters
    ----------
    node : ManagedNode
    config : PlanarControllerConfig

    Attributes
    ----------
    config : PlanarControllerConfig
        May be another one with each cloud, but for what the grid is made of.
    seen : float or None
        When the newest cloud on the map ended, s.
    fixed : OccupiedCells or None
        What an occupancy grid says; it stays when the rest is forgotten.
    latency : Latency
        Of putting a cloud on the map.
    """

    def __init__(self, node: ManagedNode, config: PlanarControllerConfig):
        self.config = config
        mounts = SensorMounts(node, config.base_frame)
        self._reader = CloudReader(node, config, config.subset(PointTimesConfig), mounts)
        self.latency = Latency()
        self.fixed: OccupiedCells | None = None
        deskew(np.zeros((1, 3)), np.zeros(1), np.zeros(6), 0.0)  # compiled before the first cloud
        self.forget()

    def forget(self) -> None:
        """Begin anew, in a frame or a time in which nothing of the old is true."""
        self._map = ObstacleMap(self.config.subset(ObstacleConfig))
        self._waiting = collections.deque(maxlen=_WAITING)
        self.seen: float | None = None
        # For what the last field was made.
        self._fixed_used: OccupiedCells | None = None
        self._center = np.full(2, np.inf)

    @property
    def knows_map(self) -> bool:
        """Whether the last field was made with an occupancy grid."""
        return self._fixed_used is not None

    def add(self, message: PointCloud2) -> None:
        """Let a cloud wait for its pose."""
        scan = self._reader.read(message)
        if scan is None:
            return
        base, times = scan.xyz, scan.point_times.times
        height, distance = base[:, 2], np.hypot(base[:, 0], base[:, 1])
        # What is inside the robot is the robot, or no return at all, whose time means nothing.
        radius = getattr(self.config, "robot_radius", 0.0)
        outside = np.isfinite(distance) & (distance > radius)
        if times is not None and not np.isfinite(times[outside]).all():
            times = None
        end = 0.0 if times is None else float(times[outside].max(initial=0.0))
        keep = outside & (height > self.config.obstacle_height_min)
        keep &= height < self.config.obstacle_height_max
        since_end = np.zeros(np.count_nonzero(keep)) if times is None else times[keep] - end
        self._waiting.append((seconds(message.header.stamp) + end, base[keep], since_end))

    def use(self, pose: Odometer) -> DistanceField | None:
        """Put the clouds that ended by the time of ``pose`` on the map; the others wait.

        Returns
        -------
        DistanceField or None
            Around the robot; None if nothing is new: no cloud, no occupancy grid, and no place from
            which much more of that is seen.
        """
        center = pose.T_odom_base[:2, 3]
        used = self.fixed is not self._fixed_used
        if self.fixed is not None:
            used = used or np.linalg.norm(center - self._center) > _MOVED
        while self._waiting and self._waiting[0][0] <= pose.stamp + _SAME_INSTANT:
            end, xyz, since_end = self._waiting.popleft()
            with self.latency.measure():
                xyz = deskew(xyz, since_end, pose.twist, pose.stamp - end)
                self._map.add(se3.apply(pose.T_odom_base, xyz)[:, :2], pose.stamp)
            self.seen = end
            used = True
        if not used:
            return None
        self._map.fixed = self._fixed_used = self.fixed
        self._center = center
        return self._map.distance_field(center, pose.stamp)

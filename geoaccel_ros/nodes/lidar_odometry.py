"""lidar_odometry: clouds in, the robot's pose out."""

import math
import sys
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
from geometry_msgs.msg import PoseStamped, PoseWithCovarianceStamped
from nav_msgs.msg import Odometry as OdometryMessage
from nav_msgs.msg import Path
from rclpy.time import Time
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header
from std_srvs.srv import Trigger
from tf2_msgs.msg import TFMessage

from geoaccel_ros.config import parameter
from geoaccel_ros.pointcloud.files import write_points
from geoaccel_ros.pointcloud.layout import LayoutError, coordinates, packed_dtype
from geoaccel_ros.pointcloud.times import point_times
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.frames import FramesConfig, clean_frame
from geoaccel_ros.registration.odometry import Odometry, OdometryConfig, OdometryResult
from geoaccel_ros.ros import diagnostics, qos
from geoaccel_ros.ros.diagnostics import Counters, Latency, Status
from geoaccel_ros.ros.mount import SensorMount
from geoaccel_ros.ros.node import ManagedNode, NodeConfig
from geoaccel_ros.ros.pointcloud2 import message_from_points, points_from_message
from geoaccel_ros.ros.run import run
from geoaccel_ros.ros.transforms import (
    matrix_from_pose,
    set_pose,
    stamped_transform,
)

_XYZ = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])
_XYZ_DOUBLE = packed_dtype([("x", "f8"), ("y", "f8"), ("z", "f8")])
# Poses on the path are this far apart, so that standing still does not push the way out of it (m).
_PATH_SPACING = 0.05


@dataclass(frozen=True)
class LidarOdometryConfig(NodeConfig, FramesConfig, OdometryConfig):
    """Parameters of lidar_odometry."""

    publish_tf: bool = parameter(True, "Publish odom_frame -> base_frame on /tf.")
    invert_tf: bool = parameter(
        False, "Publish base_frame -> odom_frame instead, where base_frame has another parent."
    )
    path_length: int = parameter(
        5000, "Poses kept in path; the oldest are forgotten.", minimum=1, maximum=100_000
    )
    map_file: str = parameter("local_map.pcd", "File that ~/save_map writes.")
    queue: int = parameter(
        10,
        "Clouds kept while one is registered; the oldest is lost beyond.",
        minimum=1,
        maximum=1000,
    )


class LidarOdometry(ManagedNode):
    """points (PointCloud2) -> odom (Odometry), /tf, path; local_map, points_registered on demand.

    The pose is that of the sweep's end, and is stamped with it.
    """

    NAME = "lidar_odometry"
    CONFIG = LidarOdometryConfig

    def configure(self):
        config = self.config
        self.counters = Counters(
            "clouds in", "clouds registered", "clouds failed", "dropped: malformed",
            "dropped: empty", "dropped: no transform", "dropped: skipped",
        )  # fmt: skip
        self.latencies = {"odometry": Latency()}
        self._last = Status(message="no cloud yet")
        self._odometry = Odometry(config.subset(OdometryConfig))
        self.get_logger().info(f"{self._odometry.backend} ({self._odometry.backend_reason})")
        self._path = deque(maxlen=config.path_length)
        self._path_published = -math.inf
        self._mount = SensorMount(self, config.base_frame, config.lidar_mount)

        self._odom_publisher = self.advertise(OdometryMessage, "odom", qos.RELIABLE)
        self._tf_publisher = self.advertise(TFMessage, "/tf", qos.TRANSFORMS)
        self._path_publisher = self.advertise(Path, "path", qos.RELIABLE)
        self._map_publisher = self.advertise(PointCloud2, "local_map", qos.RELIABLE)
        self._registered_publisher = self.advertise(PointCloud2, "points_registered", qos.RELIABLE)
        profile = qos.sensor_data(config.queue)
        self.subscribe(PointCloud2, "points", self._on_points, profile, expected=True)
        self.subscribe(
            PoseWithCovarianceStamped, "initialpose", self._on_initial_pose, qos.RELIABLE
        )
        self.offer(Trigger, "~/reset", self._on_reset)
        self.offer(Trigger, "~/save_map", self._on_save_map)

    def cleanup(self):
        self._odometry = None

    def status(self):
        backend = {"backend": f"{self._odometry.backend} ({self._odometry.backend_reason})"}
        return Status(self._last.level, self._last.message, {**backend, **self._last.values})

    def _on_points(self, message: PointCloud2) -> None:
        self.counters.count("clouds in")
        start = time.perf_counter()
        result = self._register(message)
        if result is None:
            return
        self.latencies["odometry"].add(1e3 * (time.perf_counter() - start))
        header = Header(frame_id=self.config.odom_frame)
        # Whole nanoseconds of the cloud's stamp, which float64 seconds of an epoch do not hold.
        began = Time.from_msg(message.header.stamp).nanoseconds
        sweep = round((result.stamp - 1e-9 * began) * 1e9)
        header.stamp = Time(nanoseconds=began + sweep).to_msg()
        self._publish_odometry(header, result)
        self._publish_path(header, result)
        self._publish_clouds(header, message, result)

    def _register(self, message: PointCloud2) -> OdometryResult | None:
        """Return the pose that a cloud leads to, or None, counted, if it leads to none."""
        try:
            points = points_from_message(message)
            xyz = coordinates(points)
        except LayoutError as error:
            self.counters.count("dropped: malformed")
            self.get_logger().warning(f"cloud dropped: {error}", throttle_duration_sec=5.0)
            return None
        if len(points) == 0:
            self.counters.count("dropped: empty")
            return None
        T_base_lidar = self._mount.lookup(message.header.frame_id)
        if T_base_lidar is None:
            self.counters.count("dropped: no transform")
            return None
        stamp = 1e-9 * Time.from_msg(message.header.stamp).nanoseconds
        times = point_times(points, stamp).times
        result = self._odometry.register(se3.apply(T_base_lidar, xyz), times, stamp)
        return self._judge(result)

    def _judge(self, result: OdometryResult) -> OdometryResult | None:
        values = {"correspondences": result.correspondences, "rmse [m]": f"{result.rmse:.4f}"}
        if result.status == "skipped":
            self.counters.count("dropped: skipped")
            self._last = Status(diagnostics.WARN, f"cloud skipped: {result.reason}", values)
            self.get_logger().warning(self._last.message, throttle_duration_sec=5.0)
            return None
        if result.status == "seeded" and result.reason != "first scan":
            self.counters.count("restarts")
            self._path.clear()
            self.get_logger().warning(f"the map began anew: {result.reason}")
        if result.status == "failed":
            self.counters.count("clouds failed")
            self._last = Status(diagnostics.ERROR, f"pose predicted: {result.reason}", values)
            self.get_logger().warning(self._last.message, throttle_duration_sec=5.0)
        else:
            self.counters.count("clouds registered")
            self._last = Status(diagnostics.OK, "tracking", values)
        return result

    def _publish_odometry(self, header: Header, result: OdometryResult) -> None:
        odom = OdometryMessage(header=header, child_frame_id=self.config.base_frame)
        set_pose(odom.pose.pose, result.T_odom_base)
        odom.pose.covariance = result.pose_covariance.ravel()
        linear, angular = odom.twist.twist.linear, odom.twist.twist.angular
        linear.x, linear.y, linear.z, angular.x, angular.y, angular.z = map(float, result.twist)
        odom.twist.covariance = result.twist_covariance.ravel()
        self._odom_publisher.publish(odom)
        if self.config.publish_tf:
            parent, child, matrix = header.frame_id, self.config.base_frame, result.T_odom_base
            if self.config.invert_tf:
                parent, child, matrix = child, parent, np.linalg.inv(matrix)
            transform = stamped_transform(header.stamp, parent, child, matrix)
            self._tf_publisher.publish(TFMessage(transforms=[transform]))

    def _publish_path(self, header: Header, result: OdometryResult) -> None:
        position = result.T_odom_base[:3, 3]
        if not self._path or np.linalg.norm(position - self._path_end) > _PATH_SPACING:
            pose = PoseStamped(header=header)
            set_pose(pose.pose, result.T_odom_base)
            self._path.append(pose)
            self._path_end = position
        # Thousands of poses take tens of milliseconds to send: once a second is enough to look at.
        due = result.stamp - self._path_published >= 1.0 or result.stamp < self._path_published
        if due and self._path_publisher.get_subscription_count():
            self._path_published = result.stamp
            self._path_publisher.publish(Path(header=header, poses=list(self._path)))

    def _publish_clouds(self, header: Header, message: PointCloud2, result: OdometryResult) -> None:
        if self._map_publisher.get_subscription_count():
            self._map_publisher.publish(self._cloud(header, self._odometry.local_map()))
        if self._registered_publisher.get_subscription_count():
            registered = se3.apply(result.T_odom_base, result.points)
            self._registered_publisher.publish(self._cloud(header, registered))

    @staticmethod
    def _cloud(header: Header, xyz: np.ndarray) -> PointCloud2:
        points = np.ascontiguousarray(xyz, np.float32).view(_XYZ).reshape(-1)
        return message_from_points(header, points)

    def _on_initial_pose(self, message: PoseWithCovarianceStamped) -> None:
        frame = clean_frame(message.header.frame_id)
        if frame != self.config.odom_frame:
            self.get_logger().warning(
                f"initialpose in frame '{frame}' ignored: must be in '{self.config.odom_frame}'"
            )
            return
        try:
            T_odom_base = matrix_from_pose(message.pose.pose)
        except ValueError as error:
            self.get_logger().warning(f"initialpose ignored: {error}")
            return
        self._restart(T_odom_base)

    def _on_reset(self, _request, response):
        self._restart(np.eye(4))
        response.success, response.message = True, "map and pose forgotten"
        return response

    def _restart(self, T_odom_base: np.ndarray) -> None:
        self._odometry.reset(T_odom_base)
        self._path.clear()
        x, y = T_odom_base[:2, 3]
        heading = math.degrees(math.atan2(T_odom_base[1, 0], T_odom_base[0, 0]))
        self.get_logger().info(f"restarted at x {x:.2f} m, y {y:.2f} m, yaw {heading:.1f} degrees")

    def _on_save_map(self, _request, response):
        # In float64: at UTM coordinates float32 has steps of half a metre.
        xyz = np.ascontiguousarray(self._odometry.local_map())
        try:
            write_points(self.config.map_file, xyz.view(_XYZ_DOUBLE).reshape(-1))
        except (OSError, ValueError) as error:
            response.success, response.message = False, str(error)
            return response
        response.success, response.message = True, f"{len(xyz)} points to {self.config.map_file}"
        return response


def main() -> int:
    """Run the node."""
    return run(LidarOdometry)


if __name__ == "__main__":
    sys.exit(main())

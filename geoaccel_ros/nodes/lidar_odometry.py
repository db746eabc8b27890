"""lidar_odometry: clouds in, the robot's pose out."""

import math
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
from geometry_msgs.msg import PoseStamped, PoseWithCovarianceStamped
from nav_msgs.msg import Odometry as OdometryMessage
from nav_msgs.msg import Path
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header
from std_srvs.srv import Trigger
from tf2_msgs.msg import TFMessage

from geoaccel_ros.config import parameter
from geoaccel_ros.pointcloud.files import write_points
from geoaccel_ros.pointcloud.layout import packed_dtype
from geoaccel_ros.pointcloud.times import PointTimesConfig
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.frames import FramesConfig, check_position, clean_frame
from geoaccel_ros.registration.odometry import Odometry, OdometryConfig, OdometryResult
from geoaccel_ros.ros import diagnostics, priors, qos
from geoaccel_ros.ros.clouds import MALFORMED, NO_TIMES, NO_TRANSFORM, CloudReader
from geoaccel_ros.ros.diagnostics import Counters, Latency, Status
from geoaccel_ros.ros.mount import SensorMounts
from geoaccel_ros.ros.newest import NewestOnly
from geoaccel_ros.ros.node import SILENCE, ManagedNode, NodeConfig
from geoaccel_ros.ros.pointcloud2 import message_from_points
from geoaccel_ros.ros.priors import PriorConfig
from geoaccel_ros.ros.run import run
from geoaccel_ros.ros.transforms import (
    matrix_from_pose,
    set_pose,
    stamped_transform,
    yaw,
)

_XYZ = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])
_XYZ_DOUBLE = packed_dtype([("x", "f8"), ("y", "f8"), ("z", "f8")])
# Poses on the path are this far apart, so that standing still does not push the way out of it (m).
_PATH_SPACING = 0.05


@dataclass(frozen=True)
class LidarOdometryConfig(NodeConfig, FramesConfig, PointTimesConfig, PriorConfig, OdometryConfig):
    """Parameters of lidar_odometry."""

    lossless: bool = parameter(
        False,
        "Register every cloud in its order, for bags; false: the newest cloud alone when several "
        "wait, so that the pose is never late.",
    )
    publish_tf: bool = parameter(True, "Publish odom_frame -> base_frame on /tf.")
    invert_tf: bool = parameter(
        False, "Publish base_frame -> odom_frame instead, where base_frame has another parent."
    )
    path_length: int = parameter(
        5000, "Poses kept in path; the oldest are forgotten.", minimum=1, maximum=100_000
    )
    map_file: str = parameter("local_map.pcd", "File that ~/save_map writes.")


class LidarOdometry(ManagedNode):
    """points (PointCloud2) -> odom (Odometry), /tf, path; local_map, points_registered on demand.

    The pose is that of the sweep's end, and is stamped with it. Clouds are registered on a thread
    that takes the newest, or, ``lossless``, where they arrive: then the middleware holds back those
    that wait.
    """

    NAME = "lidar_odometry"
    CONFIG = LidarOdometryConfig

    def configure(self):
        config = self.config
        self.counters = Counters(
            "clouds in", "clouds registered", "clouds failed", MALFORMED, "dropped: empty",
            NO_TRANSFORM, "dropped: skipped", "dropped: a newer one came", "lost: points",
            NO_TIMES, "restarts",
        )  # fmt: skip
        self.latencies = {"odometry": Latency()}
        self._condition = Status(message="no cloud yet")
        # Why the newest cloud could not even be tried, and since when clouds lead to no pose.
        self._unusable = ""
        self._unmeasured_since: float | None = None
        # Map, motion and path, and what is published of them: one cloud or one reset at a time.
        self._lock = threading.Lock()
        self._odometry = Odometry(config.subset(OdometryConfig))
        self.get_logger().info(f"{self._odometry.backend} ({self._odometry.backend_reason})")
        self._path = deque(maxlen=config.path_length)
        self._path_published = -math.inf
        self._newest: NewestOnly | None = None

        self._odom_publisher = self.advertise(OdometryMessage, "odom", qos.reliable(100))
        self._tf_publisher = self.advertise(TFMessage, "/tf", qos.TRANSFORMS)
        self._path_publisher = self.advertise(Path, "path", qos.RELIABLE)
        self._map_publisher = self.advertise(PointCloud2, "local_map", qos.RELIABLE)
        self._registered_publisher = self.advertise(PointCloud2, "points_registered", qos.RELIABLE)
        mounts = SensorMounts(self, config.base_frame)
        self._reader = CloudReader(self, config, config.subset(PointTimesConfig), mounts)
        self._other_sensor = priors.listen(
            self, config.subset(PriorConfig), mounts, self._reader.seconds
        )
        if self._other_sensor is not None:
            self._odometry.prior = self._other_sensor.prior
        self._hear_clouds(qos.KEEP_ALL if config.lossless else qos.sensor_data())
        self.subscribe(
            PoseWithCovarianceStamped, "initialpose", self._on_initial_pose, qos.RELIABLE
        )
        self.offer(Trigger, "~/reset", self._on_reset)
        self.offer(Trigger, "~/save_map", self._on_save_map)

    def activate(self):
        self._unmeasured_since = None
        if not self.config.lossless:
            self._newest = NewestOnly(
                self._use, lambda: self.counters.count("dropped: a newer one came")
            )

    def deactivate(self):
        if self._newest is not None:
            self._newest.stop()
            self._newest = None

    def cleanup(self):
        self._odometry = None

    def status(self):
        backend = {"backend": f"{self._odometry.backend} ({self._odometry.backend_reason})"}
        condition, unusable, since = self._condition, self._unusable, self._unmeasured_since
        level, text = condition.level, condition.message
        if unusable:
            before = f"; before: {text}" if level == diagnostics.ERROR else ""
            level, text = max(level, diagnostics.WARN), f"cloud dropped: {unusable}{before}"
        unmeasured = 0.0 if since is None else time.monotonic() - since
        if unmeasured > SILENCE and level != diagnostics.ERROR:
            joint = ": " if level == diagnostics.WARN else "; before: "
            level, text = diagnostics.ERROR, f"no pose for {unmeasured:.0f} s{joint}{text}"
        return Status(level, text, {**backend, **condition.values})

    def _hear_clouds(self, profile: QoSProfile) -> None:
        self._clouds = self.subscribe(
            PointCloud2, "points", self._on_points, profile, expected=True, mended=self._listen_anew
        )

    def _listen_anew(self) -> bool:
        """Ask for no more than best effort where that is all there is; return whether it is."""
        topic = self.resolve_topic_name("points")
        offers = [offer.qos_profile for offer in self.get_publishers_info_by_topic(topic)]
        unreliable = all(offer.reliability == ReliabilityPolicy.BEST_EFFORT for offer in offers)
        if not (self.config.lossless and offers and unreliable):
            return False
        self.get_logger().warning(
            "lossless needs a reliable publisher, and who publishes 'points' offers best effort: "
            "none of what arrives is dropped, but the network may lose clouds; make the player's "
            "QoS reliable"
        )
        self.destroy_subscription(self._clouds)
        self._hear_clouds(qos.KEEP_ALL_THAT_ARRIVES)
        return True

    def _on_points(self, message: PointCloud2) -> None:
        self.counters.count("clouds in")
        if self._unmeasured_since is None:
            self._unmeasured_since = time.monotonic()
        arrived = time.perf_counter()
        if self._newest is None:
            if self._other_sensor is not None:
                self._other_sensor.take_waiting()
            self._use((message, arrived))
        else:
            self._newest.put((message, arrived))

    def _use(self, arrival: tuple[PointCloud2, float]) -> None:
        """Register a cloud and publish what it leads to."""
        message, arrived = arrival
        with self.guarding("a cloud was dropped"), self._lock:
            result = self._register(message)
            if result is None:
                return
            header = Header(frame_id=self.config.odom_frame, stamp=self._reader.stamp(result.stamp))
            self._publish_odometry(header, result)
            self.latencies["odometry"].add(1e3 * (time.perf_counter() - arrived))
            self._publish_path(header, result)
            self._publish_clouds(header, result)

    def _register(self, message: PointCloud2) -> OdometryResult | None:
        """Return the pose that a cloud leads to, or None, counted, if it leads to none."""
        scan = self._reader.read(message)
        if scan is None:
            self._unusable = self._reader.reason
            return None
        if not len(scan.xyz):
            self._unusable = "a cloud without points"
            self.counters.count("dropped: empty", reason=self._unusable)
            self.get_logger().warning(f"cloud dropped: {self._unusable}", throttle_duration_sec=5.0)
            return None
        result = self._odometry.register(scan.xyz, scan.point_times.times, scan.stamp)
        self._tell(result)
        if result.status == "skipped":
            self.counters.count("dropped: skipped", reason=result.reason)
            return None
        if result.status == "failed":
            self.counters.count("clouds failed", reason=result.reason)
            return result
        self.counters.count("clouds registered")
        if result.status == "seeded" and result.reason != "first scan":
            self.counters.count("restarts", reason=result.reason)
            self._path.clear()
        return result

    def _tell(self, result: OdometryResult) -> None:
        """Put into the diagnostics, and where it is news into the log, how a cloud fared."""
        voxel, max_dist = self._odometry.voxel, self._odometry.max_dist
        values = {
            "correspondences": result.correspondences,
            "overlap": f"{result.overlap:.3f}",
            "rmse [m]": f"{result.rmse:.4f}",
        }
        if voxel is not None:
            values |= {"voxel [m]": f"{voxel:.4g}", "max_dist [m]": f"{max_dist:.4g}"}
        self._condition = condition = _condition(result, values)
        self._unusable = ""
        if result.status in ("registered", "seeded"):
            self._unmeasured_since = None
        if result.status == "seeded":
            self.get_logger().info(
                f"the map begins ({result.reason}): voxel {voxel:.3g} m, matches up to "
                f"{max_dist:.3g} m"
            )
        elif condition.level != diagnostics.OK:
            self.get_logger().warning(condition.message, throttle_duration_sec=5.0)

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

    def _publish_clouds(self, header: Header, result: OdometryResult) -> None:
        # Made only for those who look.
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
            check_position(T_odom_base[:3, 3])
        except ValueError as error:
            self.get_logger().warning(f"initialpose ignored: {error}")
            return
        self._restart(T_odom_base)

    def _on_reset(self, _request, response):
        self._restart(None)
        response.success, response.message = True, "map and pose forgotten"
        return response

    def _restart(self, T_odom_base: np.ndarray | None) -> None:
        with self._lock:
            self._odometry.reset(T_odom_base)
            self._path.clear()
            self.counters.count("restarts")
            self._condition = Status(message="restarted, no cloud since")
            self._unusable, self._unmeasured_since = "", None
            T_odom_base = self._odometry.T_initial
        x, y = T_odom_base[:2, 3]
        heading = math.degrees(yaw(T_odom_base))
        self.get_logger().info(f"restarted at x {x:.2f} m, y {y:.2f} m, yaw {heading:.1f} degrees")

    def _on_save_map(self, _request, response):
        with self._lock:
            # In float64: at UTM coordinates float32 has steps of half a metre.
            xyz = np.array(self._odometry.local_map(), np.float64)
        try:
            write_points(self.config.map_file, xyz.view(_XYZ_DOUBLE).reshape(-1))
        except (OSError, ValueError) as error:
            response.success, response.message = False, str(error)
            return response
        response.success, response.message = True, f"{len(xyz)} points to {self.config.map_file}"
        return response


def _condition(result: OdometryResult, values: dict[str, object]) -> Status:
    """Return how a cloud fared as a line for people, with its remedy where there is one."""
    if result.lost:
        text = f"lost, {result.reason}: call ~/reset or send an initialpose"
        return Status(diagnostics.ERROR, text, values)
    if result.status == "failed":
        return Status(diagnostics.ERROR, f"pose predicted: {result.reason}", values)
    if result.status == "skipped":
        return Status(diagnostics.WARN, f"cloud skipped: {result.reason}", values)
    if result.status == "seeded":
        level = diagnostics.OK if result.reason == "first scan" else diagnostics.WARN
        return Status(level, f"the map begins: {result.reason}", values)
    if len(result.degenerate):
        free = ", ".join(map(_direction, result.degenerate))
        text = f"tracking, but held to the prediction {free}: the scene does not tell"
        return Status(diagnostics.WARN, text, values)
    return Status(diagnostics.OK, "tracking", values)


def _direction(motion: np.ndarray) -> str:
    """Return a unit direction of motion (6,) in words, by the larger one of its two parts."""
    shift, turn = motion[:3], motion[3:]
    name, part = max(("along", shift), ("about", turn), key=lambda each: np.linalg.norm(each[1]))
    return f"{name} ({', '.join(f'{v:.2f}' for v in part / np.linalg.norm(part))})"


def main() -> int:
    """Run the node."""
    return run(LidarOdometry)


if __name__ == "__main__":
    sys.exit(main())

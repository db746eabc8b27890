"""Wheel odometry or an IMU as what odometry predicts by, from their topics."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.subscription import Subscription
from sensor_msgs.msg import Imu

from geoaccel_ros.config import Configuration, parameter
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.priors import Gyroscope, MotionPrior, WheelOdometry
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.mount import SensorMounts
from geoaccel_ros.ros.node import ManagedNode
from geoaccel_ros.ros.transforms import matrix_from_pose

# They come by the hundreds a second, and with `lossless` wait while a cloud is registered.
_QUEUE = 1000


@dataclass(frozen=True)
class PriorConfig(Configuration):
    """Which other sensor tells of the motion."""

    prior: str = parameter(
        "none",
        "Sensor that predicts the motion between two clouds: wheel_odometry (topic of that name, "
        "nav_msgs/Odometry), imu (topic of that name, sensor_msgs/Imu, its angular velocity), or "
        "none for constant velocity.",
        choices=("none", "wheel_odometry", "imu"),
    )


@dataclass(frozen=True)
class PriorMessages:
    """What a node hears from a sensor that tells of the motion.

    Attributes
    ----------
    prior : MotionPrior
        Knows what the messages say.
    """

    prior: MotionPrior
    _subscription: Subscription

    def take_waiting(self) -> None:
        """Take all that has arrived and waits; to be called on the executor's thread.

        An executor takes one message of each topic in turn. Where it is itself at work on clouds,
        and they come as fast as it works, messages that come more often would fall behind for ever.
        """
        subscription = self._subscription
        while True:
            with subscription.handle:
                taken = subscription.handle.take_message(subscription.msg_type, subscription.raw)
            if taken is None:
                return
            subscription.callback(taken[0])


def listen(
    node: ManagedNode, config: PriorConfig, mounts: SensorMounts, seconds: Callable[..., float]
) -> PriorMessages | None:
    """Return what a node hears from the sensor that ``config`` names; None if that is none.

    Parameters
    ----------
    node : ManagedNode
    config : PriorConfig
    mounts : SensorMounts
        Where the sensor sits.
    seconds : callable
        Turns a message's stamp into seconds on odometry's clock; ValueError where it cannot.
    """
    if config.prior == "none":
        return None
    wheels = config.prior == "wheel_odometry"
    prior = WheelOdometry() if wheels else Gyroscope()

    def drop(reason: str) -> None:
        reason = f"{config.prior}: {reason}"
        node.counters.count(f"dropped: {config.prior}", reason=reason)
        node.get_logger().warning(f"dropped, {reason}", throttle_duration_sec=5.0)

    def on_wheels(message: Odometry) -> None:
        node.counters.count("wheel_odometry in")
        T_base_child = mounts.lookup(message.child_frame_id)
        if T_base_child is None:
            return
        try:
            stamp = seconds(message.header.stamp)
            T_odom_child = matrix_from_pose(message.pose.pose)
        except ValueError as error:
            drop(str(error))
            return
        prior.add(stamp, T_odom_child @ se3.inverse(T_base_child))

    def on_imu(message: Imu) -> None:
        node.counters.count("imu in")
        if message.angular_velocity_covariance[0] < 0.0:
            drop("its covariance says that it has no angular velocity")
            return
        T_base_imu = mounts.lookup(message.header.frame_id)
        if T_base_imu is None:
            return
        try:
            stamp = seconds(message.header.stamp)
        except ValueError as error:
            drop(str(error))
            return
        rate = message.angular_velocity
        prior.add(stamp, T_base_imu[:3, :3] @ np.array([rate.x, rate.y, rate.z]))

    kind, callback = (Odometry, on_wheels) if wheels else (Imu, on_imu)
    profile = qos.sensor_data(_QUEUE)
    return PriorMessages(
        prior, node.subscribe(kind, config.prior, callback, profile, expected=True)
    )

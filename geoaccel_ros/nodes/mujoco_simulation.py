"""mujoco_simulation: a MuJoCo model, as its sensors and its drive show themselves on topics."""

import sys
import traceback
from dataclasses import dataclass

from geometry_msgs.msg import TransformStamped, TwistStamped
from nav_msgs.msg import Odometry
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.time import Time
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Imu, JointState, PointCloud2
from std_msgs.msg import Float64MultiArray, Header, UInt64
from std_srvs.srv import SetBool, Trigger
from tf2_msgs.msg import TFMessage

from geoaccel_ros.config import parameter
from geoaccel_ros.ros import diagnostics, qos
from geoaccel_ros.ros.diagnostics import Counters, Status
from geoaccel_ros.ros.node import ManagedNode, NodeConfig
from geoaccel_ros.ros.pointcloud2 import message_from_points
from geoaccel_ros.ros.run import run
from geoaccel_ros.ros.transforms import set_pose, stamped_transform
from geoaccel_ros.simulation import events
from geoaccel_ros.simulation.actuation import Wheels
from geoaccel_ros.simulation.thread import SimulationThread
from geoaccel_ros.simulation.world import Simulation, SimulationConfig, SimulationError

# Whoever comes late hears the newest, and nothing older.
_NEWEST = QoSProfile(
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)


@dataclass(frozen=True)
class MujocoSimulationConfig(NodeConfig, SimulationConfig):
    """Parameters of mujoco_simulation."""

    world_frame: str = parameter("world", "Frame of the true pose.")
    truth_frame: str = parameter(
        "ground_truth", "Child frame of the true pose on /tf; base_frame belongs to the odometry."
    )
    base_frame: str = parameter("base_link", "The robot's frame.")
    wheel_odometry_frame: str = parameter(
        "wheel_odom", "Frame of the pose by the wheels; not told on /tf."
    )
    lidar_frame: str = parameter("lidar", "Frame of the clouds.")
    imu_frame: str = parameter("imu", "Frame of the inertial measurements.")


class MujocoSimulation(ManagedNode):
    """cmd_vel or commands -> /clock, epoch, odom (truth), sensors, transforms.

    Sensors are joint_states, wheel_odometry, points and imu. Topics are those of what the
    configured model has. The physics thread owns MuJoCo's state and publishes what is due.
    """

    NAME = "mujoco_simulation"
    CONFIG = MujocoSimulationConfig

    def configure(self):
        self.counters = Counters("clouds out", "commands in", "commands refused")
        self._simulation = Simulation(self.config.subset(SimulationConfig))
        self._thread = self._new_thread(self.config.start_paused)
        self._publish = {
            events.ClockTick: self._publish_clock,
            events.EpochStart: self._publish_epoch,
            events.Scan: self._publish_scan,
            events.TruthState: self._publish_truth,
            events.JointState: self._publish_joints,
            events.WheelOdometry: self._publish_wheels,
            events.ImuSample: self._publish_imu,
        }
        simulation = self._simulation
        self._clock_publisher = self.advertise(Clock, "/clock", qos.CLOCK)
        self._epoch_publisher = self.advertise(UInt64, "epoch", _NEWEST)
        if simulation.has_lidar:
            self._points_publisher = self.advertise(PointCloud2, "points", qos.sensor_data())
        if simulation.has_base:
            self._odom_publisher = self.advertise(Odometry, "odom", qos.RELIABLE)
            self._tf_publisher = self.advertise(TFMessage, "/tf", qos.TRANSFORMS)
        if simulation.joint_names:
            self._joint_publisher = self.advertise(JointState, "joint_states", qos.RELIABLE)
        if simulation.has_imu:
            self._imu_publisher = self.advertise(Imu, "imu", qos.sensor_data(50))
        self._static_publisher = self.advertise(TFMessage, "/tf_static", qos.LATCHED)
        if isinstance(simulation.actuation, Wheels):
            self._wheel_publisher = self.advertise(Odometry, "wheel_odometry", qos.RELIABLE)
            self.subscribe(TwistStamped, "cmd_vel", self._on_twist, qos.RELIABLE)
        else:
            self.subscribe(Float64MultiArray, "commands", self._on_commands, qos.RELIABLE)
        self.offer(SetBool, "~/pause", self._on_pause)
        self.offer(Trigger, "~/reset", self._on_reset)

    def activate(self):
        if mounts := self._mounts():
            self._static_publisher.publish(TFMessage(transforms=mounts))
        self._thread.start()

    def deactivate(self):
        # Whoever activates again goes on from here, paused or not, with a thread of its own.
        self._thread.stop()
        self._thread = self._new_thread(self._thread.paused)

    def cleanup(self):
        self._thread = self._simulation = None

    def status(self):
        thread, simulation = self._thread, self._simulation
        values = {
            "realtime factor": f"{thread.realtime_factor:.3f}",
            "lag [s]": f"{thread.lag:.3f}",
            "simulated time [s]": f"{1e-9 * simulation.time_ns:.3f}",
            "contacts": simulation.contacts,
            "epoch": simulation.epoch,
        }
        if thread.error is not None:
            return Status(diagnostics.ERROR, f"stopped: {thread.error}", values)
        return Status(diagnostics.OK, "paused" if thread.paused else "running", values)

    def _new_thread(self, paused: bool) -> SimulationThread:
        return SimulationThread(self._simulation, self._on_event, self._on_error, paused)

    # From the physics thread.

    def _on_error(self, error: Exception) -> None:
        trace = "".join(traceback.format_exception(error))
        self.get_logger().fatal(f"the simulation stopped: {trace}")

    def _on_event(self, event) -> None:
        self._publish[type(event)](event)

    def _publish_clock(self, tick: events.ClockTick) -> None:
        self._clock_publisher.publish(Clock(clock=_stamp(tick.stamp_ns)))

    def _publish_epoch(self, start: events.EpochStart) -> None:
        self._epoch_publisher.publish(UInt64(data=start.epoch))

    def _publish_scan(self, scan: events.Scan) -> None:
        header = Header(stamp=_stamp(scan.stamp_ns), frame_id=self.config.lidar_frame)
        self._points_publisher.publish(message_from_points(header, scan.points))
        self.counters.count("clouds out")

    def _publish_truth(self, state: events.TruthState) -> None:
        config = self.config
        odom = Odometry(child_frame_id=config.base_frame)
        odom.header = Header(stamp=_stamp(state.stamp_ns), frame_id=config.world_frame)
        set_pose(odom.pose.pose, state.T_world_base)
        _set_vector(odom.twist.twist.linear, state.linear)
        _set_vector(odom.twist.twist.angular, state.angular)
        self._odom_publisher.publish(odom)
        transform = stamped_transform(
            odom.header.stamp, config.world_frame, config.truth_frame, state.T_world_base
        )
        self._tf_publisher.publish(TFMessage(transforms=[transform]))

    def _publish_joints(self, joints: events.JointState) -> None:
        message = JointState(
            name=list(joints.names),
            position=joints.position.tolist(),
            velocity=joints.velocity.tolist(),
            effort=joints.effort.tolist(),
        )
        message.header.stamp = _stamp(joints.stamp_ns)
        self._joint_publisher.publish(message)

    def _publish_wheels(self, wheels: events.WheelOdometry) -> None:
        config = self.config
        odom = Odometry(child_frame_id=config.base_frame)
        odom.header = Header(stamp=_stamp(wheels.stamp_ns), frame_id=config.wheel_odometry_frame)
        set_pose(odom.pose.pose, wheels.T_odom_base)
        odom.twist.twist.linear.x = wheels.linear
        odom.twist.twist.angular.z = wheels.angular
        self._wheel_publisher.publish(odom)

    def _publish_imu(self, sample: events.ImuSample) -> None:
        imu = Imu(header=Header(stamp=_stamp(sample.stamp_ns), frame_id=self.config.imu_frame))
        # sensor_msgs/Imu: -1 in the first element says that there is no orientation.
        imu.orientation_covariance[0] = -1.0
        _set_vector(imu.linear_acceleration, sample.linear_acceleration)
        _set_vector(imu.angular_velocity, sample.angular_velocity)
        self._imu_publisher.publish(imu)

    # From the executor.

    def _mounts(self) -> list[TransformStamped]:
        simulation, config = self._simulation, self.config
        parent = config.base_frame if simulation.has_base else config.world_frame
        stamp = _stamp(simulation.time_ns)
        return [
            stamped_transform(stamp, parent, frame, mount)
            for frame, mount in (
                (config.lidar_frame, simulation.T_base_lidar),
                (config.imu_frame, simulation.T_base_imu),
            )
            if mount is not None
        ]

    def _on_twist(self, message: TwistStamped) -> None:
        self._command(message.twist.linear.x, message.twist.angular.z)

    def _on_commands(self, message: Float64MultiArray) -> None:
        self._command(*message.data)

    def _command(self, *values: float) -> None:
        self.counters.count("commands in")
        try:
            self._thread.command(*values)
        except SimulationError as error:
            self.counters.count("commands refused")
            self.get_logger().warning(str(error), throttle_duration_sec=5.0)

    def _on_pause(self, request, response):
        error = self._thread.error
        if error is not None:
            response.success, response.message = False, f"the simulation stopped: {error}"
            return response
        (self._thread.pause if request.data else self._thread.resume)()
        response.success, response.message = True, "paused" if request.data else "running"
        return response

    def _on_reset(self, _request, response):
        if self._thread.error is None:
            self._thread.reset()
        else:
            # The thread has ended with the error; nobody else steps now.
            self._simulation.reset()
            self._thread = self._new_thread(self._thread.paused)
            self._thread.start()
        response.success, response.message = True, "robot at its start; time goes on"
        return response


def _stamp(nanoseconds: int):
    return Time(nanoseconds=nanoseconds).to_msg()


def _set_vector(vector, values) -> None:
    vector.x, vector.y, vector.z = map(float, values)


def main() -> int:
    """Run the node."""
    return run(MujocoSimulation)


if __name__ == "__main__":
    sys.exit(main())

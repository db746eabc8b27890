"""What a simulation tells at an instant; the receiver owns every array."""

from dataclasses import dataclass

import numpy as np

from geoaccel_ros.pointcloud.layout import packed_dtype

# As the Velodyne driver lays points out: 22 bytes, no padding.
POINT_DTYPE = packed_dtype(
    [("x", "f4"), ("y", "f4"), ("z", "f4"), ("intensity", "f4"), ("ring", "u2"), ("time", "f4")]
)


@dataclass(frozen=True)
class ClockTick:
    """The simulated time, in nanoseconds since the simulation was made; never decreases."""

    stamp_ns: int


@dataclass(frozen=True)
class EpochStart:
    """A new start, the first or by a reset: what comes next does not continue what came before.

    Attributes
    ----------
    epoch : int
        Number of resets so far. Time goes on over them.
    """

    stamp_ns: int
    epoch: int


@dataclass(frozen=True)
class ImuSample:
    """One sample of the IMU, in the frame ``imu``.

    Attributes
    ----------
    angular_velocity : (3,) float64, rad/s
    linear_acceleration : (3,) float64, m/s^2
        Specific force: +g on z at rest.
    """

    stamp_ns: int
    angular_velocity: np.ndarray
    linear_acceleration: np.ndarray


@dataclass(frozen=True)
class JointState:
    """The robot's hinges (rad, rad/s, Nm) and slides (m, m/s, N), in the order of ``names``.

    Attributes
    ----------
    position, velocity, effort : (njoint,) float64
        Effort is what the actuators apply.
    """

    stamp_ns: int
    names: tuple[str, ...]
    position: np.ndarray
    velocity: np.ndarray
    effort: np.ndarray


@dataclass(frozen=True)
class WheelOdometry:
    """Where the robot is by its wheels alone.

    Attributes
    ----------
    T_odom_base : (4, 4) float64
        In a frame of its own, which is where the robot stood at the start or the last reset. It
        drifts: wheels slip, and on a ramp they roll further than the map shows.
    linear, angular : float, m/s and rad/s
        Speed forward and to the left.
    """

    stamp_ns: int
    T_odom_base: np.ndarray
    linear: float
    angular: float


@dataclass(frozen=True)
class TruthState:
    """Where the robot really is.

    Attributes
    ----------
    T_world_base : (4, 4) float64
    linear, angular : (3,) float64, m/s and rad/s
        Twist of base_link, in base_link.
    epoch : int
        Number of resets so far: a pose of another epoch is no neighbour of this one.
    """

    stamp_ns: int
    T_world_base: np.ndarray
    linear: np.ndarray
    angular: np.ndarray
    epoch: int


@dataclass(frozen=True)
class Scan:
    """One revolution of the LiDAR.

    Attributes
    ----------
    stamp_ns : int
        The instant at which a point's ``time`` is 0: the sweep's start with a rolling shutter,
        otherwise the sweep's end, from whose pose all points are seen.
    points : (N,) structured array of POINT_DTYPE
        In the order of firing. x, y, z in metres in the frame ``lidar`` *at the moment of that
        ray*, as a real sensor gives them; intensity 0 to 255; ring 0 is the lowest; time in
        seconds since ``stamp_ns``.
    """

    stamp_ns: int
    points: np.ndarray


Event = ClockTick | EpochStart | ImuSample | JointState | WheelOdometry | TruthState | Scan

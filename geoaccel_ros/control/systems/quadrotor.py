"""A quadrotor, commanded by its collective thrust and three torques.

Not by its motors: noise on one motor lifts, rolls and turns at once, while a sigma for each of
thrust and torques explores each by itself, and 0 freezes it. Dividing them among motors is left to
the vehicle's mixer; limits keep within what all motors can give together.

Frames (REP 103): position and velocity in the world, z up; the attitude is the unit quaternion of
the body (x forward, y left, z along the thrust) in the world; rates and torques in the body. The
attitude has no singularity. Yaw is free: only its rate costs.
"""

import math
from dataclasses import dataclass

from geoaccel_ros.config import Configuration, parameter

STATE = ("x", "y", "z", "qw", "qx", "qy", "qz", "vx", "vy", "vz", "wx", "wy", "wz")
CONTROL = ("thrust", "torque_x", "torque_y", "torque_z")
GOAL = ("x", "y", "z")
MODEL = "quadrotor.xml"
RUNNING = ("goal", "v", "tilt", "w", "thrust", "torque")
TERMINAL = ("goal", "v", "tilt", "w")
SAMPLING = {
    "samples": 1024,
    "horizon": 30,
    "dt": 0.02,
    "sigma": (2.0, 0.03, 0.03, 0.005),
    "command_delay": 0.0,
}
TASK = {"goal": (3.0, 0.0, 0.0), "hold": 1.0}

GRAVITY = 9.81  # m/s^2
# Keeps a quotient finite at rest; its error is below what float32 resolves.
_TINY = 1e-12


@dataclass(frozen=True)
class Parameters(Configuration):
    """The vehicle and what it is made to want."""

    mass: float = parameter(1.0, "Mass.", unit="kg", minimum=0.001)
    inertia_x: float = parameter(0.01, "Moment of inertia, roll.", unit="kg m^2", minimum=1e-6)
    inertia_y: float = parameter(0.01, "Moment of inertia, pitch.", unit="kg m^2", minimum=1e-6)
    inertia_z: float = parameter(0.018, "Moment of inertia, yaw.", unit="kg m^2", minimum=1e-6)
    thrust_max: float = parameter(20.0, "Largest thrust; the least is 0.", unit="N", minimum=0.0)
    torque_max: float = parameter(
        0.5, "Largest torque of roll and of pitch.", unit="N m", minimum=0.0
    )
    yaw_torque_max: float = parameter(0.1, "Largest torque of yaw.", unit="N m", minimum=0.0)
    goal_weight: float = parameter(
        10.0,
        "Cost of a second at a metre from the goal; grows as its square.",
        unit="1/(m^2 s)",
        minimum=0.0,
    )
    v_weight: float = parameter(
        1.0, "Cost of a second at 1 m/s; grows as its square.", unit="s/m^2", minimum=0.0
    )
    tilt_weight: float = parameter(
        1.0, "Cost of a second with the thrust level; twice that upside down.", minimum=0.0
    )
    w_weight: float = parameter(
        0.1,
        "Cost of a second of turning at 1 rad/s; grows as its square.",
        unit="s/rad^2",
        minimum=0.0,
    )
    thrust_weight: float = parameter(
        0.01,
        "Cost of a second of 1 N more or less than hovering takes; grows as its square.",
        unit="1/(N^2 s)",
        minimum=0.0,
    )
    torque_weight: float = parameter(
        1.0,
        "Cost of a second of 1 N m; grows as its square.",
        unit="1/(N^2 m^2 s)",
        minimum=0.0,
    )
    final_goal_weight: float = parameter(
        10.0,
        "Cost of ending a metre from the goal; grows as its square.",
        unit="1/m^2",
        minimum=0.0,
    )
    final_v_weight: float = parameter(
        2.0, "Cost of ending at 1 m/s; grows as its square.", unit="s^2/m^2", minimum=0.0
    )
    final_tilt_weight: float = parameter(
        5.0, "Cost of ending with the thrust level; twice that upside down.", minimum=0.0
    )
    final_w_weight: float = parameter(
        0.2,
        "Cost of ending turning at 1 rad/s; grows as its square.",
        unit="s^2/rad^2",
        minimum=0.0,
    )


def limits(p: Parameters) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the smallest and the largest control."""
    torques = (p.torque_max, p.torque_max, p.yaw_torque_max)
    return (0.0, *(-torque for torque in torques)), (p.thrust_max, *torques)


def maneuvers(p: Parameters) -> tuple[tuple[float, ...], ...]:
    """Return constant controls that every update tries beside its noise: hovering, which is safe.

    Without any thrust it would fall.
    """
    return ((p.mass * GRAVITY, 0.0, 0.0, 0.0),)


def apply(model, p) -> None:
    """Write the parameters into an MjModel of MODEL; what MuJoCo derives from them is not."""
    body = model.body("base_link")
    body.mass = p.mass
    body.inertia = p.inertia_x, p.inertia_y, p.inertia_z
    model.actuator_ctrlrange[:] = list(zip(*limits(p), strict=True))


def acceleration(x, u, p):
    """Return the linear acceleration (world, m/s^2) and the angular one (body, rad/s^2): 6 values.

    Newton's and Euler's equations of a rigid body, without drag.
    """
    up_x, up_y, up_z = _thrust_direction(x[3], x[4], x[5], x[6])
    wx, wy, wz = _angular_acceleration(x[10], x[11], x[12], u, p)
    specific = u[0] / p.mass
    return specific * up_x, specific * up_y, specific * up_z - GRAVITY, wx, wy, wz


def step(x, u, p, dt):
    """Return the state after ``dt`` s of ``u``; of second order in ``dt``.

    Rates by the midpoint rule; the attitude turned by exactly the rate at the middle, for which the
    quaternion's kinematics have a closed form; the thrust along the mean of its directions before
    and after; the position at the mean velocity.
    """
    wx, wy, wz = x[10], x[11], x[12]
    ax, ay, az = _angular_acceleration(wx, wy, wz, u, p)
    half = 0.5 * dt
    middle_x, middle_y, middle_z = wx + half * ax, wy + half * ay, wz + half * az
    ax, ay, az = _angular_acceleration(middle_x, middle_y, middle_z, u, p)
    qw, qx, qy, qz = _turned(
        x[3], x[4], x[5], x[6], middle_x * half, middle_y * half, middle_z * half
    )

    before_x, before_y, before_z = _thrust_direction(x[3], x[4], x[5], x[6])
    after_x, after_y, after_z = _thrust_direction(qw, qx, qy, qz)
    gain = 0.5 * dt * u[0] * (1.0 / p.mass)
    vx = x[7] + gain * (before_x + after_x)
    vy = x[8] + gain * (before_y + after_y)
    vz = x[9] + gain * (before_z + after_z) - GRAVITY * dt
    return (
        x[0] + half * (x[7] + vx),
        x[1] + half * (x[8] + vy),
        x[2] + half * (x[9] + vz),
        qw,
        qx,
        qy,
        qz,
        vx,
        vy,
        vz,
        wx + ax * dt,
        wy + ay * dt,
        wz + az * dt,
    )


def running(x, u, u_before, goal, p):
    """Return the cost of a second in state ``x`` under control ``u``, term by term."""
    excess = u[0] - p.mass * GRAVITY
    return (
        p.goal_weight * _square(x[0] - goal[0], x[1] - goal[1], x[2] - goal[2]),
        p.v_weight * _square(x[7], x[8], x[9]),
        p.tilt_weight * _tilt(x),
        p.w_weight * _square(x[10], x[11], x[12]),
        p.thrust_weight * excess * excess,
        p.torque_weight * _square(u[1], u[2], u[3]),
    )


def terminal(x, goal, p):
    """Return the cost of ending in state ``x``: away from the goal, or not hovering."""
    return (
        p.final_goal_weight * _square(x[0] - goal[0], x[1] - goal[1], x[2] - goal[2]),
        p.final_v_weight * _square(x[7], x[8], x[9]),
        p.final_tilt_weight * _tilt(x),
        p.final_w_weight * _square(x[10], x[11], x[12]),
    )


def reached(x, goal, p) -> bool:
    """Return whether it is within 5 cm of the goal."""
    return math.dist(x[:3], goal) < 0.05


def _thrust_direction(qw, qx, qy, qz):
    """Return the body's z axis in the world: the last column of the rotation matrix."""
    return (
        2.0 * (qx * qz + qw * qy),
        2.0 * (qy * qz - qw * qx),
        1.0 - 2.0 * (qx * qx + qy * qy),
    )


def _angular_acceleration(wx, wy, wz, u, p):
    # Reciprocals of parameters: the compiler takes them out of a rollout, divisions it may not.
    return (
        (u[1] - (p.inertia_z - p.inertia_y) * wy * wz) * (1.0 / p.inertia_x),
        (u[2] - (p.inertia_x - p.inertia_z) * wz * wx) * (1.0 / p.inertia_y),
        (u[3] - (p.inertia_y - p.inertia_x) * wx * wy) * (1.0 / p.inertia_z),
    )


def _turned(qw, qx, qy, qz, half_x, half_y, half_z):
    """Return the quaternion after a turn about the body's axes; half the rotation vector is given.

    One Newton step towards the unit length takes back what rounding adds.
    """
    half = math.sqrt(_square(half_x, half_y, half_z) + _TINY)
    c = math.cos(half)
    s = math.sin(half) / half
    rx, ry, rz = s * half_x, s * half_y, s * half_z
    w = qw * c - qx * rx - qy * ry - qz * rz
    x = qw * rx + qx * c + qy * rz - qz * ry
    y = qw * ry - qx * rz + qy * c + qz * rx
    z = qw * rz + qx * ry - qy * rx + qz * c
    scale = 1.5 - 0.5 * (w * w + _square(x, y, z))
    return scale * w, scale * x, scale * y, scale * z


def _tilt(x):
    """Return 1 - cos(angle between thrust and vertical)."""
    return 2.0 * (x[4] * x[4] + x[5] * x[5])


def _square(x, y, z):
    return x * x + y * y + z * z

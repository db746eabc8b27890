"""A quadruped of twelve joints that are driven to commanded angles; MuJoCo alone rolls it out.

Its model is simulation/models/quadruped.xml, which lists the order of joints and what turns which
way. Controls are angles, not torques: noise on them moves feet, and what holds the stance needs no
samples.

Position and velocity in the world, z up; the attitude is the unit quaternion of the trunk (x
forward, y left) in the world; rates in the trunk.
"""

import math
from dataclasses import dataclass

from geoaccel_ros.config import Configuration, parameter

_LEGS = ("front_left", "front_right", "rear_left", "rear_right")
_JOINTS = tuple(f"{leg}_{joint}" for leg in _LEGS for joint in ("hip", "thigh", "knee"))

STATE = (
    *("x", "y", "z", "qw", "qx", "qy", "qz", *_JOINTS),
    *("vx", "vy", "vz", "wx", "wy", "wz", *(f"{joint}_rate" for joint in _JOINTS)),
)
CONTROL = _JOINTS
GOAL = ("x", "y")
RUNNING = ("speed", "heading", "tilt", "height", "posture", "w", "rate", "effort", "change")
TERMINAL = ("tilt", "height")
MODEL = "quadruped.xml"

# The stance, rad; the hips' are 0.
THIGH = 0.8
KNEE = -1.6
STANCE = (0.0, THIGH, KNEE) * 4
# Knots few enough for a gait's half period each, and far apart enough that feet move. What two
# cores roll out in the 40 ms of a step.
SAMPLING = {
    "samples": 64,
    "horizon": 12,
    "dt": 0.04,
    "sigma": (0.1, 0.2, 0.2) * 4,
    "noise_knots": 4,
    "noise_order": 3,
    "ess_fraction": 0.05,
    "mujoco_timestep": 0.01,
    "rollouts": "mujoco",
    "backend": "cpu",
    "command_delay": 0.0,
}
TASK = {
    "goal": (0.0, 0.0),
    "start": (0.0, 0.0, 0.3, 1.0, 0.0, 0.0, 0.0, *STANCE, *(0.0,) * 18),
    "hold": 2.0,
}

# Keeps quotients and roots smooth at the goal, m^2.
_TINY = 1e-4


@dataclass(frozen=True)
class Parameters(Configuration):
    """The robot and what it is made to want."""

    trunk_mass: float = parameter(7.0, "Mass of the trunk.", unit="kg", minimum=0.1)
    stiffness: float = parameter(
        60.0, "Torque of a joint by radian away from its command.", unit="N m/rad", minimum=0.0
    )
    reach: float = parameter(
        0.6, "Commands are so near to the stance.", unit="rad", minimum=0.01, maximum=0.9
    )
    speed: float = parameter(0.5, "Speed towards a far goal.", unit="m/s", minimum=0.0)
    height: float = parameter(0.28, "Wanted height of the trunk's centre.", unit="m", minimum=0.0)
    speed_weight: float = parameter(
        4.0,
        "Cost of a second with 1 m/s too much or too little; grows as its square.",
        unit="s/m^2",
        minimum=0.0,
    )
    heading_weight: float = parameter(
        1.0, "Cost of a second facing away from a far goal, halved.", unit="1/s", minimum=0.0
    )
    tilt_weight: float = parameter(
        20.0,
        "Cost of a second with the trunk on its side; twice that upside down.",
        unit="1/s",
        minimum=0.0,
    )
    height_weight: float = parameter(
        100.0,
        "Cost of a second a metre too high or low; grows as its square.",
        unit="1/(m^2 s)",
        minimum=0.0,
    )
    posture_weight: float = parameter(
        0.2,
        "Cost of a second with a joint 1 rad from the stance; grows as its square.",
        unit="1/(rad^2 s)",
        minimum=0.0,
    )
    w_weight: float = parameter(
        0.1,
        "Cost of a second of turning at 1 rad/s; grows as its square.",
        unit="s/rad^2",
        minimum=0.0,
    )
    rate_weight: float = parameter(
        0.001,
        "Cost of a second with a joint at 1 rad/s; grows as its square.",
        unit="s/rad^2",
        minimum=0.0,
    )
    effort_weight: float = parameter(
        0.2,
        "Cost of a second with a joint driven over 1 rad; grows as its square.",
        unit="1/(rad^2 s)",
        minimum=0.0,
    )
    change_weight: float = parameter(
        0.2,
        "Cost of a second of commands that change by 1 rad a step; grows as its square.",
        unit="1/(rad^2 s)",
        minimum=0.0,
    )
    final_tilt_weight: float = parameter(
        10.0, "Cost of ending with the trunk on its side; twice that upside down.", minimum=0.0
    )
    final_height_weight: float = parameter(
        50.0,
        "Cost of ending a metre too high or low; grows as its square.",
        unit="1/m^2",
        minimum=0.0,
    )


def limits(p: Parameters) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the smallest and the largest control."""
    return tuple(angle - p.reach for angle in STANCE), tuple(angle + p.reach for angle in STANCE)


def maneuvers(p: Parameters) -> tuple[tuple[float, ...], ...]:
    """Return constant controls that every update tries beside its noise: it stands, safe."""
    return (STANCE,)


def apply(model, p) -> None:
    """Write the parameters into an MjModel of MODEL; what MuJoCo derives from them is not."""
    trunk = model.body("base_link").id
    model.body_inertia[trunk] *= p.trunk_mass / model.body_mass[trunk]
    model.body_mass[trunk] = p.trunk_mass
    model.actuator_gainprm[:, 0] = p.stiffness
    model.actuator_biasprm[:, 1] = -p.stiffness
    for actuator, (lower, upper) in enumerate(zip(*limits(p), strict=True)):
        model.actuator_ctrlrange[actuator] = lower, upper


def reached(x, goal, p) -> bool:
    """Return whether the robot stands at the goal."""
    return math.hypot(x[0] - goal[0], x[1] - goal[1]) < 0.3 and _tilt(x) < 0.1 and x[2] > 0.2


def running(x, u, u_before, goal, p):
    """Return the terms of the cost of a second in state ``x`` under control ``u``."""
    to_x, to_y = goal[0] - x[0], goal[1] - x[1]
    distance = math.sqrt(to_x * to_x + to_y * to_y + _TINY)
    # At a pace from afar, slower within half a metre.
    pace = p.speed / max(distance, 0.5)
    facing = (to_x * _forward_x(x) + to_y * _forward_y(x)) / distance
    off_pace = _square(x[19] - pace * to_x, x[20] - pace * to_y, 0.0)
    turning = _square(x[22], x[23], x[24])
    return (
        p.speed_weight * off_pace,
        p.heading_weight * distance * (1.0 - facing) / (1.0 + distance),
        p.tilt_weight * _tilt(x),
        p.height_weight * _square(x[2] - p.height, 0.0, 0.0),
        p.posture_weight * _off_stance(x),
        p.w_weight * turning,
        p.rate_weight * _joint_rates(x),
        p.effort_weight * _driven(x, u),
        p.change_weight * _change(u, u_before),
    )


def terminal(x, goal, p):
    """Return the terms of the cost of ending in state ``x``, not standing."""
    return (
        p.final_tilt_weight * _tilt(x),
        p.final_height_weight * _square(x[2] - p.height, 0.0, 0.0),
    )


def _tilt(x):
    """Return 1 - cos(angle between the trunk's z and the vertical)."""
    return 2.0 * (x[4] * x[4] + x[5] * x[5])


def _forward_x(x):
    return 1.0 - 2.0 * (x[5] * x[5] + x[6] * x[6])


def _forward_y(x):
    return 2.0 * (x[4] * x[5] + x[3] * x[6])


def _off_stance(x):
    total = 0.0
    for leg in range(4):
        total += _square(x[7 + 3 * leg], x[8 + 3 * leg] - THIGH, x[9 + 3 * leg] - KNEE)
    return total


def _joint_rates(x):
    total = 0.0
    for joint in range(12):
        total += x[25 + joint] * x[25 + joint]
    return total


def _driven(x, u):
    total = 0.0
    for joint in range(12):
        total += (u[joint] - x[7 + joint]) * (u[joint] - x[7 + joint])
    return total


def _change(u, u_before):
    total = 0.0
    for joint in range(12):
        total += (u[joint] - u_before[joint]) * (u[joint] - u_before[joint])
    return total


def _square(x, y, z):
    return x * x + y * y + z * z

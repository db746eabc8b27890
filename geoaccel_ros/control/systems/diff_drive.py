"""A robot with differential drive, commanded by forward and turning speed.

The base follows a command like a first-order lag with limited acceleration. Frames: x, y and yaw
in the frame of the goal and the obstacles (odom), v and w in the robot's own (REP 103).
"""

import math
from dataclasses import dataclass

from geoaccel_ros.config import Configuration, parameter

STATE = ("x", "y", "yaw", "v", "w")
CONTROL = ("v_command", "w_command")
GOAL = ("x", "y")
RUNNING = ("goal", "heading", "obstacle", "reverse", "turn", "change")
TERMINAL = ("goal", "speed")
TASK = {"start": (0.0, 0.0, 0.0, 0.0, 0.0), "goal": (4.0, 2.0), "hold": 1.0}


@dataclass(frozen=True)
class Parameters(Configuration):
    """The robot and what it is made to want."""

    v_max: float = parameter(1.2, "Largest forward speed.", unit="m/s", minimum=0.0)
    v_min: float = parameter(-0.3, "Largest reverse speed, negative.", unit="m/s", maximum=0.0)
    w_max: float = parameter(1.5, "Largest turning speed.", unit="rad/s", minimum=0.0)
    v_acceleration: float = parameter(
        1.5, "Largest change of the forward speed.", unit="m/s^2", minimum=0.01
    )
    w_acceleration: float = parameter(
        3.0, "Largest change of the turning speed.", unit="rad/s^2", minimum=0.01
    )
    v_lag: float = parameter(
        0.1, "Time constant of the forward speed behind its command.", unit="s", minimum=0.001
    )
    w_lag: float = parameter(
        0.1, "Time constant of the turning speed behind its command.", unit="s", minimum=0.001
    )
    robot_radius: float = parameter(
        0.35, "Radius of the circle around base_link that holds the robot.", unit="m", minimum=0.0
    )
    safety_margin: float = parameter(
        0.08, "Nearer than this to an obstacle a rollout counts as crashed.", unit="m", minimum=0.0
    )
    inflation: float = parameter(
        0.4, "Beyond the radius, obstacles cost up to this distance.", unit="m", minimum=0.01
    )
    goal_weight: float = parameter(
        1.0, "Cost of a second at a metre from the goal.", unit="1/(m s)", minimum=0.0
    )
    heading_weight: float = parameter(
        0.5, "Cost of a second facing away from a far goal, halved.", unit="1/s", minimum=0.0
    )
    obstacle_weight: float = parameter(
        5.0, "Cost of a second in touch with an obstacle.", unit="1/s", minimum=0.0
    )
    reverse_weight: float = parameter(
        2.0, "Cost of each metre driven backwards.", unit="1/m", minimum=0.0
    )
    turn_weight: float = parameter(
        0.15,
        "Cost of a second of turning at 1 rad/s; grows as its square.",
        unit="s/rad^2",
        minimum=0.0,
    )
    change_weight: float = parameter(
        3.0,
        "Cost of a second of commands that change by 1 m/s or 1 rad/s a step; grows as its square.",
        unit="s/m^2",
        minimum=0.0,
    )
    final_goal_weight: float = parameter(
        4.0,
        "Cost of each metre between the end of the horizon and the goal.",
        unit="1/m",
        minimum=0.0,
    )
    final_speed_weight: float = parameter(
        2.0,
        "Cost of ending at the goal with 1 m/s or 1 rad/s; grows as its square.",
        unit="s^2/m^2",
        minimum=0.0,
    )


def limits(p: Parameters) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the smallest and the largest control."""
    return (p.v_min, -p.w_max), (p.v_max, p.w_max)


def maneuvers(p: Parameters) -> tuple[tuple[float, ...], ...]:
    """Return constant controls that every update tries beside its noise; the first one is safe.

    Stopping and turning on the spot are the ways out where no noisy plan is free.
    """
    return (0.0, 0.0), (0.0, 0.6 * p.w_max), (0.0, -0.6 * p.w_max)


def clearance_limit(p: Parameters) -> float:
    """Return the distance in m between centre and obstacle below which a rollout has crashed."""
    return p.robot_radius + p.safety_margin


def step(x, u, p, dt):
    """Return the state after ``dt`` s of command ``u``.

    The lag is solved exactly; the pose moves at the mean speed along the mean heading of the step,
    which is right to second order.
    """
    v = x[3] + _approach(u[0] - x[3], p.v_lag, p.v_acceleration, dt)
    w = x[4] + _approach(u[1] - x[4], p.w_lag, p.w_acceleration, dt)
    yaw = x[2] + 0.5 * (x[4] + w) * dt
    distance = 0.5 * (x[3] + v) * dt
    heading = 0.5 * (x[2] + yaw)
    return x[0] + distance * math.cos(heading), x[1] + distance * math.sin(heading), yaw, v, w


def running(x, u, u_before, goal, clearance, detour, p):
    """Return the cost of a second in state ``x`` under command ``u``, term by term."""
    to_goal_x = goal[0] - x[0]
    to_goal_y = goal[1] - x[1]
    distance = math.sqrt(to_goal_x * to_goal_x + to_goal_y * to_goal_y)
    # distance * (1 - cos(bearing)), without an angle that could wrap; fades out near the goal,
    # where the bearing of a last centimetre must not make the robot turn.
    away = distance - (to_goal_x * math.cos(x[2]) + to_goal_y * math.sin(x[2]))
    closeness = _closeness(clearance, p)
    v_change = u[0] - u_before[0]
    w_change = u[1] - u_before[1]
    return (
        p.goal_weight * (distance + detour),
        p.heading_weight * away / (distance + 1.0),
        p.obstacle_weight * closeness * closeness,
        p.reverse_weight * max(-x[3], 0.0),
        p.turn_weight * x[4] * x[4],
        p.change_weight * (v_change * v_change + w_change * w_change),
    )


def terminal(x, goal, clearance, detour, p):
    """Return the cost of ending in state ``x``: far from the goal, or at it but not at rest."""
    to_goal_x = goal[0] - x[0]
    to_goal_y = goal[1] - x[1]
    square = to_goal_x * to_goal_x + to_goal_y * to_goal_y
    speed = x[3] * x[3] + x[4] * x[4]
    return (
        p.final_goal_weight * (math.sqrt(square) + detour),
        p.final_speed_weight * speed / (1.0 + square),
    )


def reached(x, goal, p) -> bool:
    """Return whether it stands within 0.25 m of the goal."""
    distance = math.hypot(goal[0] - x[0], goal[1] - x[1])
    return distance < 0.25 and max(abs(x[3]), abs(x[4])) < 0.1


def _approach(difference, lag, acceleration, dt):
    change = difference * (1.0 - math.exp(-dt / lag))
    return max(min(change, acceleration * dt), -acceleration * dt)


def _closeness(clearance, p):
    """Return 0 beyond the inflated radius, 1 at the radius."""
    return min(max(1.0 - (clearance - p.robot_radius) * (1.0 / p.inflation), 0.0), 1.0)

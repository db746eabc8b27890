"""A pole on a cart on a rail, pushed by a force.

The pole is a point mass at ``length`` from its hinge. ``theta`` is 0 upright and grows towards
positive x; hanging it is pi. Angles need no wrapping: only their sine and cosine count.
"""

import math
from dataclasses import dataclass

from geoaccel_ros.config import Configuration, parameter

STATE = ("x", "theta", "v", "w")
CONTROL = ("force",)
GOAL = ("x",)
MODEL = "cartpole.xml"
RUNNING = ("angle", "position", "v", "w", "force", "change", "rail")
TERMINAL = ("angle",)
SAMPLING = {
    "samples": 1024,
    "horizon": 50,
    "dt": 0.02,
    "sigma": (5.0,),
    # What swings the pole up is too much to hold it still with.
    "sigma_adaptation": 0.2,
    "sigma_floor": 0.1,
    "command_delay": 0.0,
}
TASK = {"start": (0.0, math.pi, 0.0, 0.0), "goal": (0.0,), "hold": 1.0}

GRAVITY = 9.81  # m/s^2


@dataclass(frozen=True)
class Parameters(Configuration):
    """The cart, its pole and what they are made to want."""

    cart_mass: float = parameter(1.0, "Mass of the cart.", unit="kg", minimum=0.001)
    pole_mass: float = parameter(0.1, "Mass at the end of the pole.", unit="kg", minimum=0.0)
    length: float = parameter(0.5, "From the hinge to that mass.", unit="m", minimum=0.001)
    force_max: float = parameter(20.0, "Largest force on the cart.", unit="N", minimum=0.0)
    rail_half_length: float = parameter(
        2.4, "The rail reaches so far to both sides of x = 0.", unit="m", minimum=0.0
    )
    angle_weight: float = parameter(
        5.0, "Cost of a second with the pole level; twice that hanging.", unit="1/s", minimum=0.0
    )
    position_weight: float = parameter(
        1.0,
        "Cost of a second at a metre from the goal; grows as its square.",
        unit="1/(m^2 s)",
        minimum=0.0,
    )
    v_weight: float = parameter(
        0.1,
        "Cost of a second of the cart at 1 m/s; grows as its square.",
        unit="s/m^2",
        minimum=0.0,
    )
    w_weight: float = parameter(
        0.01,
        "Cost of a second of the pole at 1 rad/s; grows as its square.",
        unit="s/rad^2",
        minimum=0.0,
    )
    force_weight: float = parameter(
        0.001,
        "Cost of a second of 1 N; grows as its square.",
        unit="1/(N^2 s)",
        minimum=0.0,
    )
    change_weight: float = parameter(
        0.01,
        "Cost of a second of forces that change by 1 N a step; grows as its square.",
        unit="1/(N^2 s)",
        minimum=0.0,
    )
    rail_weight: float = parameter(
        100.0, "Cost of a second at a metre beyond the rail.", unit="1/(m s)", minimum=0.0
    )
    final_angle_weight: float = parameter(
        0.5, "Cost of ending with the pole level; twice that hanging.", minimum=0.0
    )


def limits(p: Parameters) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the smallest and the largest control."""
    return (-p.force_max,), (p.force_max,)


def apply(model, p) -> None:
    """Write the parameters into an MjModel of MODEL; what MuJoCo derives from them is not."""
    model.body("cart").mass = p.cart_mass
    model.body("pole").mass = p.pole_mass
    model.body("pole").ipos = 0.0, 0.0, p.length
    model.actuator_ctrlrange[:] = list(zip(*limits(p), strict=True))


def acceleration(x, u, p):
    """Return the acceleration of the cart (m/s^2) and of the pole (rad/s^2); without friction.

    Lagrange's equations of both, solved for the two.
    """
    sine = math.sin(x[1])
    cosine = math.cos(x[1])
    inertia = p.cart_mass + p.pole_mass * sine * sine
    radial = p.length * x[3] * x[3]
    cart = (u[0] + p.pole_mass * sine * (radial - GRAVITY * cosine)) / inertia
    weight = (p.cart_mass + p.pole_mass) * GRAVITY
    pole = (weight * sine - (u[0] + p.pole_mass * radial * sine) * cosine) / (p.length * inertia)
    return cart, pole


def step(x, u, p, dt):
    """Return the state after ``dt`` s of force ``u``.

    The midpoint rule, of second order. Measured on MuJoCo's plant at dt 0.02, 512 samples: upright
    after 0.9 s, as with rollouts by MuJoCo itself; semi-implicit Euler, which moves positions half
    a step too early, takes 1.7 s.
    """
    half = 0.5 * dt
    cart, pole = acceleration(x, u, p)
    middle = (x[0] + half * x[2], x[1] + half * x[3], x[2] + half * cart, x[3] + half * pole)
    cart, pole = acceleration(middle, u, p)
    return x[0] + dt * middle[2], x[1] + dt * middle[3], x[2] + dt * cart, x[3] + dt * pole


def running(x, u, u_before, goal, p):
    """Return the cost of a second in state ``x`` under force ``u``, term by term."""
    off_goal = x[0] - goal[0]
    change = u[0] - u_before[0]
    return (
        p.angle_weight * _height_lost(x),
        p.position_weight * off_goal * off_goal,
        p.v_weight * x[2] * x[2],
        p.w_weight * x[3] * x[3],
        p.force_weight * u[0] * u[0],
        p.change_weight * change * change,
        p.rail_weight * max(abs(x[0]) - p.rail_half_length, 0.0),
    )


def terminal(x, goal, p):
    """Return the cost of ending in state ``x``, not upright."""
    return (p.final_angle_weight * _height_lost(x),)


def reached(x, goal, p) -> bool:
    """Return whether the pole is upright, wherever the cart is."""
    return abs(math.remainder(x[1], 2.0 * math.pi)) < 0.1


def _height_lost(x):
    """Return 1 - cos(theta), in the form that float32 resolves near upright."""
    sine = math.sin(0.5 * x[1])
    return 2.0 * sine * sine

"""The shipped systems once more, for packages that roll all samples out in arrays.

Dynamics and costs are those of :mod:`geoaccel_ros.control.systems`, written as one writes for
arrays: few operations on wide ones. ``xp`` is :mod:`numpy` or :mod:`torch`; states are (K, X),
controls (K, U), costs (K,). Obstacles are left out.
"""

import math
from collections.abc import Callable
from types import ModuleType

from geoaccel_ros.benchmark.mppi_problems import Problem
from geoaccel_ros.control.systems.quadrotor import GRAVITY


class _Model:
    def __init__(self, problem: Problem, xp: ModuleType, array: Callable):
        system = problem.loaded()
        # Python's own numbers leave arrays float32.
        self._p = system.pack(system.parameters(), float)
        self._xp, self._array, self._dt = xp, array, problem.dt
        self._goal = array(problem.goal)


class Cartpole(_Model):
    def _rates(self, x, u):
        p, xp = self._p, self._xp
        theta, w, force = x[:, 1], x[:, 3], u[:, 0]
        sine, cosine = xp.sin(theta), xp.cos(theta)
        inertia = p.cart_mass + p.pole_mass * sine * sine
        radial = p.length * w * w
        cart = (force + p.pole_mass * sine * (radial - GRAVITY * cosine)) / inertia
        weight = (p.cart_mass + p.pole_mass) * GRAVITY
        torque = weight * sine - (force + p.pole_mass * radial * sine) * cosine
        pole = torque / (p.length * inertia)
        return xp.stack((x[:, 2], w, cart, pole), -1)

    def step(self, x, u):
        middle = x + 0.5 * self._dt * self._rates(x, u)
        return x + self._dt * self._rates(middle, u)

    def running(self, x, u, u_before):
        p, xp = self._p, self._xp
        off_goal = x[:, 0] - self._goal[0]
        change = (u - u_before)[:, 0]
        return (
            p.angle_weight * (1.0 - xp.cos(x[:, 1]))
            + p.position_weight * off_goal * off_goal
            + p.v_weight * x[:, 2] * x[:, 2]
            + p.w_weight * x[:, 3] * x[:, 3]
            + p.force_weight * u[:, 0] * u[:, 0]
            + p.change_weight * change * change
            + p.rail_weight * xp.clip(xp.abs(x[:, 0]) - p.rail_half_length, 0.0, None)
        )

    def terminal(self, x):
        return self._p.final_angle_weight * (1.0 - self._xp.cos(x[:, 1]))


class Quadrotor(_Model):
    def __init__(self, problem: Problem, xp: ModuleType, array: Callable):
        super().__init__(problem, xp, array)
        p = self._p
        self._inertia = array((p.inertia_x, p.inertia_y, p.inertia_z))
        self._gyroscopic = array(
            (p.inertia_z - p.inertia_y, p.inertia_x - p.inertia_z, p.inertia_y - p.inertia_x)
        )
        self._fall = array((0.0, 0.0, GRAVITY * problem.dt))

    def _angular_acceleration(self, w, torque):
        roll = self._xp.roll
        return (torque - self._gyroscopic * roll(w, -1, -1) * roll(w, -2, -1)) / self._inertia

    def _thrust_direction(self, q):
        w, x, y, z = q[:, 0], q[:, 1], q[:, 2], q[:, 3]
        return self._xp.stack(
            (2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y)), -1
        )

    def step(self, x, u):
        xp, dt = self._xp, self._dt
        q, v, w, torque = x[:, 3:7], x[:, 7:10], x[:, 10:], u[:, 1:]
        middle = w + 0.5 * dt * self._angular_acceleration(w, torque)
        half_turn = 0.5 * dt * middle
        angle = xp.sqrt((half_turn * half_turn).sum(-1) + 1e-12)[:, None]
        cosine, turn = xp.cos(angle), xp.sin(angle) / angle * half_turn
        real, imaginary = q[:, :1], q[:, 1:]
        cross = xp.roll(imaginary, -1, -1) * xp.roll(turn, -2, -1) - xp.roll(
            imaginary, -2, -1
        ) * xp.roll(turn, -1, -1)
        turned = xp.concatenate(
            (
                real * cosine - (imaginary * turn).sum(-1)[:, None],
                real * turn + cosine * imaginary + cross,
            ),
            -1,
        )
        turned = turned * (1.5 - 0.5 * (turned * turned).sum(-1))[:, None]
        directions = self._thrust_direction(q) + self._thrust_direction(turned)
        faster = v + (0.5 * dt / self._p.mass) * u[:, :1] * directions - self._fall
        position = x[:, :3] + 0.5 * dt * (v + faster)
        rates = w + dt * self._angular_acceleration(middle, torque)
        return xp.concatenate((position, turned, faster, rates), -1)

    def running(self, x, u, u_before):
        p = self._p
        to_goal, v, w, torque = x[:, :3] - self._goal, x[:, 7:10], x[:, 10:], u[:, 1:]
        excess = u[:, 0] - p.mass * GRAVITY
        return (
            p.goal_weight * (to_goal * to_goal).sum(-1)
            + p.v_weight * (v * v).sum(-1)
            + p.tilt_weight * 2.0 * (x[:, 4:6] * x[:, 4:6]).sum(-1)
            + p.w_weight * (w * w).sum(-1)
            + p.thrust_weight * excess * excess
            + p.torque_weight * (torque * torque).sum(-1)
        )

    def terminal(self, x):
        p = self._p
        to_goal, v, w = x[:, :3] - self._goal, x[:, 7:10], x[:, 10:]
        return (
            p.final_goal_weight * (to_goal * to_goal).sum(-1)
            + p.final_v_weight * (v * v).sum(-1)
            + p.final_tilt_weight * 2.0 * (x[:, 4:6] * x[:, 4:6]).sum(-1)
            + p.final_w_weight * (w * w).sum(-1)
        )


class DiffDrive(_Model):
    def step(self, x, u):
        p, xp, dt = self._p, self._xp, self._dt
        v = x[:, 3] + self._approach(u[:, 0] - x[:, 3], p.v_lag, p.v_acceleration)
        w = x[:, 4] + self._approach(u[:, 1] - x[:, 4], p.w_lag, p.w_acceleration)
        yaw = x[:, 2] + 0.5 * dt * (x[:, 4] + w)
        distance = 0.5 * dt * (x[:, 3] + v)
        heading = 0.5 * (x[:, 2] + yaw)
        return xp.stack(
            (
                x[:, 0] + distance * xp.cos(heading),
                x[:, 1] + distance * xp.sin(heading),
                yaw,
                v,
                w,
            ),
            -1,
        )

    def running(self, x, u, u_before):
        p, xp = self._p, self._xp
        to_goal, change = self._goal - x[:, :2], u - u_before
        distance = xp.sqrt((to_goal * to_goal).sum(-1))
        away = distance - (to_goal[:, 0] * xp.cos(x[:, 2]) + to_goal[:, 1] * xp.sin(x[:, 2]))
        return (
            p.goal_weight * distance
            + p.heading_weight * away / (distance + 1.0)
            + p.reverse_weight * xp.clip(-x[:, 3], 0.0, None)
            + p.turn_weight * x[:, 4] * x[:, 4]
            + p.change_weight * (change * change).sum(-1)
        )

    def terminal(self, x):
        p, xp = self._p, self._xp
        to_goal, speeds = self._goal - x[:, :2], x[:, 3:]
        square = (to_goal * to_goal).sum(-1)
        return p.final_goal_weight * xp.sqrt(square) + p.final_speed_weight * (speeds * speeds).sum(
            -1
        ) / (1.0 + square)

    def _approach(self, difference, lag, acceleration):
        most = acceleration * self._dt
        return self._xp.clip(difference * (1.0 - math.exp(-self._dt / lag)), -most, most)


MODELS = {"cartpole": Cartpole, "quadrotor": Quadrotor, "diff_drive": DiffDrive}

"""Rollout problems for tests, and what they should come to: float64, NumPy, all samples at once."""

import numpy as np

from geoaccel_ros.control.detour import detour
from geoaccel_ros.control.distance_field import DistanceField, distances_to, empty_field
from geoaccel_ros.control.rollouts import CRASH_COST, Problem
from geoaccel_ros.control.systems import diff_drive, load_system

SYSTEM = load_system("diff_drive")
PARAMETERS = diff_drive.Parameters()


def problem(seed, yaw, samples=256, horizon=40, dt=0.1):
    """Return rollouts among random obstacles, 100 m from the frame's origin."""
    rng = np.random.default_rng(seed)
    origin = np.array([100.3, -57.9])
    occupied = np.zeros((100, 100), bool)
    cells = rng.integers(0, 100, (40, 2))
    away = np.hypot(*(cells - 50).T) > 9
    occupied[cells[away, 0], cells[away, 1]] = True
    field = DistanceField(distances_to(occupied, 0.1), origin - 4.95, 0.1, 0.0)
    goal = origin + (3.0, 2.5)
    lower, upper = (float32_tuple(limit) for limit in SYSTEM.limits(PARAMETERS))
    return Problem(
        start=float32_tuple((0.0, 0.0, yaw, 0.6, -0.2)),
        control_before=float32_tuple((0.5, 0.1)),
        goal=float32_tuple(goal - origin),
        plan=rng.normal(0.4, 0.4, (horizon, 2)).astype(np.float32),
        noise=rng.normal(0.0, 0.8, (horizon, 2, samples)).astype(np.float32),
        lower=lower,
        upper=upper,
        p=SYSTEM.pack(PARAMETERS),
        field=field,
        detour=detour(field, goal, 0.5),
        origin=origin,
        clearance_limit=np.float32(0.43),
        dt=np.float32(dt),
    )


def float32_tuple(values):
    return tuple(np.float32(value) for value in values)


def _lookup(grid, origin, x, y, outside):
    column = (x - (grid.origin[0] - origin[0])) / grid.resolution
    row = (y - (grid.origin[1] - origin[1])) / grid.resolution
    rows, columns = grid.distances.shape
    inside = (column >= 0) & (row >= 0) & (column < columns - 1) & (row < rows - 1)
    i = np.clip(row.astype(int), 0, rows - 2)
    j = np.clip(column.astype(int), 0, columns - 2)
    a, b = row - i, column - j
    values = grid.distances.astype(float)
    mixed = (1 - a) * ((1 - b) * values[i, j] + b * values[i, j + 1]) + a * (
        (1 - b) * values[i + 1, j] + b * values[i + 1, j + 1]
    )
    return np.where(inside, mixed, outside)


def reference(posed):
    """Return states (T+1, 5, K), and (K,) costs, crashed, and the clearance that decides that."""
    p, dt = PARAMETERS, float(posed.dt)
    horizon, _, samples = posed.noise.shape
    x, y, yaw, v, w = (np.full(samples, float(value)) for value in posed.start)
    before = [np.full(samples, float(value)) for value in posed.control_before]
    goal_x, goal_y = (float(value) for value in posed.goal)
    cost, crashed = np.zeros(samples), np.zeros(samples, bool)
    closest = np.full(samples, np.inf)
    states = [np.array([x, y, yaw, v, w])]
    lower, upper = np.array(posed.lower, float), np.array(posed.upper, float)
    for t in range(horizon):
        u = posed.plan[t, :, None].astype(float) + posed.noise[t]
        u = np.clip(u, lower[:, None], upper[:, None])
        v_new = v + np.clip(
            (u[0] - v) * -np.expm1(-dt / p.v_lag), -p.v_acceleration * dt, p.v_acceleration * dt
        )
        w_new = w + np.clip(
            (u[1] - w) * -np.expm1(-dt / p.w_lag), -p.w_acceleration * dt, p.w_acceleration * dt
        )
        yaw_new = yaw + dt * (w + w_new) / 2
        moved = dt * (v + v_new) / 2 * np.exp(0.5j * (yaw + yaw_new))
        x, y, yaw, v, w = x + moved.real, y + moved.imag, yaw_new, v_new, w_new
        states.append(np.array([x, y, yaw, v, w]))
        clearance = _lookup(posed.field, posed.origin, x, y, 100.0)
        further = _lookup(posed.detour, posed.origin, x, y, 0.0)
        closest = np.where(crashed, closest, np.minimum(closest, clearance))
        now = ~crashed & (clearance < posed.clearance_limit)
        cost[now] += CRASH_COST * dt * (horizon - t)
        crashed |= now
        to_goal = (goal_x - x) + 1j * (goal_y - y)
        distance = np.abs(to_goal)
        facing = np.cos(np.angle(to_goal) - yaw)
        closeness = np.clip(1 - (clearance - p.robot_radius) / p.inflation, 0, 1)
        running = (
            p.goal_weight * (distance + further)
            + p.heading_weight * distance * (1 - facing) / (1 + distance)
            + p.obstacle_weight * closeness**2
            + p.reverse_weight * np.maximum(0, -v)
            + p.turn_weight * w**2
            + p.change_weight * ((u[0] - before[0]) ** 2 + (u[1] - before[1]) ** 2)
        )
        cost += np.where(crashed, 0.0, dt * running)
        before = u
    final = p.final_goal_weight * (distance + further)
    final += p.final_speed_weight * (v**2 + w**2) / (1 + distance**2)
    cost += np.where(crashed, 0.0, final)
    return np.array(states), cost, crashed, closest


def free_problem(name, seed, samples=64, horizon=40):
    """Return rollouts of a system that knows no obstacles, from a state far from rest."""
    system = load_system(name)
    parameters = system.parameters()
    rng = np.random.default_rng(seed)
    start = rng.normal(0.0, 1.0, len(system.state))
    attitude = [component.startswith("q") for component in system.state]
    start[attitude] /= np.linalg.norm(start[attitude])
    lower, upper = (np.array(limit) for limit in system.limits(parameters))
    plan = rng.uniform(lower, upper, (horizon, len(lower)))
    noise = rng.normal(0.0, 0.3, (horizon, len(lower), samples)) * (upper - lower)[:, None]
    return Problem(
        start=float32_tuple(start),
        control_before=float32_tuple(0.5 * (lower + upper)),
        goal=float32_tuple(rng.normal(0.0, 1.0, len(system.goal))),
        plan=plan.astype(np.float32),
        noise=noise.astype(np.float32),
        lower=float32_tuple(lower),
        upper=float32_tuple(upper),
        p=system.pack(parameters),
        field=empty_field(),
        detour=empty_field(),
        origin=np.zeros(2),
        clearance_limit=np.float32(0.0),
        dt=np.float32(0.02),
    )


def free_reference(name, posed):
    """Return the costs (K,) of those rollouts by the system's own functions, in float64."""
    system = load_system(name)
    p = type(posed.p)(*(float(value) for value in posed.p))
    goal, dt = _float64_tuple(posed.goal), float(posed.dt)
    costs = []
    for noise in posed.noise.transpose(2, 0, 1).astype(float):
        x, before, cost = _float64_tuple(posed.start), _float64_tuple(posed.control_before), 0.0
        for u in np.clip(posed.plan + noise, posed.lower, posed.upper):
            x = system.step(x, tuple(u), p, dt)
            cost += dt * sum(system.running(x, tuple(u), before, goal, p))
            before = tuple(u)
        costs.append(cost + sum(system.terminal(x, goal, p)))
    return np.array(costs)


def _float64_tuple(values):
    return tuple(float(value) for value in values)

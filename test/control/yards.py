"""A plant and a lidar to close the loop around MPPI: written apart from the model it tests.

The world is a set of segments and circles. The robot is integrated in float64 at 5 ms; what the
controller gets is late and noisy, as lidar odometry's output is.
"""

import functools
import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from geoaccel_ros.control.goals import GoalConfig, GoalSequence
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.obstacles import ObstacleConfig, ObstacleMap

RADIUS = 0.35
STEP = 0.005


@dataclass
class Yard:
    """Walls as segments (N, 4) of x0, y0, x1, y1 and pillars (M, 3) of x, y, radius, in metres."""

    start: tuple[float, float, float]
    goals: list[tuple[float, float]]
    segments: list[tuple[float, float, float, float]] = field(default_factory=list)
    pillars: list[tuple[float, float, float]] = field(default_factory=list)

    def box(self, x, y, length, width, yaw=0.0):
        """Add the four sides of a box around (x, y)."""
        c, s = math.cos(yaw), math.sin(yaw)
        corners = [
            (x + c * a - s * b, y + s * a + c * b)
            for a, b in [
                (-length / 2, -width / 2),
                (length / 2, -width / 2),
                (length / 2, width / 2),
                (-length / 2, width / 2),
            ]
        ]
        for first, second in zip(corners, corners[1:] + corners[:1], strict=True):
            self.segments.append((*first, *second))
        return self

    def pillar(self, x, y, radius):
        """Add a round pillar."""
        self.pillars.append((x, y, radius))
        return self

    def clearance(self, points):
        """Return the distance (N,) from points (N, 2) to the nearest surface."""
        points = np.asarray(points, float).reshape(-1, 2)
        nearest = np.full(len(points), np.inf)
        if self.segments:
            segments = np.array(self.segments)
            first, along = segments[:, :2], segments[:, 2:] - segments[:, :2]
            from_first = points[:, None] - first
            t = np.sum(from_first * along, -1) / np.sum(along * along, -1)
            gap = from_first - np.clip(t, 0.0, 1.0)[..., None] * along
            nearest = np.minimum(nearest, np.linalg.norm(gap, axis=-1).min(1))
        for x, y, radius in self.pillars:
            nearest = np.minimum(nearest, np.hypot(points[:, 0] - x, points[:, 1] - y) - radius)
        return nearest

    def ranges(self, pose, angles):
        """Return the range (N,) to the first surface along body angles (N,); inf where none is."""
        origin = np.array(pose[:2])
        heading = pose[2] + angles
        direction = np.column_stack((np.cos(heading), np.sin(heading)))
        best = np.full(len(angles), np.inf)
        if self.segments:
            segments = np.array(self.segments)
            along = segments[:, 2:] - segments[:, :2]
            to_first = segments[:, :2] - origin
            cross = direction[:, :1] * along[:, 1] - direction[:, 1:] * along[:, 0]
            with np.errstate(divide="ignore", invalid="ignore"):
                r = (to_first[:, 0] * along[:, 1] - to_first[:, 1] * along[:, 0]) / cross
                s = (to_first[:, 0] * direction[:, 1:] - to_first[:, 1] * direction[:, :1]) / cross
            hit = (r > 0.0) & (s >= 0.0) & (s <= 1.0)
            best = np.minimum(best, np.where(hit, r, np.inf).min(1))
        for x, y, radius in self.pillars:
            to_center = np.array((x, y)) - origin
            along = direction @ to_center
            discriminant = radius**2 - (to_center @ to_center - along**2)
            r = along - np.sqrt(np.maximum(discriminant, 0.0))
            best = np.minimum(best, np.where((discriminant >= 0.0) & (r > 0.0), r, np.inf))
        return best


@dataclass
class Plant:
    """The robot: lag, limited acceleration, and a dead time before a command is acted on."""

    pose: np.ndarray
    v_lag: float = 0.12
    w_lag: float = 0.08
    dead_time: float = 0.04
    v: float = 0.0
    w: float = 0.0
    now: float = 0.0

    def __post_init__(self):
        self._pending = deque()
        self._u = np.zeros(2)

    def command(self, u):
        self._pending.append((self.now + self.dead_time, np.array(u, float)))

    def advance(self):
        while self._pending and self._pending[0][0] <= self.now:
            self._u = self._pending.popleft()[1]
        self.v += np.clip((self._u[0] - self.v) / self.v_lag, -1.5, 1.5) * STEP
        self.w += np.clip((self._u[1] - self.w) / self.w_lag, -3.0, 3.0) * STEP
        self.pose = self.pose + STEP * np.array(
            (self.v * math.cos(self.pose[2]), self.v * math.sin(self.pose[2]), self.w)
        )
        self.now += STEP


@dataclass
class Drive:
    """What happened: simulated seconds, metres, and the trace (N, 5) of the true state."""

    reached: int
    finished: bool
    seconds: float
    min_clearance: float
    path: float
    final_distance: float
    not_ok: int
    trace: np.ndarray
    commands: np.ndarray


def drive(
    yard: Yard,
    mppi: Mppi,
    seed: int,
    limit: float,
    pose_delay: float = 0.12,
    period: float = 0.05,
    never_finished: bool = False,
    position_noise: float = 0.02,
    yaw_noise: float = math.radians(0.5),
    linger: float = 0.0,
) -> Drive:
    """Drive through the yard's goals; stop ``linger`` s after the last one or at ``limit``.

    After the last goal the robot is told to stand, unless ``never_finished``: then it is left to
    the controller to bring it to rest at the first goal.

    The lidar and its odometry run at 10 Hz and arrive ``pose_delay`` late; the controller runs
    every ``period`` s and knows the stamp of what it gets.
    """
    rng = np.random.default_rng(seed)
    plant = Plant(np.array(yard.start, float))
    goals, when = GoalSequence(yard.goals), GoalConfig()
    obstacles = ObstacleMap(ObstacleConfig())
    angles = np.linspace(-math.pi, math.pi, 360, endpoint=False)
    mppi.reset()
    on_the_way = deque()
    measured = None
    sent = deque(maxlen=40)
    trace, commands = [], []
    not_ok = 0
    finished_at = None
    steps_per_scan, steps_per_update = round(0.1 / STEP), round(period / STEP)
    for i in range(round(limit / STEP)):
        now = plant.now
        if i % steps_per_scan == 0:
            pose = plant.pose + rng.normal(0.0, (position_noise, position_noise, yaw_noise))
            twist = np.array((plant.v, plant.w)) + rng.normal(0.0, (0.04, 0.03))
            ranges = yard.ranges(plant.pose, angles)
            seen = ranges < 15.0
            distance = ranges[seen] + rng.normal(0.0, 0.01, seen.sum())
            heading = pose[2] + angles[seen]
            points = pose[:2] + distance[:, None] * np.column_stack(
                (np.cos(heading), np.sin(heading))
            )
            on_the_way.append((now + pose_delay, now, np.array((*pose, *twist)), points))
        while on_the_way and on_the_way[0][0] <= now:
            _, stamp, state, points = on_the_way.popleft()
            measured = (stamp, state)
            obstacles.add(points, stamp)
            mppi.set_obstacles(obstacles.distance_field(state[:2], stamp))
        if i % steps_per_update == 0 and measured is not None:
            stamp, state = measured
            state = mppi.predict(state, stamp, sent, now)
            if not never_finished:
                speed = max(abs(state[3]), abs(state[4]))
                goals.update(functools.partial(when.reached, position=state[:2], speed=speed))
                if goals.finished and finished_at is None:
                    finished_at = now
            u = np.zeros(2)
            if not goals.finished:
                update = mppi.update(state, goals.current, now)
                not_ok += not update.ok
                u = update.command
            sent.append((now, u))
            plant.command(u)
            commands.append(u)
        plant.advance()
        trace.append((*plant.pose, plant.v, plant.w))
        if finished_at is not None and now >= finished_at + linger:
            break
    trace = np.array(trace)
    return Drive(
        reached=goals.index,
        finished=goals.finished,
        seconds=plant.now,
        min_clearance=float(yard.clearance(trace[:, :2]).min()),
        path=float(np.linalg.norm(np.diff(trace[:, :2], axis=0), axis=1).sum()),
        final_distance=float(np.hypot(*(trace[-1, :2] - yard.goals[-1]))),
        not_ok=not_ok,
        trace=trace,
        commands=np.array(commands),
    )


def fenced(yard: Yard, low: float, high: float) -> Yard:
    """Add a wall around the square from (low, low) to (high, high)."""
    middle, side = 0.5 * (low + high), high - low
    return yard.box(middle, middle, side, side)


def wall_ahead(width: float) -> Yard:
    """Return a wall of that width square across the way to the goal."""
    return Yard((0.0, 0.0, 0.0), [(8.0, 0.0)]).box(4.0, 0.0, 0.3, width)


def gap(width: float) -> Yard:
    """Return a long wall with one gap, not in line with start and goal."""
    yard = Yard((0.0, 0.0, 0.0), [(8.0, 0.0)])
    yard.box(4.0, 1.0 + width / 2 + 4.0, 0.3, 8.0)
    return yard.box(4.0, 1.0 - width / 2 - 4.0, 0.3, 8.0)


def cluttered(seed: int, goals: int = 5) -> Yard:
    """Return a fenced 16 m yard of boxes and pillars at least 1.6 m apart, and goals between."""
    rng = np.random.default_rng(1000 + seed)
    yard = fenced(Yard((0.0, 0.0, rng.uniform(-math.pi, math.pi)), []), -8.0, 8.0)
    placed = [(0.0, 0.0, 0.8)]
    while len(placed) < 10:
        x, y = rng.uniform(-6.0, 6.0, 2)
        length, width = rng.uniform(0.4, 2.2), rng.uniform(0.3, 1.2)
        is_box = rng.random() < 0.6
        size = math.hypot(length, width) / 2 if is_box else rng.uniform(0.1, 0.4)
        if min(math.hypot(x - a, y - b) - size - r for a, b, r in placed) < 1.6:
            continue
        placed.append((x, y, size))
        if is_box:
            yard.box(x, y, length, width, rng.uniform(0.0, math.pi))
        else:
            yard.pillar(x, y, size)
    last = np.zeros(2)
    while len(yard.goals) < goals:
        goal = rng.uniform(-7.0, 7.0, 2)
        if yard.clearance(goal)[0] > 0.8 and np.hypot(*(goal - last)) > 4.0:
            yard.goals.append(tuple(goal))
            last = goal
    return yard


def dead_end() -> Yard:
    """Return a U that opens towards the start, with the goal behind its bottom."""
    yard = Yard((0.0, 0.0, 0.0), [(6.0, 0.0)]).box(3.5, 0.0, 0.2, 3.2)
    return yard.box(2.2, 1.6, 2.6, 0.2).box(2.2, -1.6, 2.6, 0.2)


def slalom() -> Yard:
    """Return four long walls to pass in turns on the left and on the right."""
    yard = Yard((0.0, 0.0, 0.0), [(12.0, 0.0)])
    for x, side in ((2.5, -1), (5.0, 1), (7.5, -1), (10.0, 1)):
        yard.box(x, 1.6 * side, 0.25, 4.0)
    return yard

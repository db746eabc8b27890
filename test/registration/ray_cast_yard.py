"""A yard and a corridor of boxes, seen by a 16-beam lidar that moves while it turns."""

import numpy as np

from geoaccel_ros.registration import se3

RINGS, COLUMNS, PERIOD = 16, 512, 0.1
HEIGHT = 0.6

# Lower and upper corner of each box, metres: ground, four walls, things that stand about.
YARD = np.array(
    [
        [[-13, -13, -1.0], [13, 13, 0.0]],
        [[-13, 12, 0], [13, 13, 3]],
        [[-13, -13, 0], [13, -12, 3]],
        [[12, -12, 0], [13, 12, 3]],
        [[-13, -12, 0], [-12, 12, 3]],
        [[4, 3, 0], [5.5, 4, 1.5]],
        [[-6, 2, 0], [-5, 6, 2.0]],
        [[-4, -8, 0], [-2, -7, 1.2]],
        [[6, -6, 0], [6.6, -5.4, 2.5]],
        [[-9, -3, 0], [-8.2, -2.2, 2.5]],
        [[1, 8, 0], [3, 9.5, 1.0]],
        [[2, -10, 0], [2.5, -9.5, 2.5]],
    ],
    float,
)
# 4 m wide; cupboards along one side alone tell how far one has come.
CORRIDOR = np.array(
    [
        [[-300, -13, -1], [300, 13, 0]],
        [[-300, 2, 0], [300, 3, 3]],
        [[-300, -3, 0], [300, -2, 3]],
        *([[x, 1.2, 0], [x + 0.5, 2, 1.5]] for x in range(-20, 12, 4)),
    ],
    float,
)


# A wall beside a plain, and the plain alone.
WALL = np.array([[[-300, -300, -1], [300, 300, 0]], [[-300, 4, 0], [300, 5, 4]]], float)
PLAIN = WALL[:1]
# Elevations of the beams, radians, and those of a lidar that has one alone.
BEAMS, SINGLE_BEAM = np.radians(np.linspace(-15, 15, RINGS)), np.zeros(1)


def scan(pose_at, start: float, noise: float = 0.01, seed: int = 0, boxes=YARD, elevation=BEAMS):
    """Return points (N, 3) in the sensor's frame at each ray's own time, and those times (N,).

    ``pose_at(t)`` is T_world_base; times count from ``start``, the sweep lasts PERIOD.
    """
    times = np.arange(COLUMNS) * PERIOD / COLUMNS
    poses = np.array([pose_at(start + t) for t in times])
    azimuth = -np.pi + 2 * np.pi * np.arange(COLUMNS) / COLUMNS
    rays = np.stack(
        [
            np.cos(azimuth)[:, None] * np.cos(elevation),
            np.sin(azimuth)[:, None] * np.cos(elevation),
            np.broadcast_to(np.sin(elevation), (COLUMNS, len(elevation))),
        ],
        axis=-1,
    )
    directions = np.einsum("cij,crj->cri", poses[:, :3, :3], rays).reshape(-1, 3)
    origins = np.repeat(poses[:, :3, 3], len(elevation), axis=0)
    ranges = _hit(boxes, origins, directions)
    ranges += np.random.default_rng(seed).normal(0.0, noise, len(ranges))
    hit = np.isfinite(ranges)
    return rays.reshape(-1, 3)[hit] * ranges[hit, None], np.repeat(times, len(elevation))[hit]


def _hit(boxes, origins, directions):
    """Distances to the nearest box, by slabs; infinite where a ray meets none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = 1.0 / directions[:, None, :]
        first = (boxes[None, :, 0] - origins[:, None]) * inverse
        second = (boxes[None, :, 1] - origins[:, None]) * inverse
    enter = np.nanmax(np.minimum(first, second), axis=2)
    leave = np.nanmin(np.maximum(first, second), axis=2)
    return np.where((enter <= leave) & (enter > 0.0), enter, np.inf).min(axis=1)


def drive(twist_at, seconds: float, step: float = 0.001):
    """Return ``pose_at`` for a drive with ``twist_at(t)`` = (v, w), from rest at the origin."""
    pose = np.eye(4)
    pose[2, 3] = HEIGHT
    poses = [pose]
    for k in range(round(seconds / step)):
        v, w = twist_at((k + 0.5) * step)
        pose = pose @ se3.exp(np.array([v, 0, 0, 0, 0, w]) * step)
        poses.append(pose)

    def pose_at(t):
        index, rest = divmod(t / step, 1.0)
        index = min(int(index), len(poses) - 1)
        v, w = twist_at(t)
        return poses[index] @ se3.exp(np.array([v, 0, 0, 0, 0, w]) * rest * step)

    return pose_at

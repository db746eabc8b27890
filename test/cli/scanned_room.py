"""Scans of a room from a robot that turns on a circle, and the command called on them."""

import json

import numpy as np

from geoaccel_ros.cli.main import main
from geoaccel_ros.pointcloud.files import from_xyz
from geoaccel_ros.registration import se3


def room(seed):
    """Points on the floor and walls of a room with a cupboard, metres."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-6, 6, (2, 4, 1500))
    up = (b + 6) / 4 - 1
    box = rng.uniform([2, 2, -1], [3.5, 3, 1], (1500, 3))
    box[:, 1] = 2.0
    return np.vstack(
        [
            np.column_stack([a[0], b[0], np.full(1500, -1.0)]),
            np.column_stack([a[1], np.full(1500, 6.0), up[1]]),
            np.column_stack([a[2], np.full(1500, -6.0), up[2]]),
            np.column_stack([np.full(1500, 6.0), a[3], up[3]]),
            box,
        ]
    )


def pose(k):
    return se3.exp(np.array([0.1 * k, 0.0, 0.0, 0.0, 0.0, 0.03 * k]))


def seen(k):
    T_base_world = se3.inverse(pose(k))
    points = room(k) @ T_base_world[:3, :3].T + T_base_world[:3, 3]
    return from_xyz(points.astype(np.float32), np.zeros(len(points)))


def result_of(capsys, *arguments):
    assert main([*map(str, arguments), "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def complaint_of(capsys, *arguments):
    assert main([*map(str, arguments)]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "Traceback" not in captured.err
    return captured.err

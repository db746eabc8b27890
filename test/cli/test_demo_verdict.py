"""What keeps a demo from passing, on a summary that passes but for one thing."""

import copy

import pytest

from geoaccel_ros.cli.demo.verdict import failures, missed_deadlines

PASSED = {
    "goal_reached": True,
    "goals_reached": 6,
    "goals": 6,
    "contacts": 0,
    "path_ratio": 1.3,
    "shortest_path_m": 50.0,
    "deadlines": {"updates": 991, "missed": 9, "missed_share": 0.009},
    "odometry": {"ate_rmse_m": 0.29, "path_m": 65.0, "frames": 500, "dropped": 0},
    "compression": {
        "max_error_m": 0.005, "step_m": 0.01, "frames": 500, "lost": 0, "compared": 500,
        "damaged": 0,
    },
    "simulation": {"realtime_factor": 0.95, "simulated_s": 50.0, "clouds": 500},
    "exit_statuses": {"mppi_controller": 0},
}  # fmt: skip


def test_at_all_limits_it_passes():
    assert failures(PASSED) == []


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("goal_reached", False, "6 of 6 goals reached"),
        ("contacts", 2, "touched something 2 times"),
        ("path_ratio", 1.31, "65.0 m driven, 1.31 times the shortest way, limit 1.3"),
        ("path_ratio", None, "no free way leads through the goals"),
        ("odometry.ate_rmse_m", 0.31, "odometry error 0.310 m, limit 0.300 m"),
        ("odometry.path_m", 10.0, "odometry error 0.290 m, limit 0.200 m"),
        ("simulation.realtime_factor", 0.94, "real-time factor 0.940, limit 0.95"),
        ("exit_statuses.mppi_controller", 1, "mppi_controller ended with status 1"),
    ],
)
def test_one_thing_that_is_wrong_is_told_alone(path, value, complaint):
    summary = copy.deepcopy(PASSED)
    inner, *rest = path.split(".")
    if rest:
        summary[inner][rest[0]] = value
    else:
        summary[inner] = value
    (told,) = failures(summary)
    assert complaint in told


def test_deadlines_missed_before_the_start_are_not_counted():
    at_start = {"updates": "0", "missed deadlines": "40"}
    at_end = {"updates": "990", "missed deadlines": "50"}
    found = missed_deadlines(at_start, at_end)
    assert found == {"updates": 990, "missed": 10, "missed_share": pytest.approx(0.01)}
    assert missed_deadlines(at_start, at_start)["missed_share"] == 0.0

"""The demo, whole but short: one goal instead of six."""

import json
import signal
import subprocess
import sys
import time

import pytest
import yaml
from rosbags.rosbag2 import Reader

from geoaccel_ros.resources import share_path

KEYS = {
    "goal_reached": bool,
    "contacts": int,
    "path_ratio": float,
    "shortest_path_m": float,
    "deadlines": {"updates": int, "missed": int, "missed_share": float},
    "odometry": {"ate_rmse_m": float, "path_m": float, "frames": int, "dropped": int},
    "compression": {
        "ratio": float,
        "bits_per_point": float,
        "max_error_m": float,
        "frames": int,
        "lost": int,
    },
    "latency_ms": {
        node: {"p50": float, "p99": float} for node in ("odometry", "encoder", "decoder", "mppi")
    },
    "simulation": {"realtime_factor": float},
}


@pytest.fixture
def one_goal(tmp_path):
    """The demo's parameters with a single goal behind the first box."""
    parameters = yaml.safe_load(share_path("config/demo.yaml").read_text())
    parameters["mppi_controller"]["ros__parameters"]["goals"] = [6.0, 2.0]
    path = tmp_path / "one_goal.yaml"
    path.write_text(yaml.safe_dump(parameters))
    return path


def demo(output, config, **kwargs):
    command = [sys.executable, "-m", "geoaccel_ros.cli.main", "demo"]
    command += ["--output", str(output), "--config", str(config), "--json", "-"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs
    )


def assert_shape(value, shape):
    if isinstance(shape, dict):
        assert set(shape) <= set(value)
        for key, inner in shape.items():
            assert_shape(value[key], inner)
    else:
        assert isinstance(value, shape)


def test_the_robot_reaches_a_goal_and_nothing_is_lost(one_goal, tmp_path):
    process = demo(tmp_path / "demo", one_goal)
    stdout, stderr = process.communicate(timeout=240)
    summary = json.loads(stdout)
    assert_shape(summary, KEYS)
    assert summary == json.loads((tmp_path / "demo" / "summary.json").read_text())
    # How fast time ran depends on what else this machine does: that is no test's business.
    failures = [f for f in summary["failures"] if "real-time factor" not in f]
    assert failures == [], stderr
    assert process.returncode == (1 if summary["failures"] else 0)

    assert summary["goal_reached"] and summary["contacts"] == 0
    # The straight line to the goal is 6.3 m long, and a box stands on it.
    assert 6.0 < summary["odometry"]["path_m"] < 12.0
    # Up to 0.25 m short of the goal, and around the box.
    assert 6.07 < summary["shortest_path_m"] < 6.5
    assert summary["path_ratio"] == pytest.approx(
        summary["odometry"]["path_m"] / summary["shortest_path_m"]
    )
    # 20 a second, each made or missed.
    due = summary["deadlines"]["updates"] + summary["deadlines"]["missed"]
    assert due == pytest.approx(20 * summary["simulation"]["simulated_s"], rel=0.2)
    assert summary["compression"]["frames"] == summary["compression"]["compared"]
    # Half a step of 1 cm, and half a unit in the last place of a float32 at 25 m.
    assert summary["compression"]["max_error_m"] <= 0.005 + 1e-6
    assert set(summary["exit_statuses"].values()) == {0}
    for picture in ("trajectory.png", "latency.png"):
        assert (tmp_path / "demo" / picture).read_bytes().startswith(b"\x89PNG")
    with Reader(tmp_path / "demo" / "bag") as bag:
        counts = {topic: info.msgcount for topic, info in bag.topics.items()}
    assert counts["/points"] == counts["/points/compressed"] == summary["simulation"]["clouds"]
    assert counts["/odom"] == summary["odometry"]["frames"]


def test_a_node_that_dies_ends_the_demo_with_its_last_words(one_goal, tmp_path):
    parameters = yaml.safe_load(one_goal.read_text())
    parameters["cloud_encoder"]["ros__parameters"]["step"] = -1.0
    one_goal.write_text(yaml.safe_dump(parameters))
    process = demo(tmp_path / "demo", one_goal)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 1 and stdout == ""
    assert "cloud_encoder ended with status 1" in stderr
    assert "parameter 'step' is -1.0, must be" in stderr
    assert "Traceback" not in stderr


def test_a_folder_that_no_demo_wrote_is_left_alone(one_goal, tmp_path):
    kept = tmp_path / "robot" / "bag" / "mine.mcap"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    process = demo(tmp_path / "robot", one_goal)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1 and "holds 'bag', which no demo wrote" in stderr
    assert kept.read_text() == "mine"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_node_behind(one_goal, tmp_path, number, status):
    process = demo(tmp_path / "demo", one_goal, start_new_session=True)
    log = tmp_path / "demo" / "logs" / "cloud_decoder.log"
    deadline = time.monotonic() + 120
    while not (log.exists() and "active" in log.read_text()):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    process.send_signal(number)
    assert process.wait(60) == status
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(one_goal) not in listing

"""The command as its users type it."""

import json
import subprocess
import sys

import pytest

from geoaccel_ros import __version__


def geoaccel(*arguments, **kwargs):
    command = [sys.executable, "-m", "geoaccel_ros.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **kwargs)


def test_version_and_help():
    assert geoaccel("--version").stdout == f"geoaccel {__version__}\n"
    help_text = geoaccel("--help").stdout
    commands = "demo odometry register compress decompress inspect bench info"
    for command in commands.split():
        assert command in help_text


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["demo", "--nonsense"],
        ["compress"],
        ["demo", "--timeout", "-1"],
        ["bench"],
        ["bench", "nonsense"],
        ["bench", "mppi", "--nonsense"],
        ["bench", "mppi", "--repetitions", "0"],
    ],
)
def test_wrong_usage_is_status_2(arguments):
    result = geoaccel(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("usage:") and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["odometry", "absent"], "absent"),
        (["register", "absent.pcd", "absent.pcd"], "absent.pcd"),
        (["compress", "absent.npy", "out"], "absent.npy"),
        (["inspect", "absent"], "absent"),
        (["demo", "--config", "absent.yaml"], "'absent.yaml' does not exist"),
        (["demo", "--json", "absent/summary.json"], "cannot write 'absent/summary.json'"),
        (["demo", "--output", "/proc/nowhere"], "cannot write to '/proc/nowhere'"),
        (["bench", "mppi", "--json", "absent/x.json"], "cannot write 'absent/x.json'"),
        (["bench", "mppi", "--output", "/proc/nowhere"], "cannot make folder '/proc/nowhere'"),
        (["bench", "mppi", "--sweep", "--samples", "1"], "parameter 'samples' is 1"),
        (["bench", "odometry", "--data", "absent"], "'absent' is no folder"),
        (["bench", "compression", "--cloud", "absent.npy"], "absent.npy"),
        (["bench", "compression", "--device", "absent"], "no OpenCL device matches 'absent'"),
        (["info", "--json", "/proc/nowhere/x.json"], "cannot write '/proc/nowhere/x.json'"),
    ],
)
def test_a_user_s_mistake_is_one_line_and_status_1(arguments, complaint, tmp_path):
    result = geoaccel(*arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert complaint in result.stderr
    assert len(result.stderr.splitlines()) == 1 and "Traceback" not in result.stderr


def test_info_as_json_is_nothing_but_json():
    result = geoaccel("info", "--json", "-")
    facts = json.loads(result.stdout)
    assert result.returncode == 0
    assert facts["geoaccel_ros"] == __version__ and facts["packages"]["numpy"]
    assert facts["opencl"], "PoCL comes with the package's dependencies"


def test_a_demo_whose_file_has_no_goals_says_so(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("mppi_controller:\n  ros__parameters: {rate: 20.0}\n")
    result = geoaccel("demo", "--config", path, cwd=tmp_path)
    assert result.returncode == 1 and "no 'goals'" in result.stderr


def test_a_command_needs_only_its_own_packages():
    code = """
import sys
sys.modules.update(dict.fromkeys(("mujoco", "pyopencl", "rclpy", "rosbags", "zstandard")))
from geoaccel_ros.cli.main import main
main(["bench", "--help"])
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0 and result.stdout.startswith("usage: geoaccel bench ")

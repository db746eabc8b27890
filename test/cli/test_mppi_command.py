"""geoaccel mppi, called as the command calls it, on bundled robots and on one that is a file."""

import json
import math
import subprocess
import sys

import matplotlib.image
import numpy as np
import pytest
from scanned_room import complaint_of, result_of

from geoaccel_ros.cli.main import main
from geoaccel_ros.cli.mppi_picture import draw
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.systems import load_system
from geoaccel_ros.control.update_file import write_update
from geoaccel_ros.simulation.closed_loop import drive

# A puck on a line, which a force moves.
PUCK = """
from dataclasses import dataclass

from geoaccel_ros.config import Configuration, parameter

STATE = ("x", "v")
CONTROL = ("force",)
GOAL = ("x",)
RUNNING = ("goal", "speed")
TERMINAL = ("goal",)
SAMPLING = {"samples": 64, "horizon": 20, "dt": 0.05, "sigma": (0.5,), "backend": "cpu"}
TASK = {"start": (1.0, 0.0), "goal": (0.0,), "hold": 0.5}


@dataclass(frozen=True)
class Parameters(Configuration):
    goal_weight: float = parameter(1.0, "Cost of a second at a metre; grows as its square.")
    speed_weight: float = parameter(0.1, "Cost of a second at 1 m/s; grows as its square.")
    final_goal_weight: float = parameter(1.0, "Cost of ending at a metre; grows as its square.")


def limits(p):
    return (-2.0,), (2.0,)


def step(x, u, p, dt):
    return x[0] + dt * (x[1] + 0.5 * dt * u[0]), x[1] + dt * u[0]


def running(x, u, u_before, goal, p):
    return p.goal_weight * (x[0] - goal[0]) * (x[0] - goal[0]), p.speed_weight * x[1] * x[1]


def terminal(x, goal, p):
    return (p.final_goal_weight * (x[0] - goal[0]) * (x[0] - goal[0]),)


def reached(x, goal, p):
    return abs(x[0] - goal[0]) < 0.1
"""


@pytest.fixture
def puck(tmp_path):
    path = tmp_path / "puck.py"
    path.write_text(PUCK, encoding="utf-8")
    return path


def changed(puck, old, new):
    assert PUCK.count(old) == 1
    puck.write_text(PUCK.replace(old, new), encoding="utf-8")
    return puck


def usage_error(capsys, *arguments):
    with pytest.raises(SystemExit) as raised:
        main(["mppi", *map(str, arguments)])
    assert raised.value.code == 2
    return capsys.readouterr().err


def test_a_file_of_its_own_is_driven_to_its_goal(puck, capsys):
    result = result_of(capsys, "mppi", puck, "--seconds", 4)
    assert result["system"] == str(puck) and result["backend"] == "cpu"
    assert (result["samples"], result["horizon"], result["dt"]) == (64, 20, 0.05)
    assert result["success"] and result["seconds"] == pytest.approx(4.0)
    # It is the loop that drive() is, the controller knowing that nothing is delayed.
    run = drive(str(puck), config_of(puck, command_delay=0.0), 4.0)
    assert result["time_to_goal_s"] == run.time_to_goal_s > 0.5
    assert result["jitter"] == {"force": pytest.approx(run.jitter()[0])}
    assert result["ess"] == pytest.approx(np.median([update.ess for update in run.updates]))
    assert 0.0 < result["update_ms"]["median"] <= result["update_ms"]["p95"]
    assert result["without_plan"] == 0 and result["reasons"] == []


def config_of(puck, **values):
    return MppiConfig.for_system(load_system(str(puck)), **values)


def test_a_module_outside_the_package(puck, tmp_path, monkeypatch, capsys):
    package = tmp_path / "robots_beside"
    package.mkdir()
    puck.rename(package / "puck.py")
    monkeypatch.syspath_prepend(tmp_path)
    assert result_of(capsys, "mppi", "robots_beside.puck", "--seconds", 4)["success"]


def test_options_reach_the_controller(puck, capsys):
    short = ["mppi", puck, "--seconds", 0.5]
    plain = result_of(capsys, *short)
    same, other = (result_of(capsys, *short, "--seed", seed) for seed in (0, 5))
    assert plain["ess"] == same["ess"] != other["ess"]
    given = result_of(
        capsys, *short, "--samples", "32", "--horizon", "7", "--dt", "0.1", "--ess-fraction", "0.5"
    )
    assert (given["samples"], given["horizon"], given["dt"]) == (32, 7, 0.1)
    assert given["ess"] == pytest.approx(16.0, rel=0.05)
    assert not given["success"] and given["time_to_goal_s"] is None


def test_a_delay_is_known_unless_another_is_said(puck, capsys):
    arguments = ["mppi", puck, "--seconds", 6, "--delay", 0.4]
    known = result_of(capsys, *arguments)
    assert known["success"] and known["delay_s"] == 0.4
    unknown = result_of(capsys, *arguments, "--command-delay", 0)
    assert not unknown["success"] or unknown["time_to_goal_s"] > known["time_to_goal_s"] + 0.2


def test_the_page_says_what_the_json_does(puck, tmp_path, capsys):
    path = tmp_path / "puck.json"
    assert main(["mppi", str(puck), "--seconds", "4", "--json", str(path)]) == 0
    page = capsys.readouterr().out
    result = json.loads(path.read_text())
    assert f"reached after {result['time_to_goal_s']:.2f} s, and held" in page
    assert f"{result['ess']:.0f} of 64" in page and "misses of 50 ms" in page


def test_where_nothing_says_what_is_reached_nothing_is(puck, capsys):
    changed(puck, "def reached", "def arrived")
    assert main(["mppi", str(puck), "--seconds", "0.5"]) == 0
    assert "unknown: the system does not define reached" in capsys.readouterr().out


def test_updates_without_a_plan_are_told(puck, capsys):
    changed(puck, "p.goal_weight *", "p.goal_weight / 0.0 *")
    result = result_of(capsys, "mppi", puck, "--seconds", 0.5)
    assert result["without_plan"] == 10 and not result["success"]
    assert "no rollout has a finite cost" in result["reasons"][0]
    assert main(["mppi", str(puck), "--seconds", "0.5"]) == 0
    assert "10 updates: no rollout has a finite cost" in capsys.readouterr().out


def test_a_robot_that_flies_off_is_a_failure_and_no_crash(puck, tmp_path, capsys):
    changed(puck, "x[1] + dt * u[0]\n", "x[1] + dt * (u[0] + 1e3 * math.exp(x[1] * x[1]))\n")
    puck.write_text("import math\n" + puck.read_text(), encoding="utf-8")
    path = tmp_path / "lost.png"
    result = result_of(capsys, "mppi", puck, "--seconds", 0.5, "--plot", path)
    assert not result["success"] and result["without_plan"] > 0
    assert matplotlib.image.imread(path).std() > 0.0


@pytest.mark.parametrize(
    ("system", "seconds", "rows"),
    [("cartpole", 1.5, 1), ("quadrotor", 0.6, 1), ("diff_drive", 1.0, 1), ("quadruped", 0.06, 3)],
)
def test_a_picture_of_each_bundled_robot(system, seconds, rows, tmp_path, capsys):
    path = tmp_path / "run.png"
    arguments = ["--samples", 32, "--seconds", seconds, "--backend", "cpu"]
    result = result_of(capsys, "mppi", system, *arguments, "--plot", path)
    assert result["without_plan"] == 0
    picture = matplotlib.image.imread(path)[..., :3]
    # A row of panels more for every four controls more.
    assert picture.shape[:2] == pytest.approx((100 * (7.4 + 2.4 * rows), 1400), abs=2)
    # Red for the plan, blue for the samples, orange for their weights.
    for colour in ((0.84, 0.15, 0.16), (0.12, 0.47, 0.71), (1.0, 0.6, 0.24)):
        assert (np.abs(picture - colour).max(axis=2) < 0.05).sum() > 100


def written_update(path, system, state, goal, **values):
    """Write the update of a controller, as mppi_controller's ~/dump_update does."""
    config = MppiConfig.for_system(load_system(system), backend="cpu", **values)
    engine = Mppi(config, system)
    state, goal = np.array(state, float), np.array(goal, float)
    update = engine.update(state, goal, 12.5)
    write_update(path, engine, update, state, goal, 12.5, config.dt, config)
    return update


@pytest.mark.parametrize(
    ("system", "state", "goal"),
    [
        ("diff_drive", (0.0, 0.0, 0.0, 0.0, 0.0), (4.0, 2.0)),
        ("cartpole", (0.0, 3.0, 0.0, 0.0), (0.0,)),
    ],
)
def test_a_picture_of_an_update_that_a_node_wrote(system, state, goal, tmp_path, capsys):
    path = tmp_path / "update.npz"
    update = written_update(path, system, state, goal, samples=128)
    result = result_of(capsys, "mppi", "--plot", path)
    assert (result["system"], result["samples"], result["stamp_s"]) == (system, 128, 12.5)
    assert result["ess"] == pytest.approx(update.ess) and result["hint"] == ""
    assert result["terms"] == pytest.approx(update.terms)
    assert result["picture"] == str(tmp_path / "update.png")
    picture = matplotlib.image.imread(result["picture"])[..., :3]
    # As that of a run, without the run.
    assert picture.shape[:2] == pytest.approx((100 * (7.4 + 2.4 - 3.3), 1400), abs=2)
    for colour in ((0.84, 0.15, 0.16), (0.12, 0.47, 0.71), (1.0, 0.6, 0.24)):
        assert (np.abs(picture - colour).max(axis=2) < 0.05).sum() > 100


@pytest.mark.parametrize(
    ("temperature", "hint"), [(1e-9, "one sample decides"), (1e9, "all samples count alike")]
)
def test_a_temperature_that_does_not_suit_is_hinted_at(temperature, hint, tmp_path, capsys):
    path = tmp_path / "update.npz"
    written_update(path, "diff_drive", np.zeros(5), (4.0, 2.0), samples=64, temperature=temperature)
    assert main(["mppi", "--plot", str(path)]) == 0
    assert hint in capsys.readouterr().out


def test_what_is_no_update_is_not_drawn(tmp_path, capsys):
    path = tmp_path / "update.npz"
    assert "cannot read" in complaint_of(capsys, "mppi", "--plot", path)
    np.savez(path, costs=np.zeros(3))
    complaint = complaint_of(capsys, "mppi", "--plot", path)
    assert f"'{path}': no update of a controller: it has no system" in complaint
    assert "without SYSTEM" in usage_error(capsys, "cartpole", "--plot", path)
    assert "give a SYSTEM" in usage_error(capsys, "--plot", "picture.png")


def test_a_run_without_any_plan_is_drawn_alone(puck, tmp_path):
    changed(puck, "p.goal_weight *", "p.goal_weight / 0.0 *")
    run = drive(str(puck), config_of(puck), 0.5)
    path = tmp_path / "run.png"
    draw(str(path), load_system(str(puck)), (np.array([-2.0]), np.array([2.0])), run, None)
    assert len(matplotlib.image.imread(path)) == pytest.approx(100 * (0.5 + 3.3), abs=2)


def test_a_robot_without_limits_is_drawn(puck, tmp_path, capsys):
    changed(puck, "(-2.0,), (2.0,)", '(-float("inf"),), (float("inf"),)')
    path = tmp_path / "run.png"
    result_of(capsys, "mppi", puck, "--seconds", 0.5, "--plot", path)
    assert matplotlib.image.imread(path).std() > 0.0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("cartpol",), "unknown system 'cartpol': did you mean 'cartpole'"),
        (("absent.py",), "system 'absent.py' cannot be imported: FileNotFoundError"),
        (("no.such.robot",), "system 'no.such.robot' cannot be imported: ModuleNotFoundError"),
        (("cartpole", "--sigma", "1,2"), "'sigma' has 2 values, must have one for each of force"),
        (("cartpole", "--noise-order", "2"), "'noise_order' is 2, must be 0, 1 or 3"),
        (("diff_drive", "--rollouts", "mujoco"), "system 'diff_drive' has no MuJoCo model"),
        (("quadruped", "--rollouts", "hybrid"), "system 'quadruped' has no step"),
        (("cartpole", "--delay", "2"), "'command_delay' is 2"),
        (("cartpole", "--plot", "absent/run.png"), "cannot write 'absent/run.png': "),
        (("cartpole", "--plot", "."), "cannot write '.': it is a folder"),
        (("cartpole", "--json", "absent/run.json"), "cannot write 'absent/run.json': "),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(arguments, complaint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert complaint in complaint_of(capsys, "mppi", *arguments)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "give a SYSTEM"),
        (("cartpole", "--seconds", "-1"), "--seconds: -1: must be a number of seconds"),
        (("cartpole", "--seconds", "0"), "--seconds: 0: must be more than 0 s"),
        (("cartpole", "--seconds", "inf"), "--seconds: inf: must be a number of seconds"),
        (("cartpole", "--delay", "-0.1"), "--delay: -0.1: must be a number of seconds"),
        (("cartpole", "--samples", "3"), "--samples: parameter 'samples' is 3"),
        (("cartpole", "--samples", "many"), "'many'"),
        (("cartpole", "--horizon", "1"), "--horizon: parameter 'horizon' is 1"),
        (("cartpole", "--sigma", "-1"), "--sigma"),
        (("cartpole", "--noise", "pink"), "--noise"),
    ],
)
def test_wrong_usage(arguments, complaint, capsys):
    assert complaint in usage_error(capsys, *arguments)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("TASK =", "TASKS =", "has no TASK with a goal"),
        (
            '"goal": (0.0,)',
            '"goal": (0.0, 1.0)',
            "TASK's goal is (0.0, 1.0), must have a number for each of x",
        ),
        (
            '"start": (1.0, 0.0)',
            '"start": (1.0,)',
            "TASK's start is (1.0,), must have a number for each of x, v",
        ),
        ('"samples"', '"smaples"', "unknown parameter 'smaples': did you mean 'samples'"),
        ('"sigma": (0.5,)', '"sigma": (-0.5,)', "'sigma' is -0.5"),
    ],
)
def test_what_is_wrong_in_a_file(puck, old, new, complaint, capsys):
    assert complaint in complaint_of(capsys, "mppi", changed(puck, old, new), "--seconds", 1)


def test_as_a_process(puck, tmp_path):
    command = [sys.executable, "-m", "geoaccel_ros.cli.main", "mppi", puck.name, "--seconds", "2"]
    done = subprocess.run(
        [*command, "--plot", "run.png"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("goal") and done.stderr == ""
    assert (tmp_path / "run.png").stat().st_size > 10_000
    assert not math.isnan(matplotlib.image.imread(tmp_path / "run.png").mean())

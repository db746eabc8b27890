"""What a system's module must define, and where it may lie."""

import dataclasses

import numpy as np
import pytest
from rollout_problems import free_problem, free_reference, problem

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.control.distance_field import empty_field
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.rollouts import CpuRollouts
from geoaccel_ros.control.systems import load_system

PUCK = '''
"""A puck on a line, with a cliff at x = 1."""

from dataclasses import dataclass

from geoaccel_ros.config import Configuration, parameter

STATE = ("x", "v")
CONTROL = ("force",)
GOAL = ("x",)
RUNNING = ("goal", "speed", "cliff")
TERMINAL = ("speed",)

CLIFF = 1.0


@dataclass(frozen=True)
class Parameters(Configuration):
    mass: float = parameter(2.0, "Mass.", unit="kg", minimum=0.1)
    force_least: float = parameter(-4.0, "Least force.", unit="N")
    goal_weight: float = parameter(1.0, "Cost of a second at a metre from the goal.")
    speed_weight: float = parameter(1.0, "Cost of a second at 1 m/s.")
    cliff_weight: float = parameter(1000.0, "Cost of a second at a metre beyond the cliff.")
    final_speed_weight: float = parameter(10.0, "Cost of ending at 1 m/s.")


def limits(p):
    return (p.force_least,), (4.0,)


def step(x, u, p, dt):
    v = x[1] + dt * u[0] / p.mass
    return x[0] + dt * v, v


def _beyond(x):
    return max(x[0] - CLIFF, 0.0)


def running(x, u, u_before, goal, p):
    off = x[0] - goal[0]
    return p.goal_weight * off * off, p.speed_weight * x[1] * x[1], p.cliff_weight * _beyond(x)


def terminal(x, goal, p):
    return (p.final_speed_weight * x[1] * x[1],)
'''
# With noise that does not shrink it stays a tenth of a metre away from the cliff.
CONFIG = MppiConfig(
    samples=256,
    horizon=40,
    dt=0.05,
    sigma=(2.0,),
    sigma_adaptation=0.5,
    command_delay=0.0,
    backend="cpu",
)


@pytest.fixture
def puck(tmp_path):
    path = tmp_path / "puck.py"
    path.write_text(PUCK, encoding="utf-8")
    return path


def _drive(mppi, goal):
    state = np.zeros(2)
    for i in range(200):
        update = mppi.update(state, np.array([goal]), 0.05 * i)
        assert update.ok and update.plan.shape == (41, 2)
        state = mppi.predict(state, 0.05 * i, [(0.0, update.command)], 0.05 * (i + 1))
    return state


def test_a_robot_is_added_as_a_file(puck):
    mppi = Mppi(CONFIG, str(puck))
    np.testing.assert_allclose(_drive(mppi, goal=-3.0), [-3.0, 0.0], atol=0.02)
    # What it is told of places is true: positions are not relative to the robot.
    mppi.reset()
    np.testing.assert_allclose(_drive(mppi, goal=2.0), [1.0, 0.0], atol=0.02)


def test_a_robot_is_added_as_a_module(puck, tmp_path, monkeypatch):
    package = tmp_path / "added_robots"
    package.mkdir()
    (package / "__init__.py").touch()
    puck.rename(package / "puck.py")
    monkeypatch.syspath_prepend(tmp_path)
    system = load_system("added_robots.puck")
    assert system.state == ("x", "v") and not system.is_planar
    assert system.step((1.0, 2.0), (3.0,), system.pack(system.parameters()), 0.5) == (2.375, 2.75)


def test_without_maneuvers_zero_is_safe_within_the_limits(puck):
    system = load_system(str(puck))
    lost = np.array([np.nan, 0.0])
    assert Mppi(CONFIG, str(puck)).update(lost, np.zeros(1), 0.0).command == 0.0
    parameters = system.parameters(force_least=1.5)
    mppi = Mppi(CONFIG, str(puck), parameters)
    assert mppi.update(lost, np.zeros(1), 0.0).command == 1.5


def test_obstacles_are_refused_by_a_system_that_knows_none(puck):
    with pytest.raises(ConfigurationError, match="puck.py' knows no obstacles.*clearance_limit"):
        Mppi(CONFIG, str(puck)).set_obstacles(empty_field())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def step(", "def stepp(", "does not define step: "),
        ("CONTROL = ", "CONTROLS = ", "does not define CONTROL: "),
        (
            "def limits(p):",
            "def clearance_limit(p):\n    return 1.0\n\n\ndef limits(p):",
            r"running must take \(x, u, u_before, goal, clearance, detour, p\)",
        ),
        ("def terminal(x, goal, p):", "def terminal(x, p):", r"terminal must take \(x, goal, p\)"),
        ("RUNNING = ", "RUNS = ", "does not define RUNNING: "),
        ('"cliff")', '"bluff")', "Parameters has no bluff_weight, of terms that RUNNING names"),
        (
            'TERMINAL = ("speed",)',
            'TERMINAL = ("cliff",)',
            "Parameters has no final_cliff_weight, of terms that TERMINAL names",
        ),
        (
            ", p.cliff_weight * _beyond(x)",
            "",
            "running returns 2 terms, must return a tuple of 3, goal, speed, cliff, as RUNNING",
        ),
        (
            "return (p.final_speed_weight * x[1] * x[1],)",
            "return p.final_speed_weight * x[1] * x[1]",
            "terminal returns no tuple of terms, must return a tuple of 1, speed, as TERMINAL",
        ),
        (
            "p.speed_weight *",
            "p.speedweight *",
            "running fails in a state of zeros: AttributeError: ",
        ),
        ("return x[0] + dt * v, v", "return (v,)", "step returns 1 values, .* each of x, v"),
        (
            "u[0] / p.mass",
            "u[0] / p.mas",
            "step fails in a state of zeros: AttributeError: .*'mas'",
        ),
        ("(p.force_least,)", "(-1.0, 1.0)", "limits returns 2 values, .* each of force"),
        ('STATE = ("x", "v")', 'STATE = ["x", "v"]', "STATE is .*, must be a tuple of names"),
        ('CONTROL = ("force",)', 'CONTROL = ("force")', "CONTROL is 'force', must be a tuple"),
        ('STATE = ("x", "v")', 'STATE = ("x", "x")', "STATE has a name twice"),
        (
            "= parameter(2.0,",
            "= parameter(maximum=9.0, description=",
            "cannot be .* TypeError|made",
        ),
        (
            "cliff_weight: float = parameter(1000.0",
            'cliff_weight: float = parameter("much"',
            "cannot be imported|must be a number",
        ),
        ("(p.force_least,)", "(5.0,)", "limits of force are 5 to 4"),
        ("(p.force_least,)", "(math.nan,)", "limits"),
        ("CLIFF = 1.0", "CLIFF = 1.0\nTASK = {'goal': (1.0, 2.0)}", "TASK's goal is .* each of x"),
        ("CLIFF = 1.0", "CLIFF = 1.0\nTASK = {'hold': 'long'}", "TASK's hold is 'long'"),
        (
            "def limits(p):",
            "def maneuvers(p):\n    return ((1.0, 2.0),)\n\n\ndef limits(p):",
            "maneuvers returns 2 values, .* each of force",
        ),
        (
            "def limits(p):",
            "def reached(x, goal, p):\n    return x[5] < 1.0\n\n\ndef limits(p):",
            "reached fails in a state of zeros: IndexError",
        ),
        ("CLIFF = 1.0", "raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("from dataclasses", "from dataclazzes", "cannot be imported: ModuleNotFoundError: .*zzes"),
        ("def limits(p):", "def limits(p:", "cannot be imported: SyntaxError: "),
    ],
)
def test_what_is_wrong_in_a_file_is_named(puck, old, new, message):
    assert PUCK.count(old) == 1
    puck.write_text(PUCK.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=f"system '{puck}'.*{message}") as raised:
        load_system(str(puck))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "return max(x[0] - CLIFF, 0.0)",
            "import os\n    return 0.0",
            "cannot be compiled: .*IMPORT",
        ),
        (
            "return max(x[0] - CLIFF, 0.0)",
            "return x[0] if x[0] < 5.0 else _beyond((x[0] - 1.0, x[1]))",
            "cannot be compiled: RecursionError",
        ),
        (
            "def limits(p):",
            "def maneuvers(p):\n    return ((1.0,),) * 300\n\n\ndef limits(p):",
            "'samples' is 256, must be more than the 300 maneuvers",
        ),
    ],
)
def test_what_cannot_be_controlled_is_named(puck, old, new, message):
    assert PUCK.count(old) == 1
    puck.write_text(PUCK.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=message) as raised:
        Mppi(CONFIG, str(puck))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 1000


def test_a_parameter_beyond_float32_is_named(puck):
    system = load_system(str(puck))
    with pytest.raises(ConfigurationError, match="'goal_weight' is 1e\\+300, beyond what float32"):
        Mppi(CONFIG, str(puck), system.parameters(goal_weight=1e300))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/nowhere/robot.py", "FileNotFoundError"),
        ("nowhere.robot", "ModuleNotFoundError: No module named 'nowhere'"),
        ("cartpol", "did you mean 'cartpole'"),
    ],
)
def test_what_does_not_exist_is_named(name, message):
    with pytest.raises(ConfigurationError, match=f"{name}.*{message}"):
        load_system(name)


@pytest.mark.parametrize("name", ["cartpole", "quadrotor"])
def test_float32_rollouts_equal_float64_ones(name):
    posed = free_problem(name, seed=1)
    costs, crashed = _run(load_system(name), posed)
    assert not crashed.any()
    # 40 steps of 1e-7 each, which a pole that falls may multiply.
    np.testing.assert_allclose(costs, free_reference(name, posed), rtol=1e-4)


def test_where_there_are_no_obstacles_a_planar_system_is_like_any_other(tmp_path):
    path = tmp_path / "free.py"
    path.write_text(
        "from geoaccel_ros.control.systems.diff_drive import *\n"
        "from geoaccel_ros.control.systems.diff_drive import running as planar_running\n"
        "from geoaccel_ros.control.systems.diff_drive import terminal as planar_terminal\n"
        "del clearance_limit\n"
        "def running(x, u, u_before, goal, p):\n"
        "    return planar_running(x, u, u_before, goal, 100.0, 0.0, p)\n"
        "def terminal(x, goal, p):\n"
        "    return planar_terminal(x, goal, 100.0, 0.0, p)\n",
        encoding="utf-8",
    )
    posed = problem(seed=5, yaw=0.3)
    # These lie 100 m away.
    posed = dataclasses.replace(posed, field=empty_field(), detour=empty_field())
    planar, crashed = _run(load_system("diff_drive"), posed)
    assert not crashed.any()
    np.testing.assert_allclose(_run(load_system(str(path)), posed)[0], planar, rtol=1e-6)


def _run(system, posed):
    samples = posed.noise.shape[2]
    costs, crashed = np.empty(samples, np.float32), np.empty(samples, bool)
    CpuRollouts(system, 1).run(posed, costs, crashed)
    return costs, crashed

import dataclasses

import numpy as np
import pytest
from rollout_problems import problem as planar_problem

from geoaccel_ros.control.diagnosis import explain
from geoaccel_ros.control.distance_field import empty_field
from geoaccel_ros.control.rollouts import CpuRollouts, Problem
from geoaccel_ros.control.systems import load_system

# Denominators vanish exactly where a parameter says; a root is of a negative number beyond a line.
POLES = """
import math
from dataclasses import dataclass

from geoaccel_ros.config import Configuration, parameter

STATE = ("x", "y")
CONTROL = ("v",)
GOAL = ("x",)
RUNNING = ("goal", "pole", "root")
TERMINAL = ("goal", "pole")
FAR = 1e6


@dataclass(frozen=True)
class Parameters(Configuration):
    state_pole: float = parameter(FAR, "Where y has a pole.")
    cost_pole: float = parameter(FAR, "Where the cost of a second has one.")
    final_pole: float = parameter(FAR, "Where the cost of ending has one.")
    root_end: float = parameter(FAR, "Where the root ends.")
    goal_weight: float = parameter(1.0, "Of the distance.")
    pole_weight: float = parameter(1.0, "Of the pole.")
    root_weight: float = parameter(1.0, "Of the root.")
    final_goal_weight: float = parameter(1.0, "Of the distance.")
    final_pole_weight: float = parameter(1.0, "Of the pole.")


def limits(p):
    return (-1e30,), (1e30,)


def step(x, u, p, dt):
    moved = x[0] + dt * u[0]
    return moved, 1.0 / (moved - p.state_pole)


def running(x, u, u_before, goal, p):
    off = x[0] - goal[0]
    return (
        p.goal_weight * (off * off + x[1] * x[1]),
        p.pole_weight / (x[0] - p.cost_pole),
        p.root_weight * math.sqrt(p.root_end - x[0]),
    )


def terminal(x, goal, p):
    off = x[0] - goal[0]
    return p.final_goal_weight * off * off, p.final_pole_weight / (x[0] - p.final_pole)
"""


@pytest.fixture(scope="module")
def poles(tmp_path_factory):
    path = tmp_path_factory.mktemp("systems") / "poles.py"
    path.write_text(POLES, encoding="utf-8")
    return load_system(str(path))


def _problem(system, **parameters):
    """Return two rollouts of 8 steps of 0.25 s: at -1 m/s and at 1 m/s, which is at 1 after 4."""
    noise = np.zeros((8, 1, 2), np.float32)
    noise[:, 0, 1] = 2.0
    return Problem(
        start=(np.float32(0.0),) * 2,
        control_before=(np.float32(0.0),),
        goal=(np.float32(0.0),),
        plan=np.full((8, 1), -1.0, np.float32),
        noise=noise,
        lower=(np.float32(-1e30),),
        upper=(np.float32(1e30),),
        p=system.pack(system.parameters(**parameters)),
        field=empty_field(),
        detour=empty_field(),
        origin=np.zeros(2),
        clearance_limit=np.float32(0.0),
        dt=np.float32(0.25),
    )


def _is_finite(system, posed):
    costs, crashed = np.empty(2, np.float32), np.empty(2, bool)
    CpuRollouts(system, 1).run(posed, costs, crashed)
    return np.isfinite(costs).tolist()


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (
            {"state_pole": 1.0},
            "rollout 1, step 3: the state's y is inf, from x 0.75, y -4 under v 1",
        ),
        (
            {"cost_pole": 1.0},
            "rollout 1, step 3: the cost's term pole is inf, in x 1, y -1e-06 under v 1",
        ),
        (
            {"root_end": 1.0},
            "rollout 1, step 4: running raises ValueError: ",
        ),
        (
            {"final_pole": 2.0},
            "rollout 1, its end: the cost's term final_pole is inf, in x 2, y -1e-06",
        ),
        # The first of them is named.
        ({"state_pole": 1.5, "cost_pole": 1.0, "final_pole": 2.0}, "rollout 1, step 3: the cost's"),
    ],
)
def test_a_denominator_that_vanishes_is_named(poles, parameters, expected):
    posed = _problem(poles, **parameters)
    assert _is_finite(poles, posed) == [True, False]
    assert explain(poles, posed, 1).startswith(expected)
    assert explain(poles, posed, 0) == "rollout 0 is finite"


def test_what_is_not_finite_before_any_step_is_named(poles):
    posed = _problem(poles)
    for changed, expected in (
        ({"start": (np.float32(0.0), np.float32(np.nan))}, "the start's y is nan"),
        ({"goal": (np.float32(np.inf),)}, "the goal's x is inf"),
        ({"p": posed.p._replace(cost_pole=np.float32(np.inf))}, "the parameter cost_pole is inf"),
    ):
        found = explain(poles, dataclasses.replace(posed, **changed), 1)
        assert found == f"rollout 1, before its first step: {expected}"


def test_noise_and_plan_are_named(poles):
    posed = _problem(poles)
    noise, plan = posed.noise.copy(), posed.plan.copy()
    noise[5, 0, 1] = np.nan
    posed = dataclasses.replace(posed, noise=noise)
    assert explain(poles, posed, 1) == "rollout 1, step 5: the noise of v is nan"
    assert explain(poles, posed, 0) == "rollout 0 is finite"
    plan[2] = -np.inf
    posed = dataclasses.replace(posed, plan=plan)
    assert explain(poles, posed, 1) == "rollout 1, step 2: the plan of v is -inf"


def test_what_only_float32_cannot_hold_is_told_apart(poles):
    posed = _problem(poles)
    plan = posed.plan.copy()
    # The square of 2.5e19 is more than float32 holds.
    plan[6] = -1e20
    posed = dataclasses.replace(posed, plan=plan)
    assert _is_finite(poles, posed) == [False, False]
    assert explain(poles, posed, 0) == (
        "rollout 0, step 6: the cost's term goal is inf, in x -2.5e+19, y -4e-20 under v -1e+20; "
        "only in float32"
    )


def test_a_sum_that_overflows_is_told(poles):
    posed = _problem(poles, goal_weight=1.7e38)
    posed = dataclasses.replace(posed, goal=(np.float32(-2.0),))
    # 1.7e38 * 4 * 0.25 s is too much for the second of the steps that start at 2 from the goal.
    assert _is_finite(poles, posed) == [False, False]
    assert explain(poles, posed, 0).endswith("only in float32")


def test_a_crash_ends_a_rollout_before_it_is_not_finite():
    system = load_system("diff_drive")
    posed = planar_problem(seed=5, yaw=0.3)
    costs, crashed = np.empty(256, np.float32), np.empty(256, bool)
    CpuRollouts(system, 1).run(posed, costs, crashed)
    k, free = int(np.flatnonzero(crashed)[0]), int(np.flatnonzero(~crashed)[0])
    noise = posed.noise.copy()
    noise[-1, 1, :] = np.nan
    posed = dataclasses.replace(posed, noise=noise)
    assert explain(system, posed, k) == f"rollout {k} is finite"
    assert explain(system, posed, free) == (
        f"rollout {free}, step 39: the noise of w_command is nan"
    )


def test_the_states_may_be_given(poles):
    posed = _problem(poles, cost_pole=0.5)
    other = dataclasses.replace(poles, step=None)
    states = np.zeros((9, 2), np.float32)
    assert explain(other, posed, 1, states) == "rollout 1 is finite"
    states[5, 0] = 0.5
    assert explain(other, posed, 1, states) == (
        "rollout 1, step 4: the cost's term pole is inf, in x 0.5, y 0 under v 1"
    )
    states[3, 1] = np.nan
    assert explain(other, posed, 1, states) == (
        "rollout 1, step 2: the state's y is nan, from x 0, y 0 under v 1"
    )


def test_places_are_told_in_the_frame_that_the_robot_is_in():
    system = load_system("diff_drive")
    posed = planar_problem(seed=5, yaw=0.3, samples=1)
    p = posed.p._replace(w_lag=np.float32(-1e-4))
    found = explain(system, dataclasses.replace(posed, p=p), 0)
    assert "from x 100.3, y -57.9, yaw 0.3, v 0.6, w -0.2 under" in found

"""Rollouts by MuJoCo's pool of threads against MuJoCo stepped by hand, one rollout at a time."""

import dataclasses

import mujoco
import numpy as np
import pytest
from rollout_problems import float32_tuple, free_problem

from geoaccel_ros.control.distance_field import DistanceField, distances_to
from geoaccel_ros.control.rollouts import CpuRollouts
from geoaccel_ros.control.rollouts_mujoco import MujocoRollouts
from geoaccel_ros.control.systems import load_system
from geoaccel_ros.control.systems.cartpole import acceleration

# Two balls that meet: the solver has something to warm-start. Nothing but MuJoCo rolls them out.
BALLS = '''
"""Two balls on a rail, the first one pushed; a fault pushes it beyond all bounds."""

from dataclasses import dataclass

from geoaccel_ros.config import Configuration, parameter

STATE = ("x1", "x2", "v1", "v2")
CONTROL = ("force", "fault")
GOAL = ("x",)
RUNNING = ("goal", "change")
TERMINAL = ("speed",)
MODEL = "balls.xml"


@dataclass(frozen=True)
class Parameters(Configuration):
    mass: float = parameter(1.0, "Mass of the second ball.", unit="kg", minimum=0.1)
    goal_weight: float = parameter(1.0, "Of being away.")
    change_weight: float = parameter(0.01, "Of changes.")
    final_speed_weight: float = parameter(1.0, "Of ending fast.")


def limits(p):
    return (-20.0, 0.0), (20.0, 1.0)


def apply(model, p):
    model.body_mass[2] = p.mass


def running(x, u, u_before, goal, p):
    off = x[1] - goal[0]
    change = u[0] - u_before[0]
    return p.goal_weight * off * off, p.change_weight * change * change


def terminal(x, goal, p):
    return (p.final_speed_weight * x[3] * x[3],)
'''
XML = """
<mujoco>
  <option timestep="{timestep}" solver="{solver}"/>
  <worldbody>
    <body>
      <joint name="pushed" type="slide" axis="1 0 0"/><geom size="0.1" mass="1"/>
    </body>
    <body pos="0.25 0 0">
      <joint type="slide" axis="1 0 0"/><geom size="0.1" mass="1"/>
    </body>
  </worldbody>
  <actuator><motor joint="pushed"/><motor joint="pushed" gear="1e12"/></actuator>
</mujoco>
"""


@pytest.fixture(scope="module")
def balls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("balls")
    (folder / "balls.py").write_text(BALLS, encoding="utf-8")

    # One system, which is compiled once; rollouts read the model when they are made.
    def make(timestep=0.01, solver="Newton"):
        xml = XML.format(timestep=timestep, solver=solver)
        (folder / "balls.xml").write_text(xml, encoding="utf-8")
        return load_system(str(folder / "balls.py"))

    return make


def _problem(system, samples=32, horizon=40, dt=0.02, faults=(), **replaced):
    """Return pushes that make the balls meet; sample k has its fault at step t for (k, t)."""
    rng = np.random.default_rng(3)
    noise = np.zeros((horizon, 2, samples), np.float32)
    noise[:, 0] = rng.normal(5.0, 5.0, (horizon, samples))
    for sample, step in faults:
        noise[step, 1, sample] = 1.0
    lower, upper = system.limits(system.parameters())
    values = {
        "start": float32_tuple((0.0, 0.02, 0.5, 0.0)),
        "control_before": float32_tuple((1.0, 0.0)),
        "goal": float32_tuple((0.7,)),
        "plan": np.zeros((horizon, 2), np.float32),
        "noise": noise,
        "lower": float32_tuple(lower),
        "upper": float32_tuple(upper),
        "p": system.pack(system.parameters()),
        "dt": np.float32(dt),
    }
    return dataclasses.replace(free_problem("cartpole", 0), **values | replaced)


def _rollouts(system, posed, threads=1, dt=0.02, **options):
    horizon, _, samples = posed.noise.shape
    return MujocoRollouts(system, system.parameters(), samples, horizon, dt, threads, **options)


def _run(rollouts, posed):
    samples = posed.noise.shape[2]
    costs, crashed = np.empty(samples, np.float32), np.empty(samples, bool)
    rollouts.run(posed, costs, crashed)
    return costs, crashed


def _by_hand(system, posed, sample, substeps, timestep):
    """Return the states (T+1, X) and the cost of a sample in float64, by mj_step in a loop."""
    p = type(posed.p)(*(float(value) for value in posed.p))
    model = system.mujoco_model(p)
    model.opt.timestep = timestep
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = np.split(np.array(posed.start, float), [model.nq])
    data.ctrl[:] = posed.control_before
    mujoco.mj_forward(model, data)
    data.qacc_warmstart[:] = data.qacc
    goal, before, cost = posed.goal, posed.control_before, 0.0
    states = [np.concatenate((data.qpos, data.qvel))]
    for u in np.clip(posed.plan + posed.noise[:, :, sample], posed.lower, posed.upper):
        data.ctrl[:] = u
        for _ in range(substeps):
            mujoco.mj_step(model, data)
        x = tuple(np.concatenate((data.qpos, data.qvel)))
        states.append(np.array(x))
        cost += float(posed.dt) * sum(system.running(x, tuple(u), before, goal, p))
        before = tuple(u)
    return np.array(states), cost + sum(system.terminal(x, goal, p))


@pytest.mark.parametrize("solver", ["Newton", "CG"])
@pytest.mark.parametrize(
    ("of_model", "asked", "substeps"),
    [(0.02, 0.0, 1), (0.01, 0.0, 2), (0.01, 0.004, 5), (0.006, 0.0, 4)],
)
def test_equal_mujoco_stepped_by_hand(balls, solver, of_model, asked, substeps):
    system = balls(of_model, solver)
    posed = _problem(system)
    rollouts = _rollouts(system, posed, timestep=asked)
    assert rollouts.substeps == substeps
    costs, crashed = _run(rollouts, posed)
    assert not crashed.any() and np.isfinite(costs).all()
    met = 0
    for sample in (0, 7, 31):
        states, cost = _by_hand(system, posed, sample, substeps, 0.02 / substeps)
        np.testing.assert_array_equal(rollouts.states(posed, sample), states.astype(np.float32))
        # Float32 sums of 40 steps.
        np.testing.assert_allclose(costs[sample], cost, rtol=1e-5)
        np.testing.assert_allclose(rollouts.follow(posed, sample)[1].sum(), cost, rtol=1e-5)
        met += np.ptp(states[:, 3]) > 0.1
    assert met


def test_a_pole_costs_what_its_own_step_says():
    system = load_system("cartpole")
    posed = free_problem("cartpole", seed=1)
    euler = dataclasses.replace(system, step=_euler_step)
    ours, mujocos = CpuRollouts(euler, 1), _euler(system, posed)
    # MuJoCo's is float64; 40 steps of float32, which a pole that falls may multiply.
    np.testing.assert_allclose(_run(ours, posed)[0], _run(mujocos, posed)[0], rtol=1e-4)
    np.testing.assert_allclose(ours.states(posed, 5), mujocos.states(posed, 5), atol=1e-3)


def _euler_step(x, u, p, dt):
    cart, pole = acceleration(x, u, p)
    v = x[2] + cart * dt
    w = x[3] + pole * dt
    return x[0] + v * dt, x[1] + w * dt, v, w


def _euler(system, posed):
    """Return rollouts by MuJoCo's semi-implicit Euler."""

    def apply(model, p):
        system.apply(model, p)
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER

    return _rollouts(dataclasses.replace(system, apply=apply), posed, timestep=0.02)


@pytest.mark.parametrize("name", ["cartpole", "quadrotor"])
def test_a_model_rolls_out_as_its_step_does(name):
    system = load_system(name)
    posed = dataclasses.replace(free_problem(name, seed=2, horizon=20), dt=np.float32(0.005))
    mujocos = _rollouts(system, posed, dt=0.005)
    # They integrate in different ways: what remains falls with the step.
    np.testing.assert_allclose(
        mujocos.states(posed, 3), CpuRollouts(system, 1).states(posed, 3), rtol=0.02, atol=0.05
    )


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(balls, threads):
    system = balls()
    posed = _problem(system)
    alone, together = _rollouts(system, posed), _rollouts(system, posed, threads)
    for _ in range(2):  # nor does what was rolled out before
        np.testing.assert_array_equal(_run(alone, posed)[0], _run(together, posed)[0])
        alone.states(posed, 4)


# At the first step, in the middle, and at the last, after which there is none to notice it.
@pytest.mark.parametrize("step", [0, 17, 39])
@pytest.mark.parametrize("threads", [1, 2])
def test_one_that_diverges_is_flagged_and_spoils_no_other(balls, step, threads):
    system = balls()
    healthy = _problem(system)
    posed = _problem(system, faults=[(5, step), (6, step)])
    rollouts = _rollouts(system, posed, threads)
    costs, _ = _run(rollouts, posed)
    others = np.delete(np.arange(32), [5, 6])
    assert np.isinf(costs[[5, 6]]).all()
    np.testing.assert_array_equal(costs[others], _run(rollouts, healthy)[0][others])


def test_one_that_diverges_does_not_begin_anew(balls):
    system = balls()
    posed = _problem(system, faults=[(5, 10)])
    model = system.mujoco_model(system.parameters())
    data = mujoco.MjData(model)
    data.ctrl[1] = 1.0
    mujoco.mj_step(model, data)
    assert data.qpos[0] == 0.0  # where MuJoCo, left alone, begins anew
    states = _rollouts(system, posed).states(posed, 5)
    assert (states[12:, 0] > 1e3).all()


def test_a_control_that_is_no_number_is_flagged(balls):
    system = balls()
    posed = _problem(system)
    posed.noise[3, 0, 8] = np.nan
    costs, _ = _run(_rollouts(system, posed), posed)
    assert not np.isfinite(costs[8]) and np.isfinite(np.delete(costs, 8)).all()


def test_nothing_is_written_of_what_diverges(balls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    system = balls()
    _run(_rollouts(system, posed := _problem(system, faults=[(5, 10)])), posed)
    assert not (tmp_path / "MUJOCO_LOG.TXT").exists()


def test_parameters_are_the_problem_s(balls):
    system = balls()
    posed = _problem(system)
    heavy = dataclasses.replace(posed, p=system.pack(system.parameters(mass=3.0)))
    rollouts = _rollouts(system, posed)
    light_costs, heavy_costs = _run(rollouts, posed)[0], _run(rollouts, heavy)[0]
    np.testing.assert_allclose(heavy_costs[7], _by_hand(system, heavy, 7, 2, 0.01)[1], rtol=1e-5)
    assert np.abs(heavy_costs - light_costs).min() > 1e-3
    np.testing.assert_array_equal(_run(rollouts, posed)[0], light_costs)


def test_fewer_samples_than_there_is_room_for(balls):
    system = balls()
    posed = _problem(system)
    rollouts = _rollouts(system, posed, threads=2)
    costs, _ = _run(rollouts, posed)
    first = dataclasses.replace(posed, noise=np.ascontiguousarray(posed.noise[:, :, :1]))
    np.testing.assert_array_equal(_run(rollouts, first)[0], costs[:1])


PUCK = '''
"""A puck on a plane, tied to the frame's origin by springs."""

from dataclasses import dataclass

from geoaccel_ros.config import Configuration, parameter

STATE = ("x", "y", "vx", "vy")
CONTROL = ("fx", "fy")
GOAL = ("x", "y")
RUNNING = ("goal",)
TERMINAL = ()
MODEL = "tied.xml"


@dataclass(frozen=True)
class Parameters(Configuration):
    goal_weight: float = parameter(1.0, "Of being away.")


def limits(p):
    return (-9.0, -9.0), (9.0, 9.0)


def clearance_limit(p):
    return 0.3


def running(x, u, u_before, goal, clearance, detour, p):
    return (p.goal_weight * (abs(x[0] - goal[0]) + abs(x[1] - goal[1]) + detour),)


def terminal(x, goal, clearance, detour, p):
    return ()
'''
TIED = """
<mujoco>
  <option timestep="0.02"/>
  <worldbody>
    <body>
      <joint name="x" type="slide" axis="1 0 0" stiffness="2"/>
      <joint name="y" type="slide" axis="0 1 0" stiffness="2"/>
      <geom size="0.1" mass="1"/>
    </body>
  </worldbody>
  <actuator><motor joint="x"/><motor joint="y"/></actuator>
</mujoco>
"""


def test_on_a_plane_places_are_absolute_to_mujoco_and_relative_to_costs(tmp_path):
    (tmp_path / "tied.py").write_text(PUCK, encoding="utf-8")
    (tmp_path / "tied.xml").write_text(TIED, encoding="utf-8")
    system = load_system(str(tmp_path / "tied.py"))
    origin = np.array([3.0, -4.0])
    # A wall at x = 3.5, 0.2 m beyond the clearance.
    occupied = np.zeros((80, 80), bool)
    occupied[:, 45:] = True
    field = DistanceField(distances_to(occupied, 0.1), origin - (4.0, 4.0), 0.1, 0.0)
    rng = np.random.default_rng(0)
    posed = _problem(
        system,
        start=float32_tuple(np.zeros(4)),
        control_before=float32_tuple(np.zeros(2)),
        goal=float32_tuple((0.3, 0.4)),
        noise=rng.normal((6.5, -8.0), 3.0, (32, 40, 2)).transpose(1, 2, 0).astype(np.float32),
        origin=origin,
        field=field,
        clearance_limit=np.float32(0.3),
    )
    rollouts = _rollouts(system, posed)
    costs, crashed = _run(rollouts, posed)
    model = system.mujoco_model(system.parameters())
    hit = []
    for sample in range(32):
        data = mujoco.MjData(model)
        data.qpos[:] = origin
        places = [origin]
        for u in np.clip(posed.noise[:, :, sample], -9.0, 9.0):
            data.ctrl[:] = u
            mujoco.mj_step(model, data)
            places.append(data.qpos.copy())
        states = rollouts.states(posed, sample)
        np.testing.assert_allclose(states[:, :2], places - origin, atol=1e-5)
        hit.append((field.at(np.array(places[1:])) < 0.3).any())
        if not hit[-1]:
            off = np.abs(places[1:] - origin - np.array(posed.goal))
            np.testing.assert_allclose(costs[sample], 0.02 * off.sum(), rtol=1e-5)
    np.testing.assert_array_equal(crashed, hit)
    assert 0.1 < crashed.mean() < 0.9

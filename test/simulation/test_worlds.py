"""The bundled worlds, as their parameter files set them up: what each promises."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
import yaml

from geoaccel_ros.simulation.events import ImuSample, JointState, Scan, TruthState
from geoaccel_ros.simulation.floorplan import goals
from geoaccel_ros.simulation.world import Simulation, SimulationConfig, load_model

CONFIG = Path(__file__).resolve().parents[2] / "config"


def world(name, **values):
    text = (CONFIG / f"{name}_simulation.yaml").read_text(encoding="utf-8")
    given = yaml.safe_load(text)["/**/mujoco_simulation"]["ros__parameters"]
    return Simulation(SimulationConfig.from_mapping({**given, "realtime_factor": 0.0, **values}))


def run(sim, seconds):
    steps = round(seconds * 1e9 / sim.timestep_ns)
    return [event for _ in range(steps) for event in sim.step()]


def of(kind, events):
    return [event for event in events if type(event) is kind]


def first_scan(name, **values):
    exact = {"lidar_range_noise": 0.0, "lidar_dropout": 0.0, "lidar_columns": 256}
    sim = world(name, **exact, **values)
    return of(Scan, run(sim, 0.1))[0].points


def test_every_bundled_model_has_its_file_and_the_other_way_round():
    files = {
        path.name.removesuffix("_simulation.yaml") for path in CONFIG.glob("*_simulation.yaml")
    }
    models = Path(load_model.__code__.co_filename).parent / "models"
    # The yard's is that of all defaults, mujoco_simulation.yaml.
    assert files - {"mujoco"} | {"yard"} == {path.stem for path in models.glob("*.xml")}


@pytest.mark.parametrize("name", ["yard", "corridor", "field"])
def test_the_robot_is_the_same_in_each_world(name):
    def robot(model):
        bodies = [model.body(n).id for n in ("base_link", "left_wheel", "right_wheel")]
        geoms = np.isin(model.geom_bodyid, bodies)
        return np.concatenate([
            model.body_mass[bodies], model.body_inertia[bodies].ravel(),
            model.geom_size[geoms].ravel(), model.geom_friction[geoms].ravel(),
            model.actuator_gainprm.ravel(), model.actuator_ctrlrange.ravel(),
            [model.opt.timestep, model.opt.impratio],
        ])  # fmt: skip

    # Two wheels of 0.8 kg and a chassis of 13 kg.
    np.testing.assert_allclose(robot(load_model(name))[:3], [13.0, 0.8, 0.8])
    np.testing.assert_array_equal(robot(load_model(name)), robot(load_model("yard")))


def test_the_corridor_looks_the_same_wherever_along_it_the_robot_is():
    here, there = first_scan("corridor"), first_scan("corridor", start_x=15.0)
    assert len(here) == len(there) > 2000
    for axis in "xyz":
        np.testing.assert_allclose(here[axis], there[axis], atol=1e-4)
    # Not so across it, nor with another heading.
    aside, turned = first_scan("corridor", start_y=0.3), first_scan("corridor", start_yaw=0.1)
    assert not np.isclose(aside["y"].min(), here["y"].min(), atol=0.1)
    assert not np.isclose(turned["y"].max(), here["y"].max(), atol=1e-3)


def test_in_the_corridor_nothing_faces_along_the_axis():
    points = first_scan("corridor")
    floor = points["z"] < -0.55
    walls = points[~floor]
    assert floor.sum() > 500 and len(walls) > 1000
    # Walls whose inner faces are 2 m to either side.
    np.testing.assert_allclose(np.abs(walls["y"]), 2.0, atol=1e-3)


def test_in_the_field_there_is_ground_alone():
    points = first_scan("field")
    assert len(points) > 1000
    ranges = np.hypot(points["x"], points["y"])
    assert ranges.max() > 30.0
    # 0.6 m below the lidar, as level as the robot settles on its soft tyres: 0.06 degrees.
    assert (np.abs(points["z"] + 0.6) < 1e-3 * ranges).all()


@pytest.mark.parametrize("name", ["corridor", "field"])
def test_goals_are_reached_by_driving_straight_at_them(name):
    """A pure pursuit on the true pose: no contact, and the way is free."""
    sim = world(name, lidar_site="")
    pending = [goal for goal in goals(sim.model)]
    assert len(pending) >= 4
    for _ in range(200 * 120):
        pose = sim.T_world_base()
        ahead, left = (pose[:2, :2].T @ (pending[0] - pose[:2, 3])).tolist()
        if np.hypot(ahead, left) < 0.3:
            pending.pop(0)
            if not pending:
                break
            continue
        bearing = np.arctan2(left, ahead)
        sim.command(0.8 if abs(bearing) < 0.3 else 0.0, float(np.clip(2 * bearing, -1, 1)))
        sim.step()
    assert not pending and sim.contacts == 0


def test_the_cartpole_hangs():
    sim = world("cartpole")
    states = of(JointState, run(sim, 1.0))
    assert len(states) == 100 and states[0].names == ("rail", "hinge")
    np.testing.assert_allclose(states[-1].position, [0.0, np.pi], atol=1e-9)
    # And is an equilibrium of least energy: a push swings it back.
    sim.data.qvel[1] = 0.5
    angles = [state.position[1] for state in of(JointState, run(sim, 5.0))]
    assert abs(np.mean(angles) - np.pi) < 0.02 and max(angles) - np.pi < 0.2


def test_the_quadrotor_hovers_and_feels_its_weight():
    events = run(world("quadrotor"), 2.0)
    assert not of(JointState, events)
    truth = of(TruthState, events)[-1]
    np.testing.assert_allclose(truth.T_world_base[:3, 3], [0, 0, 1], atol=1e-9)
    forces = [sample.linear_acceleration for sample in of(ImuSample, events)]
    np.testing.assert_allclose(np.mean(forces, axis=0), [0, 0, 9.81], atol=0.01)


def test_the_quadruped_stands_whether_or_not_commands_come():
    sim = world("quadruped")
    assert len(sim.actuation.names) == 12
    for _ in range(2):
        truths = of(TruthState, run(sim, 2.0))
        height = [truth.T_world_base[2, 3] for truth in truths]
        assert 0.26 < min(height) and max(height) < 0.31
        assert truths[-1].T_world_base[2, 2] > 0.99
        stance = mujoco.MjData(sim.model)
        mujoco.mj_resetDataKeyframe(sim.model, stance, sim.model.key("stance").id)
        # Held after its timeout in the second round.
        sim.command(*stance.ctrl)

"""The robot in its yard against kinematics, geometry and the promises about time."""

from importlib import resources

import mujoco
import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation, Slerp

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.simulation.events import ClockTick, ImuSample, JointState, Scan, TruthState
from geoaccel_ros.simulation.floorplan import obstacle_footprints
from geoaccel_ros.simulation.world import Simulation, SimulationConfig, SimulationError

STEPS_PER_SECOND = 200
# Two rays a sweep: for tests that do not look at clouds.
BLIND = {"lidar_rings": 1, "lidar_columns": 2}


def simulation(**values):
    return Simulation(SimulationConfig(**{**BLIND, "realtime_factor": 0.0, **values}))


def noiseless(**values):
    quiet = {"imu_gyro_noise": 0.0, "imu_accelerometer_noise": 0.0, "lidar_range_noise": 0.0}
    return simulation(**{**quiet, "lidar_dropout": 0.0, **values})


def drive(sim, seconds, v=None, w=0.0):
    """Step for some seconds, commanding all along unless v is None; return the events."""
    events = []
    for _ in range(round(seconds * STEPS_PER_SECOND)):
        if v is not None:
            sim.command(v, w)
        events += sim.step()
    return events


def of(kind, events):
    return [event for event in events if type(event) is kind]


# Motion


@pytest.mark.parametrize(
    ("v", "w"),
    [(1.2, 0.0), (0.3, 0.0), (-0.5, 0.0), (0.0, 1.5), (0.0, -0.7), (0.8, 0.5), (1.2, -1.5)],
)
def test_commanded_twist_is_reached(v, w):
    truths = of(TruthState, drive(simulation(), 2.0, v, w))
    steady = truths[len(truths) // 2 :]
    linear = np.array([t.linear for t in steady])
    angular = np.array([t.angular for t in steady])
    # 1.5 %: the tyres give way and the motors have no integral part, as real ones.
    np.testing.assert_allclose(linear[:, 0], v, atol=0.015 * max(abs(v), 0.5))
    np.testing.assert_allclose(angular[:, 2], w, atol=0.015 * max(abs(w), 0.5))
    # The slip of the tyres in a curve: below one degree.
    assert np.abs(linear[:, 1]).max() < 0.018
    assert np.abs(linear[:, 2]).max() < 0.01
    assert np.abs(angular[:, :2]).max() < 0.01


@pytest.mark.parametrize(("v", "w"), [(0.5, 0.5), (1.0, -1.25)])
def test_a_circle_has_the_radius_that_kinematics_gives(v, w):
    truths = of(TruthState, drive(simulation(), 1.0 + 2 * np.pi / abs(w), v, w))
    path = np.array([t.T_world_base[:2, 3] for t in truths if t.stamp_ns > 1e9])
    fit = least_squares(
        lambda c: np.linalg.norm(path - c[:2], axis=1) - c[2], [*path.mean(axis=0), 1.0]
    )
    assert fit.x[2] == pytest.approx(abs(v / w), rel=0.01)
    assert np.abs(fit.fun).max() < 0.005


def test_straight_is_straight():
    sim = simulation(start_x=-6.0, start_y=-11.0)
    truths = of(TruthState, drive(sim, 10.0, 1.0))
    end = truths[-1].T_world_base
    assert end[0, 3] + 6.0 == pytest.approx(10.0, abs=0.5)
    assert abs(end[1, 3] + 11.0) < 0.005


def test_full_braking_and_turning_tip_nothing():
    sim = simulation(start_x=-1.0, start_y=-2.0)
    schedule = [(0, 0), (1.2, 0), (-1.2, 0), (0, 0), (1.2, 1.5), (1.2, -1.5), (0, 1.5), (0, -1.5)]
    for v, w in schedule:
        for truth in of(TruthState, drive(sim, 0.7, v, w)):
            assert np.degrees(np.arccos(truth.T_world_base[2, 2])) < 0.2
            assert truth.T_world_base[2, 3] == pytest.approx(sim.actuation.radius, abs=0.001)


def test_a_command_times_out_in_simulated_time():
    sim = simulation(command_timeout=0.5)
    sim.command(1.0, 0.0)
    before = of(TruthState, drive(sim, 0.5))[-1]
    assert before.linear[0] > 0.7
    after = of(TruthState, drive(sim, 1.0))[-1]
    assert np.linalg.norm(after.linear) < 0.005
    # Braking at 3 m/s^2 from 1 m/s takes 0.17 m.
    moved = np.linalg.norm(after.T_world_base[:2, 3] - before.T_world_base[:2, 3])
    assert moved < 0.2


def test_too_much_is_scaled_with_its_curvature_kept():
    truth = of(TruthState, drive(simulation(), 2.0, 2.0, 2.0))[-1]
    assert truth.angular[2] / truth.linear[0] == pytest.approx(1.0, rel=0.02)
    fastest = (truth.linear[0] + 0.2 * truth.angular[2]) / 0.1
    assert fastest == pytest.approx(16.0, rel=0.01)


def test_wheels_and_mounts_come_from_the_model():
    sim = simulation()
    assert (sim.actuation.radius, sim.actuation.separation) == (0.1, 0.4)
    assert sim.joint_names == ("left_wheel", "right_wheel")
    np.testing.assert_allclose(sim.T_base_lidar[:3, 3], [-0.06, 0, 0.5], atol=1e-12)
    np.testing.assert_allclose(sim.T_base_lidar[:3, :3], np.eye(3), atol=1e-12)
    np.testing.assert_allclose(sim.T_base_imu[:3, 3], [0, 0, 0.05], atol=1e-12)


def test_start_pose():
    sim = simulation(start_x=1.0, start_y=-9.0, start_yaw=2.0)
    expected = Rotation.from_euler("z", 2.0).as_matrix()
    np.testing.assert_allclose(sim.T_world_start[:3, :3], expected, atol=1e-12)
    np.testing.assert_allclose(sim.T_world_start[:3, 3], [1.0, -9.0, 0.1], atol=1e-12)
    np.testing.assert_allclose(sim.T_base_lidar[:3, 3], [-0.06, 0, 0.5], atol=1e-12)


# What sensors tell


def test_truth_twist_is_the_derivative_of_the_pose():
    sim = simulation(truth_rate=200.0)
    truths = of(TruthState, drive(sim, 1.0, 0.8, 0.9))[60:]
    for a, b in zip(truths, truths[1:], strict=False):
        dt = (b.stamp_ns - a.stamp_ns) * 1e-9
        moved = (b.T_world_base[:3, 3] - a.T_world_base[:3, 3]) / dt
        turned = Rotation.from_matrix(a.T_world_base[:3, :3].T @ b.T_world_base[:3, :3])
        # The integrator is semi-implicit: the step's velocity is the one at its end.
        np.testing.assert_allclose(b.T_world_base[:3, :3].T @ moved, b.linear, atol=1e-6)
        np.testing.assert_allclose(turned.as_rotvec() / dt, b.angular, atol=1e-6)


def test_imu_at_rest_feels_gravity():
    samples = of(ImuSample, drive(noiseless(), 1.0))[50:]
    # Standing on its soft tyres it leans back by 0.02 degrees.
    acceleration = np.array([s.linear_acceleration for s in samples])
    np.testing.assert_allclose(acceleration, [[0, 0, 9.81]] * 50, atol=0.01)
    np.testing.assert_allclose([s.angular_velocity for s in samples], 0, atol=1e-4)


def test_imu_turns_with_the_robot():
    sim = noiseless()
    events = drive(sim, 2.0, 0.0, 1.2)
    sample, truth = of(ImuSample, events)[-1], of(TruthState, events)[-1]
    np.testing.assert_allclose(sample.angular_velocity, truth.angular, atol=1e-9)
    assert sample.angular_velocity[2] == pytest.approx(1.2, rel=0.01)


def test_imu_noise_has_the_given_size():
    sim = simulation(imu_gyro_noise=0.1, imu_accelerometer_noise=0.5, imu_rate=200.0)
    samples = of(ImuSample, drive(sim, 10.0))[200:]
    # 5,400 values: known to 1 %.
    assert np.std([s.angular_velocity for s in samples]) == pytest.approx(0.1, rel=0.05)
    acceleration = np.array([s.linear_acceleration for s in samples])
    assert (acceleration - [0, 0, 9.81]).std() == pytest.approx(0.5, rel=0.05)


def test_wheels_turn_by_what_was_driven():
    events = drive(simulation(), 3.0, 1.0)
    joints, truth = of(JointState, events)[-1], of(TruthState, events)[-1]
    np.testing.assert_allclose(joints.position * 0.1, truth.T_world_base[0, 3], rtol=0.015)
    np.testing.assert_allclose(joints.velocity * 0.1, truth.linear[0], rtol=0.01)
    assert np.all(np.abs(joints.effort) <= 2.2)


def test_scans_and_truth_agree_on_where_the_walls_are():
    """The whole chain: a cloud of a driving, turning robot, moved by the truth, meets the yard."""
    sim = noiseless(lidar_rings=16, lidar_columns=256, truth_rate=200.0)
    events = drive(sim, 2.05, 0.8, 0.9)
    truths = of(TruthState, events)
    stamps = np.array([t.stamp_ns for t in truths]) * 1e-9
    poses = np.array([t.T_world_base @ sim.T_base_lidar for t in truths])
    turns = Slerp(stamps, Rotation.from_matrix(poses[:, :3, :3]))
    east = next(p for p in obstacle_footprints(sim.model) if np.allclose(p[:, 0].min(), 11.9))

    for scan in of(Scan, events)[5:]:
        times = scan.stamp_ns * 1e-9 + scan.points["time"].astype(float)
        sensor = np.stack([scan.points[axis] for axis in "xyz"], axis=1).astype(float)
        world = turns(times).apply(sensor)
        for axis in range(3):
            world[:, axis] += np.interp(times, stamps, poses[:, axis, 3])
        floor = np.abs(world[world[:, 2] < 0.001, 2])
        assert len(floor) > 100
        # Now and then a ray meets the foot of a wall in the last millimetre above the floor.
        assert np.quantile(floor, 0.99) < 2e-5
        inside = (np.abs(world[:, 1] + 2.75) < 9) & (world[:, 0] > 11.5) & (world[:, 2] > 0.1)
        assert inside.sum() > 30
        np.testing.assert_allclose(world[inside, 0], east[:, 0].min(), atol=2e-5)


# Contacts


def test_driving_into_a_wall_is_a_contact_and_again_another():
    sim = simulation(start_x=10.0, start_y=-4.0)
    drive(sim, 1.0, 0.5)
    assert sim.contacts == 0
    drive(sim, 4.0, 0.5)
    first = sim.contacts
    assert first >= 1
    drive(sim, 1.0, -0.5)
    assert sim.contacts == first
    drive(sim, 3.0, 0.5)
    assert sim.contacts > first


@pytest.mark.parametrize("v", [0.3, 1.2])
def test_the_ramp_is_ground(v):
    sim = simulation(start_x=-5.5, start_y=-5.35, start_yaw=np.radians(25))
    truths = of(TruthState, drive(sim, 6.3 / v, v))
    height = np.array([t.T_world_base[2, 3] for t in truths])
    assert height.max() == pytest.approx(0.35, abs=0.005)
    assert height[-1] == pytest.approx(0.1, abs=0.005)
    assert sim.contacts == 0


# Time


def test_rates_and_stamps():
    config = {"clock_rate": 100.0, "imu_rate": 60.0, "joint_rate": 50.0, "truth_rate": 40.0}
    sim = simulation(lidar_rate=8.0, **config)
    by_kind = {}
    for step in range(1, 401):
        for event in sim.step():
            by_kind.setdefault(type(event), []).append(event.stamp_ns)
            if type(event) is not Scan:
                assert event.stamp_ns == step * 5_000_000 == sim.time_ns
    counts = {kind.__name__: len(stamps) for kind, stamps in by_kind.items()}
    assert counts == {
        "ClockTick": 200, "ImuSample": 120, "JointState": 100,
        "WheelOdometry": 100, "TruthState": 80, "Scan": 16,
    }  # fmt: skip
    assert by_kind[Scan] == [k * 125_000_000 for k in range(16)]


def test_the_clock_comes_first():
    sim = simulation()
    for _ in range(40):
        events = sim.step()
        if of(ClockTick, events):
            assert type(events[0]) is ClockTick


def test_time_goes_on_over_a_reset():
    sim = simulation(start_x=1.0, start_y=-9.5, start_yaw=0.3)
    events = drive(sim, 1.03, 1.0)
    contacts = sim.contacts
    sim.reset()
    reset_ns = sim.time_ns
    np.testing.assert_array_equal(sim.T_world_base(), sim.T_world_start)
    assert (sim.epoch, sim.contacts, reset_ns) == (1, contacts, 1_030_000_000)
    # The command from before the reset is forgotten.
    later = drive(sim, 1.0)
    assert np.linalg.norm(of(TruthState, later)[-1].linear) < 0.005
    for kind in (ClockTick, ImuSample, JointState, TruthState, Scan):
        stamps = [event.stamp_ns for event in of(kind, events + later)]
        assert np.all(np.diff(stamps) > 0), kind
    assert {t.epoch for t in of(TruthState, events)} == {0}
    assert {t.epoch for t in of(TruthState, later)} == {1}
    # No sweep spans the jump.
    assert of(Scan, later)[0].stamp_ns == reset_ns


def test_a_reset_repeats_the_motion():
    sim = simulation()
    poses = []
    for _ in range(2):
        poses.append([t.T_world_base for t in of(TruthState, drive(sim, 1.0, 1.0, 0.5))])
        sim.reset()
    np.testing.assert_array_equal(*poses)


def bits(events):
    """Return everything in the events as comparable bytes."""
    parts = []
    for event in events:
        for value in vars(event).values():
            parts.append(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return b"".join(parts)


def test_a_seed_repeats_every_bit():
    def run(seed):
        sim = simulation(lidar_rings=4, lidar_columns=64, seed=seed)
        return bits(drive(sim, 1.0, 0.7, 0.4))

    assert run(5) == run(5)
    assert run(5) != run(6)


def test_events_are_the_receivers_own():
    sim = simulation()
    events = drive(sim, 0.5, 1.0)
    before = bits(events)
    drive(sim, 0.5, 1.0)
    assert bits(events) == before


# What goes wrong


@pytest.mark.parametrize(("v", "w"), [(np.nan, 0.0), (0.0, np.inf)])
def test_a_command_that_is_no_number_is_refused_and_changes_nothing(v, w):
    sim = simulation()
    sim.command(0.5, 0.0)
    with pytest.raises(SimulationError, match="not finite"):
        sim.command(v, w)
    assert of(TruthState, drive(sim, 0.4))[-1].linear[0] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("v", "w", "speeds"),
    [
        (1e308, 0.0, (16.0, 16.0)),
        (-1e308, 1e308, (-16.0, -16.0 * 0.8 / 1.2)),
        (1e200, 1e308, (-16.0, 16.0)),
    ],
)
def test_an_absurd_command_is_scaled_with_its_curvature_kept(v, w, speeds):
    sim = simulation()
    with np.errstate(all="raise", under="ignore"):
        drive(sim, 1.0, v, w)
    np.testing.assert_allclose(sim.data.ctrl, speeds, rtol=1e-9)


@pytest.mark.parametrize("name", ["CONTACTFULL", "CNSTRFULL"])
def test_a_full_buffer_ends_nothing(name):
    sim = simulation()
    drive(sim, 0.1)
    sim.data.warning.number[getattr(mujoco.mjtWarning, f"mjWARN_{name}")] = 1
    assert of(TruthState, drive(sim, 1.0, 0.5))[-1].linear[0] == pytest.approx(0.5, abs=0.01)


def test_what_mujoco_warns_of_is_logged_once(caplog):
    sim = simulation()
    sim.data.qvel[0] = np.nan
    for _ in range(3):
        with pytest.raises(SimulationError):
            sim.step()
    assert len([record for record in caplog.records if "QVEL" in record.message]) == 1


@pytest.mark.parametrize("what", ["qpos", "qvel", "qfrc_applied"])
def test_diverged_physics_is_an_error_and_time_does_not_jump(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sim = simulation()
    drive(sim, 0.1)
    getattr(sim.data, what)[0] = np.nan
    before = sim.time_ns
    with pytest.raises(SimulationError, match="physics diverged at 0.100 s: warning BADQ"):
        sim.step()
    assert sim.time_ns >= before
    with pytest.raises(SimulationError):
        sim.step()
    sim.reset()
    truth = of(TruthState, drive(sim, 0.5, 0.5))[-1]
    assert truth.linear[0] == pytest.approx(0.5, abs=0.01)
    # MuJoCo's own handler would have written its log here.
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_model_names_the_known_ones():
    with pytest.raises(ConfigurationError, match="'yart', must be a path or one of .*yard"):
        simulation(model="yart")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"no file .*away\.xml"):
        simulation(model=str(tmp_path / "away.xml"))


def test_what_mujoco_says_of_a_broken_model_reaches_the_user(tmp_path):
    path = tmp_path / "broken.xml"
    path.write_text("<mujoco><worldbody><geom type='ball'/></worldbody></mujoco>")
    with pytest.raises(ConfigurationError, match="broken.xml.*ball"):
        simulation(model=str(path))


@pytest.mark.parametrize(
    ("cut", "missing"),
    [
        (
            '<site name="lidar"',
            "'lidar_site': the model has no site or body 'lidar'.*; sites: imu; bodies: base_link",
        ),
        (
            '<site name="imu"',
            "'imu_site': the model has no site or body 'imu'.*; sites: lidar; bodies",
        ),
        (
            '<velocity name="left_wheel"',
            "'left_wheel': .* no actuator on joint 'left_wheel'; actuators: right_wheel",
        ),
    ],
)
def test_a_model_that_lacks_something_says_what(cut, missing, tmp_path):
    models = resources.files("geoaccel_ros.simulation.models")
    (tmp_path / "robots").mkdir()
    for name in ("yard.xml", "robots/diff_drive.xml"):
        lines = (models / name).read_text("utf-8").splitlines()
        (tmp_path / name).write_text("\n".join(line for line in lines if cut not in line))
    with pytest.raises(ConfigurationError, match=missing):
        simulation(model=str(tmp_path / "yard.xml"))


@pytest.mark.parametrize("name", ["imu_rate", "joint_rate", "truth_rate"])
def test_a_sensor_faster_than_the_physics_is_refused(name):
    with pytest.raises(ConfigurationError, match=f"'{name}' is 250, must be <= 200"):
        simulation(**{name: 250.0})


def test_resetting_by_itself_is_off():
    autoreset = int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
    assert simulation().model.opt.disableflags & autoreset

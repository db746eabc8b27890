"""Models of any kind: what is configured is found, told and moved as MuJoCo itself does."""

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.simulation.events import ClockTick, ImuSample, JointState, Scan, TruthState
from geoaccel_ros.simulation.world import Simulation, SimulationConfig, SimulationError

# A model that has neither base nor wheels nor sensors.
BARE = {"base_body": "", "left_wheel": "", "right_wheel": "", "lidar_site": "", "imu_site": ""}
FLYING = {**BARE, "base_body": "base_link"}

# A crane on a turning column; its hook swings on a ball joint, one joint has no name, and beside it
# lies a stone.
CRANE = """
<mujoco model="crane">
  <option timestep="0.002"/>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <geom name="wall" type="box" pos="3 0 1" size="0.1 3 1"/>
    <site name="post" pos="0.5 0 1.5"/>
    <body name="stone" pos="1 1 0.1"><freejoint/><geom type="sphere" size="0.1"/></body>
    <body name="column" pos="0 0 0.5">
      <joint name="slew" axis="0 0 1" damping="1"/>
      <geom type="cylinder" size="0.1 0.4"/>
      <body name="jib" pos="0 0 0.5">
        <joint name="luff" axis="0 1 0" range="-60 60" damping="1"/>
        <geom type="capsule" fromto="0 0 0 0.5 0 0" size="0.04"/>
        <site name="head" pos="0.5 0 0" euler="0 20 0"/>
        <body name="trolley">
          <joint type="slide" axis="1 0 0" range="0 0.5" damping="1"/>
          <geom type="box" size="0.05 0.05 0.05"/>
          <body name="hook" pos="0 0 -0.2">
            <joint type="ball"/><geom type="sphere" size="0.03"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor name="slew" joint="slew" gear="20"/>
    <position joint="luff" kp="50"/>
  </actuator>
  <sensor>
    <gyro name="gyro" site="head"/>
    <accelerometer name="accelerometer" site="head"/>
  </sensor>
  <keyframe>
    <key name="raised" qpos="1 1 0.1 1 0 0 0  0.3 -0.5 0.1  1 0 0 0" ctrl="0 -0.5"/>
  </keyframe>
</mujoco>
"""

# MuJoCo takes a floating joint of URDF for a freejoint.
ROVER = """
<robot name="rover">
  <link name="map"/>
  <joint name="floating" type="floating"><parent link="map"/><child link="chassis"/></joint>
  <link name="chassis">
    <inertial>
      <mass value="2"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/>
    </inertial>
    <collision><geometry><box size="0.4 0.3 0.1"/></geometry></collision>
  </link>
  <joint name="mast" type="revolute">
    <parent link="chassis"/><child link="scanner"/><origin xyz="0.1 0 0.3" rpy="0 0 0"/>
    <axis xyz="0 0 1"/><limit lower="-1" upper="1" effort="1" velocity="1"/>
  </joint>
  <link name="scanner">
    <inertial>
      <mass value="0.1"/><inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/>
    </inertial>
  </link>
</robot>
"""


@pytest.fixture
def crane(tmp_path):
    path = tmp_path / "crane.xml"
    path.write_text(CRANE)
    return str(path)


def simulation(model, **values):
    config = {**BARE, "lidar_rings": 2, "lidar_columns": 32, "realtime_factor": 0.0, **values}
    return Simulation(SimulationConfig(model=model, **config))


def run(sim, steps):
    return [event for _ in range(steps) for event in sim.step()]


def of(kind, events):
    return [event for event in events if type(event) is kind]


def test_a_model_with_nothing_configured_tells_time_and_joints(crane):
    events = run(simulation(crane), 100)
    assert {type(event) for event in events} == {ClockTick, JointState}
    # Hinges and slides in the model's order; the free and the ball joint are neither.
    assert of(JointState, events)[0].names == ("slew", "luff", "joint3")


def test_joint_states_are_mujoco_s(crane):
    sim = simulation(crane, joint_rate=500.0)
    sim.command(0.5, -0.4)
    last = of(JointState, run(sim, 200))[-1]
    model, data = mujoco.MjModel.from_xml_path(crane), None
    data = mujoco.MjData(model)
    data.ctrl[:] = 0.5, -0.4
    mujoco.mj_step(model, data, 200)
    mujoco.mj_forward(model, data)
    joints = [data.joint(name) for name in ("slew", "luff", 3)]
    np.testing.assert_array_equal(last.position, [j.qpos[0] for j in joints])
    np.testing.assert_array_equal(last.velocity, [j.qvel[0] for j in joints])
    np.testing.assert_allclose(last.effort[0], 10.0)


def test_an_imu_anywhere_measures_what_mujoco_s_sensors_do(crane):
    sim = simulation(
        crane, imu_site="head", imu_rate=500.0, imu_gyro_noise=0.0, imu_accelerometer_noise=0.0
    )
    sim.command(1.0, 0.6)
    for _ in range(200):
        (sample,) = of(ImuSample, sim.step())
        np.testing.assert_array_equal(sample.angular_velocity, sim.data.sensor("gyro").data)
        expected = sim.data.sensor("accelerometer").data
        np.testing.assert_array_equal(sample.linear_acceleration, expected)
    assert np.abs(sample.angular_velocity).max() > 0.5


def test_a_lidar_on_a_body_and_one_on_a_post_see_the_wall(crane):
    exact = {"lidar_range_noise": 0.0, "lidar_dropout": 0.0}
    level = {"lidar_elevation_min_deg": 0.0, "lidar_elevation_max_deg": 0.0}
    for site, ahead in (("post", 2.4), ("column", 2.9)):
        sim = simulation(crane, lidar_site=site, **exact, **level)
        scan = of(Scan, run(sim, 52))[0]
        points = scan.points[(np.abs(scan.points["y"]) < 1e-6) & (scan.points["x"] > 0)]
        # The crane itself is transparent.
        np.testing.assert_allclose(points["x"], [ahead, ahead], atol=1e-6)


def test_mounts_are_told_where_they_are_constant(crane):
    fixed = simulation(crane, lidar_site="post", imu_site="head")
    np.testing.assert_allclose(fixed.T_base_lidar[:3, 3], [0.5, 0, 1.5])
    assert fixed.T_base_imu is None
    moving = simulation(crane, base_body="jib", lidar_site="post", imu_site="head")
    assert moving.T_base_lidar is None
    np.testing.assert_allclose(moving.T_base_imu[:3, 3], [0.5, 0, 0], atol=1e-12)
    turned = Rotation.from_matrix(moving.T_base_imu[:3, :3]).as_euler("xyz", degrees=True)
    np.testing.assert_allclose(turned, [0, 20, 0], atol=1e-9)


def test_a_base_need_not_be_free(crane):
    sim = simulation(crane, base_body="jib", truth_rate=500.0, keyframe="raised")
    truth = of(TruthState, run(sim, 1))[0]
    slew, luff = sim.data.qpos[7:9]
    expected = Rotation.from_euler("ZY", [slew, luff]).as_matrix()
    np.testing.assert_allclose(truth.T_world_base[:3, :3], expected, atol=1e-12)
    assert abs(slew - 0.3) < 0.01 and abs(luff + 0.5) < 0.01


def test_a_keyframe_and_parameters_say_where_it_starts(crane):
    sim = simulation(crane, keyframe="raised")
    np.testing.assert_allclose(sim.data.qpos[7:10], [0.3, -0.5, 0.1])
    run(sim, 1)
    # Held until the first command, whatever the timeout.
    np.testing.assert_array_equal(sim.data.ctrl, [0.0, -0.5])
    other = simulation(crane, keyframe="raised", start_ctrl=(0.25, 0.0), command_timeout=0.01)
    run(other, 50)
    np.testing.assert_array_equal(other.data.ctrl, [0.25, 0.0])
    hanging = simulation("cartpole", start_qpos=(0.5, np.pi))
    np.testing.assert_array_equal(hanging.data.qpos, [0.5, np.pi])
    run(hanging, 10)
    hanging.reset()
    np.testing.assert_array_equal(hanging.data.qpos, [0.5, np.pi])


def test_a_free_base_is_placed_and_turned_on_top_of_its_start():
    start = (0.0, 0.0, 1.5, 2.0, 0.0, 0.0, 0.0)
    sim = simulation(
        "quadrotor",
        base_body="base_link",
        start_qpos=start,
        start_x=1.0,
        start_y=2.0,
        start_yaw=0.5,
    )
    np.testing.assert_allclose(sim.T_world_start[:3, 3], [1.0, 2.0, 1.5])
    # The quaternion was normalised.
    expected = Rotation.from_euler("z", 0.5).as_matrix()
    np.testing.assert_allclose(sim.T_world_start[:3, :3], expected, atol=1e-12)


def test_a_quadrotor_hovers_until_it_is_commanded_and_holds_or_falls_afterwards():
    start = {"start_qpos": (0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 0.0), "start_ctrl": (9.81, 0.0, 0.0, 0.0)}
    ends = {}
    for on_timeout in ("hold", "zero"):
        sim = simulation("quadrotor", base_body="base_link", on_timeout=on_timeout, **start)
        hovering = of(TruthState, run(sim, 500))[-1]
        np.testing.assert_allclose(hovering.T_world_base[:3, 3], [0, 0, 2.0], atol=1e-9)
        sim.command(10.81, 0.0, 0.0, 0.0)
        ends[on_timeout] = of(TruthState, run(sim, 500))[-1].linear[2]
    # 1 kg: 1 m/s^2 all along, or for the 0.5 s and the one step until the command is old.
    assert ends["hold"] == pytest.approx(1.0, abs=1e-6)
    assert ends["zero"] == pytest.approx(0.502 - 9.81 * 0.498, abs=1e-6)


def test_the_truth_s_twist_is_in_the_base():
    start = (0.0, 0.0, 2.0, *Rotation.from_euler("x", 90, degrees=True).as_quat()[[3, 0, 1, 2]])
    sim = simulation("quadrotor", base_body="base_link", start_qpos=start, truth_rate=500.0)
    sim.data.qvel[:] = 0.0, 0.0, 1.0, 0.1, 0.2, 0.3
    truth = of(TruthState, run(sim, 1))[-1]
    # The world's z is the body's y; MuJoCo gives a freejoint's rates in the body as they are.
    np.testing.assert_allclose(truth.linear, [0, 1 - 0.002 * 9.81, 0], atol=1e-3)
    np.testing.assert_allclose(truth.angular, sim.data.qvel[3:], atol=1e-12)


def test_the_quadruped_stands_on_its_keyframe_without_contacts():
    sim = simulation("quadruped", base_body="base_link", keyframe="stance", on_timeout="hold")
    truths = of(TruthState, run(sim, 400))
    assert len(sim.joint_names) == 12
    height = [t.T_world_base[2, 3] for t in truths]
    assert 0.25 < min(height) and max(height) < 0.32
    assert truths[-1].T_world_base[2, 2] > 0.99
    # Its floor is a plane in no group of its own.
    assert sim.data.ncon >= 4 and sim.contacts == 0


def test_a_urdf_s_links_carry_base_and_sensors(tmp_path):
    path = tmp_path / "rover.urdf"
    path.write_text(ROVER)
    sim = simulation(
        str(path), base_body="chassis", imu_site="scanner", imu_gyro_noise=0.0,
        imu_accelerometer_noise=0.0, start_x=2.0,
    )  # fmt: skip
    assert sim.joint_names == ("mast",) and sim.T_base_imu is None
    events = run(sim, 50)
    # It falls freely: the accelerometer feels nothing.
    fallen = 9.81 * 0.002**2 * 50 * 51 / 2
    np.testing.assert_allclose(of(ImuSample, events)[-1].linear_acceleration, 0, atol=1e-9)
    truth = of(TruthState, events)[-1]
    np.testing.assert_allclose(truth.T_world_base[:3, 3], [2.0, 0, -fallen], atol=1e-9)
    with pytest.raises(SimulationError, match="a command of 1 values; there must be 0"):
        sim.command(1.0)


def test_a_urdf_gets_actuators_and_ground_from_an_mjcf_that_attaches_it(tmp_path):
    (tmp_path / "rover.urdf").write_text(ROVER.replace('type="floating"', 'type="fixed"'))
    path = tmp_path / "world.xml"
    path.write_text("""
      <mujoco>
        <asset><model name="rover" file="rover.urdf"/></asset>
        <worldbody>
          <geom type="plane" size="0 0 1"/>
          <body name="base_link" pos="0 0 0.3">
            <freejoint/><inertial pos="0 0 0" mass="1" diaginertia="0.1 0.1 0.1"/>
            <geom type="box" size="0.2 0.2 0.05"/>
            <attach model="rover" body="scanner" prefix="rover_"/>
          </body>
        </worldbody>
        <actuator><position name="mast" joint="rover_mast" kp="1" kv="0.2"/></actuator>
      </mujoco>
    """)
    sim = simulation(str(path), base_body="base_link", imu_site="rover_scanner")
    assert sim.joint_names == ("rover_mast",) and sim.actuation.names == ("mast",)
    for _ in range(10):
        sim.command(0.5)
        events = run(sim, 200)
    assert of(JointState, events)[-1].position[0] == pytest.approx(0.5, abs=0.01)
    # The box stands on its lower face.
    assert of(TruthState, events)[-1].T_world_base[2, 3] == pytest.approx(0.05, abs=0.01)


def test_contacts_are_those_of_what_moves_with_what_does_not(crane):
    sim = simulation(crane)
    run(sim, 500)
    assert sim.contacts == 0
    # The stone, thrown against the wall.
    sim.data.qpos[:3], sim.data.qvel[:3] = (2.5, 0.0, 1.0), (5.0, 0.0, 0.0)
    run(sim, 100)
    assert sim.contacts == 1


@pytest.mark.parametrize("values", [(1.0,), (1.0, 2.0, 3.0), ()])
def test_a_command_of_a_wrong_length_is_refused_and_changes_nothing(crane, values):
    sim = simulation(crane)
    sim.command(0.25, -0.25)
    with pytest.raises(SimulationError, match=f"{len(values)} values; .* 2: slew, actuator1"):
        sim.command(*values)
    run(sim, 1)
    np.testing.assert_array_equal(sim.data.ctrl, [0.25, -0.25])


def test_a_command_that_is_no_number_names_its_value(crane):
    with pytest.raises(SimulationError, match="slew=nan actuator1=1 is not finite"):
        simulation(crane).command(np.nan, 1.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"base_body": "hull"}, "'base_body': .* no body 'hull'.*bodies: stone, column, jib"),
        ({"lidar_site": "roof"}, "'lidar_site': .*'roof'.*sites: post, head; bodies: stone"),
        ({"imu_site": "roof"}, "'imu_site': .*'roof'.*'' means none; sites: post, head"),
        ({"keyframe": "lowered"}, "'keyframe': .*'lowered'.*keyframes: raised"),
        ({"left_wheel": "slew"}, "'left_wheel' and 'right_wheel' are 'slew' and ''"),
        ({"left_wheel": "a", "right_wheel": "b"}, "'left_wheel': .*joint 'a'.*slew, luff, joint3"),
        (
            {"left_wheel": "slew", "right_wheel": "joint3"},
            "'right_wheel': the model has no joint 'joint3'",
        ),
        ({"start_qpos": (1.0, 2.0)}, "'start_qpos' has 2 values, must have 14"),
        ({"start_ctrl": (1.0,)}, "'start_ctrl' has 1 values, must have 2"),
        ({"start_x": 1.0}, "'start_x', .* need a base_body with a freejoint; '' of model"),
        ({"base_body": "jib", "start_yaw": 1.0}, "freejoint; 'jib' of model"),
        ({"joint_rate": 600.0}, "'joint_rate' is 600, must be <= 500"),
    ],
)
def test_what_is_configured_and_missing_is_named_with_what_there_is(crane, values, message):
    with pytest.raises(ConfigurationError, match=message):
        simulation(crane, **values)


def test_rates_of_what_is_not_there_do_not_matter(crane):
    simulation(crane, imu_rate=1e4, truth_rate=1e4)


def test_a_model_that_explodes_is_an_error(tmp_path):
    path = tmp_path / "unstable.xml"
    path.write_text(
        '<mujoco><option timestep="0.05" integrator="Euler"/><worldbody><body>'
        '<joint name="spring" type="slide" stiffness="1e6"/><geom size="0.1"/></body>'
        "</worldbody></mujoco>"
    )
    sim = simulation(str(path), joint_rate=20.0, clock_rate=20.0, start_qpos=(0.1,))
    with pytest.raises(SimulationError, match="physics diverged at .* s: warning BADQ"):
        run(sim, 1000)
    stopped = sim.time_ns
    with pytest.raises(SimulationError):
        sim.step()
    assert sim.time_ns == stopped > 0

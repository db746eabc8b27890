"""mujoco_simulation over DDS: what it tells of itself, and that it does as it is told."""

from importlib import resources

import mujoco
import numpy as np
from geometry_msgs.msg import TwistStamped
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from nav_msgs.msg import Odometry
from ros_harness import Probe, wait_for
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Imu, JointState, PointCloud2
from std_msgs.msg import Float64MultiArray, UInt64
from std_srvs.srv import SetBool, Trigger
from tf2_msgs.msg import TFMessage

from geoaccel_ros.pointcloud.layout import coordinates
from geoaccel_ros.pointcloud.times import point_times
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.pointcloud2 import points_from_message
from geoaccel_ros.simulation.world import load_model


def seconds(stamp):
    return stamp.sec + 1e-9 * stamp.nanosec


def test_every_sensor_speaks_in_the_contract_s_terms(nodes, probe):
    clouds = probe.listen(PointCloud2, "/points", qos.sensor_data(50))
    truth = probe.listen(Odometry, "/odom", qos.RELIABLE)
    joints = probe.listen(JointState, "/joint_states", qos.RELIABLE)
    wheels = probe.listen(Odometry, "/wheel_odometry", qos.RELIABLE)
    imu = probe.listen(Imu, "/imu", qos.sensor_data(50))
    moving = probe.listen(TFMessage, "/tf", qos.TRANSFORMS)
    nodes.start("mujoco_simulation")
    # Heard late: /tf_static keeps what was said before anybody listened.
    static = probe.listen(TFMessage, "/tf_static", qos.LATCHED)
    wait_for(lambda: len(clouds) > 3 and len(static), what="clouds and static transforms")

    cloud = clouds[-1]
    assert cloud.header.frame_id == "lidar" and cloud.point_step == 22
    assert [f.name for f in cloud.fields] == ["x", "y", "z", "intensity", "ring", "time"]
    points = points_from_message(cloud)
    assert len(points) > 5000 and set(np.unique(points["ring"])) <= set(range(16))
    times = point_times(points, seconds(cloud.header.stamp)).times
    assert 0.0 <= times.min() and 0.09 < times.max() < 0.1
    # The floor: 16 rings reach down to 15 degrees, from 0.6 m up.
    assert coordinates(points)[:, 2].min() < -0.4
    stamps = [seconds(c.header.stamp) for c in clouds]
    assert np.allclose(np.diff(stamps), 0.1, atol=1e-6)

    transforms = {t.child_frame_id: t for t in static[0].transforms}
    assert set(transforms) == {"lidar", "imu"}
    assert transforms["lidar"].header.frame_id == "base_link"
    assert transforms["lidar"].transform.translation.z > 0.3
    assert moving[0].transforms[0].header.frame_id == "world"
    assert moving[0].transforms[0].child_frame_id == "ground_truth"
    assert truth[-1].header.frame_id == "world" and truth[-1].child_frame_id == "base_link"
    # No /tf tells of the wheels' frame: base_link has one parent, the odometry that is used.
    assert wheels[-1].header.frame_id == "wheel_odom" and wheels[-1].child_frame_id == "base_link"
    frames = {t.header.frame_id for message in moving for t in message.transforms}
    assert frames == {"world"}
    assert "left_wheel" in joints[-1].name and len(joints[-1].velocity) == len(joints[-1].name)
    assert abs(np.mean([m.linear_acceleration.z for m in imu]) - 9.81) < 0.1


def test_it_drives_as_commanded_and_stops_when_commands_stop(nodes, probe):
    truth = probe.listen(Odometry, "/odom", qos.RELIABLE)
    wheels = probe.listen(Odometry, "/wheel_odometry", qos.RELIABLE)
    nodes.start("mujoco_simulation")
    commands = probe.speak(TwistStamped, "/cmd_vel", qos.RELIABLE)

    def driving():
        command = TwistStamped()
        command.twist.linear.x = 0.5
        commands.publish(command)
        return len(truth) and truth[-1].twist.twist.linear.x > 0.45

    wait_for(driving, what="the robot to drive at 0.5 m/s")
    assert max(message.twist.twist.linear.x for message in wheels) > 0.45
    wait_for(lambda: abs(truth[-1].twist.twist.linear.x) < 0.01, what="the robot to stop by itself")
    # From the origin, straight ahead, and of the wheels all that they rolled.
    driven = truth[-1].pose.pose.position.x
    wait_for(lambda: abs(wheels[-1].pose.pose.position.x - driven) < 0.02 * driven, what="wheels")


def test_time_stands_while_paused_and_goes_on_after_a_reset(nodes, probe):
    clock = probe.listen(Clock, "/clock", qos.CLOCK)
    truth = probe.listen(Odometry, "/odom", qos.RELIABLE)
    nodes.start("mujoco_simulation", "-p", "start_paused:=true")
    wait_for(lambda: len(clock) > 20, what="a clock, also while paused")
    assert seconds(clock[-1].clock) == 0.0
    assert probe.call(SetBool, "/mujoco_simulation/pause", SetBool.Request(data=False)).success
    wait_for(lambda: len(truth) and seconds(clock[-1].clock) > 1.0, what="time to run")
    assert probe.call(Trigger, "/mujoco_simulation/reset").success
    wait_for(lambda: probe.diagnostics("mujoco_simulation").get("epoch") == "1", what="the reset")
    assert probe.call(SetBool, "/mujoco_simulation/pause", SetBool.Request(data=True)).success
    wait_for(
        lambda: probe.diagnostics("mujoco_simulation")["message"] == "paused", what="the pause"
    )
    told = [seconds(c.clock) for c in clock]
    assert min(np.diff(told)) >= 0.0, "time must never go back"
    assert told[-1] == told[-5]


def test_an_epoch_is_told_at_once_and_to_who_comes_late(nodes, probe):
    epochs = probe.listen(UInt64, "/epoch", qos.LATCHED)
    nodes.start("mujoco_simulation")
    wait_for(lambda: len(epochs) == 1, what="the first epoch")
    for count in (1, 2):
        assert probe.call(Trigger, "/mujoco_simulation/reset").success
        wait_for(lambda count=count: epochs[-1].data == count, what=f"epoch {count}")
    assert [e.data for e in epochs] == [0, 1, 2]
    with Probe() as late:
        # The newest alone, though nothing more is said.
        heard = late.listen(UInt64, "/epoch", qos.LATCHED)
        wait_for(lambda: len(heard), what="the epoch of who came late")
        assert [e.data for e in heard] == [2]


def test_stepping_by_command_repeats_mujoco_over_dds(nodes, probe):
    states = probe.listen(JointState, "/joint_states", qos.RELIABLE)
    bare = ("base_body", "left_wheel", "right_wheel", "lidar_site", "imu_site")
    values = {
        **dict.fromkeys(bare, "''"),
        "model": "cartpole",
        "start_qpos": "[0.0, 3.0]",
        "stepping": "command",
        "command_period": "0.05",
    }
    arguments = [part for name, v in values.items() for part in ("-p", f"{name}:={v}")]
    process = nodes.start("mujoco_simulation", *arguments)
    commands = probe.speak(Float64MultiArray, "/commands", qos.RELIABLE)
    # Whoever has missed the first state asks for the start again.
    assert probe.call(Trigger, "/mujoco_simulation/reset").success
    wait_for(lambda: len(states) and list(states[-1].position) == [0.0, 3.0], what="the start")

    model = load_model("cartpole")
    data = mujoco.MjData(model)
    data.qpos[:] = 0.0, 3.0
    for k, u in enumerate((10.0, -4.0, 7.5, 0.0), start=1):
        commands.publish(Float64MultiArray(data=[u]))
        wait_for(lambda k=k: round(20 * seconds(states[-1].header.stamp)) == k, what=f"state {k}")
        data.ctrl[:] = u
        mujoco.mj_step(model, data, 25)
        assert states[-1].name == ["rail", "hinge"]
        np.testing.assert_array_equal(states[-1].position, data.qpos)
        np.testing.assert_array_equal(states[-1].velocity, data.qvel)

    count = len(states)
    commands.publish(Float64MultiArray(data=[1.0, 2.0]))
    commands.publish(Float64MultiArray(data=[float("inf")]))
    probe.wait_for_count("mujoco_simulation", "commands refused", 2)
    assert len(states) == count
    assert "a command of 2 values; there must be 1: force" in process.output


def test_a_resumed_simulation_still_runs_when_activated_again(nodes, probe):
    nodes.start("mujoco_simulation", "-p", "start_paused:=true")

    def change(transition):
        request = ChangeState.Request(transition=Transition(id=transition))
        return probe.call(ChangeState, "/mujoco_simulation/change_state", request).success

    def wait_for_message(message):
        wait_for(
            lambda: probe.diagnostics("mujoco_simulation").get("message") == message, what=message
        )

    assert probe.call(SetBool, "/mujoco_simulation/pause", SetBool.Request(data=False)).success
    assert change(Transition.TRANSITION_DEACTIVATE)
    wait_for_message("not active")
    assert change(Transition.TRANSITION_ACTIVATE)
    wait_for_message("running")


def test_diverged_physics_is_logged_and_told_to_whoever_asks(nodes, probe, tmp_path):
    yard = resources.files("geoaccel_ros.simulation.models") / "yard.xml"
    model = tmp_path / "diverging.xml"
    model.write_text(f'<mujoco><include file="{yard}"/><option gravity="0 0 -1e12"/></mujoco>')
    process = nodes.start("mujoco_simulation", "-p", f"model:={model}")
    process.wait_for_output("SimulationError: physics diverged", timeout=20.0)
    assert "FATAL" in process.output and "Traceback" in process.output
    answer = probe.call(SetBool, "/mujoco_simulation/pause")
    assert not answer.success and "physics diverged" in answer.message
    wait_for(
        lambda: "physics diverged" in probe.diagnostics("mujoco_simulation").get("message", ""),
        what="diagnostics",
    )


def test_a_reset_starts_what_diverged_again(nodes, probe, tmp_path):
    model = tmp_path / "cart.xml"
    model.write_text(
        '<mujoco><worldbody><body><joint name="rail" type="slide"/><geom size="0.1"/></body>'
        '</worldbody><actuator><motor name="force" joint="rail"/></actuator></mujoco>'
    )
    without = [f"{name}:=''" for name in ("base_body", "left_wheel", "right_wheel", "lidar_site")]
    values = [f"model:={model}", *without, "imu_site:=''", "command_timeout:=0.1"]
    nodes.start("mujoco_simulation", *[part for value in values for part in ("-p", value)])
    states = probe.listen(JointState, "/joint_states", qos.RELIABLE)
    commands = probe.speak(Float64MultiArray, "/commands", qos.RELIABLE)
    commands.publish(Float64MultiArray(data=[1e20]))

    def says(text):
        return text in probe.diagnostics("mujoco_simulation").get("message", "")

    wait_for(lambda: says("physics diverged"), what="the physics to diverge")
    count, last = len(states), states[-1].header.stamp
    assert probe.call(Trigger, "/mujoco_simulation/reset").success
    wait_for(lambda: says("running") and len(states) > count + 10, what="it to run again")
    after = [state for state in states][count:]
    assert all(abs(state.position[0]) < 1.0 for state in after)
    assert (after[0].header.stamp.sec, after[0].header.stamp.nanosec) >= (last.sec, last.nanosec)
    assert probe.diagnostics("mujoco_simulation")["epoch"] == "1"


def test_a_command_that_is_no_number_is_refused(nodes, probe):
    process = nodes.start("mujoco_simulation")
    commands = probe.speak(TwistStamped, "/cmd_vel", qos.RELIABLE)
    command = TwistStamped()
    command.twist.linear.x = float("nan")
    commands.publish(command)
    probe.wait_for_count("mujoco_simulation", "commands refused", 1)
    assert probe.diagnostics("mujoco_simulation")["message"] == "running"
    assert "not finite" in process.output


def test_a_model_that_does_not_exist_is_one_line(nodes):
    process = nodes.start("mujoco_simulation", "-p", "model:=moon", active=False)
    assert process.wait() == 1
    assert "parameter 'model' is 'moon', must be a path or one of cartpole, " in process.output
    assert "Traceback" not in process.output

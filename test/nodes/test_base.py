"""The base and the main of all nodes, on a real process."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import DescribeParameters, SetParameters, SetParametersAtomically
from rclpy.parameter import Parameter
from ros_harness import wait_for
from std_msgs.msg import String
from std_srvs.srv import Trigger

from geoaccel_ros.ros import qos

SCRIPT = str(Path(__file__).with_name("scripted_node.py"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_node_cleanly_and_its_last_word_is_heard(nodes, probe, number):
    said = probe.listen(String, "/said", qos.RELIABLE)
    process = nodes.start(SCRIPT)
    probe.wait_for_connections("scripted", subscribers_of_said=1)
    status, seconds = process.stop(number)
    assert status == 0
    assert seconds < 2.0
    wait_for(lambda: len(said), what="the safe command")
    assert [m.data for m in said] == ["safe"]
    assert process.output.count("cleanup") == 1
    assert "Traceback" not in process.output


def test_a_signal_while_configuring_does_not_wait_for_it(nodes):
    process = nodes.start(SCRIPT, "-p", "configure_for:=60.0", active=False)
    process.wait_for_output("configure voxel")
    status, seconds = process.stop()
    assert status == 0
    assert seconds < 2.0
    assert "cleanup" in process.output


@pytest.mark.parametrize("transition", ["configure", "activate"])
def test_an_exception_in_a_transition_is_logged_and_ends_the_process(nodes, transition):
    process = nodes.start(SCRIPT, "-p", f"fail_in:={transition}", active=False)
    assert process.wait() == 1
    assert f"RuntimeError: {transition} failed" in process.output
    assert f"cannot {transition}" in process.output
    assert "cleanup" in process.output


def test_an_exception_in_a_callback_is_logged_and_counted_and_the_node_goes_on(nodes, probe):
    process = nodes.start(SCRIPT)
    said = probe.listen(String, "/said", qos.RELIABLE)
    speaker = probe.speak(String, "/heard", qos.RELIABLE)
    speaker.publish(String(data="raise"))
    probe.wait_for_count("scripted", "exceptions", 1)
    assert "callback failed" in process.output
    speaker.publish(String(data="hello"))
    wait_for(lambda: len(said), what="an answer")
    assert said[-1].data == "heard hello at 0.5"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-p", "voxel:=9.0"], "scripted: parameter 'voxel' is 9.0, must be 0.1 to 2 (in m)"),
        (["-p", "voxel:=wide"], "scripted: parameter 'voxel' is 'wide', must be a number"),
        (["-p", "voxl:=1.0"], "scripted: unknown parameter 'voxl': did you mean 'voxel'?"),
        (["--params-file", "absent.yaml"], "scripted: parameter file 'absent.yaml' does not exist"),
        (["-p", "nonsense"], "scripted: cannot start: failed to initialize rcl"),
    ],
)
def test_a_user_s_mistake_is_one_line_and_status_1(nodes, arguments, complaint):
    process = nodes.start(SCRIPT, *arguments, active=False)
    assert process.wait() == 1
    assert complaint in process.output
    assert "Traceback" not in process.output


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("other:\n  ros__parameters:\n    voxel: 1.0\n", "has no section for node '/scripted'"),
        ("scripted: [\n", "is not valid YAML"),
        ("scripted:\n  ros__parameters:\n    voxel: 3\n", "'voxel' is 3.0, must be 0.1 to 2"),
    ],
)
def test_a_mistake_in_a_parameter_file_is_one_line_and_status_1(nodes, tmp_path, text, complaint):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    process = nodes.start(SCRIPT, "--params-file", str(path), active=False)
    assert process.wait() == 1
    assert complaint in process.output
    assert "Traceback" not in process.output


def test_an_integer_is_accepted_where_a_decimal_is_meant(nodes, tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("scripted:\n  ros__parameters:\n    voxel: 1\n")
    process = nodes.start(SCRIPT, "--params-file", str(path))
    assert "configure voxel 1.0" in process.output


def test_parameters_are_described_and_checked_at_run_time(nodes, probe):
    nodes.start(SCRIPT)
    request = DescribeParameters.Request(names=["voxel"])
    descriptor = probe.call(DescribeParameters, "/scripted/describe_parameters", request)
    voxel = descriptor.descriptors[0]
    assert voxel.description == "A number. [m]"
    assert (voxel.floating_point_range[0].from_value, voxel.floating_point_range[0].to_value) == (
        0.1,
        2.0,
    )

    def set_voxel(value):
        parameter = Parameter("voxel", value=value).to_parameter_msg()
        request = SetParameters.Request(parameters=[parameter])
        return probe.call(SetParameters, "/scripted/set_parameters", request).results[0]

    refused = set_voxel(5.0)
    assert not refused.successful and "voxel" in refused.reason
    refused = set_voxel(1.0)
    assert not refused.successful and "while the node is active" in refused.reason


def setter(probe):
    """Return what sets parameters of the scripted node and returns '' or why it was refused."""

    def set_parameters(atomically=False, **values):
        parameters = [Parameter(name, value=v).to_parameter_msg() for name, v in values.items()]
        if atomically:
            request = SetParametersAtomically.Request(parameters=parameters)
            name = "/scripted/set_parameters_atomically"
            result = probe.call(SetParametersAtomically, name, request).result
        else:
            request = SetParameters.Request(parameters=parameters)
            (result,) = probe.call(SetParameters, "/scripted/set_parameters", request).results
        assert result.successful == (not result.reason)
        return result.reason

    return set_parameters


def test_live_parameters_change_while_the_node_is_active(nodes, probe):
    nodes.start(SCRIPT)
    said = probe.listen(String, "/said", qos.RELIABLE)
    speaker = probe.speak(String, "/heard", qos.RELIABLE)
    set_parameters = setter(probe)
    request = DescribeParameters.Request(names=["low", "high", "voxel"])
    descriptor = probe.call(DescribeParameters, "/scripted/describe_parameters", request)
    assert [d.additional_constraints for d in descriptor.descriptors] == [
        "0 to 9; may change while the node is active",
        "may change while the node is active",
        "0.1 to 2",
    ]

    def heard():
        count = len(said)
        speaker.publish(String(data="range"))
        wait_for(lambda: len(said) > count, what="an answer")
        return said[-1].data

    # An integer is a decimal here, too.
    assert set_parameters(low=2) == ""
    assert heard() == "heard 2.0 to 2.0 of  at 0.5"
    assert set_parameters(names=["a", "b"]) == ""
    assert heard() == "heard 2.0 to 2.0 of a,b at 0.5"
    assert set_parameters(names=[]) == ""
    # Each alone is in range: refused are those that do not fit together.
    assert set_parameters(low=3.0) == "low (3.0) is above high (2.0)"
    assert set_parameters(low=3.0, high=2.5, atomically=True) == "low (3.0) is above high (2.5)"
    assert set_parameters(low=2.5, high="9", atomically=True) == (
        "parameter 'high' is '9', must be a number"
    )
    assert set_parameters(low=0.5, voxel=1.0, atomically=True) == (
        "'voxel' cannot change while the node is active: deactivate and clean it up, set it, and "
        "configure it again; at any time can: low, high, names"
    )
    assert heard() == "heard 2.0 to 2.0 of  at 0.5"
    assert set_parameters(low=3.0, high=4.0, atomically=True) == ""
    assert heard() == "heard 3.0 to 4.0 of  at 0.5"


def test_parameters_that_are_set_before_configure_need_only_fit_together_then(nodes, probe):
    nodes.start(SCRIPT, "-p", "autostart:=false", active=False)
    set_parameters = setter(probe)

    def change(transition):
        request = ChangeState.Request(transition=Transition(id=transition))
        return probe.call(ChangeState, "/scripted/change_state", request).success

    assert set_parameters(low=3.0) == ""
    assert not change(Transition.TRANSITION_CONFIGURE)
    assert set_parameters(high=4.0) == ""
    assert change(Transition.TRANSITION_CONFIGURE)
    # Configured, but not active: what is live holds at once, what is not waits.
    assert set_parameters(high=2.0) == "low (3.0) is above high (2.0)"
    assert set_parameters(high=5.0) == ""
    assert set_parameters(voxel=1.5) == ""
    assert change(Transition.TRANSITION_ACTIVATE)
    said = probe.listen(String, "/said", qos.RELIABLE)
    speaker = probe.speak(String, "/heard", qos.RELIABLE)
    speaker.publish(String(data="range"))
    wait_for(lambda: len(said), what="an answer")
    assert said[0].data == "heard 3.0 to 5.0 of  at 0.5"


def test_without_autostart_a_manager_drives_the_lifecycle(nodes, probe):
    process = nodes.start(SCRIPT, "-p", "autostart:=false", active=False)
    said = probe.listen(String, "/said", qos.RELIABLE)

    def state():
        return probe.call(GetState, "/scripted/get_state").current_state.label

    def change(transition):
        request = ChangeState.Request(transition=Transition(id=transition))
        return probe.call(ChangeState, "/scripted/change_state", request).success

    assert state() == "unconfigured"
    assert change(Transition.TRANSITION_CONFIGURE) and state() == "inactive"
    speaker = probe.speak(String, "/heard", qos.RELIABLE)
    speaker.publish(String(data="too early"))
    # Parameters set while inactive hold from the next configure on.
    assert change(Transition.TRANSITION_CLEANUP) and state() == "unconfigured"
    parameter = Parameter("voxel", value=1).to_parameter_msg()
    request = SetParameters.Request(parameters=[parameter])
    assert probe.call(SetParameters, "/scripted/set_parameters", request).results[0].successful
    assert change(Transition.TRANSITION_CONFIGURE)
    assert change(Transition.TRANSITION_ACTIVATE) and state() == "active"
    wait_for(lambda: speaker.get_subscription_count(), what="the node's subscription")
    speaker.publish(String(data="now"))
    wait_for(lambda: len(said), what="an answer")
    assert change(Transition.TRANSITION_DEACTIVATE) and state() == "inactive"
    wait_for(lambda: len(said) == 2, what="the safe command")
    assert [m.data for m in said] == ["heard now at 1.0", "safe"]
    assert process.stop()[0] == 0


def test_a_failed_configure_leaves_a_managed_node_unconfigured(nodes, probe):
    process = nodes.start(
        SCRIPT, "-p", "autostart:=false", "-p", "fail_in:=configure", active=False
    )
    request = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_CONFIGURE))
    assert not probe.call(ChangeState, "/scripted/change_state", request).success
    assert probe.call(GetState, "/scripted/get_state").current_state.label == "unconfigured"
    assert process.running()
    assert process.stop()[0] == 0


def test_without_a_dds_profile_the_node_warns_once(nodes, monkeypatch):
    monkeypatch.delenv("FASTDDS_DEFAULT_PROFILES_FILE")
    process = nodes.start(SCRIPT)
    assert process.output.count("FASTDDS_DEFAULT_PROFILES_FILE") == 1


def test_diagnostics_come_once_a_second_in_every_state(nodes, probe):
    nodes.start(SCRIPT, "-p", "autostart:=false", active=False)
    wait_for(lambda: probe.diagnostics("scripted"), what="diagnostics")
    assert probe.diagnostics("scripted")["message"] == "not active"
    count = len(probe.received["/diagnostics"])
    time.sleep(3.0)
    assert 2 <= len(probe.received["/diagnostics"]) - count <= 4


def test_a_namespace_and_remapping_are_honoured(nodes, probe):
    said = probe.listen(String, "/robot/told", qos.RELIABLE)
    nodes.start(SCRIPT, "-r", "__ns:=/robot", "-r", "said:=told")
    speaker = probe.speak(String, "/robot/heard", qos.RELIABLE)
    wait_for(lambda: probe.node.count_publishers("/robot/told"), what="the node's publisher")
    time.sleep(0.5)
    speaker.publish(String(data="hello"))
    wait_for(lambda: len(said), what="an answer")


def test_qos_can_be_overridden_and_a_mismatch_is_told(nodes, probe):
    override = "qos_overrides./heard.subscription.durability:=transient_local"
    process = nodes.start(SCRIPT, "-p", override)
    probe.node.create_publisher(String, "/heard", qos.RELIABLE)
    process.wait_for_output("offers or asks for another DURABILITY", timeout=20.0)
    probe.wait_for_count("scripted", "incompatible QoS", 1)


@pytest.mark.parametrize(
    ("name", "works"),
    [
        ("/heard.subscription.depth", True),
        ("/said.publisher.depth", True),
        ("/herd.subscription.depth", False),
        ("/heard.publisher.depth", False),
        ("heard.subscription.depth", False),
        ("/heard.subscription.dept", False),
    ],
)
def test_a_qos_override_that_changes_nothing_is_told_with_those_that_would(nodes, name, works):
    process = nodes.start(SCRIPT, "-p", f"qos_overrides.{name}:=3")
    warning = (
        f"parameter 'qos_overrides.{name}' changes nothing: what can be overridden is history, "
        "depth, reliability, durability of /said.publisher, /heard.subscription"
    )
    assert (warning in process.output) != works
    assert ("changes nothing" in process.output) != works


@pytest.mark.parametrize("value", ["nonsense", "42"])
def test_a_wrong_qos_override_is_one_line(nodes, value):
    override = f"qos_overrides./heard.subscription.reliability:={value}"
    process = nodes.start(SCRIPT, "-p", override, active=False)
    assert process.wait() == 1
    assert "'qos_overrides.*' of 'heard'" in process.output
    assert "Traceback" not in process.output


def test_a_service_that_fails_answers_so_and_the_node_goes_on(nodes, probe):
    process = nodes.start(SCRIPT)
    answer = probe.call(Trigger, "/scripted/break")
    assert not answer.success and "log" in answer.message
    assert "service failed" in process.output
    assert probe.call(GetState, "/scripted/get_state").current_state.label == "active"


def test_a_signal_interrupts_a_configure_that_a_manager_asked_for(nodes, probe):
    arguments = ["-p", "autostart:=false", "-p", "configure_for:=60.0"]
    process = nodes.start(SCRIPT, *arguments, active=False)
    client = probe.node.create_client(ChangeState, "/scripted/change_state")
    assert client.wait_for_service(20.0)
    time.sleep(0.7)
    request = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_CONFIGURE))
    client.call_async(request)
    process.wait_for_output("configure voxel")
    status, seconds = process.stop()
    assert status == 0 and seconds < 2.0


def test_silence_where_messages_are_expected_is_told(nodes, probe):
    nodes.start(SCRIPT)
    wait_for(
        lambda: "no message on 'heard'" in probe.diagnostics("scripted").get("message", ""),
        what="the warning",
    )


def test_parameters_of_rclpy_itself_are_accepted(nodes):
    nodes.start(SCRIPT, "-p", "start_type_description_service:=false")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_imports_ends_the_node_cleanly(number):
    command = [sys.executable, "-m", "geoaccel_ros.executables", "lidar_odometry"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    maps = Path(f"/proc/{process.pid}/maps")
    # NumPy is among the first of the heavy imports, and Numba's LLVM long after it.
    wait_for(lambda: "_multiarray_umath" in maps.read_text(), what="the imports to begin")
    process.send_signal(number)
    output, _ = process.communicate(timeout=20.0)
    assert process.returncode == 0 and output == ""


def test_a_wrong_use_sim_time_is_one_line(nodes):
    process = nodes.start(SCRIPT, "-p", "use_sim_time:=5", active=False)
    assert process.wait() == 1
    assert "use_sim_time" in process.output and "Traceback" not in process.output


def test_an_empty_list_is_one_that_was_left_out(nodes):
    nodes.start("mppi_controller", "-p", "goals:=[]", "-p", "lidar_mount:=[]")

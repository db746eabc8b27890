"""What cloud_encoder sends, leaves out, counts and tells, on a real process over DDS."""

import time

import numpy as np
import pytest
from point_cloud_interfaces.msg import CompressedPointCloud2
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import serialize_message
from ros_harness import wait_for
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from geoaccel_ros.compression.codec import Codec, CodecConfig, inspect
from geoaccel_ros.nodes.cloud_encoder import envelope_bytes
from geoaccel_ros.pointcloud.layout import packed_dtype
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.pointcloud2 import (
    bytes_for_message,
    message_from_points,
    points_from_message,
)

DTYPE = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("intensity", "f4"), ("ring", "u2")])
OUTCOMES = (
    "clouds out", "not subscribed", "thinned", "replaced by newer", "thinned by budget",
    "over budget", "refused",
)  # fmt: skip


def cloud(number, count=3000):
    """Return a noisy room stamped ``number`` seconds."""
    random = np.random.default_rng(number)
    points = np.zeros(count, DTYPE)
    turn = np.linspace(0, 2 * np.pi, count)
    points["x"], points["y"] = 8 * np.cos(turn), 8 * np.sin(turn)
    points["z"] = random.uniform(-1, 2, count)
    points["intensity"] = random.uniform(0, 100, count)
    message = message_from_points(Header(frame_id="lidar"), points)
    message.header.stamp.sec = number
    return message


class Relay:
    """The encoder, a subscriber of what it sends, and the sender of its clouds."""

    def __init__(self, nodes, probe, *options, subscribe=True):
        words = [word for option in options for word in ("-p", option)]
        self.process = nodes.start("cloud_encoder", "-p", "threads:=1", *words)
        self.probe = probe
        if subscribe:
            self.sent = probe.listen(CompressedPointCloud2, "/points/compressed", qos.RELIABLE)
        self.points = probe.speak(PointCloud2, "/points", qos.reliable(100))
        if subscribe:
            probe.wait_for_connections("cloud_encoder", subscribers_of_points__compressed=1)

    def send(self, count, rate, begin=0):
        for number in range(begin, begin + count):
            self.points.publish(cloud(number))
            time.sleep(1 / rate)

    def said(self, count):
        """Return the diagnostics once ``count`` clouds are accounted for."""

        def accounted():
            said = self.probe.diagnostics("cloud_encoder")
            if int(said.get("clouds in", 0)) == sum(int(said.get(o, 0)) for o in OUTCOMES) == count:
                return said
            return None

        return wait_for(
            accounted, 30.0, lambda: f"{count} clouds in {self.probe.diagnostics('cloud_encoder')}"
        )

    def set(self, name, value):
        """Set a parameter; return '' or why it was refused."""
        parameters = [Parameter(name, value=value).to_parameter_msg()]
        request = SetParameters.Request(parameters=parameters)
        (result,) = self.probe.call(SetParameters, "/cloud_encoder/set_parameters", request).results
        return result.reason


def test_live_parameters_hold_from_the_next_cloud_on_and_bad_ones_are_refused(nodes, probe):
    relay = Relay(nodes, probe, "mode:=scan", "step:=0.01")

    def next_cloud():
        count = len(relay.sent)
        relay.points.publish(cloud(count))
        wait_for(lambda: len(relay.sent) > count, what="the cloud")
        return inspect(bytes(relay.sent[count].compressed_data))

    assert next_cloud().step == 0.01
    assert relay.set("step", 0.04) == ""
    info = next_cloud()
    assert (info.step, info.mode) == (0.04, "scan")
    bits = info.bytes_by_section["field intensity"]
    assert relay.set("quantise", ["intensity=1.0"]) == ""
    assert next_cloud().bytes_by_section["field intensity"] < bits / 2
    assert "'quantise' has 'intensity'" in relay.set("quantise", ["intensity"])
    assert "belong to mode octree, not to mode scan" in relay.set("duplicates", "merge")
    assert relay.set("mode", "octree") == ""
    assert relay.set("duplicates", "merge") == ""
    info = next_cloud()
    assert info.mode == "octree" and info.points < info.source_points
    assert relay.set("step", 0.5) == ""
    assert relay.set("target_bytes_per_s", 1e5) == (
        "max_step (0.1 m) is below step (0.5 m): raise it, or leave target_bytes_per_s at 0"
    )
    assert "'device' cannot change while the node is active" in relay.set("device", "cpu")
    assert next_cloud().step == 0.5
    # A field that clouds do not have is known when one comes, and told.
    assert relay.set("lossless", ["tme"]) == ""
    relay.points.publish(cloud(9))
    said = relay.said(6)
    assert said["refused"] == "1"
    assert said["newest reason"].startswith("no field 'tme' that 'lossless' names")
    assert relay.set("lossless", []) == ""
    assert next_cloud().step == 0.5
    for name, value in ("quantise", ["x=0.1"]), ("lossless", [""]), ("optional", [""]):
        assert relay.set(name, value).startswith(f"parameter '{name}' has ")


@pytest.mark.parametrize(
    ("name", "bad", "good", "reason"),
    [
        ("lossless", ["foo"], [], "no field 'foo' that 'lossless' names"),
        ("optional", ["foo"], ["ring"], "no field 'foo' that 'optional' names"),
        ("target_bits_per_point", 0.01, 0.0, "no step meets bits a point of 0.01"),
    ],
)
def test_a_refused_cloud_is_a_warning_until_one_is_sent(nodes, probe, name, bad, good, reason):
    target = ["target_bytes_per_s:=1000000.0"] if name == "optional" else []
    relay = Relay(nodes, probe, *target)

    def state():
        said = probe.diagnostics("cloud_encoder")
        return said.get("level"), said.get("message", "")

    relay.send(1, 10)
    relay.said(1)
    assert state() == (b"\x00", "running")
    assert relay.set(name, bad) == ""
    relay.send(2, 10)
    assert relay.said(3)["refused"] == "2"
    level, message = state()
    assert level == b"\x01" and message.startswith(f"cloud refused: {reason}")
    assert relay.set(name, good) == ""
    relay.send(1, 10)
    assert relay.said(4)["clouds out"] == "2"
    assert state() == (b"\x00", "running")


def test_an_empty_list_in_a_parameter_file_is_as_if_left_out(nodes, probe, tmp_path):
    path = tmp_path / "parameters.yaml"
    path.write_text(
        "/**:\n  ros__parameters: {threads: 1, optional: [], lossless: [], quantise: []}\n"
    )
    nodes.start("cloud_encoder", "--params-file", str(path))
    request = GetParameters.Request(names=["optional", "lossless", "quantise"])
    values = probe.call(GetParameters, "/cloud_encoder/get_parameters", request).values
    assert [list(value.string_array_value) for value in values] == [[], [], []]


def test_every_cloud_is_accounted_for_and_the_newest_is_sent(nodes, probe):
    relay = Relay(nodes, probe)
    # Faster than they are encoded.
    for number in range(40):
        relay.points.publish(cloud(number, 20_000))
        time.sleep(0.002)
    wait_for(lambda: len(relay.sent) and relay.sent[-1].header.stamp.sec == 39, what="the newest")
    wait_for(
        lambda: int(probe.diagnostics("cloud_encoder")["clouds out"]) == len(relay.sent),
        what="diagnostics",
    )
    said = probe.diagnostics("cloud_encoder")
    assert int(said["clouds in"]) == sum(int(said[outcome]) for outcome in OUTCOMES)
    assert int(said["replaced by newer"]) > 0
    stamps = [message.header.stamp.sec for message in relay.sent]
    assert stamps == sorted(set(stamps))
    assert int(said["encode count"]) == len(stamps)


def test_a_longer_queue_sends_every_cloud_in_order(nodes, probe):
    relay = Relay(nodes, probe, "queue:=30")
    for number in range(25):
        relay.points.publish(cloud(number, 20_000))
        time.sleep(0.005)
    wait_for(lambda: len(relay.sent) == 25, what="every cloud")
    assert [message.header.stamp.sec for message in relay.sent] == list(range(25))
    assert relay.said(25)["replaced by newer"] == "0"


def test_without_a_subscriber_nothing_is_encoded(nodes, probe):
    relay = Relay(nodes, probe, subscribe=False)
    relay.send(5, 20)
    said = relay.said(5)
    assert said["not subscribed"] == "5" and said["encode count"] == "0"


def test_a_rate_thins_evenly(nodes, probe):
    relay = Relay(nodes, probe, "max_rate_hz:=5.0", "queue:=100")
    relay.send(60, 20)
    said = relay.said(60)
    # Sleeping and sending take longer than the period says, never less.
    assert 15 <= int(said["clouds out"]) <= 60 * 0.75
    assert int(said["thinned"]) == 60 - int(said["clouds out"])
    assert relay.set("max_rate_hz", 0.0) == ""
    relay.send(10, 20, begin=60)
    assert int(relay.said(70)["clouds out"]) == int(said["clouds out"]) + 10


def test_a_target_is_held_at_the_step_that_allows_it(nodes, probe):
    relay = Relay(nodes, probe, "mode:=scan", "quantise:=[intensity=5.0]", "max_step:=0.2")
    relay.send(1, 10)
    free = relay.said(1)
    rate = 10.0
    target = 0.8 * rate * int(free["bytes out"])
    assert relay.set("target_bytes_per_s", target) == ""
    highest = 0.0
    for number in range(80):
        relay.send(1, rate, begin=number + 1)
        said = probe.diagnostics("cloud_encoder")
        if "target [B/s]" in said:
            highest = max(highest, float(said["bytes/s out"]))
    said = relay.said(81)
    assert int(said["clouds out"]) == 81
    assert 0.5 * target < highest <= target
    assert float(said["step [m]"]) > 0.01
    assert int(said["rung"].split(" of ")[0]) > 0
    assert said["message"] == "running" and said["target [B/s]"] == f"{target:.0f}"


def test_a_target_that_cannot_be_held_is_a_warning_that_names_the_remedy(nodes, probe):
    relay = Relay(nodes, probe, "mode:=scan", "max_step:=0.01", "target_bytes_per_s:=20000.0")
    relay.send(60, 10)
    relay.process.wait_for_output("target_bytes_per_s of 20000 cannot carry all", timeout=10.0)
    wait_for(
        lambda: "field intensity" in probe.diagnostics("cloud_encoder")["message"],
        what="the warning",
    )
    assert probe.diagnostics("cloud_encoder")["level"] == b"\x01"
    said = relay.said(60)
    assert int(said["thinned by budget"]) >= 30 and int(said["clouds out"]) >= 6
    assert sum(len(raw) for raw in probe.received["/points/compressed"]) <= 20_000 * (6 + 2) * 1.2


def test_optional_fields_leave_the_message_and_come_back_as_padding(nodes, probe):
    codec = Codec(CodecConfig(mode="scan"))
    size = len(codec.encode(points_from_message(cloud(0))))
    relay = Relay(
        nodes, probe, "mode:=scan", "max_step:=0.01", "optional:=[intensity]",
        f"target_bytes_per_s:={7.0 * size}",
    )  # fmt: skip
    nodes.start("cloud_decoder", "-p", "threads:=1")
    decoded = probe.listen(PointCloud2, "/points/decompressed", qos.RELIABLE)
    probe.wait_for_connections(
        "cloud_decoder", publishers_of_points__compressed=1, subscribers_of_points__decompressed=1
    )
    relay.send(10, 10)
    wait_for(lambda: len(decoded) == 10, what="the clouds")
    message = decoded[9]
    assert [field.name for field in message.fields] == ["x", "y", "z", "ring"]
    assert message.point_step == DTYPE.itemsize and message.width == 3000
    back, original = points_from_message(message), points_from_message(cloud(9))
    assert np.abs(back["z"] - original["z"]).max() <= 0.00501
    assert np.array_equal(back["ring"], original["ring"])


@pytest.mark.parametrize("matched", ["true", "false"])
def test_qos_is_matched_to_the_offer_where_that_is_asked(nodes, probe, matched):
    """A latched map reaches who asks for what its publisher offers."""
    latched = QoSProfile(
        depth=1,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL,
    )
    publisher = probe.node.create_publisher(PointCloud2, "/points", latched)
    publisher.publish(cloud(1))
    process = nodes.start("cloud_encoder", "-p", "threads:=1", "-p", f"match_qos:={matched}")
    if matched == "true":
        process.wait_for_output("asked for RELIABLE, TRANSIENT_LOCAL, as it is offered")
        probe.wait_for_count("cloud_encoder", "clouds in", 1)
        # A publisher that offers less: back to what both satisfy.
        probe.node.create_publisher(PointCloud2, "/points", qos.sensor_data())
        process.wait_for_output("asked for BEST_EFFORT, VOLATILE, as it is offered")
    else:
        time.sleep(2.0)
        wait_for(lambda: "clouds in" in probe.diagnostics("cloud_encoder"), what="diagnostics")
        assert probe.diagnostics("cloud_encoder")["clouds in"] == "0"


@pytest.mark.parametrize("frame", ["", "lidar", "a" * 99])
@pytest.mark.parametrize("names", ["xyz", ["x", "y", "z", "intensity", "ring", "ä" * 40]])
def test_what_a_message_takes_beside_its_stream_is_known(frame, names):
    points = np.zeros(5, packed_dtype([(name, "f4") for name in names]))
    cloud = message_from_points(Header(frame_id=frame), points)
    compressed = CompressedPointCloud2(
        header=cloud.header, fields=cloud.fields, format="geoaccel/2",
        compressed_data=bytes_for_message(bytes(1000)),
    )  # fmt: skip
    beside = len(serialize_message(compressed)) - 1000
    assert beside <= envelope_bytes(cloud) <= beside + 100

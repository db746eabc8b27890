"""cloud_decoder: what it refuses and why, previews, what it tells of itself."""

import copy
import time

import numpy as np
import pytest
from point_cloud_interfaces.msg import CompressedPointCloud2
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from rclpy.serialization import deserialize_message
from ros_harness import wait_for
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header
from written_bags import WrittenBag

from geoaccel_ros.cli.main import main
from geoaccel_ros.compression.codec import Codec, CodecConfig, inspect
from geoaccel_ros.compression.messages import compressed_values
from geoaccel_ros.pointcloud.layout import packed_dtype
from geoaccel_ros.pointcloud.recordings.bag_messages import BagMessages
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.pointcloud2 import (
    bytes_for_message,
    message_from_points,
    points_from_message,
)

DTYPE = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("ring", "u2")])
ROWS, COLUMNS = 8, 250


def organised():
    rng = np.random.default_rng(3)
    points = np.zeros(ROWS * COLUMNS, DTYPE)
    for axis in "xyz":
        points[axis] = rng.uniform(-8, 8, len(points))
    points["ring"] = np.arange(len(points)) // COLUMNS
    message = message_from_points(Header(frame_id="lidar"), points)
    message.height, message.width, message.row_step = ROWS, COLUMNS, COLUMNS * DTYPE.itemsize
    return message, points


def compressed(**options):
    """Return the message of an encoder."""
    message, points = organised()
    made = CompressedPointCloud2(**compressed_values(message))
    codec = Codec(CodecConfig(**options))
    made.compressed_data = bytes_for_message(codec.encode(points, message.height))
    return made


def altered(message, **changes):
    other = copy.deepcopy(message)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


class Decoder:
    """A decoder as a process, with who sends to it and who hears it."""

    def __init__(self, nodes, probe, *parameters, profile=qos.RELIABLE):
        options = [word for parameter in parameters for word in ("-p", parameter)]
        self._probe = probe
        self.process = nodes.start("cloud_decoder", "-p", "threads:=1", *options)
        self.decoded = probe.listen(PointCloud2, "/points/decompressed", qos.RELIABLE)
        self.sender = probe.node.create_publisher(
            CompressedPointCloud2, "/points/compressed", profile
        )
        probe.wait_for_connections("cloud_decoder", subscribers_of_points__decompressed=1)

    def connected(self):
        self._probe.wait_for_connections("cloud_decoder", publishers_of_points__compressed=1)
        time.sleep(0.7)
        return self

    def decode(self, message):
        """Return the cloud of a message."""
        before = len(self.decoded)
        self.sender.publish(message)
        wait_for(lambda: len(self.decoded) > before, what="the cloud")
        return self.decoded[before]

    def values(self):
        return self._probe.diagnostics("cloud_decoder")

    def set(self, name, value):
        """Return '' or why a parameter could not be set."""
        request = SetParameters.Request(
            parameters=[Parameter(name, value=value).to_parameter_msg()]
        )
        (result,) = self._probe.call(
            SetParameters, "/cloud_decoder/set_parameters", request
        ).results
        return "" if result.successful else result.reason


def test_each_reason_to_refuse_a_message_is_counted_and_the_next_is_decoded(nodes, probe):
    decoder = Decoder(nodes, probe, "max_decoded_mib:=1").connected()
    good = compressed(mode="scan", step=0.02)
    data = bytes(good.compressed_data)
    middle = len(data) // 2
    damaged = [
        b"",
        data[:4],
        data[:60],
        data[:-1],
        data[:middle] + b"\xff\xfe" + data[middle + 2 :],
    ]
    large = compressed(step=0.02)
    points = np.zeros(2**17, DTYPE)
    large.height, large.width = 1, len(points)
    large.compressed_data = bytes_for_message(Codec(CodecConfig(mode="octree")).encode(points))
    fields = copy.deepcopy(good.fields)
    fields[3].name = "layer"
    refused = {
        "refused: foreign format": [
            altered(good, format=name) for name in ("draco", "", "geoaccel2", "geoaccel/two")
        ],
        "refused: future version": [
            altered(good, format="geoaccel/9"),
            altered(good, compressed_data=bytes_for_message(data[:4] + b"\x03" + data[5:])),
        ],
        "refused: damaged": [
            altered(good, compressed_data=bytes_for_message(bytes_)) for bytes_ in damaged
        ],
        "refused: another cloud than declared": [
            altered(good, width=COLUMNS - 1),
            altered(good, point_step=15),
            altered(good, fields=fields),
            altered(good, fields=[]),
        ],
        "refused: larger than max_decoded_mib": [large],
    }
    for name, messages in refused.items():
        for message in messages:
            decoder.sender.publish(message)
            # One after the other: more than the queue would lose some.
            probe.wait_for_count("cloud_decoder", name, messages.index(message) + 1)
    said = decoder.values()
    assert {name: int(said[name]) for name in refused} == {n: len(m) for n, m in refused.items()}
    assert (said["level"], said["clouds out"]) == (b"\x01", "0")
    assert said["message"].startswith("cloud refused: the cloud needs 2 MiB, more than max_decoded")
    assert said["newest reason"] in said["message"]
    assert len(decoder.decoded) == 0
    decoder.decode(good)
    probe.wait_for_count("cloud_decoder", "clouds out", 1)
    said = decoder.values()
    assert (said["level"], said["message"]) == (b"\x00", "running")
    assert "exceptions" not in said and "Traceback" not in decoder.process.output
    assert decoder.process.output.count("cloud refused") >= 1


@pytest.mark.parametrize("is_bigendian", [False, True])
def test_a_scan_comes_back_as_it_was(nodes, probe, is_bigendian):
    decoder = Decoder(nodes, probe).connected()
    sent = compressed(mode="scan", step=0.02)
    original, points = organised()
    sent.is_bigendian = is_bigendian
    sent.is_dense = original.is_dense = False
    found = decoder.decode(sent)
    for name in ("header", "height", "width", "fields", "point_step", "row_step", "is_dense"):
        assert getattr(found, name) == getattr(original, name), name
    assert found.is_bigendian is is_bigendian
    back = points_from_message(found)
    assert np.array_equal(back["ring"], points["ring"])
    assert np.abs(back["x"] - points["x"]).max() <= 0.01001


def test_streams_of_the_first_format_are_decoded(nodes, probe):
    decoder = Decoder(nodes, probe).connected()
    assert decoder.decode(altered(compressed(), format="geoaccel")).width * ROWS >= 250


def test_clouds_of_a_compressed_bag_are_decoded(nodes, probe, tmp_path):
    with WrittenBag(tmp_path, "mcap") as bag:
        rows = {"height": ROWS, "width": COLUMNS, "row_step": COLUMNS * DTYPE.itemsize}
        bag.cloud(organised()[1], 5_000_000_007, **rows)
    out = tmp_path / "out"
    assert main(["compress", str(bag.path), str(out), "--mode", "scan", "--step", "0.02"]) == 0
    with BagMessages(out) as found:
        ((_, _, raw),) = found.messages(found.connections)
    decoder = Decoder(nodes, probe).connected()
    decoded = decoder.decode(deserialize_message(raw, CompressedPointCloud2))
    assert (decoded.height, decoded.width) == (ROWS, COLUMNS)
    assert (decoded.header.stamp.sec, decoded.header.stamp.nanosec) == (5, 7)
    back, points = points_from_message(decoded), organised()[1]
    assert np.array_equal(back["ring"], points["ring"])
    assert 0.009 < np.abs(back["z"] - points["z"]).max() <= 0.01001


def test_what_it_tells(nodes, probe):
    decoder = Decoder(nodes, probe).connected()
    sent = compressed(mode="scan", step=0.02)
    sent.header.stamp = probe.node.get_clock().now().to_msg()
    for _ in range(2):
        decoder.decode(sent)
    decoder.decode(altered(sent, header=Header(frame_id="lidar")))
    probe.wait_for_count("cloud_decoder", "clouds out", 3)
    probe.wait_for_count("cloud_decoder", "stamps of another clock", 1)
    said = decoder.values()
    size, points = len(sent.compressed_data), ROWS * COLUMNS
    assert (said["clouds in"], said["clouds out"]) == ("3", "3")
    assert (said["bytes in"], said["bytes out"]) == (str(3 * size), str(3 * points * 14))
    assert said["ratio"] == f"{points * 14 / size:.3f}"
    assert said["bits per point"] == f"{8 * size / points:.3f}"
    assert said["decode count"] == "3" and 0 < float(said["decode p50 [ms]"]) < 10_000
    assert said["age count"] == "2"
    assert 0 < float(said["age p50 [ms]"]) <= float(said["age p95 [ms]"]) < 60_000
    assert said["device"]


def test_level_changes_with_the_next_cloud(nodes, probe):
    decoder = Decoder(nodes, probe).connected()
    octree, scan = compressed(mode="octree", step=0.02), compressed(mode="scan", step=0.02)
    depth = inspect(bytes(octree.compressed_data)).depth
    assert decoder.decode(octree).width == ROWS * COLUMNS
    assert decoder.set("level", depth - 5) == ""
    preview = decoder.decode(octree)
    assert [field.name for field in preview.fields] == ["x", "y", "z"]
    assert (preview.height, preview.is_dense, preview.point_step) == (1, True, 12)
    assert preview.row_step == 12 * preview.width == len(preview.data)
    # Uniform in 16 m: cells of 0.64 m hold no more than two points of 2,000 in most cases.
    assert 1000 < preview.width < ROWS * COLUMNS
    cells = np.stack([points_from_message(preview)[axis] for axis in "xyz"], axis=1)
    points = np.stack([organised()[1][axis] for axis in "xyz"], axis=1)
    apart = np.abs(points[:, None] - cells[None]).max(axis=2).min(axis=1)
    assert 0.2 < apart.max() <= 0.32 + 1e-5
    # Of a scan there are no levels; the whole cloud comes.
    assert decoder.decode(scan).height == ROWS
    assert decoder.set("level", 0) == ""
    assert decoder.decode(octree).width == 1
    assert decoder.set("level", -1) == ""
    assert len(decoder.decode(octree).fields) == 4
    assert "level" in decoder.set("level", 22)
    refused = decoder.set("queue", 3)
    assert "'queue' cannot change while the node is active" in refused and "level" in refused


def test_it_decodes_only_while_somebody_listens(nodes, probe):
    nodes.start("cloud_decoder", "-p", "threads:=1")
    sender = probe.speak(CompressedPointCloud2, "/points/compressed", qos.RELIABLE)
    for _ in range(3):
        sender.publish(compressed())
    probe.wait_for_count("cloud_decoder", "not subscribed", 3)
    assert probe.diagnostics("cloud_decoder")["decode count"] == "0"


def test_every_message_is_accounted_for(nodes, probe):
    decoder = Decoder(nodes, probe, "queue:=1").connected()
    sent = compressed(mode="scan", step=0.02)
    for k in range(40):
        sent.header.stamp.sec = k
        decoder.sender.publish(sent)

    # Whatever was lost before: the newest is decoded.
    wait_for(lambda: len(decoder.decoded) and decoder.decoded[-1].header.stamp.sec == 39, 60.0)
    stamps = [cloud.header.stamp.sec for cloud in decoder.decoded]
    assert stamps == sorted(set(stamps))
    probe.wait_for_count("cloud_decoder", "clouds out", len(stamps))
    said = decoder.values()
    assert int(said["clouds out"]) == len(stamps)
    assert int(said["clouds out"]) + int(said["replaced by newer"]) == int(said["clouds in"])


def test_a_publisher_of_best_effort_is_heard_where_the_offer_is_to_be_matched(nodes, probe):
    decoder = Decoder(nodes, probe, "match_qos:=true", profile=qos.sensor_data())
    decoder.process.wait_for_output("is asked for BEST_EFFORT, VOLATILE, as it is offered")
    decoder.connected()
    assert decoder.decode(compressed()).header.frame_id == "lidar"
    assert "incompatible QoS" not in decoder.values()


def test_a_publisher_of_best_effort_is_told_of_otherwise(nodes, probe):
    decoder = Decoder(nodes, probe, profile=qos.sensor_data())
    decoder.process.wait_for_output(
        "set 'qos_overrides./points/compressed.subscription.reliability' to match it"
    )
    probe.wait_for_count("cloud_decoder", "incompatible QoS", 1)

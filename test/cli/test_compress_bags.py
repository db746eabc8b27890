"""geoaccel compress and decompress on bags: what is in the new bag, record by record."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from point_cloud_interfaces.msg import CompressedPointCloud2
from rclpy.serialization import deserialize_message, serialize_message
from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag1 import Reader as Rosbag1Reader
from rosbags.rosbag1 import Writer as Rosbag1Writer
from rosbags.rosbag2 import CompressionFormat, CompressionMode
from rosbags.rosbag2 import Reader as Rosbag2Reader
from rosbags.rosbag2 import Writer as Rosbag2Writer
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header
from written_bags import CLOUD, KINDS, TRANSFORMS, WrittenBag

from geoaccel_ros.cli.main import main
from geoaccel_ros.compression.codec import Codec, CodecConfig
from geoaccel_ros.pointcloud.layout import packed_dtype
from geoaccel_ros.pointcloud.messages import points_from_message
from geoaccel_ros.pointcloud.recordings.bag_messages import COMPRESSED_CLOUD, BagMessages
from geoaccel_ros.ros.pointcloud2 import message_from_points

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "rosbags_pointcloud2"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="real bags lie in ../shared")
STAMP = 1_635_236_489_123_456_789
POINT = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("ring", "u2")])
# As ROS 2 Kilted tells them of its own packages' messages.
HASHES = {
    CLOUD: "RIHS01_9198cabf7da3796ae6fe19c4cb3bdd3525492988c70522628af5daa124bae2b5",
    COMPRESSED_CLOUD: "RIHS01_4b38df4932a156a54c53e80a7f34e54e2966b20e54a4d14ded34a165a389c0c1",
}
NEVER = QosTime(2147483647, 4294967295)
BEST_EFFORT = Qos(
    QosHistory.KEEP_LAST, 5, QosReliability.BEST_EFFORT, QosDurability.TRANSIENT_LOCAL,
    NEVER, NEVER, QosLiveliness.AUTOMATIC, NEVER, False,
)  # fmt: skip


def cloud(seed, number=200):
    rng = np.random.default_rng(seed)
    points = np.zeros(number, POINT)
    for axis in "xyz":
        points[axis] = rng.uniform(-10, 10, number)
    points["ring"] = np.arange(number) % 16
    return points


def run(*arguments):
    return main([str(argument) for argument in arguments])


def result_of(capsys, *arguments):
    capsys.readouterr()
    assert run(*arguments, "--json", "-") == 0
    return json.loads(capsys.readouterr().out)


def complaint_of(capsys, *arguments):
    capsys.readouterr()
    assert run(*arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line


def reader_of(path):
    return (Rosbag1Reader if path.suffix == ".bag" else Rosbag2Reader)(path)


def records(path):
    """Return topic, type, time and bytes of every message, in the order of the bag."""
    with reader_of(path) as reader:
        return [(c.topic, c.msgtype, ns, bytes(raw)) for c, ns, raw in reader.messages()]


def topics(path):
    """Return type, definition, hash and what else is known of each topic."""
    with reader_of(path) as reader:
        return {c.topic: (c.msgtype, c.msgdef, c.digest, c.ext) for c in reader.connections}


def messages(path, topic, msgtype):
    """Return a topic's messages."""
    with BagMessages(path) as bag:
        wanted = [c for c in bag.connections if (c.topic, c.msgtype) == (topic, msgtype)]
        return [bag.decode(raw, msgtype) for _, _, raw in bag.messages(wanted)]


def in_place(before, topic, converted):
    """Return the records of ``before`` without the bytes of the clouds, as they are to follow."""
    return [
        (f"{topic}/compressed", COMPRESSED_CLOUD, ns) if converted(t, ns) else (t, kind, ns, raw)
        for t, kind, ns, raw in before
    ]


def without_bytes(found):
    return [record[:3] if record[1] == COMPRESSED_CLOUD else record for record in found]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def out(tmp_path, kind):
    return tmp_path / ("out.bag" if kind == "ros1" else "out")


@pytest.fixture
def back(tmp_path, kind):
    return tmp_path / ("back.bag" if kind == "ros1" else "back")


def written(folder, kind, clouds=4):
    """A bag of clouds, transforms, a type that nobody defines, and a topic without messages."""
    with WrittenBag(folder, kind) as bag:
        bag.undefined_topic("/strange")
        bag.topic("/empty", TRANSFORMS)
        bag.topic("/empty_points", CLOUD)
        bag.static_transform("base_link", "lidar", np.eye(4), STAMP - 5)
        for k in range(clouds):
            # Recorded at one time with the cloud: their order is kept, too.
            bag.raw("/bytes", TRANSFORMS, STAMP + k, bytes(range(k)))
            bag.cloud(cloud(k), STAMP + k)
            bag.raw("/after", TRANSFORMS, STAMP + k, b"\xff" * k)
    return bag.path


def test_other_topics_keep_their_bytes_and_all_the_order(kind, tmp_path, out, capsys):
    path = written(tmp_path, kind)
    result = result_of(capsys, "compress", path, out, "--step", "0.02")
    before, after = records(path), records(out)
    assert len(before) == 14
    assert without_bytes(after) == in_place(before, "/points", lambda t, _: t == "/points")
    known, found = topics(path), topics(out)
    assert set(found) == {
        "/strange", "/empty", "/empty_points/compressed", "/tf_static", "/bytes", "/after",
        "/points/compressed",
    }  # fmt: skip
    for topic in set(known) & set(found):
        assert found[topic] == known[topic], topic
    assert found["/points/compressed"] == found["/empty_points/compressed"]
    assert found["/points/compressed"][0] == COMPRESSED_CLOUD
    assert "uint8[] compressed_data" in found["/points/compressed"][1].data
    sizes = [len(m.compressed_data) for m in messages(out, "/points/compressed", COMPRESSED_CLOUD)]
    assert result["clouds"] == len(sizes) == 4
    assert (result["kept"], result["other_messages"], result["points"]) == (0, 10, 800)
    assert (result["bytes_in"], result["bytes_out"]) == (800 * 14, sum(sizes))
    assert result["bits_per_point"] == 8 * sum(sizes) / 800
    assert result["ratio"] == 800 * 14 / sum(sizes)
    assert 0.009 < result["max_error_m"] <= 0.01001
    assert sum(result["modes"].values()) == 4
    assert result["topics"] == {
        "/points": "/points/compressed",
        "/empty_points": "/empty_points/compressed",
    }


def test_lossless_clouds_come_back_bit_for_bit(kind, tmp_path, out, back, capsys):
    path = written(tmp_path, kind)
    run("compress", path, out, "--lossless", "x,y,z")
    result = result_of(capsys, "decompress", out, back)
    assert records(back) == records(path)
    known, found = topics(path), topics(back)
    assert set(found) == set(known)
    for topic in known:
        assert found[topic][0] == known[topic][0] and found[topic][2:] == known[topic][2:], topic
    assert (result["clouds"], result["kept"], result["points"]) == (4, 0, 800)
    assert result["bytes_out"] == 800 * 14
    assert result["topics"]["/points/compressed"] == "/points"


@pytest.mark.parametrize("kind", ["sqlite3", "mcap"], indirect=True)
def test_messages_are_those_of_ros(kind, tmp_path, out, back):
    """What rclpy serialised comes back; what was compressed, rclpy reads."""
    original = message_from_points(Header(frame_id="lidar"), cloud(0))
    original.header.stamp.sec, original.is_dense = 7, False
    raw = serialize_message(original)
    with WrittenBag(tmp_path, kind) as bag:
        bag.raw("/points", CLOUD, STAMP, raw)
    run("compress", bag.path, out, "--lossless", "x,y,z")
    run("decompress", out, back)
    # Not the very bytes: rclpy leaves what lies between values as it finds it.
    ((_, _, _, returned),) = records(back)
    assert deserialize_message(returned, PointCloud2) == original
    ((_, _, _, sent),) = records(out)
    message = deserialize_message(sent, CompressedPointCloud2)
    assert message.header == original.header and message.fields == original.fields
    assert (message.height, message.width, message.point_step) == (1, 200, 14)
    assert (message.row_step, message.is_dense) == (2800, False)
    assert message.format == "geoaccel/2"
    points, _ = Codec(CodecConfig()).decode(bytes(message.compressed_data))
    assert points.tobytes() == cloud(0).tobytes()
    assert topics(out)["/points/compressed"][2] == HASHES[COMPRESSED_CLOUD]
    assert topics(back)["/points"][2] == HASHES[CLOUD]


def test_clouds_that_cannot_be_compressed_stay_where_they_were(kind, tmp_path, out, back, capsys):
    flat = np.zeros(9, packed_dtype([("x", "f4"), ("y", "f4"), ("range", "f4")]))
    with WrittenBag(tmp_path, kind) as bag:
        bag.raw("/points", CLOUD, STAMP, b"\x00\x01\x02")
        bag.cloud(cloud(1), STAMP + 1)
        bag.cloud(cloud(2), STAMP + 2, width=10**6)
        bag.cloud(flat, STAMP + 3)
        bag.cloud(cloud(4), STAMP + 4)
        bag.cloud(cloud(5), STAMP + 5, topic="/short", fields=[])
        bag.cloud(cloud(6), STAMP + 6, topic="/short")
    result = result_of(capsys, "compress", bag.path, out, "--lossless", "x,y,z")
    good = {STAMP + 1, STAMP + 4, STAMP + 6}
    expected = [
        (f"{t}/compressed", COMPRESSED_CLOUD, ns) if ns in good else (t, kind_, ns, raw)
        for t, kind_, ns, raw in records(bag.path)
    ]
    assert without_bytes(records(out)) == expected
    assert (result["clouds"], result["kept"], result["other_messages"]) == (3, 4, 0)
    reasons = result["kept_because"]
    assert reasons["/points"].startswith("3: 3 bytes are no sensor_msgs/PointCloud2")
    assert reasons["/short"] == "1: the cloud declares no fields"
    # What stayed is there for the way back, too.
    result = result_of(capsys, "decompress", out, back)
    assert records(back) == records(bag.path)
    assert (result["clouds"], result["kept"], result["other_messages"]) == (3, 0, 4)


def test_topics_by_name(kind, tmp_path, out, capsys):
    with WrittenBag(tmp_path, kind) as bag:
        for topic in "/front", "/rear", "/side":
            bag.cloud(cloud(0), STAMP, topic=topic)
    names = ["--topic", "front", "--topic", "/side"]
    result = result_of(capsys, "compress", bag.path, out, *names)
    assert result["topics"] == {"/front": "/front/compressed", "/side": "/side/compressed"}
    assert set(topics(out)) == {"/front/compressed", "/rear", "/side/compressed"}
    assert (result["clouds"], result["other_messages"]) == (2, 1)


def test_messages_that_cannot_be_decoded_stay_where_they_were(kind, tmp_path, out, capsys):
    stream = Codec(CodecConfig()).encode(cloud(0))
    with WrittenBag(tmp_path, kind) as bag:
        bag.compressed_cloud("/points/compressed", cloud(0), STAMP, stream, "geoaccel/2")
        bag.compressed_cloud("/points/compressed", cloud(0), STAMP + 1, stream, "draco")
        bag.compressed_cloud("/points/compressed", cloud(0), STAMP + 2, stream[:-1], "geoaccel/2")
        bag.compressed_cloud("/points/compressed", cloud(1, 9), STAMP + 3, stream, "geoaccel/2")
        # Of the first streams: the format had no version.
        bag.compressed_cloud("/packed", cloud(0), STAMP + 4, stream, "geoaccel")
    result = result_of(capsys, "decompress", bag.path, out)
    before, after = records(bag.path), records(out)
    assert [record[:3] for record in after] == [
        ("/points", CLOUD, STAMP),
        *((t, msgtype, ns) for t, msgtype, ns, _ in before[1:4]),
        ("/packed/decompressed", CLOUD, STAMP + 4),
    ]
    assert after[1:4] == before[1:4]
    assert (result["clouds"], result["kept"], result["points"]) == (2, 3, 400)
    assert result["kept_because"] == {"/points/compressed": "3: format 'draco' is not 'geoaccel/2'"}


@pytest.mark.parametrize("kind", ["sqlite3", "mcap"], indirect=True)
def test_qos_is_kept_and_that_of_compressed_clouds_reliable(kind, tmp_path, out, back):
    with WrittenBag(tmp_path, kind) as bag:
        bag.topic("/points", CLOUD, offered_qos_profiles=[BEST_EFFORT, BEST_EFFORT])
        bag.topic("/bytes", TRANSFORMS, offered_qos_profiles=[BEST_EFFORT])
        bag.cloud(cloud(0), STAMP)
        bag.raw("/bytes", TRANSFORMS, STAMP, b"\x01")
        # One that stays on its topic, which on the way back is that of the others again.
        bag.raw("/points", CLOUD, STAMP + 1, b"\x02")
    run("compress", bag.path, out)
    assert topics(out)["/points"][3].offered_qos_profiles == [BEST_EFFORT, BEST_EFFORT]
    run("decompress", out, back)
    with Rosbag2Reader(back) as reader:
        assert [c.topic for c in reader.connections] == ["/points", "/bytes"]
    reliable = BEST_EFFORT._replace(reliability=QosReliability.RELIABLE)
    for path, topic in (out, "/points/compressed"), (back, "/points"):
        assert topics(path)[topic][3].offered_qos_profiles == [reliable, reliable]
        assert topics(path)["/bytes"][3].offered_qos_profiles == [BEST_EFFORT]


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("ros1", (Rosbag1Writer.CompressionFormat.BZ2,)),
        ("ros1", (Rosbag1Writer.CompressionFormat.LZ4,)),
        ("sqlite3", (CompressionMode.FILE, CompressionFormat.ZSTD)),
        ("sqlite3", (CompressionMode.MESSAGE, CompressionFormat.ZSTD)),
        ("mcap", (CompressionMode.STORAGE, CompressionFormat.ZSTD)),
        ("mcap", (CompressionMode.FILE, CompressionFormat.ZSTD)),
    ],
    indirect=["kind"],
)
def test_a_bag_that_is_packed_stays_so(kind, how, tmp_path, out, capsys):
    bag = WrittenBag(tmp_path, kind)
    bag.compress(*how)
    with bag:
        bag.cloud(cloud(0), STAMP)
        bag.raw("/bytes", TRANSFORMS, STAMP + 1, bytes(200_000))
    result_of(capsys, "compress", bag.path, out)
    assert without_bytes(records(out)) == in_place(
        records(bag.path), "/points", lambda t, _: t == "/points"
    )
    files = [out] if out.is_file() else [file for file in out.iterdir()]
    assert sum(file.stat().st_size for file in files) < 50_000


def test_one_file_of_a_rosbag2_is_enough(tmp_path, capsys):
    path = written(tmp_path, "mcap")
    (file,) = path.glob("*.mcap")
    alone = file.rename(tmp_path / "alone.mcap")
    result_of(capsys, "compress", alone, tmp_path / "out")
    assert without_bytes(records(tmp_path / "out")) == in_place(
        records(alone), "/points", lambda t, _: t == "/points"
    )
    assert topics(tmp_path / "out")["/strange"][:2] == topics(alone)["/strange"][:2]


def test_a_rosbag2_in_several_files_becomes_one(tmp_path, capsys):
    paths = []
    for k in range(2):
        (tmp_path / str(k)).mkdir()
        with WrittenBag(tmp_path / str(k), "sqlite3") as bag:
            bag.raw("/bytes", TRANSFORMS, STAMP + 2 * k, bytes([k]))
            bag.cloud(cloud(k), STAMP + 2 * k + 1)
        paths.append(bag.path)
    (second,) = paths[1].glob("*.db3")
    second.rename(paths[0] / "second.db3")
    metadata = yaml.safe_load((paths[0] / "metadata.yaml").read_text())
    metadata["rosbag2_bagfile_information"]["relative_file_paths"].append("second.db3")
    (paths[0] / "metadata.yaml").write_text(yaml.safe_dump(metadata))
    result_of(capsys, "compress", paths[0], tmp_path / "out")
    before = records(paths[0])
    assert len(before) == 4
    assert without_bytes(records(tmp_path / "out")) == in_place(
        before, "/points", lambda t, _: t == "/points"
    )
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_bags_need_no_ros(tmp_path):
    path = written(tmp_path, "mcap")
    program = (
        "import sys; from geoaccel_ros.cli.main import main; "
        f"status = main(['compress', {str(path)!r}, {str(tmp_path / 'out')!r}]) "
        f"or main(['decompress', {str(tmp_path / 'out')!r}, {str(tmp_path / 'back')!r}]); "
        "sys.exit(status or 'rclpy' in sys.modules or 'sensor_msgs' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_what_a_bag_says_of_itself_is_kept(tmp_path):
    with WrittenBag(tmp_path, "sqlite3") as bag:
        bag._writer.set_custom_data("robot", "seven")
        bag.cloud(cloud(0), STAMP)
    run("compress", bag.path, tmp_path / "out")
    with Rosbag2Reader(tmp_path / "out") as reader:
        assert reader.storage.metadata.custom == {"robot": "seven"}


def test_a_publisher_that_comes_twice_in_a_bag_of_ros1(tmp_path):
    with WrittenBag(tmp_path, "ros1") as bag:
        first = bag.topic("/bytes", TRANSFORMS, callerid="/driver", latching=1)
        # rosbags itself writes it once.
        bag._writer.connections[0] = first._replace(topic="/hidden")
        del bag._connections["/bytes"]
        second = bag.topic("/bytes", TRANSFORMS, callerid="/driver", latching=1)
        bag._writer.connections[0] = first
        bag._writer.write(first, STAMP, b"\x01")
        bag._writer.write(second, STAMP + 1, b"\x02")
        bag.cloud(cloud(0), STAMP + 2)
    with Rosbag1Reader(bag.path) as reader:
        assert [c.topic for c in reader.connections] == ["/bytes", "/bytes", "/points"]
    run("compress", bag.path, tmp_path / "out.bag")
    assert records(tmp_path / "out.bag")[:2] == records(bag.path)[:2]
    with Rosbag1Reader(tmp_path / "out.bag") as reader:
        assert [(c.topic, c.ext) for c in reader.connections] == [
            ("/bytes", first.ext), ("/points/compressed", reader.connections[1].ext),
        ]  # fmt: skip


def test_mistakes_are_one_line_and_leave_nothing(kind, tmp_path, out, capsys):
    path = written(tmp_path, kind, clouds=1)
    (tmp_path / "both").mkdir()
    with WrittenBag(tmp_path / "both", kind) as both:
        both.cloud(cloud(0), STAMP)
        both.raw("/points/compressed", TRANSFORMS, STAMP, b"")
        both.compressed_cloud("/bytes/compressed", cloud(0), STAMP, b"GAPC", "geoaccel/2")
        both.raw("/bytes", TRANSFORMS, STAMP, b"")
    (tmp_path / "taken.bag").touch()
    wrong = tmp_path / ("out" if kind == "ros1" else "out.bag")
    for arguments, complaint in [
        (["compress", path, out, "--topic", "/side"], "no sensor_msgs/PointCloud2 on '/side'; top"),
        (
            ["compress", path, out, "--lossless", "time"],
            "be compressed: on '/points', no field 'time'",
        ),
        (["compress", path, out, "--sweep"], "--sweep and --output are of a cloud in a file"),
        (["compress", path, tmp_path / "taken.bag"], "taken.bag' exists already"),
        (["compress", path, path], "exists already"),
        (["compress", path, wrong], "name it "),
        (["compress", path, tmp_path / "taken.bag" / out.name], "cannot write"),
        (["compress", both.path, out], "has a topic '/points/compressed' already"),
        (["decompress", path, out], "has no topic of point_cloud_interfaces/CompressedPointCloud2"),
        (["decompress", both.path, out], "has a topic '/bytes' of tf2_msgs/msg/TFMessage"),
        (["decompress", path, out, "--level", "3"], "--level is of a stream in a file"),
    ]:
        assert complaint in complaint_of(capsys, *arguments), arguments
        assert not out.exists() and not wrong.exists()
    assert records(path) and (tmp_path / "taken.bag").stat().st_size == 0


def test_a_bag_without_a_cloud_that_can_be_decoded(kind, tmp_path, out, capsys):
    with WrittenBag(tmp_path, kind) as bag:
        bag.compressed_cloud("/points/compressed", cloud(0), STAMP, b"GAPC", "geoaccel/2")
        bag.topic("/empty/compressed", COMPRESSED_CLOUD)
    told = complaint_of(capsys, "decompress", bag.path, out)
    assert "no cloud that can be decompressed: on '/points/compressed', truncated stream" in told
    assert "no cloud that can be decompressed: there are none" in complaint_of(
        capsys, "decompress", bag.path, out, "--topic", "/empty/compressed"
    )
    assert not out.exists()


def test_a_topic_of_a_cloud_in_a_file(tmp_path, capsys):
    np.save(tmp_path / "cloud.npy", cloud(0))
    for source in tmp_path / "cloud.npy", tmp_path / "absent.npy":
        for command in "compress", "decompress":
            told = complaint_of(capsys, command, source, tmp_path / "out", "--topic", "/points")
            assert f"'{source}' is no bag and has no topics: leave out --topic" in told


@pytest.mark.parametrize("options", [(), ("--topic", "/points")])
def test_a_folder_without_a_bag(tmp_path, capsys, options):
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder" / "cloud.npy", cloud(0))
    for command in "compress", "decompress":
        told = complaint_of(capsys, command, tmp_path / "folder", tmp_path / "out", *options)
        assert f"'{tmp_path / 'folder'}' is a folder without a bag (no metadata.yaml, " in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["sqlite3", "mcap"], indirect=True)
def test_no_bag_is_written_into_the_folder_of_the_input(kind, tmp_path, capsys):
    path = written(tmp_path, kind)
    (file,) = path.glob("*[!l]")
    (tmp_path / "link").symlink_to(path)
    before = sorted(path.iterdir())
    for source in path, file, tmp_path / "link":
        for inside in path / "sub", path / "deep" / "sub", tmp_path / "link" / "sub":
            for command in "compress", "decompress":
                told = complaint_of(capsys, command, source, inside)
                assert f"'{inside}' lies in the folder of the input: name one outside" in told
    assert sorted(path.iterdir()) == before
    # A name that begins alike is another folder.
    result_of(capsys, "compress", path, tmp_path / f"{path.name}_small")
    # Nor is a folder a bag's for holding a file of one.
    alone = file.rename(tmp_path / f"alone{file.suffix}")
    result_of(capsys, "compress", alone, tmp_path / "sub")


def test_what_is_in_a_new_bag_is_named_after_it(kind, tmp_path, out):
    path = written(tmp_path, kind)
    run("compress", path, out)
    assert sorted(tmp_path.iterdir()) == sorted([path, out])
    if kind == "ros1":
        return
    name = {"sqlite3": "out.db3", "mcap": "out.mcap"}[kind]
    assert sorted(file.name for file in out.iterdir()) == ["metadata.yaml", name]
    said = yaml.safe_load((out / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
    assert said["relative_file_paths"] == [said["files"][0]["path"]] == [name]
    assert b".partial" not in b"".join(file.read_bytes() for file in out.iterdir())


def test_a_bag_that_breaks_off_leaves_nothing(kind, tmp_path, out, capsys):
    path = written(tmp_path, kind)
    (tmp_path / "long").mkdir()
    with WrittenBag(tmp_path / "long", kind) as bag:
        for k in range(40):
            bag.cloud(cloud(k, 5000), STAMP + k)
    (file,) = [bag.path] if bag.path.is_file() else bag.path.glob("*[!l]")
    size = file.stat().st_size
    with file.open("r+b") as stream:
        stream.seek(6 * size // 10)
        stream.write(b"\xff" * (size // 5))
    told = complaint_of(capsys, "compress", bag.path, out)
    assert str(bag.path) in told and ("is broken" in told or "cannot be read" in told)
    assert not out.exists() and records(path)


def signalling(monkeypatch, owner, name, number, before=True):
    """Let a signal come before or after a function's work, each time that it is called."""
    original = getattr(owner, name)

    def function(*arguments, **options):
        if before:
            signal.raise_signal(number)
        result = original(*arguments, **options)
        if not before:
            signal.raise_signal(number)
        return result

    monkeypatch.setattr(owner, name, function)


def writer_of(kind):
    return Rosbag1Writer if kind == "ros1" else Rosbag2Writer


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("place", ["open", "add_connection", "encode", "write", "close"])
def test_an_interrupted_command_leaves_nothing(
    kind, tmp_path, out, capsys, monkeypatch, place, before
):
    path = written(tmp_path, kind)
    owner = Codec if place == "encode" else writer_of(kind)
    signalling(monkeypatch, owner, place, signal.SIGINT, before)
    # Who is impatient interrupts the cleaning up, too.
    signalling(monkeypatch, writer_of(kind), "abort", signal.SIGINT, before)
    for removal in (shutil, "rmtree"), (Path, "unlink"), (Path, "rmdir"):
        signalling(monkeypatch, *removal, signal.SIGINT, before)
    capsys.readouterr()
    assert run("compress", path, out) == 130
    assert capsys.readouterr().err == "geoaccel compress: interrupted\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_leaves_nothing(kind, tmp_path, out, monkeypatch, number):
    path = written(tmp_path, kind)
    before = signal.getsignal(number)
    signalling(monkeypatch, Codec, "encode", number)
    with pytest.raises(SystemExit) as ended:
        run("compress", path, out)
    assert ended.value.code == 128 + number
    assert list(tmp_path.iterdir()) == [path]
    assert signal.getsignal(number) is before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("place", ["encode", "close"])
def test_a_signal_that_python_drops_is_not_lost(kind, tmp_path, out, monkeypatch, place):
    class Signalling:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    path = written(tmp_path, kind)
    owner = Codec if place == "encode" else writer_of(kind)
    original, calls = getattr(owner, place), []

    def function(*arguments):
        calls.append(place)
        Signalling()
        return original(*arguments)

    monkeypatch.setattr(owner, place, function)
    assert run("compress", path, out) == 130
    assert list(tmp_path.iterdir()) == [path] and calls == [place]


@pytest.mark.parametrize("before", [True, False])
def test_a_signal_that_comes_when_the_bag_is_whole_is_too_late(
    kind, tmp_path, out, monkeypatch, before
):
    path = written(tmp_path, kind)
    signalling(monkeypatch, Path, "rename", signal.SIGINT, before)
    assert run("compress", path, out) == 0
    assert len(records(out)) == 14 and sorted(tmp_path.iterdir()) == sorted([path, out])


def test_a_signal_that_is_ignored_stays_so(tmp_path, monkeypatch):
    path = written(tmp_path, "mcap")
    signalling(monkeypatch, Codec, "encode", signal.SIGHUP)
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run("compress", path, tmp_path / "out") == 0
    finally:
        signal.signal(signal.SIGHUP, handler)
    assert len(records(tmp_path / "out")) == 14


@pytest.fixture
def long_bag(tmp_path, kind):
    with WrittenBag(tmp_path, kind) as bag:
        for k in range(100):
            bag.cloud(cloud(k, 20_000), STAMP + k)
    return bag.path


def started(path, out):
    """Return the command as a process that has begun to write."""
    # As the installed script does it: `python -m` would end by SIGINT itself where that came in
    # code that was made by exec, as some of rosbags is.
    program = "import sys; from geoaccel_ros.executables import geoaccel; sys.exit(geoaccel())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "compress", path, out],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    partial = out.with_name(f".{out.name}.partial")
    deadline = time.monotonic() + 60
    while not partial.exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.0005)
    return process


def test_signals_at_any_time_leave_nothing(kind, long_bag, tmp_path, out):
    for k, number in enumerate([signal.SIGINT, signal.SIGTERM] * 3):
        process = started(long_bag, out)
        time.sleep(0.012 * k)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
        assert "Traceback" not in told
        assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
        assert list(tmp_path.iterdir()) == [long_bag]


def test_what_a_killed_command_leaves_is_replaced(kind, long_bag, tmp_path, out, capsys):
    process = started(long_bag, out)
    time.sleep(0.1)
    process.kill()
    process.wait(60)
    partial = out.with_name(f".{out.name}.partial")
    assert sorted(tmp_path.iterdir()) == sorted([long_bag, partial])
    assert list(partial.iterdir()) == [partial / out.name]
    small = tmp_path / "small"
    small.mkdir()
    path = written(small, kind)
    result_of(capsys, "compress", path, out)
    assert len(records(out)) == 14 and not partial.exists()


def test_what_else_is_under_the_partial_name_is_left_alone(kind, tmp_path, out, capsys):
    path = written(tmp_path, kind)
    partial = out.with_name(f".{out.name}.partial")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / out.name).write_text("mine")
    partial.symlink_to(tmp_path / "mine")
    assert f"'{partial}' is in the way: remove it" in complaint_of(capsys, "compress", path, out)
    partial.unlink()
    partial.write_text("mine")
    assert f"'{partial}' is in the way: remove it" in complaint_of(capsys, "compress", path, out)
    assert partial.read_text() == (tmp_path / "mine" / out.name).read_text() == "mine"
    partial.unlink()
    partial.mkdir()
    (partial / "notes").write_text("mine")
    assert run("compress", path, out) == 0
    assert (partial / "notes").read_text() == "mine" and list(partial.iterdir()) == [
        partial / "notes"
    ]
    # A link is no free place either.
    (tmp_path / "nowhere.bag").symlink_to(tmp_path / "absent")
    assert "exists already" in complaint_of(capsys, "compress", path, tmp_path / "nowhere.bag")


def test_two_commands_do_not_write_the_same_bag(kind, tmp_path, out, capsys):
    path = written(tmp_path, kind)
    partial = out.with_name(f".{out.name}.partial")
    (partial / out.name).mkdir(parents=True)
    (partial / out.name / "theirs").touch()
    folder = os.open(partial, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        told = complaint_of(capsys, "compress", path, out)
        assert "is being written by another process" in told
        assert (partial / out.name / "theirs").exists() and not out.exists()
    finally:
        os.close(folder)
    # The other one has ended.
    assert run("compress", path, out) == 0
    assert not partial.exists()


def test_a_place_that_is_taken_meanwhile_is_not_overwritten(
    kind, tmp_path, out, capsys, monkeypatch
):
    path = written(tmp_path, kind)
    close = writer_of(kind).close

    def closing(writer):
        close(writer)
        out.write_text("theirs")

    monkeypatch.setattr(writer_of(kind), "close", closing)
    assert "exists already" in complaint_of(capsys, "compress", path, out)
    assert out.read_text() == "theirs" and sorted(tmp_path.iterdir()) == sorted([path, out])


@needs_data
@pytest.mark.parametrize(
    ("name", "clouds", "others"),
    [("luminar_pointcloud_ros1", 5, 10), ("sick_lms_rms_ros1", 336, 182)],
)
def test_real_bags_both_ways(tmp_path, capsys, name, clouds, others):
    path, out, back = DATA / f"{name}.bag", tmp_path / "out.bag", tmp_path / "back.bag"
    result = result_of(capsys, "compress", path, out, "--step", "0.01", "--mode", "scan")
    before, after = records(path), records(out)
    assert [r for r in after if r[1] != COMPRESSED_CLOUD] == [r for r in before if r[1] != CLOUD]
    assert [r[2] for r in after] == [r[2] for r in before]
    assert result["other_messages"] == others and result["kept"] == 0 and result["ratio"] > 4
    run("decompress", out, back)
    found = records(back)
    assert [r[:3] for r in found] == [r[:3] for r in before]
    assert [r for r in found if r[1] != CLOUD] == [r for r in before if r[1] != CLOUD]
    largest, count = 0.0, 0
    for topic in sorted({r[0] for r in before if r[1] == CLOUD}):
        pairs = zip(messages(path, topic, CLOUD), messages(back, topic, CLOUD), strict=True)
        for original, returned in pairs:
            count += 1
            for key in ("header", "height", "width", "fields", "point_step", "is_dense"):
                assert getattr(returned, key) == getattr(original, key), (topic, key)
            was, now = points_from_message(original), points_from_message(returned)
            for field in was.dtype.names:
                if field in "xyz":
                    error = np.abs(was[field].astype(float) - now[field])
                    largest = max(largest, float(np.nanmax(error, initial=0)))
                else:
                    assert was[field].tobytes() == now[field].tobytes(), (topic, field)
    # Half a step, and what float32 rounds at 250 m.
    assert 0.0045 < largest <= 0.00502 and count == result["clouds"] == clouds
    assert result["max_error_m"] == pytest.approx(largest)

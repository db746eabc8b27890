"""Clouds of folders and bags: in order, bit for bit, and what is wrong in one line."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from rosbags.rosbag1 import Writer as Rosbag1Writer
from rosbags.rosbag2 import CompressionFormat, CompressionMode
from written_bags import CLOUD, KINDS, WrittenBag

from geoaccel_ros.pointcloud.files import write_points
from geoaccel_ros.pointcloud.layout import packed_dtype
from geoaccel_ros.pointcloud.recordings import RecordingError, open_recording

POINT = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("t", "u4"), ("ring", "u2")])
STAMP = 1_635_236_489_123_456_789


def cloud(seed, number=50):
    points = np.zeros(number, POINT)
    rng = np.random.default_rng(seed)
    for axis in "xyz":
        points[axis] = rng.normal(size=number)
    points["t"], points["ring"] = rng.integers(0, 10**8, number), rng.integers(0, 64, number)
    return points


def read(path, topic=None):
    with open_recording(path, topic) as recording:
        clouds = list(recording.clouds())
        assert len(recording) == len(clouds)
    return clouds


def complaint(path, topic=None):
    with pytest.raises(RecordingError) as caught:
        read(path, topic)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(params=KINDS)
def bag(request, tmp_path):
    return WrittenBag(tmp_path, request.param)


def test_clouds_come_back_bit_for_bit_with_stamp_and_frame(bag):
    with bag:
        for k in range(3):
            bag.cloud(cloud(k), STAMP + k, frame=f"lidar_{k}")
    for k, found in enumerate(read(bag.path)):
        assert (found.stamp_ns, found.frame_id, found.problem) == (STAMP + k, f"lidar_{k}", "")
        assert found.points.dtype == POINT and found.points.tobytes() == cloud(k).tobytes()


def test_the_order_is_that_of_the_recording_not_of_the_stamps(bag):
    with bag:
        for k, stamp in enumerate([5, 3, 4]):
            bag.cloud(cloud(k), STAMP + stamp, recorded_ns=STAMP + k)
    assert [found.stamp_ns - STAMP for found in read(bag.path)] == [5, 3, 4]


def test_other_topics_and_types_without_a_definition_do_not_matter(bag):
    with bag:
        bag.undefined_topic("/strange")
        bag.topic("/empty_points", CLOUD)
        bag.cloud(cloud(0), STAMP)
    assert len(read(bag.path)) == 1


def test_several_topics_are_listed_with_their_counts(bag):
    with bag:
        for k in range(3):
            bag.cloud(cloud(k), STAMP + k, topic="/front/points")
        bag.cloud(cloud(0), STAMP, topic="/rear/points")
    message = complaint(bag.path)
    assert "choose one with --topic: /front/points (3), /rear/points (1)" in message
    assert len(read(bag.path, "front/points")) == 3 and len(read(bag.path, "/rear/points")) == 1
    assert "no clouds on '/side'; topics of PointCloud2: /front/points (3)" in complaint(
        bag.path, "/side"
    )


def test_a_bag_without_clouds_says_what_it_has(bag):
    with bag:
        bag.undefined_topic("/strange")
        bag.static_transform("base_link", "lidar", np.eye(4), STAMP)
    message = complaint(bag.path)
    assert "holds no clouds" in message
    assert "strange_msgs/msg/Strange, tf2_msgs/msg/TFMessage" in message


def test_an_empty_bag_has_no_topics(bag):
    with bag:
        pass
    assert "holds no clouds" in complaint(bag.path)


def test_a_bad_message_spoils_only_itself(bag):
    with bag:
        bag.cloud(cloud(0), STAMP)
        whole = bag.serialised(bag.message(cloud(1), STAMP + 1, "lidar"), CLOUD)
        bag.raw("/points", CLOUD, STAMP + 1, whole[: len(whole) // 2])
        bag.raw("/points", CLOUD, STAMP + 2, b"")
        bag.cloud(cloud(3), STAMP + 3, width=51)
        bag.cloud(cloud(4)[:0], STAMP + 4)
        bag.cloud(cloud(5), STAMP + 5)
    good, halved, nothing, short, empty, last = read(bag.path)
    assert good.points is not None and len(last.points) == 50
    assert halved.points is None and f"{len(whole) // 2} bytes are no sensor_msgs/PointCloud2" in (
        halved.problem
    )
    assert nothing.points is None and "0 bytes are no sensor_msgs/PointCloud2" in nothing.problem
    assert halved.stamp_ns == STAMP + 1
    assert "declares 1 x 51 points of 18 bytes, 918 bytes in all, but carries 900" in short.problem
    assert len(empty.points) == 0 and empty.problem == ""


def test_static_transforms_are_found_wherever_they_are(bag):
    with bag:
        bag.cloud(cloud(0), STAMP)
        bag.static_transform("base_link", "mast", np.eye(4), STAMP + 1)
        bag.raw("/tf_static", "tf2_msgs/msg/TFMessage", STAMP + 2, b"\x00\x01")
        bag.static_transform("mast", "lidar", np.eye(4), STAMP + 3)
    with open_recording(bag.path) as recording:
        children = [m.transforms[0].child_frame_id for m in recording.static_transforms()]
        assert children == ["mast", "lidar"]
        assert len(list(recording.clouds())) == 1


@pytest.mark.parametrize("cut", [0, 1, 10, 0.1, 0.5, 0.9, -1])
def test_a_truncated_bag_is_refused_in_one_line(bag, cut):
    with bag:
        for k in range(20):
            bag.cloud(cloud(k, 500), STAMP + k)
    file = bag.path if bag.path.is_file() else next(bag.path.glob("*[!l]"))
    assert file.suffix in (".bag", ".db3", ".mcap")
    raw = file.read_bytes()
    file.write_bytes(raw[: cut if isinstance(cut, int) else int(cut * len(raw))])
    message = complaint(bag.path)
    assert str(bag.path) in message and (
        "cannot be read as a bag" in message or "broken" in message
    )


def test_a_mutated_bag_is_read_or_refused(bag):
    """Bytes that flipped on a disk: clouds, or one line, and never an exception of a parser."""
    with bag:
        bag.static_transform("base_link", "lidar", np.eye(4), STAMP)
        for k in range(5):
            bag.cloud(cloud(k), STAMP + k)
    file = bag.path if bag.path.is_file() else next(bag.path.glob("*[!l]"))
    raw, rng = file.read_bytes(), np.random.default_rng(1)
    refused = 0
    for _ in range(100):
        mutated = np.frombuffer(raw, np.uint8).copy()
        where = rng.integers(0, len(mutated), rng.choice([1, 10]))
        mutated[where] = rng.choice([0, 255, 127], len(where))
        file.write_bytes(mutated.tobytes())
        try:
            with open_recording(file) as recording:
                assert len(list(recording.static_transforms())) <= 1
                assert len(list(recording.clouds())) <= 5
        except RecordingError as error:
            assert "\n" not in str(error)
            refused += 1
    assert 0 < refused < 100


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("ros1", (Rosbag1Writer.CompressionFormat.LZ4,)),
        ("ros1", (Rosbag1Writer.CompressionFormat.BZ2,)),
        ("sqlite3", (CompressionMode.FILE, CompressionFormat.ZSTD)),
        ("sqlite3", (CompressionMode.MESSAGE, CompressionFormat.ZSTD)),
        ("mcap", (CompressionMode.FILE, CompressionFormat.ZSTD)),
        ("mcap", (CompressionMode.STORAGE, CompressionFormat.ZSTD)),
    ],
)
def test_compressed_bags(tmp_path, kind, how):
    bag = WrittenBag(tmp_path, kind)
    bag.compress(*how)
    with bag:
        for k in range(3):
            bag.cloud(cloud(k), STAMP + k)
    found = read(bag.path)
    assert [c.points.tobytes() for c in found] == [cloud(k).tobytes() for k in range(3)]


@pytest.mark.parametrize("suffix", [".bag", ".mcap", ".db3"])
def test_what_is_no_bag_is_refused_in_one_line(tmp_path, suffix):
    file = tmp_path / f"a{suffix}"
    file.write_bytes(np.random.default_rng(0).bytes(5000))
    assert "cannot be read as a bag" in complaint(file)


def test_a_rosbag2_without_metadata_is_read_from_its_file(tmp_path):
    for kind in ("sqlite3", "mcap"):
        with WrittenBag(tmp_path, kind) as bag:
            bag.cloud(cloud(0), STAMP)
        (bag.path / "metadata.yaml").unlink()
        assert len(read(bag.path)) == 1
        assert len(read(next(bag.path.iterdir()))) == 1


def test_several_bags_without_metadata_are_not_guessed_at(tmp_path):
    (tmp_path / "a_0.mcap").touch()
    (tmp_path / "a_1.mcap").touch()
    assert "no metadata.yaml: give one of the files" in complaint(tmp_path)
    assert "`ros2 bag reindex`" in complaint(tmp_path)


def test_a_folder_s_stamps_keep_their_nanoseconds(tmp_path):
    for k in range(3):
        write_points(tmp_path / f"{k}.npy", cloud(k))
    (tmp_path / "times.txt").write_text("1635236489.123456789\n1635236489.2\n1.6352364893e9\n")
    found = read(tmp_path)
    assert [c.stamp_ns for c in found] == [STAMP, STAMP + 76_543_211, STAMP + 176_543_211]
    assert [c.name for c in found] == ["0.npy", "1.npy", "2.npy"]
    assert found[1].points.tobytes() == cloud(1).tobytes()


def test_a_folder_s_order_takes_digits_as_numbers(tmp_path):
    names = ["1.npy", "2.npy", "02_b.npy", "10.npy", "scan_9_2.npy", "scan_9_10.npy", "scan_11.npy"]
    for name in reversed(names):
        write_points(tmp_path / name, cloud(0))
    assert [found.name for found in read(tmp_path)] == names


def test_a_folder_s_surplus_of_stamps_is_told(tmp_path):
    for k in range(2):
        write_points(tmp_path / f"{k}.npy", cloud(k))
    times = tmp_path / "times.txt"
    times.write_text("0.5\n0.6\n0.6\n")
    with open_recording(tmp_path) as folder:
        assert folder.notice == f"'{times}': 3 stamps for 2 scans, the first 2 are used"
    times.write_text("0.5\n0.6\n")
    with open_recording(tmp_path) as folder:
        assert folder.notice == ""


def test_a_folder_s_bad_and_empty_scans_spoil_only_themselves(tmp_path):
    write_points(tmp_path / "0.npy", cloud(0))
    (tmp_path / "1.bin").write_bytes(b"")
    (tmp_path / "2.bin").write_bytes(b"123")
    write_points(tmp_path / "3.npy", cloud(3))
    first, empty, bad, last = read(tmp_path)
    assert len(first.points) == len(last.points) == 50
    assert len(empty.points) == 0 and empty.problem == ""
    assert bad.points is None and "2.bin: 3 bytes, not a multiple of the 16" in bad.problem


def test_folders_have_no_topics_and_files_are_no_folders(tmp_path):
    assert "is no bag and has no topics" in complaint(tmp_path, "/points")
    (tmp_path / "a.bin").touch()
    assert "is a file; give a folder of scans or a bag" in complaint(tmp_path / "a.bin")


@pytest.mark.parametrize("kind", KINDS)
def test_a_bag_is_never_whole_in_memory(tmp_path, kind):
    clouds, points = 60, 20_000
    with WrittenBag(tmp_path, kind) as bag:
        for k in range(clouds):
            bag.cloud(cloud(k, points), STAMP + k)
    size = points * POINT.itemsize
    with open_recording(bag.path) as recording:
        tracemalloc.start()
        try:
            for found in recording.clouds():
                assert len(found.points) == points
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    # A few clouds at a time, or a chunk of the file, of which this bag has many.
    assert peak < clouds * size / 3


def test_recordings_need_no_ros():
    program = (
        "import sys; import geoaccel_ros.pointcloud.recordings; "
        "sys.exit('rclpy' in sys.modules or 'sensor_msgs' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0

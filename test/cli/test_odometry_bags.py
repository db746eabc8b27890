"""geoaccel odometry on bags: the same poses as from files, mounts, and clouds that are bad."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
import yaml
from scanned_room import complaint_of, pose, result_of, seen
from written_bags import CLOUD, KINDS, WrittenBag

from geoaccel_ros.cli.main import main
from geoaccel_ros.pointcloud.files import write_points
from geoaccel_ros.pointcloud.layout import packed_dtype
from geoaccel_ros.pointcloud.stamps import format_stamp
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.frames import mount_matrix
from geoaccel_ros.ros.params_file import check_parameter_files

FRAMES = 6
STAMP = 1_635_236_489_123_456_789
PERIOD = 100_000_000
MOUNT = (0.3, -0.2, 0.8, 0.05, -0.1, 2.5)
POINT = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("intensity", "f4"), ("t", "u4")])


def scan(k, T_sensor_base=None):
    """Return the k-th scan of the room as a sensor sees it, with times up to 90 ms."""
    room = seen(k)
    points = np.zeros(len(room), POINT)
    xyz = np.column_stack([room[axis] for axis in "xyz"])
    if T_sensor_base is not None:
        xyz = se3.apply(T_sensor_base, xyz)
    for column, axis in enumerate("xyz"):
        points[axis] = xyz[:, column]
    # At random, though the scan is one of an instant: deskewing blurs it and does not bend it.
    points["t"] = np.random.default_rng(k).integers(0, 90_000_000, len(points))
    points["t"][:2] = 0, 90_000_000
    return points


def stamp(k):
    return STAMP + k * PERIOD


def poses_in(folder):
    return np.loadtxt(folder / "poses_kitti.txt").reshape(-1, 3, 4)


@pytest.fixture(scope="module")
def from_files(tmp_path_factory):
    """The output of the command on a folder of the scans."""
    scans, output = tmp_path_factory.mktemp("scans"), tmp_path_factory.mktemp("output")
    for k in range(FRAMES):
        write_points(scans / f"{k}.npy", scan(k))
    (scans / "times.txt").write_text("".join(format_stamp(stamp(k)) + "\n" for k in range(FRAMES)))
    assert main(["odometry", str(scans), "--output", str(output), "--json", "-"]) == 0
    return output


@pytest.mark.parametrize("kind", KINDS)
def test_a_bag_gives_the_same_files_as_a_folder(from_files, tmp_path, capsys, kind):
    with WrittenBag(tmp_path, kind) as bag:
        bag.undefined_topic("/strange")
        for k in range(FRAMES):
            bag.cloud(scan(k), stamp(k))
    result = result_of(capsys, "odometry", bag.path, "--output", tmp_path / "out")
    assert result["frames"] == FRAMES and result["dropped"] == result["failed"] == 0
    assert result["topic"] == "/points" and result["layout"].startswith("x:f4 y:f4 z:f4")
    assert result["point_times"] == "t [ns], from the header's stamp"
    assert "'lidar': taken for the base" in result["mount"]
    for name in ("poses_kitti.txt", "poses_tum.txt", "config.yaml"):
        assert (tmp_path / "out" / name).read_bytes() == (from_files / name).read_bytes(), name


def test_stamps_are_those_of_the_sweeps_ends_to_the_nanosecond(from_files):
    stamps = [line.split()[0] for line in (from_files / "poses_tum.txt").read_text().splitlines()]
    assert stamps == [format_stamp(stamp(k) + 90_000_000) for k in range(FRAMES)]


def test_poses_are_written_to_the_last_digit(from_files):
    kitti = poses_in(from_files)
    tum = np.loadtxt(from_files / "poses_tum.txt")
    np.testing.assert_array_equal(tum[:, 1:4], kitti[:, :, 3])
    assert np.count_nonzero(kitti[1:, :, 3]) and not np.array_equal(kitti, kitti.astype("f4"))


def test_timing_has_a_line_for_each_scan(from_files):
    rows = list(csv.DictReader((from_files / "timing.csv").open()))
    assert [row["cloud"] for row in rows] == [f"{k}.npy" for k in range(FRAMES)]
    assert [row["status"] for row in rows] == ["seeded"] + ["registered"] * (FRAMES - 1)
    assert all(float(row["ms"]) > 0.0 for row in rows)
    assert all(int(row["correspondences"]) > 100 for row in rows[1:])
    assert all(0.0 < float(row["rmse_m"]) < 0.1 for row in rows[1:])
    assert all(0.5 < float(row["overlap"]) <= 1.0 for row in rows[1:])
    assert [row["degenerate"] for row in rows] == ["0"] * FRAMES


def test_a_topic_is_asked_for_where_there_are_several(from_files, tmp_path, capsys):
    with WrittenBag(tmp_path, "mcap") as bag:
        for k in range(FRAMES):
            bag.cloud(scan(k), stamp(k), topic="/front")
            bag.cloud(scan(0), stamp(k), topic="/rear")
    assert "with --topic: /front (6), /rear (6)" in complaint_of(capsys, "odometry", bag.path)
    result_of(capsys, "odometry", bag.path, "--topic", "/front", "--output", tmp_path / "out")
    assert np.array_equal(poses_in(tmp_path / "out"), poses_in(from_files))


@pytest.mark.parametrize("kind", KINDS)
def test_bad_clouds_are_skipped_counted_and_told(from_files, tmp_path, capsys, kind):
    with WrittenBag(tmp_path, kind) as bag:
        bag.raw("/points", CLOUD, stamp(0) - 1, b"\x00\x01\x02")
        for k in range(FRAMES):
            bag.cloud(scan(k), stamp(k))
            if k == 2:
                bag.cloud(scan(k)[:0], stamp(k) + 1)
                bag.cloud(scan(k), stamp(k) + 2, width=10**6)
                bag.cloud(scan(k), stamp(k) + 3, fields=[])
                bag.cloud(scan(k)[:7], stamp(k) + PERIOD // 2)
    assert (
        main(["odometry", str(bag.path), "--output", str(tmp_path), "--json", str(tmp_path / "j")])
        == 0
    )
    told = capsys.readouterr()
    assert "cloud 0: dropped: 3 bytes are no sensor_msgs/PointCloud2" in told.err
    assert "cloud 4: dropped: it has no points" in told.err
    assert "cloud 5: dropped: the cloud declares 1 x 1000000 points" in told.err
    assert "cloud 6: dropped: the cloud declares no fields" in told.err
    assert "cloud 7: dropped: 7 usable points of 7" in told.err
    assert "malformed 3, empty 1, skipped 1" in told.out
    rows = list(csv.DictReader((tmp_path / "timing.csv").open()))
    dropped = [k for k, row in enumerate(rows) if row["status"].startswith("dropped")]
    assert dropped == [0, 4, 5, 6, 7] and len(rows) == FRAMES + 5
    # A line of KITTI's a cloud, of TUM's a pose; the good clouds' as if the others were not.
    kitti = poses_in(tmp_path)
    good = [k for k in range(len(rows)) if k not in dropped]
    assert np.array_equal(kitti[good], poses_in(from_files))
    assert np.array_equal(kitti[0], np.eye(4)[:3])
    assert all(np.array_equal(kitti[k], kitti[3]) for k in dropped[1:])
    assert (tmp_path / "poses_tum.txt").read_bytes() == (from_files / "poses_tum.txt").read_bytes()


def test_a_bag_of_bad_clouds_alone_is_an_error(tmp_path, capsys):
    with WrittenBag(tmp_path, "mcap") as bag:
        bag.cloud(np.zeros(9, packed_dtype([("x", "f4"), ("y", "f4"), ("range", "f4")])), STAMP)
    assert "no cloud that can be used: cloud 0: dropped: no field z; the cloud has x y range" in (
        complaint_of(capsys, "odometry", bag.path)
    )


def test_the_mount_is_that_of_the_configuration_before_tf_static(tmp_path, capsys):
    T_base_lidar = mount_matrix(MOUNT)
    with WrittenBag(tmp_path, "mcap") as bag:
        bag.static_transform("base_link", "lidar", mount_matrix((9.0, 0, 0, 0, 0, 0)), STAMP)
        for k in range(FRAMES):
            bag.cloud(scan(k, se3.inverse(T_base_lidar)), stamp(k))
    mount = "--lidar-mount=" + ",".join(map(str, MOUNT))
    out = tmp_path / "out"
    result = result_of(capsys, "odometry", bag.path, mount, "--no-deskew", "--output", out)
    assert result["mount"] == "'lidar': lidar_mount"
    # Noise of the map's planes; a wrong mount turns the way by its yaw.
    for k, found in enumerate(poses_in(out)):
        np.testing.assert_allclose(found[:, 3], pose(k)[:3, 3], atol=0.02)


@pytest.mark.parametrize("told", [True, False])
def test_lidar_mount_is_that_of_the_first_frame_alone(tmp_path, capsys, told):
    mounts = {"front": mount_matrix(MOUNT), "rear": mount_matrix((-0.5, 0.1, 0.2, 0, 0.1, -3.0))}
    with WrittenBag(tmp_path, "mcap") as bag:
        if told:
            bag.static_transform("base_link", "rear", mounts["rear"], STAMP)
        for k in range(FRAMES):
            frame = ("/front", "rear")[k % 2]
            bag.cloud(scan(k, se3.inverse(mounts[frame.strip("/")])), stamp(k), frame=frame)
    mount, out = "--lidar-mount=" + ",".join(map(str, MOUNT)), tmp_path / "out"
    arguments = ["odometry", str(bag.path), mount, "--no-deskew", "--output", str(out)]
    assert main([*arguments, "--json", str(tmp_path / "j")]) == 0
    result, complaints = json.loads((tmp_path / "j").read_text()), capsys.readouterr().err
    if told:
        assert result["mount"] == "'front': lidar_mount, 'rear': /tf_static"
        assert result["dropped"] == result["failed"] == 0
    else:
        assert result["mount"] == "'front': lidar_mount"
        assert result["dropped_because"] == {"no transform": FRAMES // 2}
        assert "none from 'rear' to the base (lidar_mount is that of 'front')" in complaints
    for k in range(0, FRAMES, 1 if told else 2):
        np.testing.assert_allclose(poses_in(out)[k, :, 3], pose(k)[:3, 3], atol=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_two_lidars_on_one_topic_have_a_mount_each(tmp_path, capsys, kind):
    T_base_mast, T_mast_front = mount_matrix((0, 0, 1, 0, 0, 0.3)), mount_matrix(MOUNT)
    T_base_rear = mount_matrix((-0.5, 0.1, 0.2, 0.0, 0.1, -3.0))
    mounts = {"front": T_base_mast @ T_mast_front, "rear": T_base_rear}
    with WrittenBag(tmp_path, kind) as bag:
        for k in range(FRAMES):
            frame = ("front", "/rear")[k % 2]
            bag.cloud(scan(k, se3.inverse(mounts[frame.strip("/")])), stamp(k), frame=frame)
        # Told at the end, and in two pieces.
        bag.static_transform("/base_link", "mast", T_base_mast, stamp(FRAMES))
        bag.static_transform("mast", "front", T_mast_front, stamp(FRAMES) + 1)
        bag.static_transform("base_link", "rear", T_base_rear, stamp(FRAMES) + 2)
    result = result_of(capsys, "odometry", bag.path, "--no-deskew", "--output", tmp_path / "out")
    assert result["mount"] == "'front': /tf_static, 'rear': /tf_static"
    assert result["failed"] == result["dropped"] == 0
    for k, found in enumerate(poses_in(tmp_path / "out")):
        np.testing.assert_allclose(found[:, 3], pose(k)[:3, 3], atol=0.03)


def test_a_frame_without_a_mount_beside_one_that_has_is_dropped(tmp_path, capsys):
    with WrittenBag(tmp_path, "sqlite3") as bag:
        bag.static_transform("base_link", "lidar", np.eye(4), STAMP)
        for k in range(4):
            bag.cloud(scan(k), stamp(k), frame=("lidar", "camera")[k % 2])
    result = result_of(capsys, "odometry", bag.path)
    assert result["dropped_because"] == {"no transform": 2} and result["frames"] == 4


def test_the_configuration_used_is_written_for_the_command_and_the_node(tmp_path, capsys):
    with WrittenBag(tmp_path, "mcap") as bag:
        for k in range(FRAMES):
            bag.cloud(scan(k), stamp(k))
    first, second = tmp_path / "first", tmp_path / "second"
    (tmp_path / "given.yaml").write_text("max_range: 60\nvoxel: 0.9\n")
    options = ["--config", tmp_path / "given.yaml", "--voxel", 0.7, "--time-reference", "last"]
    result = result_of(capsys, "odometry", bag.path, *options, "--output", first)
    # An option wins over the file.
    assert result["voxel_m"] == 0.7
    assert result["point_times"] == "t [ns], the last point at the header's stamp"
    config = first / "config.yaml"
    result_of(capsys, "odometry", bag.path, "--config", config, "--output", second)
    for name in ("config.yaml", "poses_tum.txt"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    check_parameter_files(["--ros-args", "--params-file", str(config)], "lidar_odometry")
    values = yaml.safe_load(config.read_text())["/**/lidar_odometry"]["ros__parameters"]
    from geoaccel_ros.nodes.lidar_odometry import LidarOdometryConfig

    node = LidarOdometryConfig.from_mapping(values)
    assert (node.max_range, node.voxel, node.time_reference) == (60.0, 0.7, "last")


def test_what_came_before_a_bag_breaks_off_is_written(tmp_path, capsys, from_files):
    with WrittenBag(tmp_path, "ros1") as bag:
        for k in range(FRAMES):
            bag.cloud(scan(k), stamp(k))
    # The index at the end is whole, so that the bag opens.
    size = bag.path.stat().st_size
    with bag.path.open("r+b") as file:
        file.seek(6 * size // 10)
        file.write(b"\xff" * (size // 5))
    out = tmp_path / "out"
    status = main(["odometry", str(bag.path), "--output", str(out), "--json", "-"])
    told = capsys.readouterr()
    assert status == 1 and told.err.count("\n") == 1 and "the poses so far are told" in told.err
    result = json.loads(told.out)
    assert (
        1 <= result["frames"] < FRAMES and f"after {result['frames']} clouds" in result["broke_off"]
    )
    # The last cloud may have lost points to it.
    found = poses_in(out)[:-1]
    assert np.array_equal(found, poses_in(from_files)[: len(found)]) and len(found)


def test_poses_begin_where_the_configuration_says(tmp_path, capsys, from_files):
    with WrittenBag(tmp_path, "ros1") as bag:
        for k in range(3):
            bag.cloud(scan(k), stamp(k))
    start = (512_700.0, 5_403_548.0, 300.0, 0.0, 0.0, 1.0)
    option = "--initial-pose=" + ",".join(map(str, start))
    result_of(capsys, "odometry", bag.path, option, "--output", tmp_path / "out")
    # Millimetres differ, for the map's voxels lie otherwise.
    expected = mount_matrix(start)[:3, :3] @ poses_in(from_files)[:3, :, 3:]
    np.testing.assert_allclose(
        poses_in(tmp_path / "out")[:, :, 3:], expected + np.array(start[:3])[:, None], atol=5e-3
    )


def test_only_so_many_clouds(tmp_path, capsys, from_files):
    with WrittenBag(tmp_path, "ros1") as bag:
        for k in range(FRAMES):
            bag.cloud(scan(k), stamp(k))
    result = result_of(capsys, "odometry", bag.path, "--frames", 3, "--output", tmp_path / "out")
    assert result["frames"] == 3
    assert np.array_equal(poses_in(tmp_path / "out"), poses_in(from_files)[:3])


def test_a_bag_needs_no_ros(tmp_path):
    with WrittenBag(tmp_path, "mcap") as bag:
        for k in range(2):
            bag.cloud(scan(k), stamp(k))
    program = (
        "import sys; from geoaccel_ros.cli.main import main; "
        f"status = main(['odometry', {str(bag.path)!r}, '--output', {str(tmp_path / 'out')!r}]); "
        "sys.exit(status or 'rclpy' in sys.modules or 'sensor_msgs' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0

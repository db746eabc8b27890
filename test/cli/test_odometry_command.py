"""geoaccel odometry, called as the command calls it."""

import csv
import importlib
import json

import numpy as np
import pytest
from scanned_room import complaint_of, pose, result_of, seen

from geoaccel_ros.cli import odometry
from geoaccel_ros.cli.main import main
from geoaccel_ros.pointcloud.files import from_xyz, write_points
from geoaccel_ros.registration.scans import ScanReader

FRAMES = 12


@pytest.fixture(scope="module")
def kitti(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sequence")
    (folder / "velodyne").mkdir()
    for k in range(FRAMES):
        write_points(folder / "velodyne" / f"{k:06d}.bin", seen(k))
    np.savetxt(folder / "times.txt", 0.1 * np.arange(FRAMES), fmt="%.6f")
    np.savetxt(folder / "poses.txt", [pose(k)[:3].ravel() for k in range(FRAMES)])
    return folder


def test_kitti_folder(kitti, tmp_path, capsys):
    result = result_of(capsys, "odometry", kitti, "--output", tmp_path / "out")
    assert result["frames"] == FRAMES and result["dropped"] == result["failed"] == 0
    assert result["path_m"] == pytest.approx(0.1 * (FRAMES - 1), rel=0.05)
    assert result["ate_rmse_m"] < 0.02 and result["rpe_10_frames_m"] < 0.05
    assert result["ms"]["p95"] >= result["ms"]["median"] > 0.0
    kitti_poses = np.loadtxt(tmp_path / "out" / "poses_kitti.txt").reshape(-1, 3, 4)
    tum = np.loadtxt(tmp_path / "out" / "poses_tum.txt")
    assert len(kitti_poses) == len(tum) == FRAMES
    np.testing.assert_allclose(tum[:, 0], 0.1 * np.arange(FRAMES))
    np.testing.assert_array_equal(tum[:, 1:4], kitti_poses[:, :, 3])
    assert (tmp_path / "out" / "trajectory.png").read_bytes().startswith(b"\x89PNG")


def test_folder_of_scans_without_times_or_truth(tmp_path, capsys):
    for k in range(3):
        write_points(tmp_path / f"{k}.npy", seen(k))
    result = result_of(capsys, "odometry", tmp_path, "--frames", 2)
    assert result["frames"] == 2 and "ate_rmse_m" not in result


def write_text_scan(file, k):
    points = seen(k)
    table = np.column_stack([points[axis] for axis in "xyz"])
    np.savetxt(file, table, delimiter=",", header="X,Y,Z", comments="")


@pytest.mark.parametrize("suffix", [".csv", ".txt", ".xyz"])
def test_folder_of_text_scans(tmp_path, capsys, suffix):
    for k in range(2):
        write_text_scan(tmp_path / f"{k}{suffix}", k)
    (tmp_path / "times.txt").write_text("0.0\n0.1\n")
    np.savetxt(tmp_path / "poses.txt", [pose(k)[:3].ravel() for k in range(2)])
    result = result_of(capsys, "odometry", tmp_path)
    assert result["frames"] == 2 and result["ate_rmse_m"] < 0.02


def test_text_beside_scans_is_no_scan(tmp_path, capsys):
    for k in range(2):
        write_points(tmp_path / f"{k}.npy", seen(k))
    (tmp_path / "notes.txt").write_text("a room\n")
    (tmp_path / "poses.csv").write_text("t,x,y,z\n0,0,0,0\n")
    assert result_of(capsys, "odometry", tmp_path)["frames"] == 2


def test_table_for_people_and_json_file(kitti, tmp_path, capsys):
    assert main(["odometry", str(kitti), "--frames", "3", "--json", str(tmp_path / "r.json")]) == 0
    assert "path_m" in capsys.readouterr().out
    assert json.loads((tmp_path / "r.json").read_text())["frames"] == 3


@pytest.mark.parametrize(
    "text",
    [
        "voxel: 0.7\n",
        "lidar_odometry:\n  ros__parameters:\n    voxel: 0.7\n    odom_frame: o\n",
        "/robot1/lidar_odometry: {ros__parameters: {voxel: 0.7}}\n",
        "robot1: {lidar_odometry: {ros__parameters: {voxel: 0.7}}}\n",
        "/**: {ros__parameters: {voxel: 0.9}}\nr: {lidar_odometry: {ros__parameters: "
        "{voxel: 0.7}}}",
        "/r/lidar_odometry: {ros__parameters: {voxel: 1}}\nlidar_odometry: "
        "{ros__parameters: {voxel: 0.7}}",
    ],
)
def test_config(kitti, tmp_path, capsys, text):
    (tmp_path / "c.yaml").write_text(text)
    result = result_of(capsys, "odometry", kitti, "--frames", 2, "--config", tmp_path / "c.yaml")
    assert result["voxel_m"] == 0.7


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("voxle: 0.7\n", "unknown parameter 'voxle': did you mean 'voxel'?"),
        ("voxel: fine\n", "parameter 'voxel' is 'fine', must be a number"),
        ("- 1\n", "holds no mapping"),
        ("a: [\n", "is not valid YAML"),
        ("other:\n  ros__parameters: {voxel: 1.0}\n", "no section lidar_odometry"),
        (
            "a: {lidar_odometry: {ros__parameters: {voxel: 1.0}}}\n"
            "/b/lidar_odometry: {ros__parameters: {voxel: 2.0}}\n",
            "several sections lidar_odometry (/a/lidar_odometry, /b/lidar_odometry)",
        ),
        (
            "lidar_odometry:\n  ros__parameters: {publish_tf: false, min_rnage: 1.0}\n",
            "unknown parameter 'min_rnage': did you mean 'min_range'?",
        ),
    ],
)
def test_bad_config(kitti, tmp_path, capsys, text, reason):
    (tmp_path / "c.yaml").write_text(text)
    assert reason in complaint_of(capsys, "odometry", kitti, "--config", tmp_path / "c.yaml")


def test_bad_folders(kitti, tmp_path, capsys):
    assert "does not exist" in complaint_of(capsys, "odometry", tmp_path / "absent")
    assert "holds no scans" in complaint_of(capsys, "odometry", tmp_path)
    (tmp_path / "0.bin").write_bytes(b"123")
    assert "0.bin: 3 bytes" in complaint_of(capsys, "odometry", tmp_path)
    assert "is a file" in complaint_of(capsys, "odometry", tmp_path / "0.bin")
    (tmp_path / "times.txt").write_text("")
    assert "times.txt" in complaint_of(capsys, "odometry", tmp_path)
    write_points(tmp_path / "1.npy", seen(0))
    (tmp_path / "times.txt").write_text("0.1\n0.1\n")
    assert "do not rise" in complaint_of(capsys, "odometry", tmp_path)
    assert "cannot read" in complaint_of(capsys, "odometry", kitti, "--truth", tmp_path / "absent")
    (tmp_path / "t.txt").write_text("1 0 0 0 0 1 0 0 0 0 1 0\n")
    assert "1 poses for 12 clouds" in complaint_of(
        capsys, "odometry", kitti, "--truth", tmp_path / "t.txt"
    )


@pytest.fixture
def scans(tmp_path):
    """A folder of three scans."""
    folder = tmp_path / "scans"
    folder.mkdir()
    for k in range(3):
        write_points(folder / f"{k}.npy", seen(k))
    return folder


def run_of(capsys, *arguments):
    """Return the status, the JSON and the lines on standard error."""
    status = main([*map(str, arguments), "--json", "-"])
    told = capsys.readouterr()
    return status, json.loads(told.out), told.err.splitlines()


def test_truth_of_another_time_costs_no_poses(scans, tmp_path, capsys):
    truth, out = tmp_path / "truth.txt", tmp_path / "out"
    truth.write_text("".join(f"{stamp} 0 0 0 0 0 0 1\n" for stamp in (100, 101)))
    status, result, told = run_of(capsys, "odometry", scans, "--truth", truth, "--output", out)
    assert status == 1 and len(told) == 1 and "covers 100.000 to 101.000 s" in told[0]
    assert result["frames"] == 3 and "ate_rmse_m" not in result
    assert "covers 100.000 to 101.000 s" in result["truth_not_used"]
    assert len(np.loadtxt(out / "poses_kitti.txt")) == len(np.loadtxt(out / "poses_tum.txt")) == 3
    for name in ("timing.csv", "config.yaml", "trajectory.png"):
        assert (out / name).stat().st_size


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 2 3\n", "3 numbers on its first line"),
        ("1 0 0 0 0 1 0 0 0 0 1 0\n", "1 poses for 3 clouds"),
        ("100 0 0 0 0 0 0 1\n101 0 0 0 0 0 0 1\n", "covers 100.000 to 101.000 s"),
    ],
)
def test_a_folder_s_own_truth_that_cannot_be_used_is_left(scans, capsys, text, reason):
    (scans / "poses.txt").write_text(text)
    status, result, told = run_of(capsys, "odometry", scans)
    assert status == 0 and len(told) == 1 and reason in told[0] and "without truth" in told[0]
    assert result["frames"] == 3 and "ate_rmse_m" not in result
    if "covers" not in reason:
        complaint = complaint_of(capsys, "odometry", scans, "--truth", scans / "poses.txt")
        assert reason in complaint and "without truth" not in complaint


def test_more_lines_than_scans_are_told_with_both_counts(scans, capsys):
    (scans / "times.txt").write_text("".join(f"0.{k}\n" for k in range(5)))
    np.savetxt(scans / "poses.txt", [pose(k)[:3].ravel() for k in range(4)])
    status, result, told = run_of(capsys, "odometry", scans, "--frames", 2)
    assert status == 0 and result["frames"] == 2 and result["ate_rmse_m"] < 0.02
    assert len(told) == 2
    assert "times.txt': 5 stamps for 3 scans" in told[0]
    assert "poses.txt': 4 poses for 3 clouds" in told[1]


def test_as_many_lines_as_scans_are_not_told_of_where_few_are_wanted(kitti, capsys):
    assert run_of(capsys, "odometry", kitti, "--frames", 2)[2] == []


def plane(k):
    """Return a floor alone, which fixes height, roll and pitch."""
    xyz = np.random.default_rng(k).uniform([-8, -8, -1], [8, 8, -1], (4000, 3))
    return from_xyz(xyz.astype(np.float32), np.zeros(len(xyz)))


def test_directions_that_the_scene_leaves_open_are_told(tmp_path, capsys):
    scans, out = tmp_path / "scans", tmp_path / "out"
    scans.mkdir()
    for k in range(4):
        write_points(scans / f"{k}.npy", plane(k))
    status, result, told = run_of(capsys, "odometry", scans, "--output", out)
    assert status == 0 and result["degenerate"] == 3 and result["lost"] == 0
    assert len(told) == 1 and "3 of 4 scans" in told[0]
    assert "--planar" in told[0] and "prior" in told[0]
    rows = list(csv.DictReader((out / "timing.csv").open()))
    # x, y and yaw.
    assert [int(row["degenerate"]) for row in rows] == [0, 3, 3, 3]
    assert all(float(row["overlap"]) > 0.5 for row in rows[1:])


def slice_of_room(k):
    """Return 720 points on four walls, as a 2D lidar sees them from the k-th pose."""
    angles = np.linspace(-np.pi, np.pi, 720, endpoint=False)
    x, y, yaw = 0.1 * k, 0.05 * k, 0.02 * k
    rays = np.column_stack([np.cos(angles + yaw), np.sin(angles + yaw)])
    walls = np.where(rays > 0, [6.0, 4.0], [-5.0, -4.0]) - [x, y]
    ranges = np.min(walls / np.where(rays == 0.0, 1e-12, rays), axis=1)
    ranges += np.random.default_rng(k).normal(0.0, 0.01, len(ranges))
    xyz = np.column_stack([ranges * np.cos(angles), ranges * np.sin(angles), 0.0 * angles])
    return from_xyz(xyz.astype(np.float32), np.zeros(len(xyz)))


def test_a_2d_lidar_without_planar_is_told_of_it(tmp_path, capsys):
    for k in range(6):
        write_points(tmp_path / f"{k}.npy", slice_of_room(k))
    status, result, told = run_of(capsys, "odometry", tmp_path)
    assert status == 0 and result["degenerate"] + result["failed"] > 3
    assert "--planar for a 2D lidar" in told[-1]
    status, result, told = run_of(capsys, "odometry", tmp_path, "--planar")
    assert status == 0 and result["failed"] == result["degenerate"] == 0 and told == []
    assert result["path_m"] == pytest.approx(5 * np.hypot(0.1, 0.05), rel=0.1)


def test_a_scene_that_fixes_all_is_not_spoken_of(kitti, capsys):
    _, result, told = run_of(capsys, "odometry", kitti, "--frames", 3)
    assert result["degenerate"] == result["lost"] == 0 and told == []


def test_scans_while_lost_are_counted(tmp_path, capsys):
    for k in range(3):
        write_points(tmp_path / f"{k}.npy", seen(k))
    elsewhere = seen(0)
    elsewhere["z"] += 60.0
    for k in range(3, 6):
        write_points(tmp_path / f"{k}.npy", elsewhere)
    (tmp_path / "times.txt").write_text("0.0\n0.1\n0.2\n1.0\n2.5\n3.0\n")
    result = result_of(capsys, "odometry", tmp_path)
    # From two seconds after the last scan that was registered.
    assert result["failed"] == 3 and result["lost"] == 2 and result["degenerate"] == 0


@pytest.mark.parametrize("number", ["abc", "0", "-1", "2.5"])
def test_a_number_of_clouds_is_a_whole_one(kitti, capsys, number):
    with pytest.raises(SystemExit) as ended:
        main(["odometry", str(kitti), f"--frames={number}"])
    assert ended.value.code == 2
    assert f"'{number}', must be a whole number above 0" in capsys.readouterr().err


def test_json_where_nothing_can_be_written_is_refused_before_the_work(kitti, tmp_path, capsys):
    arguments = ["odometry", kitti, "--output", tmp_path / "out", "--json", tmp_path]
    assert f"cannot write '{tmp_path}': it is a folder" in complaint_of(capsys, *arguments)
    assert not (tmp_path / "out").exists()


def test_what_was_found_is_told_before_the_picture(kitti, tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(odometry, "draw_trajectory", interrupted)
    arguments = ["odometry", kitti, "--frames", 2, "--output", tmp_path, "--json", tmp_path / "j"]
    assert main([*map(str, arguments)]) == 130
    told = capsys.readouterr()
    assert told.err == "geoaccel odometry: interrupted\n" and "path_m" in told.out
    assert json.loads((tmp_path / "j").read_text())["frames"] == 2
    assert len(np.loadtxt(tmp_path / "poses_kitti.txt")) == 2


def test_ctrl_c_while_the_command_is_loaded_is_no_traceback(capsys, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    assert main(["odometry", "scans"]) == 130
    assert capsys.readouterr().err == "geoaccel odometry: interrupted\n"


@pytest.mark.parametrize(("poses", "status"), [(0, 130), (2, 1)])
def test_ctrl_c_leaves_the_poses_that_there_are(
    kitti, tmp_path, capsys, monkeypatch, poses, status
):
    read = ScanReader.read

    def interrupted(self, points, stamp_ns, T_base_lidar):
        if stamp_ns >= poses * 100_000_000:
            raise KeyboardInterrupt
        return read(self, points, stamp_ns, T_base_lidar)

    monkeypatch.setattr(ScanReader, "read", interrupted)
    assert main(["odometry", str(kitti), "--output", str(tmp_path)]) == status
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "interrupted" in told
    if poses:
        assert len(np.loadtxt(tmp_path / "poses_kitti.txt")) == poses

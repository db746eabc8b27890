"""geoaccel odometry, called as the command calls it."""

import json

import numpy as np
import pytest
from scanned_room import complaint_of, pose, result_of, seen

from geoaccel_ros.cli.main import main
from geoaccel_ros.pointcloud.files import write_points

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
    ["voxel: 0.7\n", "lidar_odometry:\n  ros__parameters:\n    voxel: 0.7\n    odom_frame: o\n"],
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

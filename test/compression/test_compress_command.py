"""geoaccel compress, decompress, inspect: as a user calls them."""

import argparse
import json

import numpy as np
import pytest

from geoaccel_ros.cli import compress
from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.pointcloud.files import read_height, read_points, write_points

DTYPE = [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4")]


def run(*arguments):
    parser = argparse.ArgumentParser()
    compress.add_parsers(parser.add_subparsers(dest="command"))
    args = parser.parse_args([str(argument) for argument in arguments])
    return args.run(args)


@pytest.fixture
def cloud(tmp_path):
    rng = np.random.default_rng(0)
    points = np.zeros(2000, DTYPE)
    for name in points.dtype.names:
        points[name] = rng.normal(0, 5, 2000)
    points["x"][3] = np.nan
    np.save(tmp_path / "cloud.npy", points)
    return tmp_path / "cloud.npy"


def test_json_alone_on_standard_output_and_its_numbers(cloud, tmp_path, capsys):
    stream = tmp_path / "cloud.gapc"
    assert run("compress", cloud, stream, "--step", "0.05", "--json", "-") == 0
    result = json.loads(capsys.readouterr().out)
    size = stream.stat().st_size
    assert result["points"] == result["decoded_points"] == 2000
    assert result["bytes"] == size
    assert result["bits_per_point"] == 8 * size / 2000
    assert result["ratio"] == 2000 * 16 / size
    assert 0.02 < result["max_error_m"] <= 0.02501
    assert result["max_error_m"] < result["euclidean_max_m"] <= 0.025 * 3**0.5 + 1e-5
    # Mean distance of the centre of a cube of edge 1 from its points: 0.480.
    assert 0.47 * 0.05 < result["mean_m"] < 0.49 * 0.05
    assert result["mode"] == "octree"
    assert result["stages_ms"]["octree"] > 0


def test_files_come_back(cloud, tmp_path, capsys):
    stream, back = tmp_path / "cloud.gapc", tmp_path / "back.npy"
    assert run("compress", cloud, stream, "--json", tmp_path / "c.json") == 0
    assert run("decompress", stream, back) == 0
    points, decoded = np.load(cloud), np.load(back)
    assert decoded.dtype == points.dtype
    assert sorted(decoded["intensity"].tolist()) == sorted(points["intensity"].tolist())
    assert np.isnan(decoded["x"][-1])
    assert json.loads((tmp_path / "c.json").read_text())["points"] == 2000
    assert "max_error_m" in capsys.readouterr().out


def test_inspect_tells_fields_and_sections(cloud, tmp_path, capsys):
    stream = tmp_path / "cloud.gapc"
    run("compress", cloud, stream)
    capsys.readouterr()
    assert run("inspect", stream, "--json", "-") == 0
    result = json.loads(capsys.readouterr().out)
    assert [field["name"] for field in result["fields"]] == ["x", "y", "z", "intensity"]
    assert sum(result["bytes_by_section"].values()) == result["bytes"] == stream.stat().st_size
    assert result["order_kept"] is False
    assert result["nonfinite"] == 1
    assert run("inspect", stream) == 0
    assert "octree" in capsys.readouterr().out


def test_parameters_that_contradict_each_other_are_refused(cloud, tmp_path):
    for arguments, message in [
        (["--mode", "scan", "--duplicates", "merge"], "belong to mode octree"),
        (["--lossless", "x"], "x, y and z can only be lossless together"),
        (["--quantise", "intensity"], "'quantise' has 'intensity', must be name=step"),
        (["--target-mean-error", "1", "--target-bits-per-point", "9"], "only one of"),
    ]:
        with pytest.raises(ConfigurationError, match=message) as caught:
            run("compress", cloud, tmp_path / "out", *arguments)
        assert "\n" not in str(caught.value)


def result_of(capsys, *arguments):
    capsys.readouterr()
    assert run(*arguments, "--json", "-") == 0
    return json.loads(capsys.readouterr().out)


def test_the_mode_is_the_one_asked_for(cloud, tmp_path, capsys):
    stream, back = tmp_path / "cloud.gapc", tmp_path / "back.npy"
    result = result_of(capsys, "compress", cloud, stream, "--mode", "scan")
    assert (result["mode"], result["order_kept"]) == ("scan", True)
    run("decompress", stream, back)
    points, decoded = np.load(cloud), np.load(back)
    assert np.nanmax(np.abs(points["y"] - decoded["y"])) <= 0.00501
    assert np.array_equal(points["intensity"], decoded["intensity"])


@pytest.mark.parametrize(
    ("arguments", "height"),
    [(["--mode", "scan"], 40), (["--lossless", "x,y,z"], 40), (["--mode", "octree"], 1)],
)
def test_rows_of_an_organised_pcd(cloud, tmp_path, capsys, arguments, height):
    source, stream, back = tmp_path / "rows.pcd", tmp_path / "rows.gac", tmp_path / "back.pcd"
    points = np.load(cloud)
    write_points(source, points, 40)
    run("compress", source, stream, *arguments)
    assert result_of(capsys, "inspect", stream)["height"] == height
    run("decompress", stream, back)
    assert read_height(back) == height
    decoded = read_points(back)
    if height == 40:
        assert np.array_equal(points["intensity"], decoded["intensity"])
    assert sorted(points["intensity"]) == sorted(decoded["intensity"])


def test_what_a_bin_loses_is_told(cloud, tmp_path, capsys):
    stream, source = tmp_path / "utm.gac", tmp_path / "utm.npy"
    points = np.zeros(2, [("x", "f8"), ("y", "f8"), ("z", "f8"), ("ring", "u2")])
    points["y"] = 5_403_548.12
    np.save(source, points)
    run("compress", source, stream)
    capsys.readouterr()
    run("decompress", stream, tmp_path / "utm.bin")
    (told,) = capsys.readouterr().err.splitlines()
    assert "utm.bin" in told and "no ring; y is up to 0.12 off" in told
    run("decompress", stream, tmp_path / "utm.ply")
    assert capsys.readouterr().err == ""


def test_the_input_is_not_overwritten(cloud, tmp_path):
    stream = tmp_path / "stream.npy"
    run("compress", cloud, stream)
    (tmp_path / "link.npy").symlink_to(cloud)
    for command, source, target in [
        ("compress", cloud, cloud),
        ("compress", cloud, tmp_path / "link.npy"),
        ("decompress", stream, stream),
    ]:
        before = source.read_bytes()
        with pytest.raises(UserError, match=f"{target.name}' is the input") as caught:
            run(command, source, target)
        assert "\n" not in str(caught.value) and source.read_bytes() == before


@pytest.mark.parametrize("lossless", [["x,y,z"], ["x", "--lossless", "y,z"]])
def test_fields_are_lossless_by_a_list_or_one_by_one(cloud, tmp_path, capsys, lossless):
    stream, back = tmp_path / "cloud.gapc", tmp_path / "back.npy"
    result = result_of(capsys, "compress", cloud, stream, "--lossless", *lossless)
    assert (result["mode"], result["step"], result["max_error_m"]) == ("lossless", 0, 0)
    run("decompress", stream, back)
    assert np.load(back).tobytes() == np.load(cloud).tobytes()


def test_fields_are_rounded_to_their_steps(cloud, tmp_path):
    stream, back = tmp_path / "cloud.gapc", tmp_path / "back.npy"
    run("compress", cloud, stream, "--mode", "scan", "--quantise", "intensity=0.5")
    run("decompress", stream, back)
    intensity = np.load(back)["intensity"]
    assert np.array_equal(2 * intensity, np.round(2 * intensity))
    assert 0.2 < np.abs(intensity - np.load(cloud)["intensity"]).max() <= 0.25


def test_a_merged_cloud_tells_both_counts(cloud, tmp_path, capsys):
    stream, back = tmp_path / "cloud.gapc", tmp_path / "back.npy"
    merged = "--duplicates", "merge", "--max-depth", "4"
    result = result_of(capsys, "compress", cloud, stream, *merged)
    assert result["points"] == 2000
    assert 100 < result["decoded_points"] < 1500
    assert result["bits_per_point"] == 8 * result["bytes"] / 2000
    info = result_of(capsys, "inspect", stream)
    assert (info["source_points"], info["points"]) == (2000, result["decoded_points"])
    assert info["depth"] == 4 and info["step"] == result["step"] > 0.5
    decoded = result_of(capsys, "decompress", stream, back)
    assert decoded["points"] == len(np.load(back)) == result["decoded_points"]


def test_a_level_of_an_octree_alone(cloud, tmp_path, capsys):
    stream, back = tmp_path / "cloud.gapc", tmp_path / "back.npy"
    run("compress", cloud, stream, "--mode", "octree", "--step", "0.02")
    depth = result_of(capsys, "inspect", stream)["depth"]
    result = result_of(capsys, "decompress", stream, back, "--level", depth - 5)
    run("decompress", stream, back, "--level", depth - 5)
    # No name is printed without a value.
    assert all(len(line.split()) > 1 for line in capsys.readouterr().out.splitlines())
    cells, points = np.load(back), np.load(cloud)
    assert result["points"] == len(cells) < len(points)
    assert result["cell"] == 0.02 * 2**5
    assert cells.dtype.names == ("x", "y", "z")
    for axis in "xyz":
        distances = np.abs(points[axis][:, None] - cells[axis]).min(axis=1)
        assert np.nanmax(distances) <= result["cell"] / 2 + 1e-5


def test_a_sweep_tells_what_steps_give_and_draws_it(cloud, tmp_path, capsys):
    stream = tmp_path / "cloud.gapc"
    pictures = tmp_path / "new" / "folder"
    result = result_of(capsys, "compress", cloud, stream, "--sweep", "--output", pictures)
    rows = result["sweep"]
    assert [row["step_m"] for row in rows] == [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]
    for finer, coarser in zip(rows, rows[1:], strict=False):
        assert finer["bits_per_point"] > coarser["bits_per_point"]
        assert finer["d1_psnr_db"] > coarser["d1_psnr_db"]
        assert finer["max_error_m"] < coarser["max_error_m"] <= coarser["step_m"] / 2 + 1e-6
        assert finer["mean_m"] < coarser["mean_m"]
    assert rows[2]["bits_per_point"] == result["bits_per_point"]
    assert result["picture"] == str(pictures / "cloud_rate_distortion.png")
    assert (pictures / "cloud_rate_distortion.png").read_bytes().startswith(b"\x89PNG")


def test_a_sweep_as_text_is_a_table_and_its_picture_lies_beside_the_stream(tmp_path, capsys):
    # float32 resolves 7.8 mm there: finer steps are left out.
    points = np.zeros((50, 3), np.float32)
    points[:, 0] = 70_000 + 1.003 * np.arange(50)
    np.save(tmp_path / "far.npy", points)
    assert run("compress", tmp_path / "far.npy", tmp_path / "far.gapc", "--sweep") == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(i for i, line in enumerate(lines) if line.startswith("  step_m"))
    assert lines[header].split() == [
        "step_m", "bits_per_point", "d1_psnr_db", "max_error_m", "mean_m",
    ]  # fmt: skip
    steps = [line.split()[0] for line in lines[header + 1 : header + 6]]
    assert steps == ["0.01", "0.02", "0.05", "0.1", "0.2"]
    assert (tmp_path / "far_rate_distortion.png").exists()


def test_mistakes_are_one_line(cloud, tmp_path):
    out = tmp_path / "out"
    far, utm, big = (tmp_path / f"{name}.npy" for name in ("far", "utm", "big"))
    np.save(far, np.array([[0.0, 0.0, 0.0], [1e6, 0.0, 0.0]]))
    # There float32 resolves 8 m: too coarse for the sweep's steps.
    np.save(utm, np.array([[7e7, 0.0, 0.0]], np.float32))
    np.save(big, np.zeros((2**18, 3), np.float32))
    scan, octree = tmp_path / "scan.gac", tmp_path / "octree.gac"
    run("compress", cloud, scan, "--mode", "scan")
    run("compress", big, octree, "--mode", "octree")
    for arguments, message in [
        (["compress", tmp_path / "absent.npy", out], "absent.npy"),
        (["compress", far, out, "--mode", "octree"], "far.npy.*spans 1e.06 m"),
        (["compress", cloud, out, "--lossless", "ring"], "cloud.npy': no field 'ring'.*x y z int"),
        (["compress", cloud, out, "--quantise", "intensity=1e-9"], "not resolve its step of 1e-09"),
        (["compress", cloud, out, "--output", tmp_path], "--output is where --sweep draws"),
        (["compress", cloud, out, "--sweep", "--target-mean-error", "1"], "leave out targets"),
        (["compress", cloud, out, "--sweep", "--lossless", "x,y,z"], "leave out targets and loss"),
        (["compress", cloud, out, "--sweep", "--max-depth", "9"], "max-depth enlarges: leave it"),
        (["compress", cloud, out, "--sweep", "--output", cloud], "cannot make folder.*cloud.npy"),
        (["compress", utm, tmp_path / "o", "--sweep", "--step", "9"], "utm.npy': x reaches 7e.07"),
        (["compress", cloud, tmp_path / "no" / "folder"], "cannot write.*folder"),
        (["compress", cloud, out, "--device", "Voodoo2"], "no OpenCL device matches 'Voodoo2'"),
        (["decompress", tmp_path / "absent.gapc", out], "cannot read.*absent.gapc"),
        (["decompress", scan, out.with_suffix(".npy"), "--level", "3"], "scan.gac': .*mode octree"),
        (["decompress", octree, out.with_suffix(".npy"), "--level", "22"], "levels are 0 to 0"),
        (["decompress", octree, out.with_suffix(".npy"), "--max-decoded-mib", "1"], "max_decoded"),
        (["decompress", cloud, out], "cloud.npy': not a geoaccel point-cloud stream"),
        (["inspect", cloud], "cloud.npy': not a geoaccel point-cloud stream"),
        (["inspect", tmp_path], "cannot read"),
    ]:
        with pytest.raises(UserError, match=message) as caught:
            run(*arguments)
        assert "\n" not in str(caught.value)
    assert not out.exists() and not out.with_suffix(".npy").exists()
    for step in ("0", "fine"):
        with pytest.raises(SystemExit) as usage:
            run("compress", cloud, out, "--step", step)
        assert usage.value.code == 2


def test_an_unknown_kind_of_output_is_refused(cloud, tmp_path):
    run("compress", cloud, tmp_path / "cloud.gapc")
    with pytest.raises(UserError, match="back.xyz"):
        run("decompress", tmp_path / "cloud.gapc", tmp_path / "back.xyz")

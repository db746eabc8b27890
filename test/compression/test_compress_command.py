"""geoaccel compress, decompress, inspect: as a user calls them."""

import argparse
import json

import numpy as np
import pytest

from geoaccel_ros.cli import compress
from geoaccel_ros.cli.errors import UserError

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
    assert result["points"] == 2000
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


def test_mistakes_are_one_line(cloud, tmp_path):
    out = tmp_path / "out"
    far = tmp_path / "far.npy"
    np.save(far, np.array([[0.0, 0.0, 0.0], [1e6, 0.0, 0.0]]))
    for arguments, message in [
        (["compress", tmp_path / "absent.npy", out], "absent.npy"),
        (["compress", far, out], "far.npy.*spans 1e.06 m"),
        (["compress", cloud, tmp_path / "no" / "folder"], "cannot write.*folder"),
        (["compress", cloud, out, "--device", "Voodoo2"], "no OpenCL device matches 'Voodoo2'"),
        (["decompress", tmp_path / "absent.gapc", out], "cannot read.*absent.gapc"),
        (["decompress", cloud, out], "cloud.npy': not a geoaccel point-cloud stream"),
        (["inspect", cloud], "cloud.npy': not a geoaccel point-cloud stream"),
        (["inspect", tmp_path], "cannot read"),
    ]:
        with pytest.raises(UserError, match=message) as caught:
            run(*arguments)
        assert "\n" not in str(caught.value)
    assert not out.exists()
    for step in ("0", "fine"):
        with pytest.raises(SystemExit) as usage:
            run("compress", cloud, out, "--step", step)
        assert usage.value.code == 2


def test_an_unknown_kind_of_output_is_refused(cloud, tmp_path):
    run("compress", cloud, tmp_path / "cloud.gapc")
    with pytest.raises(UserError, match="back.xyz"):
        run("decompress", tmp_path / "cloud.gapc", tmp_path / "back.xyz")

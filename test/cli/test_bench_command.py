"""geoaccel bench: small real runs, whose times are not judged."""

import datetime
import json
import subprocess
import sys

import numpy as np
import pytest
from scanned_room import pose, seen

from geoaccel_ros import __version__
from geoaccel_ros.benchmark import BENCHMARKS, load
from geoaccel_ros.benchmark.interleaving import interleave, spread
from geoaccel_ros.benchmark.link_hosts import problem
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.benchmark.report import Report, Table
from geoaccel_ros.benchmark.yard import drive
from geoaccel_ros.cli.main import main
from geoaccel_ros.pointcloud.files import from_xyz, write_points
from geoaccel_ros.registration.metrics import path_length

# What makes a benchmark take a second.
SMALL = {
    "registration": ["--points", "2000", "--baseline-points", "200"],
    "odometry": ["--scans", "3", "--scene", "from-rest", "standstill"],
    "latency": ["--scans", "3", "--minutes", "0.02"],
    "compression": ["--step", "0.02"],
    "mppi": [
        "--system",
        "cartpole",
        "--seeds",
        "0",
        "--sweep",
        "--samples",
        "16",
        "32",
        "--updates",
        "10",
    ],
    "link": ["--links", "30", "--scans", "3", "--seconds", "2", "--without-raw"],
}


def bench(capsys, *arguments):
    assert main(["bench", *map(str, arguments), "--repetitions", "1", "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module", params=BENCHMARKS)
def printed(request, tmp_path_factory):
    """Name and what a process of its own prints as JSON, with peers and pictures."""
    if request.param == "link" and (reason := problem()):
        pytest.skip(reason)
    command = [sys.executable, "-m", "geoaccel_ros.cli.main", "bench", request.param, "--peers"]
    command += ["--output", str(tmp_path_factory.mktemp("pictures") / "new")]
    command += ["--repetitions", "2", "--json", "-", *SMALL[request.param]]
    # The first run compiles all loops.
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    assert "it/s" not in result.stderr, "no progress bar where there is no terminal"
    return request.param, json.loads(result.stdout)


def test_json_tells_when_where_and_with_what(printed):
    name, content = printed
    assert content["title"].lower().startswith(name)
    assert datetime.datetime.fromisoformat(content["date"]).tzinfo is not None
    assert {"cpu", "cores", "threads", "memory_gib", "gpu", "os", "python"} == set(
        content["machine"]
    )
    assert content["machine"]["threads"] == 1
    assert content["versions"]["geoaccel_ros"] == __version__
    assert content["versions"]["numpy"] == np.__version__


def test_a_row_has_contender_size_and_times(printed):
    _, content = printed
    assert content["rows"][0]["contender"].startswith("geoaccel, ")
    for row in content["rows"]:
        assert {"points", "samples"} & set(row)
        assert 0.0 < row["ms"]["q1"] <= row["ms"]["median"] <= row["ms"]["q3"]
        assert row["repetitions"] == 2


def test_every_peer_took_part_or_is_named(printed):
    name, content = printed
    ran = {row["contender"] for row in content["rows"] if "geoaccel" not in row["contender"]}
    left_out = {absent["contender"] for absent in content["left_out"]}
    peers = load(name).PEERS
    assert ran.isdisjoint(left_out) and ran | left_out == {peer.name for peer in peers}
    for peer in peers:
        assert (peer.distribution in content["versions"]) or peer.name in left_out


def test_pictures(printed):
    _, content = printed
    assert content["images"]
    for image in content["images"]:
        with open(image, "rb") as file:
            assert file.read(4) == b"\x89PNG"


def test_results_are_right_and_not_only_timed(printed):
    name, content = printed
    for row in content["rows"]:
        if name == "registration" and row["work"] != "tree":
            # Ten times what noise of 0.01 m leaves of 2000 points in 11 m.
            assert row["rotation_deg"] < 0.05 and row["translation_m"] < 0.005
        elif name == "odometry" and row["contender"].startswith("geoaccel"):
            assert row["scans"] == 3 and row["pose_at"] == "end"
            assert row["ate_rmse_m"] < 0.01 and row["step_max_deg"] < 0.1
            assert row["ms"]["median"] <= row["p95_ms"]
        elif name == "latency":
            # Twice 0.02 minutes at 10 Hz. How many come in time depends on what else runs here.
            assert row["clouds"] == 24 and row["lost"] < 24 and row["predicted"] == 0
            assert row["ms"]["median"] <= row["p95_ms"] <= row["p99_ms"] <= row["max_ms"]
            assert row["ate_rmse_m"] < 0.02
            assert row["memory_early_mib"] > 10.0 and row["memory_end_mib"] > 10.0
        elif name == "link":
            # Twice 2 s at 10 Hz.
            assert row["published"] == 40 and row["corrupt"] == 0
            assert row["ms"]["median"] <= row["p99_ms"] <= row["max_ms"]
            assert row["max_error_m"] <= 0.005
            assert row["link_mbit_per_s"] >= row["published_mbit_per_s"]
        elif name == "compression":
            # Half a step, and the rounding of float32 coordinates within 100 m.
            assert row["max_error_m"] <= 0.01 + 1e-5
            assert 0 < row["decoded_points"] <= row["points"]
    if name == "mppi":
        assert {row["system"] for row in content["rows"]} == {"cartpole"}
        sizes = next(t for t in content["tables"] if t["title"] == "Number of samples")
        assert all(0.0 < row[k]["median"] for row in sizes["rows"] for k in ("16", "32"))
        claimed = next(t for t in content["tables"] if t["title"] == "Claims")
        assert len(claimed["rows"]) == 6


def test_standing_still_has_a_table_of_its_own(capsys):
    options = ["odometry", "--scene", "standstill", "--scans", "30", "--threads", 2]
    content = bench(capsys, *options)
    assert content["rows"] == []
    (table,) = content["tables"]
    (row,) = table["rows"]
    assert table["title"] == "Standstill" and row["contender"].startswith("geoaccel, ")
    assert row["minutes"] == pytest.approx(0.05)
    # Noise of 0.01 m on thousands of points; nothing is added to the map at rest.
    assert row["farthest_mm"] < 10.0 and row["map_size"] > 1000 and row["map_growth"] == 0


def test_two_scans_tell_of_no_drift(capsys):
    assert main(["bench", "odometry", "--scene", "standstill", "--scans", "2"]) == 1
    assert "--scans 3 or more" in capsys.readouterr().err


def test_recorded_drives_beside_a_scene(tmp_path, capsys):
    (tmp_path / "room" / "velodyne").mkdir(parents=True)
    for index in range(4):
        write_points(tmp_path / "room" / "velodyne" / f"{index:06}.bin", seen(index))
    poses = np.array([pose(index)[:3].ravel() for index in range(4)])
    np.savetxt(tmp_path / "room" / "poses.txt", poses)
    rows = bench(capsys, "odometry", "--data", tmp_path / "room", "--scans", 3)["rows"]
    # Nothing simulated unless asked for.
    assert [(row["drive"], row["scans"], row["pose_at"]) for row in rows] == [("room", 3, "stamp")]
    assert rows[0]["step_max_m"] < 0.02


def test_a_folder_without_truth_is_refused(tmp_path, capsys):
    for name in ("odometry", "latency"):
        assert main(["bench", name, "--data", str(tmp_path)]) == 1
        assert "has no poses.txt" in capsys.readouterr().err


def test_the_yard_s_circle_is_driven_and_not_stopped_by_an_obstacle():
    scans, truth = drive(9.0)
    path = path_length(np.array([state.T_world_base for state in truth]))
    # 1 m/s from standstill, all around: 2 pi 1.25 m = 7.9 m.
    assert len(scans) == 90 and path == pytest.approx(9.0, abs=0.3)


def test_without_peers_only_our_own(capsys):
    content = bench(capsys, "compression", "--step", 0.02)
    assert content["rows"] and content["left_out"] == []
    assert all(row["contender"].startswith("geoaccel, ") for row in content["rows"])


def test_clouds_of_one_s_own_far_away_and_with_holes(tmp_path, capsys):
    xyz = np.random.default_rng(0).uniform(0.0, 10.0, (500, 3))
    xyz[7] = np.nan
    write_points(tmp_path / "near.npy", from_xyz(xyz.astype(np.float32)))
    far = np.zeros(500, [(axis, "f8") for axis in "xyz"])
    for axis, offset, values in zip("xyz", (4e5, 5e6, 200.0), xyz.T, strict=True):
        far[axis] = values + offset
    np.save(tmp_path / "far.npy", far)
    clouds = [tmp_path / "near.npy", tmp_path / "far.npy"]
    rows = bench(capsys, "compression", "--peers", "--step", 0.01, "--cloud", *clouds)["rows"]
    own = [row["cloud"] for row in rows if "geoaccel" in row["contender"]]
    assert [*dict.fromkeys(own)] == [*map(str, clouds)]
    for row in rows:
        assert row["points"] == row["decoded_points"] == 499
        assert row["max_error_m"] <= 0.005 + 1e-5


def test_a_cloud_without_points(tmp_path, capsys):
    np.save(tmp_path / "empty.npy", np.full((3, 3), np.nan, np.float32))
    assert main(["bench", "compression", "--cloud", str(tmp_path / "empty.npy")]) == 1
    assert "has no finite points" in capsys.readouterr().err


def test_contenders_take_turns_and_the_first_round_is_dropped():
    calls = []

    def contender(name):
        def run():
            calls.append(name)
            return float(len(calls))

        return run

    times = interleave({"a": contender("a"), "b": contender("b")}, 3)
    assert calls == ["a", "b"] * 4
    np.testing.assert_array_equal(times["a"], [3.0, 5.0, 7.0])
    np.testing.assert_array_equal(times["b"], [4.0, 6.0, 8.0])


def test_a_contender_may_count_several_times():
    times = interleave({16: lambda: (1, 2), 32: lambda: (3, 4)}, 5)
    assert times[16].shape == (5, 2) and times[32][0].tolist() == [3.0, 4.0]


def test_median_and_quartiles():
    # Of 1 to 5 each quartile is a value, whatever the rule of interpolation.
    assert spread(np.array([5.0, 1.0, 4.0, 2.0, 3.0])) == {"median": 3.0, "q1": 2.0, "q3": 4.0}


def test_absent_and_broken_peers_are_named_with_the_remedy(tmp_path, monkeypatch, capsys):
    (tmp_path / "broken_peer.py").write_text("import its_missing_part\n")
    monkeypatch.syspath_prepend(tmp_path)
    peers = (
        Peer("Absent", "absent-peer", "absent_peer.part", None),
        Peer("Broken", "broken-peer", "broken_peer", None),
    )
    monkeypatch.setattr("geoaccel_ros.benchmark.mppi.PEERS", peers)
    assert bench(capsys, "mppi", "--peers", *SMALL["mppi"])["left_out"] == [
        {
            "contender": "Absent",
            "reason": "not installed: pip install 'geoaccel_ros[bench]'",
        },
        {
            "contender": "Broken",
            "reason": "broken-peer cannot be imported (No module named 'its_missing_part')",
        },
    ]
    assert main(["bench", "mppi", "--peers", "--repetitions", "1", *SMALL["mppi"]]) == 0
    printed = capsys.readouterr().out
    assert "Left out: Absent, not installed: pip install 'geoaccel_ros[bench]'\n" in printed


def test_a_benchmark_without_peers_says_so(monkeypatch, capsys):
    monkeypatch.setattr("geoaccel_ros.benchmark.mppi.PEERS", ())
    assert main(["bench", "mppi", "--peers", "--repetitions", "1", *SMALL["mppi"]]) == 0
    assert "no other package is known to mppi" in capsys.readouterr().err


_TABLES = """
| contender | points | ms (quartiles) | rmse m |
| --- | --- | --- | --- |
| a\\|b | 12345 | 2 (1 to 3.14) |  |
| c | 7 |  | nan |

## Baselines

Of 7.

| contender | ms |
| --- | --- |
| d | 1234 |

## GPU

Left out: none.

![times]("""


def test_tables_for_people_and_for_machines(tmp_path, monkeypatch, capsys):
    report = Report(
        "Main",
        [
            {"contender": "a|b", "points": 12345, "ms": {"median": 2.0, "q1": 1.0, "q3": 3.14159}},
            {"contender": "c", "points": 7, "rmse_m": float("nan")},
        ],
        tables=(
            Table("Baselines", [{"contender": "d", "ms": 1234.5}], "Of 7."),
            Table("GPU", [], "Left out: none."),
        ),
        images=(tmp_path / "times.png",),
    )
    monkeypatch.setattr("geoaccel_ros.benchmark.mppi.run", lambda options, peers: report)
    assert main(["bench", "mppi", "--json", str(tmp_path / "r.json")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# Main\n\n") and "Python" in printed
    assert _TABLES in printed
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["rows"][1]["rmse_m"] is None
    assert content["tables"] == [
        {"title": "Baselines", "rows": [{"contender": "d", "ms": 1234.5}], "note": "Of 7."},
        {"title": "GPU", "rows": [], "note": "Left out: none."},
    ]
    assert content["images"] == [str(tmp_path / "times.png")]


def test_help_imports_no_benchmark():
    code = """
import sys
from geoaccel_ros.cli.main import main
for arguments in (["--help"], ["bench", "--help"]):
    try:
        main(arguments)
    except SystemExit:
        pass
print("imported:", *sys.modules)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    help_text, imported = result.stdout.split("imported: ")
    for name, line in BENCHMARKS.items():
        assert name in help_text and line.split(",")[0] in help_text
        assert f"geoaccel_ros.benchmark.{name}" not in imported.split()


def test_a_benchmark_s_own_options_are_in_its_help(capsys):
    with pytest.raises(SystemExit) as raised:
        main(["bench", "mppi", "--help"])
    assert raised.value.code == 0
    assert {"--samples", "--peers", "--json"} <= set(capsys.readouterr().out.split())

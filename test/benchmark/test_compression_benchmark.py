"""The compression benchmark: its clouds, its peers, and the numbers in its rows."""

import argparse
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from geoaccel_ros.benchmark import compression_layouts
from geoaccel_ros.benchmark.compression import run
from geoaccel_ros.benchmark.compression_claims import best_peers, claims, claims_on_time
from geoaccel_ros.benchmark.compression_cloudini import CLOUDINI
from geoaccel_ros.benchmark.compression_clouds import (
    INTENSITY,
    KITTI,
    MESSAGE,
    SETS,
    SPINNING,
    TIMED,
    XYZ,
    Cloud,
    cases,
    read_clouds,
    read_sequence,
)
from geoaccel_ros.benchmark.compression_contenders import OCTREE, SCAN, Trial, largest_error
from geoaccel_ros.benchmark.compression_integers import Integers, Unsuitable
from geoaccel_ros.benchmark.compression_kernels import kernels
from geoaccel_ros.benchmark.compression_peers import DRACO, LAZ, PEERS, ZSTD_OF_BYTES
from geoaccel_ros.benchmark.compression_profile import Profile, open_device
from geoaccel_ros.benchmark.compression_stages import (
    PUBLISHED_MS,
    by_section,
    by_stage,
    last_levels,
    published_stages,
    sections,
    stages,
)
from geoaccel_ros.benchmark.compression_sweep import sweep
from geoaccel_ros.benchmark.courtyard import map_courtyard
from geoaccel_ros.benchmark.errors import BenchmarkError
from geoaccel_ros.compression import tables
from geoaccel_ros.compression.codec import Codec, CodecConfig
from geoaccel_ros.compression.rans import EVEN_INDEX
from geoaccel_ros.pointcloud.files import from_xyz, write_points
from geoaccel_ros.pointcloud.layout import packed_dtype

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="real clouds lie in ../shared")

_FIELDS = packed_dtype(
    [(axis, "f4") for axis in "xyz"]
    + [("intensity", "f4"), ("ring", "u2"), ("time", "f4"), ("t", "u4"), ("timestamp", "f8")]
)


@pytest.fixture(scope="module")
def message():
    """A message of 400 points whose times are all different."""
    rng = np.random.default_rng(0)
    points = np.empty(400, _FIELDS)
    for axis, middle in zip("xyz", (4000.25, -70.0, 3.0), strict=True):
        points[axis] = rng.normal(middle, 8.0, 400)
    points["intensity"] = rng.integers(0, 101, 400).astype(np.float32) / np.float32(100)
    points["ring"] = rng.integers(0, 64, 400)
    points["t"] = np.arange(400) * 250_001
    points["time"] = points["t"] * np.float32(1e-9)
    points["timestamp"] = 1.7e9 + 1e-9 * points["t"]
    return points


@pytest.fixture(params=PEERS, ids=lambda peer: peer.name)
def peer(request):
    if request.param.problem():
        pytest.skip(request.param.problem())
    return request.param


@pytest.mark.parametrize("step", [0.01, 0.25])
def test_a_peer_returns_every_field_and_coordinates_within_half_a_step(peer, message, step):
    trial = Trial(*peer.contender(message, step))
    assert min(trial()) > 0.0
    decoded = trial.decoded
    assert decoded.dtype == message.dtype and len(decoded) == 400
    # Draco's KD-tree keeps no order.
    decoded = decoded[np.argsort(decoded["t"], kind="stable")]
    for name in ("intensity", "ring", "t", "time", "timestamp"):
        # cloudini multiplies by a resolution: an ulp, and half of 1 us.
        loss = {"intensity": 6e-8, "timestamp": 7.5e-7}.get(name, 0) if peer is CLOUDINI else 0
        np.testing.assert_allclose(decoded[name], message[name], rtol=0, atol=loss, err_msg=name)
    for axis in "xyz":
        error = np.abs(decoded[axis].astype(float) - message[axis]).max()
        # A float32 near 4000 holds 0.12 mm.
        assert error <= 0.502 * step + 2.5e-4
        assert peer.name == ZSTD_OF_BYTES or error > 0.4 * step


def test_a_peer_takes_a_single_point_or_says_why_not(peer):
    points = from_xyz(np.array([[1.0, 2.0, 3.0]], np.float32), np.array([0.5], np.float32))
    try:
        trial = Trial(*peer.contender(points, 0.01))
    except Unsuitable as error:
        assert peer is CLOUDINI and "larger than the cloud" in str(error)
    else:
        trial()
        assert largest_error(points, trial.decoded, 0.01) <= 0.00502
        assert trial.decoded["intensity"] == 0.5


def test_a_peer_takes_holes_or_says_why_not(peer, message):
    holed = message.copy()
    holed["y"][7] = np.nan
    try:
        trial = Trial(*peer.contender(holed, 0.01))
    except Unsuitable as error:
        assert str(error) == "has coordinates that are no numbers"
    else:
        trial()
        assert [*np.flatnonzero(np.isnan(trial.decoded["y"]))] == [7]
        assert largest_error(holed, trial.decoded, 0.01) <= 0.00502 + 2.5e-4


def test_an_absent_library_is_told_with_the_remedy(monkeypatch):
    monkeypatch.setattr("geoaccel_ros.benchmark.compression_cloudini._LIBRARY", "libabsent_0.so")
    assert CLOUDINI.problem() == "no libabsent_0.so: docs/benchmarks.md tells how it is built"


@pytest.mark.parametrize(
    ("values", "divisor"),
    [
        (np.array([0, 7, 255], np.float32), 1),
        (np.array([3, 65535], np.uint16), 1),
        (np.arange(101, dtype=np.float32) / np.float32(100), 100),
        (np.arange(256, dtype=np.float32) / np.float32(255), 255),
        (np.array([0.1, 0.123], np.float32), None),
        (np.array([65536.0], np.float32), None),
        (np.array([-1.0, 2.0], np.float32), None),
        (np.array([0.5, np.nan], np.float32), None),
        (np.array([1.7e9 + 1e-7, 1.7e9]), None),
    ],
)
def test_fields_as_integers(values, divisor):
    integers = Integers(values, np.uint16)
    assert Integers.divisor_of(values, np.uint16) == divisor
    assert bool(integers.table) == (divisor is None)
    coded = integers.encode(values)
    assert coded.dtype == np.uint16
    decoded = integers.decode(coded)
    assert decoded.dtype == values.dtype
    np.testing.assert_array_equal(decoded, values)


def test_too_many_values_for_the_integers():
    with pytest.raises(Unsuitable, match="more than 255 distinct values"):
        Integers(np.arange(300) / 7.0, np.uint8)


def test_the_largest_error_with_and_without_order():
    points = from_xyz(np.array([[0, 0, 0], [10, 0, 0], [0, 20, 0]], np.float32))
    decoded = points.copy()
    decoded["y"] += np.array([0.001, -0.004, 0.002], np.float32)
    for order in ([0, 1, 2], [2, 0, 1]):
        assert largest_error(points, decoded[order], 0.01) == pytest.approx(0.004, abs=1e-6)
    # The first is gone: 10 m from the nearest, in its largest coordinate.
    assert largest_error(points, decoded[1:], 0.01) == pytest.approx(10.0, abs=0.01)
    # Two changed places: as points of a cloud they are where they were.
    assert largest_error(points, points[[1, 0, 2]], 0.01) == 0.0
    points["x"][1] = np.nan
    assert largest_error(points, decoded, 0.01) == pytest.approx(0.002, abs=1e-6)


def test_cases_leave_out_what_is_no_return_and_the_message_does_not(message):
    points = message.copy()
    for name in "xyz":
        points[name][3] = 0.0
    points["z"][5] = np.inf
    found = cases(Cloud("c", points, 4))
    assert [*found] == [XYZ, INTENSITY, MESSAGE]
    xyz, intensity, whole = (each for each, _ in found.values())
    assert [height for _, height in found.values()] == [1, 1, 4]
    assert xyz.dtype.names == (*"xyz",) and len(xyz) == 398 and xyz.dtype.itemsize == 12
    assert intensity.dtype.names == (*"xyz", "intensity")
    np.testing.assert_array_equal(intensity["intensity"], np.delete(points["intensity"], [3, 5]))
    assert whole is points
    assert [*cases(Cloud("c", points[[*"xyz", "intensity"]]))] == [XYZ, INTENSITY]
    assert [*cases(Cloud("c", points[[*"xyz"]]))] == [XYZ]


def test_a_folder_of_folders_gives_first_middle_and_last(tmp_path):
    for name, count in (("many", 5), ("few", 2)):
        (tmp_path / name).mkdir()
        for index in range(count):
            xyz = np.full((2, 3), index, np.float32) + 1
            write_points(tmp_path / name / f"{index:03}.npy", from_xyz(xyz))
    (tmp_path / "notes").mkdir()
    found = [(cloud.name, cloud.points["x"][0]) for cloud in read_clouds([], [tmp_path])]
    assert found == [
        ("few/000", 1),
        ("few/001", 2),
        ("many/000", 1),
        ("many/002", 3),
        ("many/004", 5),
    ]
    assert [cloud.name for cloud in read_clouds([], [tmp_path / "few"])] == ["few/000", "few/001"]


def test_nothing_to_read_is_told(tmp_path):
    with pytest.raises(BenchmarkError, match="has no clouds"):
        [*read_clouds([], [tmp_path])]
    with pytest.raises(BenchmarkError, match="is no folder"):
        [*read_clouds([], [tmp_path / "absent"])]


def test_a_sequence_is_all_of_a_folder_in_order(tmp_path):
    for index in range(5):
        write_points(tmp_path / f"{index:03}.bin", from_xyz(np.full((index + 1, 3), 1.0)))
    assert [len(points) for points in read_sequence(tmp_path, 9)] == [1, 2, 3, 4, 5]
    assert [len(points) for points in read_sequence(tmp_path, 2)] == [1, 2]


def test_what_is_no_sequence_is_told(tmp_path):
    with pytest.raises(BenchmarkError, match="has no clouds"):
        read_sequence(tmp_path, 3)
    with pytest.raises(BenchmarkError, match="is no folder"):
        read_sequence(tmp_path / "absent", 3)
    (tmp_path / "pcd_layouts").mkdir()
    with pytest.raises(BenchmarkError, match="is no sequence"):
        read_sequence(tmp_path / "pcd_layouts", 3)
    (tmp_path / "0.bin").write_bytes(b"12345")
    with pytest.raises(BenchmarkError, match=r"0\.bin"):
        read_sequence(tmp_path, 3)


@needs_data
def test_a_recorded_sequence():
    clouds = read_sequence(DATA / "kitti_raw_0005", 3)
    assert len(clouds) == 3 and all(len(points) > 120_000 for points in clouds)
    assert clouds[0].dtype.names == ("x", "y", "z", "intensity")
    assert not np.array_equal(clouds[0][:100], clouds[1][:100])


@needs_data
def test_every_set_of_real_clouds():
    clouds = {cloud.name: cloud for cloud in read_clouds([], [DATA])}
    assert {name.partition("/")[0] for name in clouds} == {*SETS}
    kitti = {name for name, cloud in clouds.items() if KITTI in cloud.kinds}
    assert kitti == {
        "kitti_odom_00_pairs/000094", "kitti_odom_00_pairs/000095", "kitti_raw_0005/0000000000",
        "kitti_raw_0005/0000000030", "kitti_raw_0005/0000000059",
    }  # fmt: skip
    assert sum(TIMED in cloud.kinds for cloud in clouds.values()) == 3
    assert all(SPINNING in clouds[name].kinds for name in kitti)
    assert all(cloud.sensor for cloud in clouds.values())
    of_hdl64 = {name.partition("/")[0] for name, c in clouds.items() if c.sensor == "hdl64"}
    assert of_hdl64 == {"kitti_odom_00_pairs", "kitti_raw_0005", "kitti07_keyframes"}
    raw = clouds["kitti_raw_0005/0000000030"].points
    # Millimetres and percents, as the source rounds them; the last point is all zero.
    for name, unit in (("x", 1e3), ("y", 1e3), ("z", 1e3), ("intensity", 1e2)):
        assert np.abs(raw[name] * unit - np.rint(raw[name] * unit)).max() < 0.01
        assert raw[name][-1] == 0.0
    ranges = np.linalg.norm([raw[axis][:-1] for axis in "xyz"], axis=0)
    assert 1.0 < ranges.min() and 60.0 < ranges.max() < 130.0


@needs_data
def test_an_ouster_frame_is_laid_out_as_its_driver_does():
    (cloud,) = read_clouds([], [DATA / "ouster_os1_128"])
    assert (cloud.height, len(cloud.points), cloud.points.dtype.itemsize) == (128, 131072, 48)
    rows = cloud.points.reshape(128, 1024)
    assert (rows["ring"] == np.arange(128)[:, None]).all()
    assert (rows["t"] == rows["t"][0]).all() and 0.09e9 < rows["t"].max() < 0.1e9
    assert len(cases(cloud)[XYZ][0]) == 107647
    valid = rows["range"] > 0
    norms = np.linalg.norm([rows[axis][valid] for axis in "xyz"], axis=0)
    # The origin of the points is not the beam's: centimetres.
    assert np.abs(norms - 1e-3 * rows["range"][valid]).max() < 0.05


def row(contender, bits, cloud="k", case=XYZ, step=0.01):
    times = {"median": 50.0, "q1": 49.0, "q3": 51.0}
    return {
        "contender": contender, "cloud": cloud, "case": case, "step_m": step,
        "bits_per_point": bits, "encode_ms": times, "decode_ms": times | {"median": 20.0},
    }  # fmt: skip


def test_ours_beside_the_best_peer():
    rows = [row(OCTREE, 9.0), row("geoaccel, scan", 6.0), row(DRACO, 12.0), row(LAZ, 8.0)]
    rows += [row(OCTREE, 9.0, cloud="alone"), row(DRACO, 1.0, step=0.02)]
    (found,) = best_peers(rows).rows
    assert (found["ours"], found["best_peer"], found["ratio"]) == ("geoaccel, scan", LAZ, 0.75)


def test_claims_compare_with_the_peer_they_name():
    rows = [row(OCTREE, 10.0), row("geoaccel, scan", 8.0), row(DRACO, 12.0), row(LAZ, 8.0)]
    rows += [row(OCTREE, 9.0, cloud="other"), row(DRACO, 12.0, cloud="other")]
    found = claims(rows, {"k": frozenset({KITTI, SPINNING}), "other": frozenset()}).rows
    octree, scan = found
    assert (octree["ours"], octree["best_peer"]) == (OCTREE, DRACO)
    assert octree["ratio"] == pytest.approx(10 / 12) and octree["held"] == "must"
    assert (scan["ours"], scan["best_peer"], scan["ratio"]) == ("geoaccel, scan", LAZ, 1.0)
    assert scan["held"] == "must"
    rows[0]["bits_per_point"] = 11.5
    assert claims(rows, {"k": frozenset({SPINNING}), "other": frozenset()}).rows[0]["held"] == "no"
    rows[0]["bits_per_point"] = 9.9
    assert claims(rows, {"k": frozenset({SPINNING}), "other": frozenset()}).rows[0]["held"] == "aim"


def test_claims_on_time_are_of_kitti_scans_and_ours():
    rows = [row(OCTREE, 10.0), row(DRACO, 12.0), row(OCTREE, 1.0, "other"), row(OCTREE, 1, step=1)]
    kinds = {"k": frozenset({KITTI}), "other": frozenset({SPINNING})}
    table = claims_on_time(rows, kinds, "a device")
    assert [(r["what"], r["held"]) for r in table.rows] == [
        ("encode ms", "must"),
        ("decode ms", "aim"),
    ]
    assert "a device" in table.note


@dataclass(frozen=True)
class Took:
    """A launch that took so long."""

    stage: str
    kernel: str
    milliseconds: float


def test_kernels_and_the_host_s_rest_are_shared_among_the_published_stages():
    launches = (
        Took("cells", "codes_of_float32", 0.25), Took("sort", "sum_blocks", 0.5),
        Took("octree", "scatter_parents", 1.0), Took("octree", "descend", 2.0),
        Took("octree", "code_nodes", 4.0), Took("octree", "encode_chunks", 8.0),
        Took("fields", "code_values", 16.0), Took("fields", "gather_words", 32.0),
    )  # fmt: skip
    times = {"cells": 1.0, "sort": 2.0, "octree": 20.0, "fields": 50.0, "bitstream": 3.0}
    found = published_stages(Profile(times, launches, 76.0))
    assert found == {
        "load and normalise": 1.0, "octree": 3.0, "prediction": 2.0, "residuals": 20.0,
        "entropy statistics": 8.0, "bitstream": 35.0, "between kernels": 7.0,
    }  # fmt: skip
    assert sum(found.values()) == sum(times.values())
    assert sum(PUBLISHED_MS.values()) == 560.0
    assert by_stage([{"a": 1.0}, {"a": 5.0}, {"a": 2.0}])["a"]["median"] == 2.0


def test_sections_add_up_to_the_stream(message):
    stream = Codec(CodecConfig(step=0.01)).encode(message)
    rows = by_section(OCTREE, stream)
    assert sum(r["bytes"] for r in rows) == len(stream)
    assert sum(r["percent"] for r in rows) == pytest.approx(100.0)
    assert sum(r["bits_per_point"] for r in rows) == pytest.approx(8 * len(stream) / 400)


def test_sections_of_a_cloud_with_all_its_fields(message):
    own = {mode: Codec(CodecConfig(mode=mode.split()[-1], step=0.01)) for mode in (OCTREE, SCAN)}
    rows = sections(Cloud("m", message), own)
    assert [(r["contender"], r["case"]) for r in rows] == [(OCTREE, MESSAGE), (SCAN, MESSAGE)]
    for r in rows:
        assert r["all"] == pytest.approx(8 * len(own[r["contender"]].encode(message)) / 400)
        assert r["field ring"] > 0.0 and "nonfinite" not in r
    (levels,) = last_levels(Cloud("m", message), own[OCTREE], open_device("auto", 1))
    assert [*levels] == ["cloud", "coarser", "16 cm", "8 cm", "4 cm", "2 cm", "1 cm"]
    # Alone in their cells: three bits a level tell where, and no context knows better.
    assert levels["1 cm"] == pytest.approx(3.0, abs=0.2)


def test_stages_of_a_small_map():
    published, claimed, times, kernels, sections, levels = stages("auto", 1, 2, points=5000)
    assert [row["what"] for row in claimed.rows] == ["encode ms", "decode ms"] * 6
    cases = [row["case"] for row in claimed.rows]
    assert cases == ["xyz"] * 6 + ["xyz + intensity"] * 6
    for row in claimed.rows:
        median = row["ms"]["median"]
        assert row["held"] == ("aim" if median <= 10 else "must" if median <= 40 else "no")
    assert [r["stage"] for r in published.rows] == [*PUBLISHED_MS, "between kernels", "all"]
    assert published.rows[-1]["published_ms"] == 560.0
    every = {(r["contender"], r["direction"], r["stage"]): r["ms"]["median"] for r in times.rows}
    assert every[OCTREE, "encode", "all"] > 0.0 and every[OCTREE, "decode", "all"] > 0.0
    parts = [r["ms"]["median"] for r in published.rows]
    # Medians of two are means, and what is outside of all stages is in none.
    assert 0.0 < sum(parts[:-1]) <= parts[-1]
    assert "5000 points" in sections.note and sections.rows
    assert {"encode", "decode"} == {r["direction"] for r in kernels.rows}
    assert [r["level"] for r in levels.rows] == [*range(1, len(levels.rows) + 1)]
    last = levels.rows[-1]
    assert last["cell_m"] == 0.01 and 4900 < last["nodes"] <= 5000
    # Of a cube's centre, and half as far a level less.
    assert last["mean_error_m"] == pytest.approx(0.0048, abs=3e-4)
    assert levels.rows[-2]["mean_error_m"] == pytest.approx(0.0096, abs=6e-4)
    # All but the table that the section begins with, and the lengths of its chunks.
    (occupancy,) = (
        r for r in sections.rows if (r["contender"], r["section"]) == (OCTREE, "occupancy")
    )
    bits = sum(r["bits_per_point"] for r in levels.rows)
    assert 0.0 < occupancy["bits_per_point"] - bits < 0.2 * bits
    assert all(r["encode_ms"] > 0.0 and r["decode_ms"] > 0.0 for r in levels.rows)


def test_sizes_of_groups_predictions_memories_and_arrangements():
    groups, predictions, memories, layouts = kernels("auto", 1, 1, points=3000)
    descend = {r["direction"]: r for r in groups.rows if r["kernel"] == "descend"}
    assert all(descend["encode"][f"{size}"] > 0.0 for size in (32, 1024))
    assert len(predictions.rows) == 5 and len(memories.rows) == 2
    assert [r["bytes"] for r in layouts.rows] == [36_000, 36_000, 96_000]


@pytest.mark.parametrize("arrange", compression_layouts.ARRANGEMENTS.values())
def test_every_arrangement_of_coordinates_has_the_same_codes(arrange):
    records = from_xyz(np.array([[0, -1, 3], [0.26, -1, 3], [0.5, -0.75, 3.25]], np.float32))
    trial = compression_layouts.Trial(open_device("auto", 1), records, 0.25, arrange)
    assert len(trial()) == 3
    # Cells (0, 0, 0), (1, 0, 0) and (2, 1, 1).
    np.testing.assert_array_equal(trial.codes, [0, 0b001, 0b001110])


def test_the_map_lies_in_the_world():
    points = map_courtyard(70_000)
    assert points.shape == (70_000,) and points.dtype.names == (*"xyz", "intensity")
    # The outer walls' inner faces, and flat ground; noise of 0.01 m on the range.
    for axis, lowest, highest in (("x", -32.8, 32.8), ("y", -19.8, 21.8)):
        assert points[axis].min() == pytest.approx(lowest, abs=0.06)
        assert points[axis].max() == pytest.approx(highest, abs=0.06)
    assert -0.06 < points["z"].min() < 0.0
    assert np.mean(np.abs(points["z"]) < 0.03) > 0.2
    assert (points["intensity"] == np.rint(points["intensity"])).all()
    assert 0 <= points["intensity"].min() and 100 < points["intensity"].max() <= 255
    np.testing.assert_array_equal(map_courtyard(100), points[:100])


def test_a_sweep_trades_bits_for_errors(message):
    rows = sweep(Cloud("m", message), "auto", 1, [], steps=(0.005, 0.05, 0.5))
    own = [r for r in rows if r["contender"] == OCTREE]
    assert [r["step_m"] for r in own] == [0.005, 0.05, 0.5]
    for r in own:
        # An ulp of float32 near 4000.
        assert 0.3 * r["step_m"] < r["max_error_m"] <= 0.5 * r["step_m"] + 2.5e-4
        assert 0.0 < r["mean_m"] < np.sqrt(3) * r["max_error_m"]
    for name, sign in (("bits_per_point", -1), ("d1_psnr_db", -1), ("mean_m", 1)):
        assert (np.diff([r[name] for r in own]) * sign > 0).all(), name


def test_clouds_are_coded_with_tables_that_never_saw_their_sensor(tmp_path, message):
    options = argparse.Namespace(
        cloud=[], data=[tmp_path / "kitti_raw"], step=[0.05], sweep=False, stages=False,
        kernels=False, tables_without=tmp_path, device="auto", threads=1, repetitions=1,
        output=None,
    )  # fmt: skip
    (tmp_path / "kitti_raw").mkdir()
    write_points(tmp_path / "kitti_raw" / "0.npy", message)
    with pytest.raises(BenchmarkError, match=r"no table '.*hdl64.*': make them with"):
        run(options, [])
    (tmp_path / "hdl64").mkdir()
    shipped = resources.files(tables)
    for name in (each.name for each in shipped.iterdir() if each.name.endswith(".bin")):
        flat = bytes([EVEN_INDEX]) * len(shipped.joinpath(name).read_bytes())
        (tmp_path / "hdl64" / name).write_bytes(flat)
    held_out = {(r["contender"], r["case"]): r["bits_per_point"] for r in run(options, []).rows}
    options.tables_without = None
    own = {(r["contender"], r["case"]): r["bits_per_point"] for r in run(options, []).rows}
    assert held_out.keys() == own.keys() and len(own) == 9
    assert all(own[key] < held_out[key] for key in own)

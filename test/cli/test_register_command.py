"""geoaccel register, called as the command calls it, on a made-up room and on real scans."""

import json
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from scanned_room import complaint_of, pose, result_of, room, seen

from geoaccel_ros.cli.main import main
from geoaccel_ros.pointcloud.files import from_xyz, write_points
from geoaccel_ros.registration import RegistrationConfig, se3
from geoaccel_ros.registration.residuals import METHODS

SHARED = Path(__file__).resolve().parents[3] / "shared"
needs_data = pytest.mark.skipif(not SHARED.exists(), reason="real scans lie in ../shared")
# Easting, northing and height in metres; float32 holds them to half a metre.
UTM = np.array([512_700.25, 5_403_548.5, 312.0])


@pytest.fixture
def scans(tmp_path):
    """Three scans of the room, as the paths of their files."""
    paths = [tmp_path / f"scan{k}.bin" for k in range(3)]
    for k, path in enumerate(paths):
        write_points(path, seen(k))
    return paths


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Real pairs by name: two files of points, a file of the truth, and its tolerances."""
    folder = tmp_path_factory.mktemp("pairs")
    sys.path.insert(0, str(SHARED / "tools"))
    import lidar_data

    sys.path.remove(str(SHARED / "tools"))
    pairs = {}
    for name, target, source, truth, metres, degrees in lidar_data.pairs():
        files = [folder / f"{name}{end}" for end in ("_target.ply", "_source.bin", ".txt")]
        write_points(files[0], from_xyz(target))
        write_points(files[1], from_xyz(source))
        np.savetxt(files[2], truth)
        pairs[name] = (*files, metres, degrees)
    return pairs


def usage_error(capsys, *arguments):
    with pytest.raises(SystemExit) as raised:
        main(["register", *map(str, arguments)])
    assert raised.value.code == 2
    return capsys.readouterr().err


def transform_of(result):
    return np.reshape(result["T_target_source"], (4, 4))


def test_the_keys_that_machines_rely_on(scans, tmp_path, capsys):
    np.savetxt(tmp_path / "truth.txt", pose(1))
    result = result_of(capsys, "register", *scans[:2], "--truth", tmp_path / "truth.txt")
    assert {
        "target", "source", "T_target_source", "converged", "reason", "iterations", "rmse_m",
        "inliers", "kept", "overlap", "overlap_before", "max_distance_m", "overlap_distance_m",
        "backend", "backend_reason", "degenerate", "hessian", "trace_m", "warnings", "timings_ms",
        "error_m", "error_deg", "error_centre_m",
    } == set(result)  # fmt: skip
    assert {"read", "preprocess", "upload", "tree", "iterations", "total"} == set(
        result["timings_ms"]
    )
    timings = result["timings_ms"]
    parts = sum(timings[name] for name in ("preprocess", "upload", "tree", "iterations"))
    assert timings["total"] == pytest.approx(parts) and timings["read"] > 0.0
    assert len(result["T_target_source"]) == 16 and result["T_target_source"][12:] == [0, 0, 0, 1]
    assert result["converged"] is True and result["warnings"] == [] and result["degenerate"] == []
    assert len(result["trace_m"]) == result["iterations"] + 1
    assert result["trace_m"][-1] == result["rmse_m"]
    assert np.shape(result["hessian"]) == (6, 6)
    assert result["overlap_before"] < result["overlap"] <= 1.0
    np.testing.assert_allclose(transform_of(result), pose(1), atol=0.01)
    assert result["error_m"] == pytest.approx(
        np.linalg.norm(transform_of(result)[:3, 3] - pose(1)[:3, 3])
    )


def test_a_first_guess_reaches_what_identity_does_not(scans, tmp_path, capsys):
    far = tmp_path / "far.npy"
    write_points(far, seen(40))
    np.savetxt(tmp_path / "init.txt", pose(39))
    np.savetxt(tmp_path / "truth.txt", pose(40))
    arguments = ["register", scans[0], far, "--truth", tmp_path / "truth.txt"]
    assert result_of(capsys, *arguments)["error_m"] > 1.0
    result = result_of(capsys, *arguments, "--init", tmp_path / "init.txt")
    assert result["error_m"] < 0.02 and result["error_deg"] < 0.2


def test_options_reach_the_registration(scans, capsys):
    plain = result_of(capsys, "register", *scans[:2])
    given = result_of(
        capsys, "register", *scans[:2], "--no-three-sigma", "--max-dist", "0.5",
        "--overlap-distance", "0.1", "--method", "point_to_point", "--max-iterations", "2",
    )  # fmt: skip
    assert plain["kept"] < given["kept"] == 1.0
    assert given["max_distance_m"] == 0.5 and given["overlap_distance_m"] == 0.1
    assert given["iterations"] == 2 and given["reason"] == "not converged after 2 iterations"


def test_no_voxel_filter_unless_asked(scans, capsys):
    plain = result_of(capsys, "register", *scans[:2], "--no-three-sigma", "--max-dist", "100")
    assert plain["inliers"] == len(room(1))
    thinned = result_of(
        capsys, "register", *scans[:2], "--no-three-sigma", "--max-dist", "100", "--voxel", "2,0.5"
    )
    assert thinned["inliers"] < len(room(1)) / 2


def test_several_sources(scans, tmp_path, capsys):
    for k in (1, 2):
        np.savetxt(tmp_path / f"{k}.txt", pose(k))
    truths = ["--truth", tmp_path / "1.txt", "--truth", tmp_path / "2.txt"]
    found = result_of(capsys, "register", *scans, *truths)
    assert found["target"] == str(scans[0])
    assert [one["source"] for one in found["registrations"]] == [str(path) for path in scans[1:]]
    assert found["frames_per_second"] > 0.0
    # Nothing overlaps on the CPU.
    assert (found["frames_per_second_overlapped"] is None) == (found["backend"] == "cpu")
    for one, path, truth in zip(found["registrations"], scans[1:], truths[1::2], strict=True):
        assert one["error_m"] < 0.02
        alone = result_of(capsys, "register", scans[0], path, "--truth", truth)
        for name in ("T_target_source", "iterations", "inliers", "hessian", "error_m"):
            assert one[name] == alone[name]
        assert set(one) == set(alone) - {"target", "backend_reason"}


def test_one_truth_is_that_of_every_source(scans, tmp_path, capsys):
    np.savetxt(tmp_path / "1.txt", pose(1))
    found = result_of(
        capsys, "register", scans[0], scans[1], scans[1], "--truth", tmp_path / "1.txt"
    )
    assert [one["error_m"] < 0.02 for one in found["registrations"]] == [True, True]


def test_text_for_people(scans, tmp_path, capsys):
    np.savetxt(tmp_path / "1.txt", pose(1))
    json_file = tmp_path / "r.json"
    arguments = ["register", *scans[:2], "--truth", tmp_path / "1.txt", "--json", json_file]
    assert main([*map(str, arguments)]) == 0
    text = capsys.readouterr().out
    result = json.loads(json_file.read_text())
    assert f"converged        yes: {result['reason']} ({result['iterations']} iterations)" in text
    assert f"{result['inliers']}, {100 * result['kept']:.1f} % of the matches" in text
    assert f"{result['error_m']:.4g} m at the source's origin" in text
    assert main(["register", *map(str, scans), "--max-iterations", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["source", "converged"] and len({map(len, lines[:3])}) == 1
    assert [line.split()[:2] for line in lines[1:3]] == [[str(path), "no"] for path in scans[1:]]
    assert lines[3] == f"{scans[1]}: not converged after 1 iterations"
    assert "frames a second" in lines[-1]


def test_what_does_not_converge_is_told_and_status_0(scans, tmp_path, capsys):
    write_points(tmp_path / "far.npy", from_xyz(room(1) + 100.0))
    write_points(tmp_path / "few.npy", from_xyz(np.eye(3)))
    np.save(tmp_path / "nan.npy", np.full((9, 3), np.nan))
    np.save(tmp_path / "huge.npy", np.full((9, 3), 1e30))
    for name, reason in (
        ("far", "no overlap: 0 of"),
        ("few", "3 usable points in the source"),
        ("nan", "0 usable points in the source"),
        ("huge", "0 usable points in the source"),
    ):
        arguments = ["register", scans[0], tmp_path / f"{name}.npy"]
        result = result_of(capsys, *arguments)
        assert result["converged"] is False and reason in result["reason"]
        assert result["rmse_m"] is None and result["overlap"] == 0.0
        assert len(result["timings_ms"]) == 6
        assert main([*map(str, arguments)]) == 0
        assert f"converged        no: {reason}" in capsys.readouterr().out


def test_a_doubtful_result_is_told_on_standard_error(scans, tmp_path, capsys):
    cut = seen(1)
    cut["z"][::3] += 40.0
    write_points(tmp_path / "cut.npy", cut)
    for sources in ([tmp_path / "cut.npy"], [scans[1], tmp_path / "cut.npy"]):
        assert main(["register", *map(str, [scans[0], *sources, "--json", "-"])]) == 0
        captured = capsys.readouterr()
        found = json.loads(captured.out)
        (warning,) = found.get("registrations", [found])[-1]["warnings"]
        # Two thirds are left where they were.
        assert "only 0.6" in warning
        assert captured.err == f"geoaccel register: {tmp_path / 'cut.npy'}: {warning}\n"


def coloured(picture, red, green, blue):
    return np.count_nonzero(np.all(np.abs(picture[..., :3] - [red, green, blue]) < 0.2, axis=2))


@pytest.mark.parametrize("offset", [np.zeros(3), UTM])
def test_plot(tmp_path, capsys, offset):
    for k in range(2):
        points = np.stack([seen(k)[axis] for axis in "xyz"], axis=1)
        np.save(tmp_path / f"{k}.npy", points + offset)
    np.savetxt(tmp_path / "truth.txt", pose(1))
    path = tmp_path / "pair.of.clouds"
    arguments = [tmp_path / "0.npy", tmp_path / "1.npy", "--plot", path]
    for more in ([], ["--truth", tmp_path / "truth.txt", "--voxel", "1,0.5"]):
        assert main(["register", *map(str, [*arguments, *more])]) == 0
        assert path.read_bytes().startswith(b"\x89PNG")
        picture = matplotlib.image.imread(path)
        # Both clouds are seen, in their colours.
        assert coloured(picture, 0.12, 0.47, 0.71) > 5000
        assert coloured(picture, 1.0, 0.5, 0.05) > 5000
        # The curve of the truth's rotation is there where there is a truth.
        assert (coloured(picture, 0.84, 0.15, 0.16) > 100) == bool(more)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_plot_of_nothing_to_align(scans, tmp_path, count):
    np.save(tmp_path / "few.npy", np.vstack([np.eye(3)[:count], [[np.nan] * 3]]))
    for pair in ([scans[0], tmp_path / "few.npy"], [tmp_path / "few.npy"] * 2):
        assert main(["register", *map(str, [*pair, "--plot", tmp_path / "pair.png"])]) == 0
        assert matplotlib.image.imread(tmp_path / "pair.png").std() > 0.0


def las(path, points):
    laspy = pytest.importorskip("laspy")
    header = laspy.LasHeader(point_format=3, version="1.4")
    header.offsets, header.scales = np.floor(points.min(axis=0)), np.full(3, 1e-3)
    data = laspy.LasData(header)
    data.x, data.y, data.z = points.T
    data.write(path)


def comma_separated(path, points):
    np.savetxt(path, points, "%.4f", ",", header="x,y,z", comments="")


@pytest.mark.parametrize(
    ("suffix", "write"),
    [
        ("csv", comma_separated),
        ("xyz", lambda path, points: np.savetxt(path, points, "%.4f")),
        ("las", las),
        ("npy", lambda path, points: np.save(path, points)),
        ("pcd", lambda path, points: write_points(path, from_xyz(points))),
        ("ply", lambda path, points: write_points(path, from_xyz(points))),
    ],
)
def test_utm_coordinates_keep_their_millimetres(tmp_path, capsys, suffix, write):
    for k in range(2):
        points = np.stack([seen(k)[axis] for axis in "xyz"], axis=1).astype(float)
        write(tmp_path / f"{k}.{suffix}", points + UTM)
    result = result_of(capsys, "register", *(tmp_path / f"{k}.{suffix}" for k in range(2)))
    assert result["converged"] and result["rmse_m"] < 0.01
    points = room(5)
    moved = se3.apply(transform_of(result), points + UTM)
    expected = se3.apply(pose(1), points) + UTM
    assert np.linalg.norm(moved - expected, axis=1).max() < 0.01


def test_bad_transforms(scans, tmp_path, capsys):
    file = tmp_path / "t.txt"
    identity = "1 0 0 0 0 1 0 0 0 0 1 0 "
    for text, reason in (
        ("1 2 3", "3 numbers, a transform is 16"),
        ("one", "a transform is 16 numbers"),
        ("2 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1", "no rotation"),
        ("1 0 0 0 0 1 0 0 0 0 -1 0 0 0 0 1", "no rotation"),
        ("1 0 0 nan 0 1 0 0 0 0 1 0 0 0 0 1", "not finite"),
        (identity + "5 6 7 1", "its last row is not 0 0 0 1"),
    ):
        file.write_text(text)
        for option in ("--init", "--truth"):
            assert reason in complaint_of(capsys, "register", *scans[:2], option, file)
    assert "cannot read" in complaint_of(capsys, "register", *scans[:2], "--init", tmp_path / "no")


def test_transforms_as_people_write_them(scans, tmp_path, capsys):
    file = tmp_path / "t.txt"
    few_digits = [f"{value:.3f}" for value in pose(1)[:3].ravel()]
    for text in (" ".join(few_digits), ",".join([*few_digits, "0", "0", "0", "1"])):
        file.write_text(text)
        result = result_of(capsys, "register", *scans[:2], "--init", file, "--truth", file)
        assert result["converged"] and result["error_m"] < 0.02


def test_bad_clouds_are_one_line(scans, tmp_path, capsys):
    (tmp_path / "empty.xyz").write_text("x y z\n")
    (tmp_path / "flat.csv").write_text("x,y,height\n1,2,3\n")
    for name, reason in (
        ("absent.pcd", "No such file"),
        ("empty.xyz", "no points"),
        ("flat.csv", "no z"),
        ("cloud.docx", "unknown kind of file '.docx'"),
    ):
        complaint = complaint_of(capsys, "register", tmp_path / name, scans[1])
        assert name in complaint and reason in complaint
        if name != "huge.npy":
            assert complaint == complaint_of(capsys, "register", *scans, tmp_path / name)


def test_no_place_for_the_picture_is_told_before_the_work(scans, tmp_path, capsys):
    place = tmp_path / "absent" / "pair.png"
    complaint = complaint_of(capsys, "register", tmp_path / "no.bin", scans[1], "--plot", place)
    assert f"cannot write '{place}'" in complaint


def test_wrong_usage(scans, tmp_path, capsys):
    assert "'max_distance' is -1.0, must be 0 to" in usage_error(capsys, *scans, "--max-dist", "-1")
    assert "'voxel' is 'x', must be a number" in usage_error(capsys, *scans, "--voxel", "1,x")
    assert "must be one of point_to_point" in usage_error(capsys, *scans, "--method", "ndt")
    assert "--plot draws one source, not 2" in usage_error(capsys, *scans, "--plot", "x.png")
    truths = ["--truth", "a"] * 3
    assert "given 3 times, must be once or 2 times" in usage_error(capsys, *scans, *truths)
    assert "SOURCE" in usage_error(capsys, scans[0])


def test_help_names_every_parameter(capsys):
    with pytest.raises(SystemExit) as raised:
        main(["register", "--help"])
    text = capsys.readouterr().out
    assert raised.value.code == 0 and "--max-dist" in text
    for declared in RegistrationConfig.parameters():
        assert "--" + declared.name.replace("_", "-") in text
    assert max(map(len, text.splitlines())) <= 100


COMPILED = """
import sys
import numpy as np
from numba.core.registry import CPUDispatcher
from geoaccel_ros.cli.register import warm_up
from geoaccel_ros.registration import RegistrationConfig, Target

def compiled():
    modules = [m for name, m in sys.modules.items() if name.startswith("geoaccel_ros.")]
    functions = {v for m in modules for v in vars(m).values() if isinstance(v, CPUDispatcher)}
    return {(f.py_func.__qualname__, s) for f in functions for s in f.signatures}

for voxel in (), (1.0, 0.5):
    config = RegistrationConfig(method=sys.argv[1], voxel=voxel, threads=2)
    warm_up(config)
    before = compiled()
    for dtype in np.float32, np.float64:
        points = np.random.default_rng(1).normal(0.0, 5.0, (5000, 3)).astype(dtype)
        points[::7] = np.nan
        Target(points, config).register(points)
    assert before and compiled() == before, compiled() - before
"""


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_left_to_compile_when_time_is_taken(method):
    subprocess.run([sys.executable, "-c", COMPILED, method], check=True, timeout=300)


@needs_data
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("kitti_00_094_095", ["--method", "point_to_plane"]),
        ("kitti_00_094_095", ["--method", "gicp"]),
        # Unthinned, the rings on the ground hold matched points back: 0.04 m.
        (
            "kitti_00_094_095",
            ["--method", "point_to_point", "--voxel", "1,0.5,0.1", "--kernel", "huber"],
        ),
        ("gicp_pair", ["--method", "point_to_plane"]),
        ("gicp_pair", ["--method", "gicp"]),
        ("gicp_pair", ["--method", "point_to_point"]),
    ],
)
def test_real_pairs_from_identity(real, capsys, name, options):
    target, source, truth, metres, degrees = real[name]
    result = result_of(capsys, "register", target, source, "--truth", truth, *options)
    assert result["converged"], result["reason"]
    assert result["error_m"] < metres and result["error_deg"] < degrees
    assert result["overlap"] > 0.8 and result["warnings"] == []


@needs_data
@pytest.mark.parametrize("name", ["balm_00", "kitti_00_094_095"])
def test_coarse_to_fine_recovers_what_is_missed_otherwise(real, tmp_path, capsys, name):
    """The first guess is 20 degrees and 1.5 m wrong."""
    target, source, truth, metres, degrees = real[name]
    error = np.eye(4)
    error[:3, :3] = se3.exp_rotation(np.array([0.0, 0.0, np.radians(20.0)]))
    error[:3, 3] = -0.9, 1.2, 0.0
    wrong = np.loadtxt(truth) @ error
    np.savetxt(tmp_path / "init.txt", wrong)
    arguments = ["register", target, source, "--init", tmp_path / "init.txt", "--truth", truth,
                 "--method", "point_to_point"]  # fmt: skip
    missed = result_of(capsys, *arguments)
    assert missed["error_m"] > 3 * metres or missed["error_deg"] > 3 * degrees
    for method in METHODS:
        found = result_of(capsys, *arguments, "--method", method, "--voxel", "1.0,0.5,0.1")
        assert found["converged"], found["reason"]
        assert found["error_m"] < metres and found["error_deg"] < degrees

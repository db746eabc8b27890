"""What the registration benchmark computes beside times."""

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.spatial import cKDTree

from geoaccel_ros.backend import cuda_problem
from geoaccel_ros.benchmark.registration import compare
from geoaccel_ros.benchmark.registration_conditions import Conditions, fixed_iterations
from geoaccel_ros.benchmark.registration_contenders import CONVERGED, THIRTY, TREE, Outcome
from geoaccel_ros.benchmark.registration_devices import CpuDevice
from geoaccel_ros.benchmark.registration_problem import Judge, make_problem, pose_error
from geoaccel_ros.benchmark.registration_sizes import crossover
from geoaccel_ros.benchmark.registration_textbook import (
    brute_force_search,
    cuda_brute_force_search,
    scipy_search,
    textbook_icp,
)
from geoaccel_ros.registration import Target, se3
from geoaccel_ros.registration.synthetic import SyntheticPair


def test_error_of_a_pose_by_hand():
    quarter = np.array([[0.0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]])
    assert pose_error(quarter, quarter) == (0.0, 0.0)
    # Turned by 90 degrees, and sqrt(1 + 4 + 9) m away.
    assert pose_error(quarter, np.eye(4)) == pytest.approx((90.0, np.sqrt(14.0)))
    assert pose_error(np.eye(4), quarter) == pytest.approx((90.0, np.sqrt(14.0)))
    # 2 m beside the truth, whichever way both are turned.
    beside = quarter.copy()
    beside[0, 3] += 2.0
    assert pose_error(beside, quarter) == pytest.approx((0.0, 2.0))


def test_rms_distance_of_matches_by_hand():
    target = np.array([[0.0, 0, 0], [10, 0, 0], [20, 0, 0]])
    # 1 m and 2 m from the nearest, and one beyond 2.5 m.
    source = np.array([[0.0, 1, 0], [10, 2, 0], [20, 2.6, 0]])
    found = Judge(SyntheticPair(target, source, np.eye(4)), threads=1)(np.eye(4))
    assert found["rmse_m"] == pytest.approx(np.sqrt((1 + 4) / 2))


@pytest.mark.parametrize("points", [1_000, 8_000])
def test_the_problem_is_equally_hard_at_all_sizes(points):
    problem = make_problem(points)
    assert problem.target.shape == problem.source.shape == (points, 3)
    back = se3.apply(problem.T_target_source, problem.source)
    assert np.std(back - problem.target) == pytest.approx(0.01, rel=0.05)
    # 200,000 points in 50 m: 1.6 points a cubic metre.
    edge = np.ptp(problem.target, axis=0).max()
    assert points / edge**3 == pytest.approx(1.6, rel=0.05)
    degrees, metres = pose_error(np.eye(4), problem.T_target_source)
    # A corner of the cube of 50 m moves by 2.27 m as it is turned by 3 degrees.
    assert np.radians(degrees) * np.sqrt(0.75) * edge == pytest.approx(2.27, rel=0.05)
    assert metres == pytest.approx(0.2)


def test_times_are_compared_round_by_round_with_ours_of_the_same_task():
    problem = make_problem(100)

    def clock(*milliseconds):
        # The first is the warm-up's.
        remaining = iter([1e6, *milliseconds])
        return lambda: Outcome(next(remaining))

    turned = problem.T_target_source @ se3.exp(np.array([0, 0, 0, 0, 0, np.radians(2.0)]))
    contenders = {
        "geoaccel, cpu": {THIRTY: clock(10, 20, 40), TREE: clock(1, 1, 1)},
        "peer": {
            THIRTY: clock(20, 60, 160),
            CONVERGED["gicp"]: lambda: Outcome(5.0, turned, 7, True),
        },
    }
    rows = compare(problem, contenders, Conditions(100, ("cpu",), 1, 3, None))
    assert [(row["contender"], row["work"], row["method"]) for row in rows] == [
        ("geoaccel, cpu", "30 iterations", "point_to_point"),
        ("peer", "30 iterations", "point_to_point"),
        ("peer", "until converged", "gicp"),
        ("geoaccel, cpu", "tree", ""),
    ]
    assert rows[0]["times_ours"]["median"] == 1.0
    # 2, 3 and 4 times; the ratio of the medians would be 3 as well, its quartiles would not.
    assert rows[1]["times_ours"] == {"median": 3.0, "q1": 2.5, "q3": 3.5}
    assert rows[1]["ms"]["median"] == 60.0 and "rotation_deg" not in rows[1]
    assert (rows[2]["iterations"], rows[2]["converged"]) == (7, True)
    assert rows[2]["rotation_deg"] == pytest.approx(2.0)


def _size_row(backend, points, median):
    return {"contender": f"geoaccel, {backend}", "points": points, "ms": {"median": median}}


def test_crossover():
    cpu = [_size_row("cpu", size, size / 1000) for size in (1000, 2000, 4000, 8000)]
    flat = [_size_row("cuda", size, 3.0) for size in (1000, 2000, 4000, 8000, 16000)]
    assert crossover(cpu + flat) == "The GPU is faster from 4000 points on."
    early = [_size_row("cuda", size, 0.5) for size in (1000, 2000, 4000, 8000)]
    assert crossover(cpu + early) == "The GPU is faster from 1000 points on."
    slow = [_size_row("cuda", size, 9.0) for size in (1000, 2000, 4000, 8000)]
    assert crossover(cpu + slow) == "The GPU is not faster at 8000 points."
    # Faster at 1000 by chance, slower at 4000: from 8000 on.
    uneven = [_size_row("cuda", size, ms) for size, ms in ((1000, 0.9), (4000, 5.0), (8000, 5.0))]
    assert crossover(cpu + uneven) == "The GPU is faster from 8000 points on."


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("queries", [1, 16, 1003])
def test_brute_force_is_exact(threads, queries):
    rng = np.random.default_rng(0)
    target, asked = rng.uniform(-5, 5, (700, 3)), rng.uniform(-6, 6, (queries, 3))
    indices, distances = brute_force_search(target, threads)(asked)
    expected, nearest = cKDTree(target).query(asked)
    np.testing.assert_array_equal(indices, nearest)
    np.testing.assert_allclose(distances, expected, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(cuda_problem() is not None, reason="needs an NVIDIA GPU")
def test_brute_force_on_the_gpu_is_exact():
    rng = np.random.default_rng(0)
    target, asked = rng.uniform(-5, 5, (700, 3)), rng.uniform(-6, 6, (1003, 3))
    indices, distances = cuda_brute_force_search(target)(asked)
    expected, nearest = cKDTree(target).query(asked)
    np.testing.assert_array_equal(indices, nearest)
    np.testing.assert_allclose(distances, expected, atol=1e-5)


def test_the_textbook_reaches_the_pose_that_we_reach():
    problem = make_problem(3000)
    found = Target(problem.target, fixed_iterations("cpu", 1)).register(problem.source)
    assert found.iterations == 30
    textbook = textbook_icp(problem, scipy_search(problem.target, 1), 30)
    # Both at the same fixed point; float32 coordinates of 6 m are rounded by 5e-7 m.
    np.testing.assert_allclose(found.T_target_source, textbook, atol=1e-6)


def test_queries_along_the_curve_are_the_same_points():
    problem = make_problem(500)
    device = CpuDevice(1)
    ordered = device.along_curve(problem.source, device.build(problem.target))
    assert len(ordered) == 500
    distances, indices = cKDTree(problem.source).query(ordered)
    # Through float32.
    assert distances.max() < 1e-5 and len(set(indices)) == 500


def test_sweep_without_mujoco_opencl_and_ros(tmp_path):
    code = """
import sys
sys.modules.update(dict.fromkeys(("mujoco", "pyopencl", "rclpy", "rosbags", "zstandard")))
from geoaccel_ros.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
    arguments = (
        "bench registration --sweep --backend cpu --points 1500 --baseline-points 100 --json -"
    )
    arguments += f" --largest 3000 --repetitions 1 --baseline-repetitions 1 --output {tmp_path}"
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments.split()],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    content = json.loads(result.stdout)
    tables = {table["title"].split(":")[0]: table for table in content["tables"]}
    leaves = tables["Leaf size"]["rows"]
    # ceil(log2(1500 / leaf size)).
    assert [(row["leaf_size"], row["depth"]) for row in leaves] == [
        (1, 11), (8, 8), (16, 7), (32, 6), (64, 5),
    ]  # fmt: skip
    steps = tables["Errors by iteration, against the truth"]["rows"]
    assert [step["iteration"] for step in steps] == [*range(31)]
    assert steps[0]["cpu point_to_point m"] == pytest.approx(0.2)
    for method in ("point_to_point", "point_to_plane", "gicp"):
        assert steps[30][f"cpu {method} deg"] < 0.02
    if cuda_problem():
        assert "Left out: " in tables["Tree on the GPU"]["note"]
        assert "The GPU is left out: " in tables["Sizes, on each backend"]["note"]
    assert len({*content["images"]}) == len([*tmp_path.glob("*.png")]) >= 6

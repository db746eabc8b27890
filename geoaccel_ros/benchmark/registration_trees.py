"""Sweeps over trees: leaf sizes, rules for the axis, and where they are built."""

from collections.abc import Callable

import numpy as np

from geoaccel_ros.backend import cuda_problem
from geoaccel_ros.benchmark.interleaving import Stopwatch, interleave, spread
from geoaccel_ros.benchmark.pictures import draw_bars, draw_times
from geoaccel_ros.benchmark.registration_conditions import (
    ITERATIONS,
    Conditions,
    Part,
    fixed_iterations,
)
from geoaccel_ros.benchmark.registration_devices import (
    CpuDevice,
    CudaDevice,
    Device,
    make_device,
)
from geoaccel_ros.benchmark.registration_problem import MAX_DISTANCE, make_problem
from geoaccel_ros.benchmark.registration_sizes import SIZES
from geoaccel_ros.benchmark.report import Table
from geoaccel_ros.registration import Target

_LEAF_SIZES = (1, 8, 16, 32, 64)
# A facade and a rail, metres, both as thick as a lidar's noise.
_WALL = (20.0, 5.0)
_LINE = 100.0
_NOISE = 0.01
# How far from the points of the wall and the line they are asked for.
_OFFSET = 0.05


def leaf_sizes(conditions: Conditions) -> Part:
    """Leaves of 1 to 64 points: what the tree, a pass and a registration take."""
    problem = make_problem(conditions.points)
    depths, contenders = {}, {}
    for backend in conditions.backends:
        device = make_device(backend, conditions.threads)
        for leaf_size in _LEAF_SIZES:
            depths[backend, leaf_size] = device.build(problem.target, leaf_size=leaf_size).depth
            config = fixed_iterations(backend, conditions.threads, leaf_size=leaf_size)
            search = _build_and_search(device, problem.target, problem.source, leaf_size=leaf_size)

            def run(search=search, config=config) -> tuple[float, float, float]:
                total = Stopwatch()
                with total:
                    Target(problem.target, config).register(problem.source)
                return *search(), total.milliseconds

            contenders[backend, leaf_size] = run
    times = interleave(contenders, conditions.repetitions)
    rows = [
        {
            "contender": f"geoaccel, {backend}",
            "leaf_size": leaf_size,
            "depth": depths[backend, leaf_size],
            "build_ms": spread(build),
            "pass_ms": spread(search),
            "total_ms": spread(total),
        }
        for (backend, leaf_size), (build, search, total) in _columns(times)
    ]
    images = conditions.picture("leaf_size")
    for image in images:
        lines = [
            {
                "contender": f"{row['contender']}: {stage}",
                "leaf_size": row["leaf_size"],
                "ms": row[f"{stage}_ms"],
            }
            for stage in ("build", "pass", "total")
            for row in rows
        ]
        draw_times(image, lines, "leaf_size")
    note = (
        f"{conditions.points} points. A pass finds the nearest point of each source point once; "
        f"the total is of {ITERATIONS} iterations, tree and copies included."
    )
    return Part(Table("Leaf size", rows, note), images)


def axis_rules(conditions: Conditions) -> Part:
    """Splits across the axis of the largest spread, or in turn, on a wall and a line."""
    rng = np.random.default_rng(2)
    space = make_problem(conditions.points)
    thin = _wall_and_line(conditions.points, rng)
    clouds = {
        "wall and line": (thin, thin + rng.normal(0.0, _OFFSET, thin.shape)),
        "uniform": (space.target, space.source),
    }
    depths, contenders = {}, {}
    for backend in conditions.backends:
        device = make_device(backend, conditions.threads)
        for cloud, (points, queries) in clouds.items():
            for axis in ("spread", "cyclic"):
                key = backend, cloud, axis
                depths[key] = device.build(points, axis=axis).depth
                contenders[key] = _build_and_search(device, points, queries, axis=axis)
    times = interleave(contenders, conditions.repetitions)
    rows = [
        {
            "contender": f"geoaccel, {backend}",
            "cloud": cloud,
            "axis": axis,
            "depth": depths[backend, cloud, axis],
            "build_ms": spread(build),
            "pass_ms": spread(search),
        }
        for (backend, cloud, axis), (build, search) in _columns(times)
    ]
    images = conditions.picture("axis")
    for image in images:
        bars = {
            f"{row['contender']}: {row['cloud']}, {row['axis']}": row["pass_ms"] for row in rows
        }
        draw_bars(image, bars, "a pass [ms]")
    note = (
        f"{conditions.points} points. Wall and line: half on {_WALL[0]:g} m by {_WALL[1]:g} m, "
        f"half along {_LINE:g} m; the queries lie {_OFFSET:g} m off along each axis."
    )
    return Part(Table("Axis of the splits: of the largest spread, or in turn", rows, note), images)


def builds(conditions: Conditions, largest: int) -> Part:
    """Build on the GPU, or on the CPU and copy the tree there."""
    title = "Tree on the GPU: built there, or on the CPU and copied"
    problem = cuda_problem()
    if problem:
        return Part(Table(title, [], f"Left out: {problem}."))
    cpu, cuda = CpuDevice(conditions.threads), CudaDevice()
    rows = []
    for size in (size for size in SIZES if size <= largest):
        points = make_problem(size).target

        def there(points=points) -> float:
            stopwatch = Stopwatch()
            with stopwatch:
                cuda.build(points)
            return stopwatch.milliseconds

        def copied(points=points) -> tuple[float, float]:
            building, copying = Stopwatch(), Stopwatch()
            with building:
                tree = cpu.build(points)
            with copying:
                cuda.upload([*tree.nodes, tree.order])
            return building.milliseconds, copying.milliseconds

        times = interleave({"there": there, "copied": copied}, conditions.repetitions)
        building, copying = times["copied"].T
        rows += [
            {"contender": "built on the GPU", "points": size, "ms": spread(times["there"])},
            {
                "contender": "built on the CPU and copied",
                "points": size,
                "ms": spread(building + copying),
                "build_ms": spread(building),
                "copy_ms": spread(copying),
            },
        ]
    images = conditions.picture("build")
    for image in images:
        draw_times(image, rows, "points")
    return Part(Table(title, rows, "The GPU's time includes the copy of the points."), images)


def _build_and_search(
    device: Device, points: np.ndarray, queries: np.ndarray, **tree_options
) -> Callable[[], tuple[float, float]]:
    """Return a run that gives what a tree and one pass of the queries take."""
    ordered = device.along_curve(queries, device.build(points))

    def run() -> tuple[float, float]:
        building, searching = Stopwatch(), Stopwatch()
        with building:
            tree = device.build(points, **tree_options)
        with searching:
            device.search(tree, ordered, MAX_DISTANCE)
        return building.milliseconds, searching.milliseconds

    return run


def _wall_and_line(count: int, rng: np.random.Generator) -> np.ndarray:
    wall = np.zeros((count // 2, 3))
    wall[:, 1:] = rng.uniform(0.0, 1.0, (len(wall), 2)) * _WALL
    line = np.zeros((count - len(wall), 3))
    line[:, 0] = rng.uniform(0.0, _LINE, len(line))
    points = np.vstack([wall, line])
    return points + rng.normal(0.0, _NOISE, points.shape)


def _columns(times: dict) -> list[tuple]:
    return [(key, measured.T) for key, measured in times.items()]

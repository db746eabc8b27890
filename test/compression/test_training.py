"""Training of the tables: the clouds that it takes, and what a sensor that is left out changes."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from geoaccel_ros.compression import attributes, octree, scan
from geoaccel_ros.pointcloud.files import from_xyz, read_points, write_points

TOOLS = Path(__file__).resolve().parents[2] / "tools"
SENSORS = ("a", "b", "c")


def tool(name):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def counts():
    """Return a maker of counts of contexts, other ones for each sensor."""
    rng = np.random.default_rng(2)

    def of(contexts):
        return {sensor: rng.integers(0, 2000, (contexts, 2)).astype(float) for sensor in SENSORS}

    return of


def test_a_table_of_fields_is_that_of_the_other_sensors(counts):
    table_of = tool("train_attribute_table").table_of
    of_all = counts(attributes.CONTEXTS)
    without = {sensor: each for sensor, each in of_all.items() if sensor != "b"}
    np.testing.assert_array_equal(table_of(of_all, "b"), table_of(without))
    assert (table_of(of_all, "b") != table_of(of_all)).mean() > 0.5


def test_tables_of_the_scan_mode_are_those_of_the_other_sensors(counts):
    tables = tool("train_scan_tables").tables
    of_all = {scan.LINEAR: counts(scan.LINEAR_CONTEXTS), scan.SPIN: counts(scan.SPIN_CONTEXTS)}
    without = {
        model: {sensor: each for sensor, each in of_model.items() if sensor != "b"}
        for model, of_model in of_all.items()
    }
    for model, table in tables(of_all, "b").items():
        np.testing.assert_array_equal(table, tables(without)[model])
        assert (table != tables(of_all)[model]).mean() > 0.5


def test_tables_of_the_octree_are_those_of_the_other_sensors(counts, tmp_path):
    trainer = tool("train_octree_tables")
    occupancy, multiplicity = (
        counts(contexts) for contexts in (octree.OCCUPANCY_CONTEXTS, octree.MULTIPLICITY_CONTEXTS)
    )
    of_all = {s: [(0, occupancy[s], multiplicity[s])] for s in SENSORS}
    trainer.write(tmp_path / "b", of_all, "b")
    del of_all["b"]
    for name, table in zip(("occupancy", "multiplicity"), trainer.tables(of_all), strict=True):
        assert (tmp_path / "b" / f"octree_{name}.bin").read_bytes() == table.tobytes()


def test_clouds_are_sorted_by_sensor_without_points_that_are_no_returns(tmp_path):
    (tmp_path / "data" / "kitti_any").mkdir(parents=True)
    (tmp_path / "data" / "unknown").mkdir()
    xyz = np.array([[1, 2, 3], [0, 0, 0], [4, np.nan, 6], [7, 8, 9]], np.float32)
    for folder in ("kitti_any", "unknown"):
        path = tmp_path / "data" / folder / "0.npy"
        write_points(path, from_xyz(xyz, np.arange(4, dtype=np.float32)))
    command = [sys.executable, TOOLS / "sort_clouds_by_sensor.py", tmp_path / "data"]
    subprocess.run([*command, tmp_path / "out"], check=True, capture_output=True)
    (found,) = (tmp_path / "out").glob("*/*")
    assert found.relative_to(tmp_path / "out") == Path("hdl64/kitti_any_0.npy")
    assert [*read_points(found)["intensity"]] == [0, 3]
    # Where a stage has no clouds of a sensor, its tables without it are wanted all the same.
    assert (tmp_path / "out" / "sick").is_dir()

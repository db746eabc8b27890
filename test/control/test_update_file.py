"""The file of an update holds what the update was."""

import json

import numpy as np
import pytest

from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.update_file import read_update, write_update


def test_an_update_can_be_repeated_from_its_file(tmp_path):
    config = MppiConfig(
        samples=256, horizon=20, dt=0.02, sigma=(5.0,), command_delay=0.0, backend="cpu"
    )
    engine = Mppi(config, "cartpole")
    state, goal = np.array([0.1, 3.0, 0.0, 0.2]), np.array([0.5])
    engine.update(state, goal, 0.98)
    update = engine.update(state, goal, 1.0)
    path = tmp_path / "update.npz"
    assert write_update(path, engine, update, state, goal, 1.0, config.dt, config) == 256

    file = read_update(path)
    assert set(file) == set(np.load(path).files)
    assert str(file["system"]) == "cartpole"
    assert file["state_names"].tolist() == ["x", "theta", "v", "w"]
    np.testing.assert_array_equal(file["state"], state)
    np.testing.assert_array_equal(file["goal"], goal)
    assert float(file["stamp"]) == 1.0
    controls, weights = file["controls"], file["weights"]
    assert controls.shape == (256, 20, 1)
    assert (np.diff(weights) <= 0.0).all() and weights.sum() == pytest.approx(1.0)
    # The plan is the mean of the samples, unless the best of them is so much better.
    mean = np.tensordot(weights, controls, 1)
    best = controls[file["costs"].argmin()]
    plan = file["plan_controls"]
    assert min(np.abs(plan - mean).max(), np.abs(plan - best).max()) < 1e-4
    np.testing.assert_array_equal(file["command"], plan[0])
    # The trajectories are where the controls lead.
    p = engine.system.pack(engine.system.parameters(), np.float64)
    x = tuple(state)
    for t in range(20):
        x = engine.system.step(x, tuple(controls[3, t]), p, 0.02)
    np.testing.assert_allclose(file["trajectories"][3, -1], x, atol=1e-3)
    assert file["trajectories"].shape == (200, 21, 4)
    assert dict(zip(file["term_names"], file["terms"], strict=True)) == pytest.approx(update.terms)
    assert MppiConfig.from_mapping(json.loads(str(file["configuration"]))) == config


def test_without_a_plan_there_is_nothing_to_write(tmp_path):
    config = MppiConfig(samples=64, backend="cpu")
    engine = Mppi(config)
    state, goal = np.full(5, np.nan), np.zeros(2)
    update = engine.update(state, goal, 1.0)
    path = tmp_path / "update.npz"
    with pytest.raises(ValueError, match="no plan: state .* is not 5 finite numbers"):
        write_update(path, engine, update, state, goal, 1.0, config.dt, config)
    assert not path.exists()


def test_what_is_no_update_is_refused(tmp_path):
    text, arrays, array = (tmp_path / name for name in ("a.npz", "b.npz", "c.npz"))
    text.write_text("no update")
    np.savez(arrays, costs=np.zeros(3))
    with array.open("wb") as file:
        np.save(file, np.zeros(3))
    for path, complaint in (
        (text, "no NPZ file"),
        (arrays, "no update of a controller: it has no system, state_names"),
        (array, "no NPZ file"),
    ):
        with pytest.raises(ValueError, match=complaint):
            read_update(path)
    with pytest.raises(FileNotFoundError):
        read_update(tmp_path / "absent.npz")

import numpy as np
import pytest
from yards import STEP, Plant

from geoaccel_ros.control.delay import predict
from geoaccel_ros.control.systems import load_system

SYSTEM = load_system("diff_drive")
P = SYSTEM.pack(SYSTEM.parameters(v_lag=0.12, w_lag=0.08), np.float64)


def test_without_time_the_state_is_itself():
    state = np.array([1.0, 2.0, 3.0, 0.4, 0.5])
    commands = [(0.0, np.array([1.0, 1.0]))]
    for until in (5.0, 4.0):
        np.testing.assert_array_equal(predict(SYSTEM, P, state, 5.0, commands, until), state)


def test_follows_a_plant_through_changing_commands():
    plant = Plant(np.array([1.0, -2.0, 3.0]), dead_time=0.0)
    rng = np.random.default_rng(1)
    commands, measured = [], None
    for i in range(400):
        if i % 10 == 0:
            u = rng.uniform((0.2, -1.0), (1.0, 1.0))
            commands.append((plant.now, u))
            plant.command(u)
        if i == 300:
            measured = (plant.now, np.array([*plant.pose, plant.v, plant.w]))
        plant.advance()
    truth = np.array([*plant.pose, plant.v, plant.w])
    stamp, state = measured
    found = predict(SYSTEM, P, state, stamp, commands, plant.now)
    assert plant.now - stamp == pytest.approx(100 * STEP)
    # The plant limits its acceleration at every instant, the model over a step of 50 ms.
    np.testing.assert_allclose(found, truth, atol=0.05)
    assert np.abs(found - state).max() > 0.2


def test_commands_hold_from_their_instant_to_the_next():
    state = np.zeros(5)
    commands = [(-9.0, np.array([1.0, 0.0])), (0.2, np.array([0.0, 0.0]))]
    p = SYSTEM.pack(SYSTEM.parameters(v_lag=0.001, v_acceleration=1e4), np.float64)
    # Without lag: 1 m/s for 0.2 s, then it stands (up to half of the first and the last step).
    assert predict(SYSTEM, p, state, 0.0, commands, 1.0)[0] == pytest.approx(0.2, abs=0.026)


def test_without_commands_the_robot_comes_to_rest():
    found = predict(SYSTEM, P, np.array([0.0, 0.0, 0.0, 1.0, 0.0]), 0.0, [], 3.0)
    assert 0.1 < found[0] < 0.6 and abs(found[3]) < 1e-3

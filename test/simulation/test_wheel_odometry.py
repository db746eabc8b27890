"""Wheel odometry: arcs worked out by hand, then a drive against the truth."""

import numpy as np
import pytest

from geoaccel_ros.simulation.events import JointState, TruthState, WheelOdometry
from geoaccel_ros.simulation.wheel_odometry import WheelOdometer
from geoaccel_ros.simulation.world import Simulation, SimulationConfig

# Of the bundled robot, m.
RADIUS, SEPARATION = 0.1, 0.4


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def drive(simulation, seconds, v, w):
    events = []
    for _ in range(round(seconds / (1e-9 * simulation.timestep_ns))):
        simulation.command(v, w)
        events += simulation.step()
    return events


def test_both_wheels_alike_are_a_straight_line():
    odometer = WheelOdometer(RADIUS, SEPARATION)
    odometer.update(30.0, 30.0)
    odometer.update(20.0, 20.0)
    assert (odometer.x, odometer.y, odometer.yaw) == pytest.approx((2.0, 0.0, 0.0))


def test_wheels_against_each_other_turn_on_the_spot():
    odometer = WheelOdometer(RADIUS, SEPARATION)
    # 0.2 m back on the left and ahead on the right, 0.2 m from the middle each.
    odometer.update(-2.0, 2.0)
    assert (odometer.x, odometer.y, odometer.yaw) == pytest.approx((0.0, 0.0, 1.0))


@pytest.mark.parametrize("parts", [(1.0,), (0.3, 1.0), np.linspace(0.01, 1.0, 100)])
def test_a_quarter_of_a_circle_in_any_number_of_parts(parts):
    odometer = WheelOdometer(RADIUS, SEPARATION)
    odometer.reset(5.0, -3.0)
    # To the left around (0, 1): the wheels are 0.8 and 1.2 m from there.
    left, right = 0.8 * np.pi / 2 / RADIUS, 1.2 * np.pi / 2 / RADIUS
    for part in parts:
        odometer.update(5.0 + part * left, -3.0 + part * right)
    assert (odometer.x, odometer.y, odometer.yaw) == pytest.approx((1.0, 1.0, np.pi / 2))
    np.testing.assert_allclose(
        odometer.pose, [[0, -1, 0, 1], [1, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]], atol=1e-12
    )


def test_over_a_drive_it_follows_the_truth_and_drifts():
    sim = Simulation(SimulationConfig(lidar_site="", start_x=-2.0, start_y=-9.5, start_yaw=0.3))
    events = []
    for v, w in ((0.8, 0.0), (0.8, 0.5), (0.5, -0.8), (0.0, 1.0), (0.8, 0.0)):
        events += drive(sim, 2.0, v, w)
    assert sim.contacts == 0
    wheels, truths = of(WheelOdometry, events), of(TruthState, events)
    assert [w.stamp_ns for w in wheels] == [t.stamp_ns for t in truths] and len(wheels) == 500
    T_start_world = np.linalg.inv(sim.T_world_start)
    error = np.array(
        [
            w.T_odom_base[:2, 3] - (T_start_world @ t.T_world_base)[:2, 3]
            for w, t in zip(wheels, truths, strict=True)
        ]
    )
    # 5.8 m driven, 3.4 rad turned to and fro: what wheels of this robot slip.
    assert 1e-4 < np.linalg.norm(error, axis=1).max() < 0.1
    turned = T_start_world @ truths[-1].T_world_base
    yaw = np.arctan2(turned[1, 0], turned[0, 0])
    assert np.arctan2(*wheels[-1].T_odom_base[1::-1, 0]) == pytest.approx(yaw, abs=0.05)
    # And by what was commanded: all but the ways in which the speeds settle.
    assert wheels[-1].linear == pytest.approx(0.8, abs=0.01)
    assert wheels[499 - 100].angular == pytest.approx(1.0, abs=0.02)
    for w, t in zip(wheels[90::100], truths[90::100], strict=True):
        assert w.linear == pytest.approx(t.linear[0], abs=0.02)
        assert w.angular == pytest.approx(t.angular[2], abs=0.05)


def test_it_begins_anew_at_a_reset():
    sim = Simulation(SimulationConfig(lidar_site=""))
    assert of(WheelOdometry, drive(sim, 1.0, 0.5, 0.0))[-1].T_odom_base[0, 3] > 0.4
    sim.reset()
    (start,) = of(WheelOdometry, sim.state())
    np.testing.assert_allclose(start.T_odom_base, np.eye(4), atol=1e-12)
    # Some ways are rolled back while the reset robot settles, in micrometres.
    later = of(WheelOdometry, drive(sim, 0.5, 0.0, 0.0))[-1]
    np.testing.assert_allclose(later.T_odom_base, np.eye(4), atol=1e-3)


def test_only_robots_with_wheels_have_it():
    sim = Simulation(
        SimulationConfig(
            model="cartpole", base_body="", lidar_site="", imu_site="", left_wheel="",
            right_wheel="", joint_rate=50.0,
        )
    )  # fmt: skip
    events = [event for _ in range(100) for event in sim.step()]
    assert of(JointState, events) and not of(WheelOdometry, events)

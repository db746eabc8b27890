"""mppi_controller and mujoco_simulation in closed loop over DDS: the acceptance's runs, short ones.

They assert by themselves what must hold; `make acceptance` makes them with all seeds.
"""

import pytest
from acceptance import cartpole, drive_faults, faults, quadrotor, quadruped


def test_cartpole_swings_up_and_stands_two_pushes(nodes, probe):
    seen = cartpole.swing_up_and_stand(nodes, probe, seed=0, hold=10.0)
    assert seen["still"] < 0.05


def test_quadrotor_hovers_and_flies_to_a_goal(nodes, probe):
    seen = quadrotor.hover_and_fly(nodes, probe, seed=0, waypoints=quadrotor.WAYPOINTS[:1])
    assert 5.0 < seen["tilt_deg"]


def test_quadruped_stands_and_walks(nodes, probe):
    seen = quadruped.stand_and_walk(nodes, probe, seed=0, way=0.7)
    assert seen["sideways_m"] < 0.3


@pytest.mark.parametrize("delay", [0.05, 0.1])
def test_commands_that_arrive_late_are_predicted(nodes, probe, delay):
    seen = faults.delayed(nodes, probe, seed=0, delay=delay)
    assert seen["still"] < 0.05


@pytest.mark.parametrize(
    "fault",
    [
        faults.killed,
        faults.paused,
        faults.reset,
        faults.cut,
        faults.clock_stops,
        faults.not_finite,
    ],
    ids=lambda fault: fault.__name__,
)
def test_a_fault_is_survived(nodes, probe, fault):
    seen = fault(nodes, probe, seed=0)
    assert seen["recovery_s"] < faults.RECOVERY


def test_a_robot_on_its_way_is_stopped_and_drives_on(nodes, probe):
    seen = drive_faults.drives_on(nodes, probe, seed=0)
    assert seen["again_s"] < drive_faults.RECOVERY

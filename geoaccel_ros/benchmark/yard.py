"""Input that comes with the package: a drive through the simulated yard."""

from geoaccel_ros.benchmark.errors import BenchmarkError
from geoaccel_ros.simulation.events import Scan, TruthState
from geoaccel_ros.simulation.world import Simulation, SimulationConfig


def drive(seconds: float, v: float = 1.0, w: float = 0.8) -> tuple[list[Scan], list[TruthState]]:
    """Return the scans and the true poses of a robot that drives a circle in the yard.

    Parameters
    ----------
    seconds : float
        Simulated time.
    v, w : float
        Speed in m/s and turning rate in rad/s. The default circle, of radius 1.25 m, is free of
        obstacles; one of 1.7 m or more is not.

    Raises
    ------
    BenchmarkError
        If the time is too short for a scan.
    """
    simulation = Simulation(SimulationConfig(realtime_factor=0.0, seed=1))
    scans, truth = [], []
    while simulation.time_ns < seconds * 1e9:
        simulation.command(v, w)
        for event in simulation.step():
            if isinstance(event, Scan):
                scans.append(event)
            elif isinstance(event, TruthState):
                truth.append(event)
    if not scans:
        raise BenchmarkError(f"no scan is complete after {seconds:g} s: drive for a second or more")
    return scans, truth

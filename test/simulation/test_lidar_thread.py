"""Rays on a thread of their own: the same points, and physics that does not wait for them."""

import threading

import mujoco
import numpy as np
import pytest

from geoaccel_ros.simulation.events import Scan
from geoaccel_ros.simulation.lidar import LidarConfig, SpinningLidar
from geoaccel_ros.simulation.lidar_thread import LidarThread
from geoaccel_ros.simulation.world import Simulation, SimulationConfig

# Seconds after which something hangs; nothing takes a tenth of it.
PATIENCE = 30.0

# Everything that moves by itself: a rolling ball, a swinging plate of mesh, a cloth.
MOVING = """
<mujoco>
  <option timestep="0.005"/>
  <asset>
    <mesh name="wedge" vertex="0 -1 -1  0 1 -1  0 0 1  0.5 0 0"/>
  </asset>
  <worldbody>
    <geom type="plane" size="0 0 1"/>
    <body name="ball" pos="3 0 0.5"><freejoint/><geom type="sphere" size="0.5"/></body>
    <body name="plate" pos="-3 0 2"><joint axis="0 1 0" pos="0 0 1"/>
      <geom type="mesh" mesh="wedge"/></body>
    <flexcomp name="cloth" type="grid" count="5 5 1" spacing="0.3 0.3 0.3" pos="0 3 1.5" mass="1"
      radius="0.02" euler="90 0 0" dim="2"><edge equality="true"/></flexcomp>
  </worldbody>
</mujoco>
"""


class Rig:
    """A lidar that stands in a world that moves."""

    def __init__(self, **values):
        self.model = mujoco.MjModel.from_xml_string(MOVING)
        config = LidarConfig(**{"lidar_rings": 4, "lidar_columns": 200, **values})
        self.lidar = SpinningLidar(self.model, config, np.empty(0, int), seed=2)
        self.data = mujoco.MjData(self.model)
        self.data.qvel[:2] = -1.0, 0.5
        self.data.joint(1).qvel[0] = 1.0
        self.pose = np.eye(4)
        self.pose[2, 3] = 1.0
        self.steps = 0

    def step(self, lidar):
        start = round(self.steps * 5e6)
        self.steps += 1
        mujoco.mj_step(self.model, self.data)
        mujoco.mj_forward(self.model, self.data)
        return lidar.advance(self.data, start, start + 5_000_000, self.pose, self.pose)


def test_the_points_are_those_of_rays_cast_at_once():
    here, beside = Rig(), Rig()
    expected = [scan for _ in range(105) for scan in here.step(here.lidar)]
    thread = LidarThread(beside.model, beside.lidar)
    scans = [scan for _ in range(105) for scan in beside.step(thread)]
    assert thread.stop() is beside.lidar
    scans += thread.complete()
    assert [scan.stamp_ns for scan in scans] == [
        0,
        100_000_000,
        200_000_000,
        300_000_000,
        400_000_000,
    ]
    for a, b in zip(expected, scans, strict=True):
        assert a.stamp_ns == b.stamp_ns and a.points.tobytes() == b.points.tobytes()
    # The world did move.
    assert expected[0].points.tobytes() != expected[4].points.tobytes()


class Gate(SpinningLidar):
    """A lidar whose rays take until the gate is opened."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.open = threading.Event()
        self.error = None

    def advance(self, *arguments):
        assert self.open.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return super().advance(*arguments)


@pytest.fixture
def gated():
    rig = Rig()
    rig.lidar = Gate(rig.model, LidarConfig(lidar_rings=1, lidar_columns=8), np.empty(0, int), 0)
    return rig


def test_physics_goes_on_while_rays_take_long_and_waits_before_it_is_too_far_ahead(gated):
    thread = LidarThread(gated.model, gated.lidar)
    # 0.2 s are 40 steps; one more is in work.
    for _ in range(41):
        assert gated.step(thread) == []
    scans = []
    more = threading.Thread(target=lambda: scans.extend(gated.step(thread)))
    more.start()
    more.join(0.2)
    assert more.is_alive()
    gated.lidar.open.set()
    more.join(PATIENCE)
    assert not more.is_alive()
    thread.stop()
    # Nothing was lost.
    assert len(scans) + len(thread.complete()) == 2


def test_what_the_rays_raise_is_told_and_nobody_waits_for_ever(gated):
    thread = LidarThread(gated.model, gated.lidar)
    gated.step(thread)
    gated.lidar.error = MemoryError("no rays")
    gated.lidar.open.set()
    with pytest.raises(MemoryError, match="no rays"):
        for _ in range(1000):
            gated.step(thread)
    for _ in range(100):
        with pytest.raises(MemoryError):
            gated.step(thread)
    thread.stop()


def test_a_restart_drops_all_that_is_under_way(gated):
    thread = LidarThread(gated.model, gated.lidar)
    for _ in range(30):
        gated.step(thread)
    gated.lidar.open.set()
    thread.restart(150_000_000)
    assert thread.complete() == []
    scans = [scan for _ in range(20) for scan in gated.step(thread)]
    thread.stop()
    scans += thread.complete()
    assert [scan.stamp_ns for scan in scans] == [150_000_000]


def test_a_simulation_tells_the_same_scans_either_way():
    def scans(beside):
        config = {"lidar_rings": 4, "lidar_columns": 128, "realtime_factor": 0.0}
        sim = Simulation(SimulationConfig(**config))
        own = sim.lidar
        if beside:
            sim.lidar = LidarThread(sim.model, own)
        told = []
        for _ in range(110):
            sim.command(0.8, 0.5)
            told += sim.step()
        if beside:
            assert sim.lidar.stop() is own
            told += sim.lidar.complete()
        return [(e.stamp_ns, e.points.tobytes()) for e in told if type(e) is Scan]

    assert len(scans(True)) == 5
    assert scans(True) == scans(False)

"""Pacing on a clock made here: no test waits, none depends on the machine's speed."""

import pytest

from geoaccel_ros.simulation.pacing import Pacer


class Wall:
    """A wall clock that stands still unless told; its sleep oversleeps by ``late`` seconds."""

    def __init__(self, late=0.0):
        self.now = 100.0
        self.late = late
        self.slept = 0

    def clock(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds + self.late
        self.slept += 1


def run(wall, factor, steps, cost=0.001, dt=0.005):
    pacer = Pacer(factor, wall.clock, wall.sleep)
    pacer.start(0.0)
    for step in range(1, steps + 1):
        pacer.wait(step * dt)
        wall.now += cost
    return pacer


@pytest.mark.parametrize("factor", [0.25, 1.0, 4.0])
def test_simulated_time_follows_the_wall_clock(factor):
    wall = Wall()
    pacer = run(wall, factor, 1000)
    # The last step's own cost comes after its deadline.
    assert wall.now - 100 == pytest.approx(5.0 / factor + 0.001, abs=1e-9)
    assert pacer.measured_factor == pytest.approx(factor, rel=1e-3)
    assert pacer.lag == 0


def test_late_sleeps_do_not_add_up():
    wall = Wall(late=0.002)
    run(wall, 1.0, 1000)
    assert wall.now - 100 == pytest.approx(5.0, abs=0.004)


def test_factor_0_never_sleeps_and_still_measures():
    wall = Wall()
    pacer = run(wall, 0.0, 1000)
    assert wall.slept == 0
    assert pacer.measured_factor == pytest.approx(5.0, rel=0.01)


def test_a_simulation_too_slow_gives_up_the_lag_and_tells():
    wall = Wall()
    pacer = run(wall, 1.0, 1000, cost=0.01)
    assert pacer.measured_factor == pytest.approx(0.5, rel=0.01)
    # 10 s of wall time for 5 s: what is not yet given up is less than the allowance.
    assert pacer.lag == pytest.approx(5.0, abs=0.11)


def test_after_a_hiccup_the_pace_is_the_same_and_nothing_is_caught_up():
    wall = Wall()
    pacer = run(wall, 1.0, 100)
    wall.now += 3.0
    before = wall.now
    for step in range(101, 201):
        pacer.wait(step * 0.005)
    assert pacer.lag == pytest.approx(3.0, abs=0.01)
    assert wall.now - before == pytest.approx(0.5, abs=0.01)


def test_a_short_hiccup_is_caught_up():
    wall = Wall()
    pacer = run(wall, 1.0, 100)
    wall.now += 0.08
    for step in range(101, 201):
        pacer.wait(step * 0.005)
    assert pacer.lag == 0
    assert wall.now - 100 == pytest.approx(1.0, abs=1e-9)


def test_a_pause_is_no_lag():
    wall = Wall()
    pacer = run(wall, 1.0, 100)
    wall.now += 60.0
    pacer.start(0.5)
    for step in range(101, 501):
        pacer.wait(step * 0.005)
    assert pacer.lag == 0
    assert pacer.measured_factor == pytest.approx(1.0, rel=1e-6)


def test_the_measurement_forgets_what_is_older_than_its_window():
    wall = Wall()
    pacer = run(wall, 0.0, 1000, cost=0.05)
    for step in range(1001, 2001):
        pacer.wait(step * 0.005)
        wall.now += 0.0025
    assert pacer.measured_factor == pytest.approx(2.0, rel=0.01)


def test_nothing_measured_yet():
    assert Pacer(1.0).measured_factor == 0.0

"""The cartpole: swung up, and held through pushes."""

import math
from pathlib import Path

import numpy as np
from std_msgs.msg import Float64MultiArray

from acceptance.robots import Commands, Pole, carry, start_stepped
from acceptance.rows import Row, Series, in_processes

PERIOD = 0.02
SEEDS = 10
# A force of a hand on the cart, as strong as its motor, which the controller does not know of.
PUSH = 20.0  # N
PUSH_TIME = 0.08  # s
# Upright is nearer than this, fallen is farther (rad).
UPRIGHT = 0.1
FALLEN = 0.5
# The pole must be upright again so long after a push (s).
RECOVERY = 2.0

# ROS arguments of a simulation in which a Hand pushes the cart.
_MODEL = Path(__file__).with_name("cartpole_with_hand.xml")
WITH_HAND = ("-p", f"model:={_MODEL}", "-r", "commands:=forces")


class Hand:
    """Pushes the cart beside what the controller commands."""

    def __init__(self, probe):
        self._force, self._periods = 0.0, 0
        carry(probe, Float64MultiArray, "/commands", "/forces", self._add)

    def push(self, force: float, duration: float) -> None:
        """Push with ``force`` (N) for the next ``duration`` s."""
        self._force, self._periods = force, round(duration / PERIOD)

    def _add(self, command: Float64MultiArray) -> list[Float64MultiArray]:
        self._periods -= 1
        force = self._force if self._periods >= 0 else 0.0
        return [Float64MultiArray(data=[*command.data, force])]


def swing_up_and_stand(nodes, probe, seed: int, hold: float = 20.0) -> dict:
    """Swing the pole up and hold it for ``hold`` s, pushed both ways; return what was seen."""
    pole, hand = Pole(probe), Hand(probe)
    commands = Commands(probe, "cartpole", pole)
    rng = np.random.default_rng(seed)
    start = [rng.uniform(-0.2, 0.2), math.pi + rng.uniform(-0.2, 0.2)]
    arguments = (*WITH_HAND, "-p", f"start_qpos:={start}", "-p", f"seed:={seed}")
    start_stepped(nodes, probe, "cartpole", PERIOD, (f"seed:={seed}",), arguments)
    first = 3.0 + hold / 4
    pole.wait(first)
    times, rows = pole.between(0.0, first)
    upright = float(times[np.abs(rows[:, 1]) >= UPRIGHT].max())
    assert upright <= 3.0, f"upright after {upright:.2f} s"
    tilts = []
    for force in (PUSH, -PUSH):
        pushed = pole.time
        hand.push(force, PUSH_TIME)
        pole.wait(pushed + hold / 4)
        tilts.append(pole.angle(pushed, pushed + RECOVERY))
        assert tilts[-1] < FALLEN, f"a push tilted the pole by {tilts[-1]:.2f} rad"
        assert tilts[-1] > 0.05, f"no push: {tilts[-1]:.2f} rad"
        again = pole.angle(pushed + RECOVERY, pushed + hold / 4)
        assert again < UPRIGHT, f"{again:.2f} rad {RECOVERY:g} s after a push"
    end = upright + hold
    pole.wait(end)
    last = pole.angle(pushed + RECOVERY, end)
    assert last < UPRIGHT, f"{last:.2f} rad at the end"
    commands.check()
    still = pole.angle(first - hold / 8, first)
    return {"upright_s": upright, "tilt": max(tilts), "still": still}


def _seen(outcomes: list[dict]) -> str:
    worst = {name: max(outcome[name] for outcome in outcomes) for name in outcomes[0]}
    least = min(outcome["tilt"] for outcome in outcomes)
    return (
        f"upright after at most {worst['upright_s']:.2f} s; pushes tilt it by {least:.2f} to "
        f"{worst['tilt']:.2f} rad; left alone it is within {worst['still']:.3f} rad"
    )


SERIES = (
    Series(
        in_processes(swing_up_and_stand),
        SEEDS,
        (
            Row(
                "cartpole: swing-up at 50 Hz, two pushes (a force on the cart of "
                f"{PUSH:g} N for {1e3 * PUSH_TIME:g} ms, one each way)",
                f"within {UPRIGHT:g} rad of upright in 3 s, held 20 s; back {RECOVERY:g} s after "
                "each push",
                _seen,
            ),
        ),
    ),
)

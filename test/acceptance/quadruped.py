"""The quadruped: stands, and walks on what MuJoCo rolls out."""

import numpy as np
from geometry_msgs.msg import PoseStamped

from acceptance.robots import Body, Commands, goal_at, start_stepped
from acceptance.rows import Row, Series, in_processes
from geoaccel_ros.ros import qos

PERIOD = 0.02
SEEDS = 5
STANDING = 1.0  # s
WAY = 2.0  # m
# It walks more slowly near its goal; this one is passed.
BEYOND = 0.5  # m
HEIGHT_MIN = 0.2  # m


def stand_and_walk(nodes, probe, seed: int, way: float = WAY) -> dict:
    """Stand, then walk ``way`` m forward; return what was seen."""
    body = Body(probe)
    commands = Commands(probe, "quadruped", body)
    start_stepped(nodes, probe, "quadruped", PERIOD, (f"seed:={seed}",), ("-p", f"seed:={seed}"))
    goals = probe.speak(PoseStamped, "/goal_pose", qos.RELIABLE)
    body.wait(STANDING)
    drift = np.linalg.norm(body.places(0.0)[-1, :2])
    assert drift < 0.1, f"drifted {drift:.2f} m standing"
    began = body.time
    goals.publish(goal_at((way + BEYOND, 0.0, 0.0)))
    # At a third of the speed that it should have.
    latest = began + way / 0.15
    while body.places(0.0)[-1, 0] < way:
        assert body.time < latest, (
            f"walked {body.places(0.0)[-1, 0]:.2f} m in {latest - began:.0f} s"
        )
        body.wait(body.time + 0.1)
    walked = body.time - began
    body.wait(body.time + STANDING)
    places = body.places(0.0)
    lowest = places[:, 2].min()
    assert lowest > HEIGHT_MIN, f"the trunk was {lowest:.2f} m high"
    commands.check()
    # Odometry and joint states of one instant were found to be so.
    assert probe.diagnostics("mppi_controller")["state refused"] == "0"
    return {
        "walked_s": walked,
        "sideways_m": float(np.abs(places[:, 1]).max()),
        "height_m": float(lowest),
    }


def _seen(outcomes: list[dict]) -> str:
    worst = {name: max(outcome[name] for outcome in outcomes) for name in outcomes[0]}
    lowest = min(outcome["height_m"] for outcome in outcomes)
    return (
        f"there after at most {worst['walked_s']:.1f} s of walking, at most "
        f"{worst['sideways_m']:.2f} m to a side; trunk never below {lowest:.2f} m"
    )


SERIES = (
    Series(
        in_processes(stand_and_walk),
        SEEDS,
        (
            Row(
                f"quadruped: stands {STANDING:g} s, walks {WAY:g} m forward, on MuJoCo's rollouts "
                "(simulated time waits for them)",
                f"no fall (trunk higher than {HEIGHT_MIN:g} m)",
                _seen,
            ),
        ),
    ),
)

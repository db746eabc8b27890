"""The quadrotor: hovers, then flies to waypoints one after the other."""

import math

import numpy as np
from geometry_msgs.msg import PoseStamped
from scipy.spatial.transform import Rotation

from acceptance.robots import Body, Commands, goal_at, start_stepped
from acceptance.rows import Row, Series, in_processes
from geoaccel_ros.ros import qos

PERIOD = 0.02
SEEDS = 10
START = (0.0, 0.0, 1.0)
WAYPOINTS = (
    (2.0, 1.0, 1.5),
    (2.0, -2.0, 2.5),
    (-1.0, -2.0, 1.0),
    (-2.0, 1.5, 3.0),
    (0.0, 0.0, 1.0),
)
# It is sent on after so long, and must have been near for the last second of it (s).
LEG = 5.0
NEAR = 0.05  # m
# Lower, or tilted more, is a crash.
HEIGHT_MIN = 0.2  # m
TILT_MAX = math.radians(80.0)


def hover_and_fly(nodes, probe, seed: int, waypoints=WAYPOINTS) -> dict:
    """Hover, then fly to the waypoints; return what was seen."""
    body = Body(probe)
    commands = Commands(probe, "quadrotor", body)
    rng = np.random.default_rng(seed)
    # In any direction, and a little tilted.
    turn = Rotation.from_euler("ZYX", [rng.uniform(-3.1, 3.1), *rng.uniform(-0.1, 0.1, 2)])
    start = [*START, *map(float, turn.as_quat(scalar_first=True))]
    start_stepped(
        nodes,
        probe,
        "quadrotor",
        PERIOD,
        (f"seed:={seed}",),
        ("-p", f"start_qpos:={start}", "-p", f"seed:={seed}"),
    )
    goals = probe.speak(PoseStamped, "/goal_pose", qos.RELIABLE)
    errors, arrivals = [], []
    for waypoint in (START, *waypoints):
        sent = body.time
        goals.publish(goal_at(waypoint))
        body.wait(sent + LEG)
        times, rows = body.between(sent, sent + LEG)
        off = np.linalg.norm(rows[:, :3] - waypoint, axis=1)
        errors.append(off[times > sent + LEG - 1.0].max())
        away = times[off >= NEAR]
        arrivals.append(away.max() - sent if len(away) else 0.0)
        assert errors[-1] < NEAR, f"{errors[-1]:.3f} m off {waypoint}"
    heights, tilts = body.between(0.0)[1][:, 2:4].T
    assert heights.min() > HEIGHT_MIN, f"{heights.min():.2f} m high"
    assert tilts.max() < TILT_MAX, f"tilted by {math.degrees(tilts.max()):.0f} deg"
    commands.check()
    return {
        "hover_m": float(errors[0]),
        "waypoint_m": float(max(errors[1:])),
        "arrival_s": float(max(arrivals[1:])),
        "tilt_deg": math.degrees(tilts.max()),
        "height_m": float(heights.min()),
    }


def _seen(outcomes: list[dict]) -> str:
    worst = {name: max(outcome[name] for outcome in outcomes) for name in outcomes[0]}
    lowest = min(outcome["height_m"] for outcome in outcomes)
    return (
        f"at most {1e2 * worst['hover_m']:.1f} cm off hovering, {1e2 * worst['waypoint_m']:.1f} cm "
        f"at a waypoint, there after at most {worst['arrival_s']:.1f} s; tilt at most "
        f"{worst['tilt_deg']:.0f} deg, never below {lowest:.2f} m"
    )


SERIES = (
    Series(
        in_processes(hover_and_fly),
        SEEDS,
        (
            Row(
                f"quadrotor: hover, then {len(WAYPOINTS)} waypoints 2 to 4 m apart, "
                f"{LEG:g} s for each",
                f"within {1e2 * NEAR:g} cm for the last second at each, no crash (higher than "
                f"{HEIGHT_MIN:g} m, tilt below {math.degrees(TILT_MAX):.0f} deg)",
                _seen,
            ),
        ),
    ),
)

"""The verdict on a demo: its summary, what kept it from passing, and the report that is printed."""

from pathlib import Path

import numpy as np

from geoaccel_ros.cli.demo.evaluation import Recording
from geoaccel_ros.cli.demo.pictures import draw_latency, draw_trajectory
from geoaccel_ros.cli.demo.task import Task
from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.simulation.floorplan import obstacle_footprints
from geoaccel_ros.simulation.model import load_model
from geoaccel_ros.simulation.shortest_path import shortest_path

_ATE_MAX = 0.3  # m
_ATE_MAX_OF_PATH = 0.02
_REALTIME_MIN = 0.95
_PATH_RATIO_MAX = 1.3
# Half a unit in the last place of a float32 at 60 m, the lidar's range (m).
_ROUNDING = 2e-6


def judge(output: Path, recording: Recording, task: Task, observed: dict) -> dict:
    """Return summary.json's content and draw the pictures.

    Parameters
    ----------
    output : Path
        Gets the pictures.
    recording : Recording
    task : Task
    observed : dict
        By name of the node its last ``diagnostics``, its ``usage`` of CPU and memory and its exit
        ``statuses``; what the controller said ``at_start``; and the ``realtime_factor``.

    Raises
    ------
    UserError
        If there is nothing to judge.
    """
    if not len(recording.odometry.stamps):
        raise UserError(f"no pose was published; see {output / 'logs' / 'lidar_odometry.log'}")
    said = observed["diagnostics"]
    simulation, controller = said["mujoco_simulation"], said["mppi_controller"]
    published = int(simulation["clouds out"])
    registered = int(said["lidar_odometry"]["clouds registered"])
    decoded = int(said["cloud_decoder"]["clouds out"])
    reached = int(controller["goals reached"])
    codec = recording.codec
    world = load_model(task.model)
    goals = recording.to_world(task.goals)
    shortest = shortest_path(
        recording.truth.poses[0, :2, 3],
        goals,
        task.goal_tolerance,
        obstacle_footprints(world, with_ground=False),
        task.clearance_limit,
    )
    driven = recording.path_length()
    summary = {
        "goal_reached": reached == len(goals),
        "goals_reached": reached,
        "goals": len(goals),
        "contacts": int(simulation["contacts"]),
        **_compared(driven, shortest),
        "deadlines": missed_deadlines(observed["at_start"], controller),
        "odometry": {
            "ate_rmse_m": recording.ate_rmse(),
            "path_m": driven,
            "frames": registered,
            "dropped": published - registered,
        },
        "compression": {
            "ratio": codec.bytes_original / max(codec.bytes_compressed, 1),
            "bits_per_point": 8 * codec.bytes_compressed / max(codec.points, 1),
            "max_error_m": codec.max_coordinate,
            "step_m": float(said["cloud_encoder"]["step [m]"]),
            "frames": decoded,
            "lost": published - decoded,
            "compared": codec.clouds,
            "damaged": len(codec.damaged),
        },
        "latency_ms": {
            key: _percentiles(said[node], name)
            for key, node, name in (
                ("odometry", "lidar_odometry", "odometry"),
                ("encoder", "cloud_encoder", "encode"),
                ("decoder", "cloud_decoder", "decode"),
                ("mppi", "mppi_controller", "update"),
            )
        },
        "latency_on_wire_ms": {
            name: {"p50": float(np.median(ms)), "p99": float(np.percentile(ms, 99))}
            for name, ms in recording.latency_ms.items()
            if len(ms)
        },
        "simulation": {
            "realtime_factor": observed["realtime_factor"],
            "simulated_s": float(simulation["simulated time [s]"]),
            "clouds": published,
        },
        "nodes": observed["usage"],
        "exit_statuses": observed["statuses"],
    }
    summary["failures"] = failures(summary)
    footprints = obstacle_footprints(world)
    draw_trajectory(output / "trajectory.png", recording, goals, footprints, shortest)
    draw_latency(output / "latency.png", recording, observed["usage"])
    return summary


def _compared(driven: float, shortest: np.ndarray | None) -> dict:
    """Return the length of the shortest path (P, 2) and how many times that was driven, m."""
    if shortest is None:
        return {"path_ratio": None, "shortest_path_m": None}
    length = float(np.linalg.norm(np.diff(shortest, axis=0), axis=1).sum())
    return {"path_ratio": driven / length, "shortest_path_m": length}


def missed_deadlines(at_start: dict[str, str], at_end: dict[str, str]) -> dict:
    """Return how many updates were made and how many were due but came late, or not at all.

    Before the start the controller waits while other nodes compile; that is no part of the task.
    """
    updates, missed = (
        int(at_end[name]) - int(at_start.get(name, 0)) for name in ("updates", "missed deadlines")
    )
    return {
        "updates": updates,
        "missed": missed,
        "missed_share": missed / max(updates + missed, 1),
    }


def failures(summary: dict) -> list[str]:
    """Return what kept the demo from passing, one line each."""
    odometry, codec = summary["odometry"], summary["compression"]
    limit = min(_ATE_MAX, _ATE_MAX_OF_PATH * odometry["path_m"])
    factor = summary["simulation"]["realtime_factor"]
    clouds = summary["simulation"]["clouds"]
    ratio = summary["path_ratio"]
    conditions = [
        (
            summary["goal_reached"],
            f"{summary['goals_reached']} of {summary['goals']} goals reached",
        ),
        (ratio is not None, "no free way leads through the goals"),
        (
            ratio is None or ratio <= _PATH_RATIO_MAX,
            f"{odometry['path_m']:.1f} m driven, {ratio or 0.0:.2f} times the shortest way, limit "
            f"{_PATH_RATIO_MAX}",
        ),
        (summary["contacts"] == 0, f"the robot touched something {summary['contacts']} times"),
        (odometry["dropped"] == 0, f"lidar_odometry lost {odometry['dropped']} clouds"),
        (codec["lost"] == 0, f"the codec lost {codec['lost']} clouds"),
        (codec["damaged"] == 0, f"{codec['damaged']} decoded clouds differ from their originals"),
        (
            codec["compared"] == clouds,
            f"only {codec['compared']} of {clouds} clouds were recorded whole, and compared",
        ),
        (
            codec["max_error_m"] <= codec["step_m"] / 2 + _ROUNDING,
            f"a coordinate came back {codec['max_error_m']:.6f} m off, step {codec['step_m']} m",
        ),
        (
            odometry["ate_rmse_m"] < limit,
            f"odometry error {odometry['ate_rmse_m']:.3f} m, limit {limit:.3f} m",
        ),
        (factor >= _REALTIME_MIN, f"real-time factor {factor:.3f}, limit {_REALTIME_MIN}"),
    ]
    found = [text for holds, text in conditions if not holds]
    for name, status in summary["exit_statuses"].items():
        if status != 0:
            found.append(f"{name} ended with status {status}")
    return found


def report(summary: dict, output: Path) -> str:
    """Return the summary for people."""
    odometry, codec = summary["odometry"], summary["compression"]
    simulation = summary["simulation"]
    latencies = (f"{k} {v['p50']:.1f} / {v['p99']:.1f}" for k, v in summary["latency_ms"].items())
    loads = (
        f"{k} {v['cpu_share']:.2f}, {v['memory_mib']:.0f} MiB" for k, v in summary["nodes"].items()
    )
    deadlines, compared = summary["deadlines"], ""
    if summary["path_ratio"] is not None:
        compared = f", {summary['path_ratio']:.3f} times the shortest free way"
    lines = [
        f"goals         {summary['goals_reached']} of {summary['goals']} reached, "
        f"{summary['contacts']} contacts, {simulation['simulated_s']:.1f} s simulated at "
        f"{simulation['realtime_factor']:.3f} of real time",
        f"way           {odometry['path_m']:.1f} m{compared}; {deadlines['missed']} of "
        f"{deadlines['updates'] + deadlines['missed']} deadlines missed",
        f"odometry      {odometry['ate_rmse_m']:.3f} m RMSE over {odometry['path_m']:.1f} m, "
        f"{odometry['frames']} clouds, {odometry['dropped']} lost",
        f"compression   ratio {codec['ratio']:.2f}, {codec['bits_per_point']:.1f} bits a point, "
        f"largest error {1e3 * codec['max_error_m']:.2f} mm, {codec['frames']} clouds, "
        f"{codec['lost']} lost",
        "latency p50 / p99 [ms]   " + "   ".join(latencies),
        "CPU (cores), memory      " + "   ".join(loads),
        f"written to {output}: summary.json, trajectory.png, latency.png, bag, logs",
    ]
    return "\n".join(lines)


def _percentiles(values: dict[str, str], name: str) -> dict[str, float]:
    return {p: float(values.get(f"{name} {p} [ms]", "nan")) for p in ("p50", "p99")}

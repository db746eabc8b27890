"""The verdict on a demo: its summary, what kept it from passing, and the report that is printed."""

from pathlib import Path

import numpy as np

from geoaccel_ros.cli.demo.evaluation import read_bag
from geoaccel_ros.cli.demo.pictures import draw_latency, draw_trajectory
from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.simulation.floorplan import obstacle_footprints
from geoaccel_ros.simulation.world import load_model

_ATE_MAX = 0.3  # m
_ATE_MAX_OF_PATH = 0.02
_REALTIME_MIN = 0.95
# Half a unit in the last place of a float32 at 60 m, the lidar's range (m).
_ROUNDING = 2e-6


def judge(output: Path, goals: np.ndarray, model: str, observed: dict) -> dict:
    """Return summary.json's content and draw the pictures.

    Parameters
    ----------
    output : Path
        Folder of the bag; gets the pictures.
    goals : ndarray (N, 2)
        In the odom frame, metres.
    model : str
        Name or file of the simulated world.
    observed : dict
        By name of the node its last ``diagnostics``, its ``usage`` of CPU and memory and its exit
        ``statuses``; and the ``realtime_factor``.

    Raises
    ------
    UserError
        If there is nothing to judge.
    """
    recording = read_bag(output / "bag")
    if not len(recording.odometry.stamps):
        raise UserError(f"no pose was published; see {output / 'logs' / 'lidar_odometry.log'}")
    said = observed["diagnostics"]
    simulation, controller = said["mujoco_simulation"], said["mppi_controller"]
    published = int(simulation["clouds out"])
    registered = int(said["lidar_odometry"]["clouds registered"])
    decoded = int(said["cloud_decoder"]["clouds out"])
    reached = int(controller["goals reached"])
    codec = recording.codec
    summary = {
        "goal_reached": reached == len(goals),
        "goals_reached": reached,
        "goals": len(goals),
        "contacts": int(simulation["contacts"]),
        "odometry": {
            "ate_rmse_m": recording.ate_rmse(),
            "path_m": recording.path_length(),
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
    summary["failures"] = _failures(summary)
    footprints = obstacle_footprints(load_model(model))
    draw_trajectory(output / "trajectory.png", recording, goals, footprints)
    draw_latency(output / "latency.png", recording, observed["usage"])
    return summary


def _failures(summary: dict) -> list[str]:
    """Return what kept the demo from passing, one line each."""
    odometry, codec = summary["odometry"], summary["compression"]
    limit = min(_ATE_MAX, _ATE_MAX_OF_PATH * odometry["path_m"])
    factor = summary["simulation"]["realtime_factor"]
    clouds = summary["simulation"]["clouds"]
    conditions = [
        (
            summary["goal_reached"],
            f"{summary['goals_reached']} of {summary['goals']} goals reached",
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
    failures = [text for holds, text in conditions if not holds]
    for name, status in summary["exit_statuses"].items():
        if status != 0:
            failures.append(f"{name} ended with status {status}")
    return failures


def report(summary: dict, output: Path) -> str:
    """Return the summary for people."""
    odometry, codec = summary["odometry"], summary["compression"]
    simulation = summary["simulation"]
    latencies = (f"{k} {v['p50']:.1f} / {v['p99']:.1f}" for k, v in summary["latency_ms"].items())
    loads = (
        f"{k} {v['cpu_share']:.2f}, {v['memory_mib']:.0f} MiB" for k, v in summary["nodes"].items()
    )
    lines = [
        f"goals         {summary['goals_reached']} of {summary['goals']} reached, "
        f"{summary['contacts']} contacts, {simulation['simulated_s']:.1f} s simulated at "
        f"{simulation['realtime_factor']:.3f} of real time",
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

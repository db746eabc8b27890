"""The demo's pictures: where the robot went, and how long everything took."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Polygon

from geoaccel_ros.cli.demo.evaluation import Recording

# Metres drawn around where the robot was and its goals, and around the world.
_AROUND = 6.0
_MARGIN = 0.5


def draw_trajectory(
    path: Path,
    recording: Recording,
    goals: np.ndarray,
    footprints: Sequence[np.ndarray],
    shortest: np.ndarray | None,
) -> None:
    """Draw truth, odometry, goals (N, 2; world frame), obstacles and shortest path from above."""
    truth = recording.truth.poses[:, :3, 3]
    odometry = (recording.T_world_odom @ recording.odometry.poses)[:, :3, 3]

    # A corridor is longer than what is driven of it.
    seen = np.vstack([truth[:, :2], goals])
    low, high = seen.min(axis=0) - _AROUND, seen.max(axis=0) + _AROUND
    if footprints:
        corners = np.concatenate(footprints)
        low = np.maximum(low, corners.min(axis=0) - _MARGIN)
        high = np.minimum(high, corners.max(axis=0) + _MARGIN)
    tall = np.clip(7.0 * (high[1] - low[1]) / (high[0] - low[0]), 1.5, 10.0)
    figure, (top, error) = plt.subplots(
        2, 1, figsize=(8, tall + 3.0), height_ratios=[tall, 2.0], layout="constrained"
    )
    for footprint in footprints:
        top.add_patch(Polygon(footprint, facecolor="0.8", edgecolor="0.45"))
    if shortest is not None:
        top.plot(*shortest.T, "--", color="0.3", linewidth=1, label="shortest free way")
    top.plot(*truth[:, :2].T, color="tab:blue", linewidth=3, alpha=0.5, label="truth")
    top.plot(*odometry[:, :2].T, color="tab:red", linewidth=1, label="lidar_odometry")
    top.plot(*goals.T, "*", color="tab:green", markersize=16, label="goals")
    for number, goal in enumerate(goals, start=1):
        top.annotate(str(number), goal, textcoords="offset points", xytext=(8, 6))
    top.plot(*truth[0, :2], "o", color="black", label="start")
    top.set(aspect="equal", xlabel="x [m]", ylabel="y [m]")
    top.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    top.set_title(
        f"{recording.path_length():.1f} m driven, odometry off by {recording.ate_rmse():.3f} m RMSE"
    )
    figure.legend(loc="outside lower center", ncols=5, frameon=False)

    distance = np.linalg.norm(odometry - recording.truth_at_odometry[:, :3, 3], axis=1)
    error.plot(recording.odometry.stamps, 100 * distance, color="tab:red")
    error.set(xlabel="simulated time [s]", ylabel="position error [cm]", ylim=(0, None))
    error.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_latency(path: Path, recording: Recording, nodes: dict[str, dict]) -> None:
    """Draw latencies as the recorder saw them, and the share of a core that each node took.

    Parameters
    ----------
    nodes : dict
        By name of the node: cpu_share (1.0: one core) and memory_mib.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name, latency in recording.latency_ms.items():
        if len(latency):
            label = f"{name}: p50 {np.median(latency):.0f}, p99 {np.percentile(latency, 99):.0f} ms"
            left.plot(np.sort(latency), np.linspace(0, 100, len(latency)), label=label)
    left.set(xlabel="latency [ms]", ylabel="clouds within [%]", xlim=(0, None), ylim=(0, 100))
    left.set_title("from a cloud's arrival to its result's")
    left.grid(alpha=0.3)
    left.legend(loc="lower right", fontsize=8)

    names = list(nodes)
    shares = [100 * nodes[name]["cpu_share"] for name in names]
    bars = right.barh(names, shares, color="tab:gray")
    labels = [
        f"{s:.0f} %, {nodes[n]['memory_mib']:.0f} MiB" for n, s in zip(names, shares, strict=True)
    ]
    right.bar_label(bars, labels, padding=4, fontsize=8)
    right.set(xlabel="CPU [% of one core]", xlim=(0, 1.45 * max(shares, default=1.0)))
    right.invert_yaxis()
    right.set_title("load of each node")
    figure.savefig(path, dpi=110)
    plt.close(figure)

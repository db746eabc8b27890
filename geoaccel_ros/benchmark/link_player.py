"""The robot's lidar: publishes clouds at a rate, in a process of its own."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node
from rclpy.time import Time
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from geoaccel_ros.benchmark.link_node import SpunNode
from geoaccel_ros.benchmark.link_worker import serve
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.pointcloud2 import message_from_points

# Clouds that a driver keeps for those who are slow.
_DEPTH = 2


class Player:
    """Publishes a folder's clouds forth and back on ``points``; their frame_id tells which it is.

    Parameters
    ----------
    node : Node
    folder : Path
        Of arrays 0.npy, 1.npy, ...
    rate : float, Hz
    is_reliable : bool
        Whether clouds are offered reliably; else as most drivers do.
    """

    def __init__(self, node: Node, folder: Path, rate: float, is_reliable: bool):
        self._rate = rate
        clouds = [np.load(path) for path in sorted(folder.glob("*.npy"), key=_number)]
        messages = [
            message_from_points(Header(frame_id=f"lidar_{index}"), points)
            for index, points in enumerate(clouds)
        ]
        self._turn = messages + messages[-2:0:-1]
        self._next = 0
        profile = qos.reliable(_DEPTH) if is_reliable else qos.sensor_data(_DEPTH)
        self._publisher = node.create_publisher(PointCloud2, "points", profile)
        self._status: dict[str, str] = {}
        node.create_subscription(
            DiagnosticArray, "/diagnostics", self._on_diagnostics, qos.RELIABLE
        )

    def connections(self) -> int:
        """Return how many hear the clouds."""
        return self._publisher.get_subscription_count()

    def diagnostics(self) -> dict[str, str]:
        """Return what the encoder said last."""
        return self._status

    def play(self, count: str) -> list[tuple[int, int]]:
        """Publish so many clouds; return the stamp in ns and the index of each."""
        played = []
        start = time.monotonic()
        for index in range(int(count)):
            time.sleep(max(0.0, start + index / self._rate - time.monotonic()))
            message = self._turn[self._next % len(self._turn)]
            self._next += 1
            # Both hosts have this machine's clock.
            now = time.time_ns()
            message.header.stamp = Time(nanoseconds=now).to_msg()
            self._publisher.publish(message)
            played.append((now, int(message.header.frame_id.partition("_")[2])))
        return played

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.name == "/cloud_encoder":
                self._status = {pair.key: pair.value for pair in status.values}


def _number(path: Path) -> int:
    return int(path.stem)


def main(arguments: Sequence[str]) -> int:
    """Serve ``play COUNT``, ``connections`` and ``diagnostics`` until standard input ends.

    Parameters
    ----------
    arguments : sequence of str
        Folder of clouds, rate in Hz, and ``reliable`` or ``best_effort``.
    """
    folder, rate, reliability = arguments
    with SpunNode("lidar") as node:
        player = Player(node, Path(folder), float(rate), reliability == "reliable")
        return serve(
            {
                "play": player.play,
                "connections": player.connections,
                "diagnostics": player.diagnostics,
            }
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

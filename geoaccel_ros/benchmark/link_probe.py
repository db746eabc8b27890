"""The base's listener: compares every cloud that comes with its original, in its own process."""

import queue
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from rclpy.time import Time
from sensor_msgs.msg import PointCloud2

from geoaccel_ros.benchmark.link_comparison import compare
from geoaccel_ros.benchmark.link_node import SpunNode
from geoaccel_ros.benchmark.link_worker import serve
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.pointcloud2 import points_from_message

_DEPTH = 10


class Probe:
    """Notes when clouds come, and on a thread of its own what became of them.

    Parameters
    ----------
    node : Node
    folder : Path
        Of the originals, 0.npy, 1.npy, ..., which a cloud's frame_id names.
    topic : str
    is_reliable : bool
        Whether what was lost is asked for again.
    """

    def __init__(self, node: Node, folder: Path, topic: str, is_reliable: bool):
        self._folder = folder
        self._originals: dict[int, np.ndarray] = {}
        self._heard: list[dict] = []
        self._last: PointCloud2 | None = None
        self._waiting: queue.Queue = queue.Queue()
        threading.Thread(target=self._compare, daemon=True).start()
        profile = qos.reliable(_DEPTH) if is_reliable else qos.sensor_data(_DEPTH)
        # Raw, and read by the thread: what works while it listens is late itself.
        node.create_subscription(PointCloud2, topic, self._on_cloud, profile, raw=True)

    def heard(self) -> list[dict]:
        """Return, of each cloud so far: ``stamp_ns``, ``index``, ``arrived_ns``, its difference."""
        self._waiting.join()
        heard, self._heard = self._heard, []
        return heard

    def save(self, path: str) -> int | None:
        """Write the points of the newest cloud; return the index of its original."""
        self._waiting.join()
        if self._last is None:
            return None
        np.save(path, points_from_message(self._last))
        return _index(self._last)

    def _on_cloud(self, raw: bytes) -> None:
        self._waiting.put((time.time_ns(), raw))

    def _compare(self) -> None:
        while True:
            arrived, raw = self._waiting.get()
            self._last = message = deserialize_message(raw, PointCloud2)
            index = _index(message)
            if index not in self._originals:
                self._originals[index] = np.load(self._folder / f"{index}.npy")
            difference = compare(self._originals[index], points_from_message(message))
            self._heard.append(
                {
                    "stamp_ns": Time.from_msg(message.header.stamp).nanoseconds,
                    "index": index,
                    "arrived_ns": arrived,
                    "difference": asdict(difference),
                }
            )
            self._waiting.task_done()


def _index(message: PointCloud2) -> int:
    return int(message.header.frame_id.partition("_")[2])


def main(arguments: Sequence[str]) -> int:
    """Serve ``heard`` and ``save PATH`` until standard input ends.

    Parameters
    ----------
    arguments : sequence of str
        Folder of originals, topic, and ``reliable`` or ``best_effort``.
    """
    folder, topic, reliability = arguments
    with SpunNode("probe") as node:
        probe = Probe(node, Path(folder), topic, reliability == "reliable")
        return serve({"heard": probe.heard, "save": probe.save})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

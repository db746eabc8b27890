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

from geoaccel_ros.benchmark.link_comparison import Difference, compare
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
        # By index: what came last, and how it differs.
        self._known: dict[int, tuple[np.ndarray, Difference]] = {}
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
            self._heard.append(
                {
                    "stamp_ns": Time.from_msg(message.header.stamp).nanoseconds,
                    "index": _index(message),
                    "arrived_ns": arrived,
                    "difference": asdict(self._difference(_index(message), message)),
                }
            )
            self._waiting.task_done()

    def _difference(self, index: int, message: PointCloud2) -> Difference:
        points = points_from_message(message)
        # The same cloud comes as the same bytes while the encoder's parameters stay: a tenth of the
        # time, which the nodes need on a machine of two cores.
        known = self._known.get(index)
        if known is None or known[0].dtype != points.dtype or not _same_bytes(known[0], points):
            original = np.load(self._folder / f"{index}.npy")
            self._known[index] = known = points, compare(original, points)
        return known[1]


def _same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one.view(np.uint8), other.view(np.uint8))


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

"""cloud_encoder: clouds in, compressed clouds out."""

import collections
import sys
from dataclasses import dataclass

from point_cloud_interfaces.msg import CompressedPointCloud2
from sensor_msgs.msg import PointCloud2

from geoaccel_ros.compression.codec import Codec, CodecConfig, CodecError, inspect
from geoaccel_ros.compression.formats import FORMAT
from geoaccel_ros.config import parameter
from geoaccel_ros.pointcloud.layout import LayoutError
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.diagnostics import Counters, Latency, Status
from geoaccel_ros.ros.node import ManagedNode, NodeConfig
from geoaccel_ros.ros.pointcloud2 import bytes_for_message, points_from_message
from geoaccel_ros.ros.run import run

MODES = ("octree", "scan", "lossless")


@dataclass(frozen=True)
class CloudEncoderConfig(NodeConfig, CodecConfig):
    """Parameters of cloud_encoder."""

    queue: int = parameter(
        10, "Clouds kept while one is encoded; the oldest is lost beyond.", minimum=1, maximum=1000
    )


class CloudEncoder(ManagedNode):
    """points (PointCloud2) -> points/compressed (CompressedPointCloud2).

    Height, width and fields in the message are those of the cloud. Does nothing while nobody
    subscribes.
    """

    NAME = "cloud_encoder"
    CONFIG = CloudEncoderConfig

    def configure(self):
        self.counters = Counters("clouds in", "clouds out", "not subscribed", "refused")
        self._bytes_in = self._bytes_out = self._points = 0
        self._modes: collections.Counter = collections.Counter()
        self._step = self.config.step
        self.latencies = {"encode": Latency()}
        self._codec = Codec(self.config.subset(CodecConfig))
        self.get_logger().info(f"encoding on {self._codec.device_name}")
        self._publisher = self.advertise(CompressedPointCloud2, "points/compressed", qos.RELIABLE)
        profile = qos.sensor_data(self.config.queue)
        self.subscribe(PointCloud2, "points", self._on_points, profile, expected=True)

    def cleanup(self):
        self._codec = None

    def status(self):
        ratio = self._bytes_in / self._bytes_out if self._bytes_out else 0.0
        bits = 8 * self._bytes_out / self._points if self._points else 0.0
        return Status(
            values={
                "device": self._codec.device_name,
                # The last cloud's: a target makes it another for each.
                "step [m]": self._step,
                "bytes in": self._bytes_in,
                "bytes out": self._bytes_out,
                "ratio": f"{ratio:.3f}",
                "bits per point": f"{bits:.3f}",
                **{f"clouds in mode {mode}": self._modes[mode] for mode in MODES},
            }
        )

    def _on_points(self, message: PointCloud2) -> None:
        self.counters.count("clouds in")
        if self._publisher.get_subscription_count() == 0:
            self.counters.count("not subscribed")
            return
        try:
            with self.latencies["encode"].measure():
                compressed = self._encode(message)
        except (LayoutError, CodecError) as error:
            self.counters.count("refused")
            self.get_logger().warning(f"cloud refused: {error}", throttle_duration_sec=5.0)
            return
        self._publisher.publish(compressed)
        self.counters.count("clouds out")

    def _encode(self, message: PointCloud2) -> CompressedPointCloud2:
        points = points_from_message(message)
        data = self._codec.encode(points, message.height)
        self._bytes_in += points.nbytes
        self._bytes_out += len(data)
        self._points += len(points)
        info = inspect(data)
        self._modes[info.mode] += 1
        self._step = info.step
        compressed = CompressedPointCloud2(
            header=message.header,
            height=message.height,
            width=message.width,
            fields=message.fields,
            # The reader has brought the values into this machine's order.
            is_bigendian=sys.byteorder == "big",
            point_step=message.point_step,
            row_step=message.width * message.point_step,
            is_dense=message.is_dense,
            format=FORMAT,
        )
        compressed.compressed_data = bytes_for_message(data)
        return compressed


def main() -> int:
    """Run the node."""
    return run(CloudEncoder)


if __name__ == "__main__":
    sys.exit(main())

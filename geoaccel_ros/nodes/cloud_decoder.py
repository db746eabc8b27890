"""cloud_decoder: compressed clouds in, clouds out, as at a base station."""

import sys
from dataclasses import dataclass

from point_cloud_interfaces.msg import CompressedPointCloud2
from sensor_msgs.msg import PointCloud2

from geoaccel_ros.compression.codec import Codec, CodecConfig, DeviceConfig
from geoaccel_ros.compression.errors import (
    CodecError,
    DeclarationError,
    ForeignFormatError,
    FutureVersionError,
    TooLargeError,
)
from geoaccel_ros.compression.messages import decoded_cloud
from geoaccel_ros.config import parameter
from geoaccel_ros.ros import diagnostics, qos
from geoaccel_ros.ros.diagnostics import Counters, Latency, Status
from geoaccel_ros.ros.matched_subscription import MatchedSubscription
from geoaccel_ros.ros.newest import NewestOnly
from geoaccel_ros.ros.node import ManagedNode, NodeConfig
from geoaccel_ros.ros.pointcloud2 import bytes_for_message
from geoaccel_ros.ros.run import run

# What a message was refused for, by the error; all others are damaged.
_REASONS = {
    ForeignFormatError: "refused: foreign format",
    FutureVersionError: "refused: future version",
    DeclarationError: "refused: another cloud than declared",
    TooLargeError: "refused: larger than max_decoded_mib",
}
_DAMAGED = "refused: damaged"
# Messages that the middleware keeps until the executor comes for them.
_DEPTH = 10
_OTHER_CLOCK = "stamps of another clock"
# A cloud that is older, or not born yet, was stamped by another clock than is read here.
_OLDEST_NS = 60_000_000_000


@dataclass(frozen=True)
class CloudDecoderConfig(NodeConfig, DeviceConfig):
    """Parameters of cloud_decoder; what concerns the stream is written in the stream."""

    level: int = parameter(
        -1,
        "Preview of streams of mode octree: the centres of the cells of this level alone, 0 (one "
        "cell) to the octree's depth; -1: all of the cloud.",
        minimum=-1,
        maximum=21,
        live=True,
    )
    queue: int = parameter(
        10,
        "Messages that wait while one is decoded; the oldest is lost beyond.",
        minimum=1,
        maximum=1000,
    )
    match_qos: bool = parameter(
        False,
        "Ask for points/compressed as reliable and as durable as all of its publishers offer it; "
        "else reliable, which does not hear best effort.",
    )


class CloudDecoder(ManagedNode):
    """points/compressed (CompressedPointCloud2) -> points/decompressed (PointCloud2).

    Rows are those of the original where the stream keeps the points' order; else there is one, of
    the points that are left if some were merged. A message that is damaged, foreign or from a later
    version is dropped and counted. Decodes on a thread, and only while somebody subscribes.
    """

    NAME = "cloud_decoder"
    CONFIG = CloudDecoderConfig

    def configure(self):
        self.counters = Counters(
            "clouds in", "clouds out", "not subscribed", "replaced by newer",
            *_REASONS.values(), _DAMAGED, _OTHER_CLOCK,
        )  # fmt: skip
        self.latencies = {"decode": Latency(), "age": Latency()}
        self._bytes_in = self._bytes_out = self._points = 0
        # Why the newest message was refused; empty if it was not.
        self._refusal = ""
        self._codec = Codec(CodecConfig(**self.config.subset(DeviceConfig).as_dict()))
        self.get_logger().info(f"decoding on {self._codec.device_name}")
        self._newest: NewestOnly | None = None
        self._publisher = self.advertise(PointCloud2, "points/decompressed", qos.RELIABLE)
        self._subscription = MatchedSubscription(
            self,
            CompressedPointCloud2,
            "points/compressed",
            self._on_compressed,
            qos.reliable(max(_DEPTH, self.config.queue)),
            self.config.match_qos,
        )

    def activate(self):
        self._newest = NewestOnly(
            self._use, lambda: self.counters.count("replaced by newer"), self.config.queue
        )
        self._subscription.start()

    def deactivate(self):
        self._subscription.stop()
        if self._newest is not None:
            self._newest.stop()
            self._newest = None

    def cleanup(self):
        self._codec = None

    def status(self):
        refusal = self._refusal
        return Status(
            diagnostics.WARN if refusal else diagnostics.OK,
            f"cloud refused: {refusal}" if refusal else "running",
            {
                "device": self._codec.device_name,
                "bytes in": self._bytes_in,
                "bytes out": self._bytes_out,
                "ratio": f"{self._bytes_out / max(self._bytes_in, 1):.3f}",
                "bits per point": f"{8 * self._bytes_in / max(self._points, 1):.3f}",
            },
        )

    def _on_compressed(self, message: CompressedPointCloud2) -> None:
        self.counters.count("clouds in")
        if self._publisher.get_subscription_count() == 0:
            self.counters.count("not subscribed")
            return
        self._newest.put(message)

    def _use(self, message: CompressedPointCloud2) -> None:
        """Decode a message and publish its cloud."""
        with self.guarding("a message on 'points/compressed' was dropped"):
            try:
                with self.latencies["decode"].measure():
                    cloud = self._decode(message)
            except CodecError as error:
                self._refusal = str(error)
                self.counters.count(_REASONS.get(type(error), _DAMAGED), reason=str(error))
                self.get_logger().warning(f"cloud refused: {error}", throttle_duration_sec=5.0)
                return
            self._refusal = ""
            self._publisher.publish(cloud)
            self.counters.count("clouds out")
            self._take_age(message)

    def _decode(self, message: CompressedPointCloud2) -> PointCloud2:
        values, points = decoded_cloud(message, self._codec, self.config.level)
        cloud = PointCloud2(**values)
        cloud.data = bytes_for_message(points)
        self._bytes_in += len(message.compressed_data)
        self._bytes_out += points.nbytes
        self._points += len(points)
        return cloud

    def _take_age(self, message: CompressedPointCloud2) -> None:
        """Note how long ago a cloud was stamped, by this node's clock."""
        stamp = message.header.stamp
        age = self.get_clock().now().nanoseconds - 1_000_000_000 * stamp.sec - stamp.nanosec
        if 0 <= age <= _OLDEST_NS:
            self.latencies["age"].add(1e-6 * age)
        else:
            self.counters.count(_OTHER_CLOCK)


def main() -> int:
    """Run the node."""
    return run(CloudDecoder)


if __name__ == "__main__":
    sys.exit(main())

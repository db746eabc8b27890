"""cloud_encoder: clouds in, compressed clouds out."""

import collections
import sys
import time
from dataclasses import dataclass

from point_cloud_interfaces.msg import CompressedPointCloud2
from sensor_msgs.msg import PointCloud2

from geoaccel_ros.compression.budget import Pace
from geoaccel_ros.compression.codec import Codec, CodecConfig, CodecError, DeviceConfig
from geoaccel_ros.compression.formats import FORMAT
from geoaccel_ros.compression.ladder import LinkConfig
from geoaccel_ros.compression.link_encoder import Encoded, LinkEncoder
from geoaccel_ros.compression.messages import compressed_values
from geoaccel_ros.config import parameter
from geoaccel_ros.pointcloud.layout import LayoutError
from geoaccel_ros.ros import diagnostics, qos
from geoaccel_ros.ros.diagnostics import Counters, Latency, Status
from geoaccel_ros.ros.matched_subscription import MatchedSubscription
from geoaccel_ros.ros.newest import NewestOnly
from geoaccel_ros.ros.node import ManagedNode, NodeConfig
from geoaccel_ros.ros.pointcloud2 import bytes_for_message, points_from_message
from geoaccel_ros.ros.run import run

MODES = ("octree", "scan", "lossless")
# Clouds that the middleware keeps until the executor comes for them.
_DEPTH = 5
# Compressed clouds that it keeps for those who missed a part. With ten, the first second after an
# outage goes to old ones, which jam a weak link; with one, a repeat finds a newer one in its place.
_HISTORY = 3


@dataclass(frozen=True)
class CloudEncoderConfig(NodeConfig, LinkConfig):
    """Parameters of cloud_encoder."""

    max_rate_hz: float = parameter(
        0.0,
        "Clouds a second that are encoded at most, evenly chosen; 0: all.",
        unit="Hz",
        minimum=0.0,
        maximum=1e4,
        live=True,
    )
    queue: int = parameter(
        1,
        "Clouds that wait while one is encoded; the oldest is lost beyond.",
        minimum=1,
        maximum=1000,
    )
    match_qos: bool = parameter(
        False,
        "Ask for points as reliably and as durably as all of their publishers offer them; else "
        "best effort, which hears everyone.",
    )


class CloudEncoder(ManagedNode):
    """points (PointCloud2) -> points/compressed (CompressedPointCloud2).

    Height, width and fields in the message are those of the cloud, but for fields that a budget
    has dropped. Does nothing while nobody subscribes. Clouds are encoded on a thread, so that
    parameters and diagnostics do not wait.
    """

    NAME = "cloud_encoder"
    CONFIG = CloudEncoderConfig

    def configure(self):
        self.counters = Counters(
            "clouds in", "clouds out", "not subscribed", "thinned", "replaced by newer",
            "thinned by budget", "over budget", "refused",
        )  # fmt: skip
        self._bytes_in = self._bytes_out = self._points = 0
        self._modes: collections.Counter = collections.Counter()
        self._step = self.config.step
        # Why the newest cloud was refused; empty if it was not.
        self._refusal = ""
        self.latencies = {"encode": Latency()}
        self._pace = Pace()
        codec = Codec(CodecConfig(**self.config.subset(DeviceConfig).as_dict()))
        self._device_name = codec.device_name
        self.get_logger().info(f"encoding on {codec.device_name}")
        self._encoder = LinkEncoder(codec, self.config.subset(LinkConfig))
        self._known_config = self.config
        self._newest: NewestOnly | None = None
        history = qos.reliable(_HISTORY)
        self._publisher = self.advertise(CompressedPointCloud2, "points/compressed", history)
        self._subscription = MatchedSubscription(
            self,
            PointCloud2,
            "points",
            self._on_points,
            qos.sensor_data(max(_DEPTH, self.config.queue)),
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
        self._encoder = None

    def status(self):
        ratio = self._bytes_in / self._bytes_out if self._bytes_out else 0.0
        bits = 8 * self._bytes_out / self._points if self._points else 0.0
        refusal = self._refusal
        warning = f"cloud refused: {refusal}" if refusal else self._encoder.shortage()
        return Status(
            diagnostics.WARN if warning else diagnostics.OK,
            warning or "running",
            values={
                "device": self._device_name,
                # The last cloud's: a target makes it another for each.
                "step [m]": self._step,
                "bytes in": self._bytes_in,
                "bytes out": self._bytes_out,
                "ratio": f"{ratio:.3f}",
                "bits per point": f"{bits:.3f}",
                **self._encoder.values(),
                **{f"clouds in mode {mode}": self._modes[mode] for mode in MODES},
            },
        )

    def _on_points(self, message: PointCloud2) -> None:
        self.counters.count("clouds in")
        if self._publisher.get_subscription_count() == 0:
            self.counters.count("not subscribed")
            return
        max_rate, now = self.config.max_rate_hz, time.monotonic()
        if max_rate:
            if not self._pace.is_due(now):
                self.counters.count("thinned")
                return
            self._pace.spend(now, 1.0 / max_rate)
        self._newest.put(message)

    def _use(self, message: PointCloud2) -> None:
        """Encode a cloud and publish it."""
        with self.guarding("a cloud was dropped"):
            try:
                self._encode(message)
            except (LayoutError, CodecError) as error:
                self._refusal = str(error)
                self.counters.count("refused", reason=str(error))
                self.get_logger().warning(f"cloud refused: {error}", throttle_duration_sec=5.0)
                return
            shortage = self._encoder.shortage()
            if shortage:
                self.get_logger().warning(shortage, throttle_duration_sec=10.0)

    def _encode(self, message: PointCloud2) -> None:
        config = self.config
        if config is not self._known_config:
            self._known_config = config
            self._encoder.reconfigure(config.subset(LinkConfig))
        points = points_from_message(message)
        begin = time.perf_counter()
        envelope = envelope_bytes(message)
        encoded = self._encoder.encode(points, message.height, envelope)
        if encoded is None:
            self.counters.count("thinned by budget")
            return
        self._refusal = ""
        self.latencies["encode"].add(1e3 * (time.perf_counter() - begin))
        compressed = _message_of(message, encoded)
        if not self._encoder.admit(envelope + len(encoded.data)):
            self.counters.count("over budget")
            return
        self._publisher.publish(compressed)
        self.counters.count("clouds out")
        self._bytes_in += points.nbytes
        self._bytes_out += len(encoded.data)
        self._points += len(points)
        self._modes[encoded.info.mode] += 1
        self._step = encoded.info.step


def envelope_bytes(message: PointCloud2) -> int:
    """Return how long a compressed cloud's message is beside its stream, or a little more."""
    names = [message.header.frame_id, FORMAT, *(field.name for field in message.fields)]
    # Numbers, each string's length and end, and what aligns them.
    return 64 + sum(len(name.encode()) + 8 for name in names) + 12 * len(message.fields)


def _message_of(message: PointCloud2, encoded: Encoded) -> CompressedPointCloud2:
    values = compressed_values(message)
    values["fields"] = [field for field in message.fields if field.name not in encoded.dropped]
    return CompressedPointCloud2(**values, compressed_data=bytes_for_message(encoded.data))


def main() -> int:
    """Run the node."""
    return run(CloudEncoder)


if __name__ == "__main__":
    sys.exit(main())

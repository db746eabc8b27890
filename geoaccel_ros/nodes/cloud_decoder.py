"""cloud_decoder: compressed clouds in, clouds out, as at a base station."""

import sys
from dataclasses import dataclass

from point_cloud_interfaces.msg import CompressedPointCloud2
from sensor_msgs.msg import PointCloud2

from geoaccel_ros.compression.codec import (
    Codec,
    CodecConfig,
    CodecError,
    DeviceConfig,
    inspect,
)
from geoaccel_ros.compression.formats import check_format
from geoaccel_ros.config import parameter
from geoaccel_ros.pointcloud.layout import LayoutError, dtype_of
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.diagnostics import Counters, Latency, Status
from geoaccel_ros.ros.node import ManagedNode, NodeConfig
from geoaccel_ros.ros.pointcloud2 import bytes_for_message
from geoaccel_ros.ros.run import run


@dataclass(frozen=True)
class CloudDecoderConfig(NodeConfig, DeviceConfig):
    """Parameters of cloud_decoder; what concerns the stream is written in the stream."""

    queue: int = parameter(
        10, "Clouds kept while one is decoded; the oldest is lost beyond.", minimum=1, maximum=1000
    )


class CloudDecoder(ManagedNode):
    """points/compressed (CompressedPointCloud2) -> points/decompressed (PointCloud2).

    Rows are those of the original where the stream keeps the points' order; else there is one, of
    the points that are left if some were merged. A message that is damaged, foreign or from a later
    version is dropped and counted.
    """

    NAME = "cloud_decoder"
    CONFIG = CloudDecoderConfig

    def configure(self):
        self.counters = Counters("clouds in", "clouds out", "refused")
        self.latencies = {"decode": Latency()}
        self._codec = Codec(CodecConfig(**self.config.subset(DeviceConfig).as_dict()))
        self.get_logger().info(f"decoding on {self._codec.device_name}")
        self._publisher = self.advertise(PointCloud2, "points/decompressed", qos.RELIABLE)
        profile = qos.reliable(self.config.queue)
        self.subscribe(
            CompressedPointCloud2, "points/compressed", self._on_compressed, profile, expected=True
        )

    def cleanup(self):
        self._codec = None

    def status(self):
        return Status(values={"device": self._codec.device_name})

    def _on_compressed(self, message: CompressedPointCloud2) -> None:
        self.counters.count("clouds in")
        try:
            with self.latencies["decode"].measure():
                cloud = self._decode(message)
        except (LayoutError, CodecError) as error:
            self.counters.count("refused")
            self.get_logger().warning(f"cloud refused: {error}", throttle_duration_sec=5.0)
            return
        self._publisher.publish(cloud)
        self.counters.count("clouds out")

    def _decode(self, message: CompressedPointCloud2) -> PointCloud2:
        check_format(message.format)
        data = bytes(message.compressed_data)
        points, height = self._codec.decode(data)
        declared = dtype_of(message.fields, message.point_step, message.is_bigendian)
        # Points may have been merged: the message declares those that there were.
        source_points = inspect(data).source_points
        if points.dtype != declared or source_points != message.height * message.width:
            raise CodecError("the stream holds another cloud than its message declares")
        width = len(points) // height if height else 0
        cloud = PointCloud2(
            header=message.header,
            height=height,
            width=width,
            fields=message.fields,
            is_bigendian=message.is_bigendian,
            point_step=message.point_step,
            row_step=width * message.point_step,
            is_dense=message.is_dense,
        )
        cloud.data = bytes_for_message(points)
        return cloud


def main() -> int:
    """Run the node."""
    return run(CloudDecoder)


if __name__ == "__main__":
    sys.exit(main())

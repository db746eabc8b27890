"""A node that fails, or takes its time, where its parameters say."""

import sys
import time
from dataclasses import dataclass

from rclpy.duration import Duration
from std_msgs.msg import String
from std_srvs.srv import Trigger

from geoaccel_ros.config import ConfigurationError, parameter
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.node import ManagedNode, NodeConfig
from geoaccel_ros.ros.run import run


@dataclass(frozen=True)
class ScriptedConfig(NodeConfig):
    voxel: float = parameter(0.5, "A number.", unit="m", minimum=0.1, maximum=2.0)
    fail_in: str = parameter("", "Transition in which to raise.")
    configure_for: float = parameter(0.0, "How long configure works.", unit="s")
    low: float = parameter(1.0, "Lower end.", minimum=0.0, maximum=9.0, live=True)
    high: float = parameter(2.0, "Upper end.", live=True)
    names: tuple[str, ...] = parameter((), "Names.", live=True)

    def __post_init__(self):
        super().__post_init__()
        if self.low > self.high:
            raise ConfigurationError(f"low ({self.low}) is above high ({self.high})")


class Scripted(ManagedNode):
    NAME = "scripted"
    CONFIG = ScriptedConfig

    def configure(self):
        print(f"configure voxel {self.config.voxel!r}", flush=True)
        end = time.monotonic() + self.config.configure_for
        while time.monotonic() < end:
            time.sleep(0.01)
        self._fail_in("configure")
        self._publisher = self.advertise(String, "said", qos.RELIABLE)
        self.subscribe(String, "heard", self._on_heard, qos.RELIABLE, expected=True)
        self.offer(Trigger, "~/break", self._on_break)

    def activate(self):
        self._fail_in("activate")

    def deactivate(self):
        self._publisher.publish(String(data="safe"))
        # A publisher that ends takes along what has not arrived.
        self._publisher.wait_for_all_acked(Duration(seconds=0.5))

    def cleanup(self):
        print("cleanup", flush=True)

    def _on_heard(self, message):
        if message.data == "raise":
            raise RuntimeError("callback failed")
        if message.data == "range":
            config = self.config
            message.data = f"{config.low!r} to {config.high!r} of {','.join(config.names)}"
        self._publisher.publish(String(data=f"heard {message.data} at {self.config.voxel}"))

    def _on_break(self, _request, _response):
        raise RuntimeError("service failed")

    def _fail_in(self, transition):
        if self.config.fail_in == transition:
            raise RuntimeError(f"{transition} failed")


if __name__ == "__main__":
    sys.exit(run(Scripted))

"""A subscription that asks for what the publishers of its topic offer."""

from collections.abc import Callable

from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.qos import QoSProfile
from rclpy.timer import Timer

from geoaccel_ros.ros import qos
from geoaccel_ros.ros.node import ManagedNode

# Seconds between looks at the offers.
_PERIOD = 0.5


class MatchedSubscription:
    """Messages that are expected, as reliable and as durable as all publishers offer them.

    Parameters
    ----------
    node : ManagedNode
        Calls :meth:`start` when it is activated and :meth:`stop` when it is deactivated.
    message_type : type
    topic : str
    callback : callable
        Called with each message while the node is active.
    profile : QoSProfile
        What is asked for while nobody offers anything; its depth stays.
    is_asked : bool
        Whether to match the offers; else this is a subscription like any other.
    """

    def __init__(
        self,
        node: ManagedNode,
        message_type: type,
        topic: str,
        callback: Callable,
        profile: QoSProfile,
        is_asked: bool,
    ):
        self._node, self._type, self._topic, self._callback = node, message_type, topic, callback
        self._is_asked = is_asked
        self._timer: Timer | None = None
        self._hear(profile)

    def start(self) -> None:
        """Look at the offers from now on, if that is asked."""
        if self._is_asked:
            steady = Clock(clock_type=ClockType.STEADY_TIME)
            self._timer = self._node.create_timer(_PERIOD, self._match, clock=steady)

    def stop(self) -> None:
        """Stay with what is asked for by now."""
        if self._timer is not None:
            self._node.destroy_timer(self._timer)
            self._timer = None

    def _hear(self, profile: QoSProfile) -> None:
        self._profile = profile
        self._subscription = self._node.subscribe(
            self._type, self._topic, self._callback, profile, expected=True, mended=self._mend
        )

    def _mend(self) -> bool:
        """Answer a publisher of another QoS; return whether that is seen to."""
        if self._is_asked:
            self._match()
        return self._is_asked

    def _match(self) -> None:
        """Listen anew where the publishers offer another QoS than is asked for."""
        node, topic = self._node, self._topic
        with node.guarding(f"the QoS of '{topic}' was not matched"):
            publishers = node.get_publishers_info_by_topic(node.resolve_topic_name(topic))
            offers = [publisher.qos_profile for publisher in publishers]
            profile = qos.matched(offers, self._profile.depth)
            if offers and profile != self._profile:
                node.destroy_subscription(self._subscription)
                self._hear(profile)
                node.get_logger().info(
                    f"'{topic}' is asked for {profile.reliability.name}, "
                    f"{profile.durability.name}, as it is offered"
                )

"""The base of all nodes: lifecycle, parameters, subscriptions that survive their callbacks,
diagnostics. A node overrides configure, activate, deactivate, cleanup and status; nothing else of
the lifecycle concerns it.
"""

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import QoSProfile, qos_policy_name_from_kind

from geoaccel_ros.backend import BackendError
from geoaccel_ros.config import Configuration, ConfigurationError, parameter
from geoaccel_ros.ros import diagnostics, parameters, qos
from geoaccel_ros.ros.diagnostics import Counters, Latency, Status

SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE


@dataclass(frozen=True)
class NodeConfig(Configuration):
    """Parameters of every node."""

    autostart: bool = parameter(
        True, "Configure and activate at start; false leaves both to a lifecycle manager."
    )


class ManagedNode(LifecycleNode):
    """A lifecycle node with typed parameters and diagnostics.

    Attributes
    ----------
    config : Configuration
        The parameters as read by the last configure transition.
    counters : Counters
        Events to report, such as clouds dropped and why.
    latencies : dict of str to Latency
        Durations to report, by the name of what takes them.
    """

    NAME: str
    CONFIG: type[NodeConfig]

    def __init__(self):
        super().__init__(self.NAME)
        self.config: NodeConfig | None = None
        self.counters = Counters()
        self.latencies: dict[str, Latency] = {}
        self._removals: list[Callable[[], object]] = []
        self._connections: dict[str, Callable[[], int]] = {}
        self._is_active = False
        parameters.declare(self, self.CONFIG)
        self.add_on_set_parameters_callback(self._on_set_parameters)
        # Unmanaged, and on a steady timer: a node reports in every state, also while time stands.
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", qos.RELIABLE)
        self.create_timer(
            1.0, self._publish_diagnostics, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )

    # What a node overrides.

    def configure(self) -> None:
        """Make everything that takes long: devices, kernels, models; publishers, subscriptions."""

    def activate(self) -> None:
        """Start what runs by itself: threads and timers."""

    def deactivate(self) -> None:
        """Stop what :meth:`activate` started; publishers still publish."""

    def cleanup(self) -> None:
        """Release what :meth:`configure` made; also called when it failed halfway."""

    def status(self) -> Status:
        """Return the node's condition for its diagnostics, while it is active."""
        return Status()

    # What a node uses.

    @property
    def is_active(self) -> bool:
        """Whether the node is between activate and deactivate."""
        return self._is_active

    def advertise(self, message_type: type, topic: str, profile: QoSProfile):
        """Return a publisher that is silent while the node is not active."""
        events = PublisherEventCallbacks(
            incompatible_qos=lambda event: self._on_incompatible_qos(topic, event)
        )
        publisher = self.create_lifecycle_publisher(
            message_type,
            topic,
            profile,
            event_callbacks=events,
            qos_overriding_options=qos.overridable(),
        )
        self._removals.append(lambda: self.destroy_lifecycle_publisher(publisher))
        self._connections[f"subscribers of {topic}"] = publisher.get_subscription_count
        return publisher

    def subscribe(
        self,
        message_type: type,
        topic: str,
        callback: Callable,
        profile: QoSProfile,
        *,
        always: bool = False,
    ):
        """Call ``callback`` with each message while the node is active, or ``always``.

        An exception in it is logged and counted; it never ends the node.
        """

        def guarded(message):
            if not (self._is_active or always):
                return
            try:
                callback(message)
            except Exception:
                self.counters.count("exceptions")
                self.get_logger().error(
                    f"a message on '{topic}' was dropped: {traceback.format_exc()}",
                    throttle_duration_sec=5.0,
                )

        events = SubscriptionEventCallbacks(
            incompatible_qos=lambda event: self._on_incompatible_qos(topic, event)
        )
        subscription = self.create_subscription(
            message_type,
            topic,
            guarded,
            profile,
            event_callbacks=events,
            qos_overriding_options=qos.overridable(),
        )
        self._removals.append(lambda: self.destroy_subscription(subscription))
        # Older rclpy does not tell what a subscription has found; the graph knows nearly as well.
        found = getattr(subscription, "get_publisher_count", lambda: self.count_publishers(topic))
        self._connections[f"publishers of {topic}"] = found
        return subscription

    def offer(self, service_type: type, name: str, callback: Callable):
        """Offer a service from configure to cleanup."""
        service = self.create_service(service_type, name, callback)
        self._removals.append(lambda: self.destroy_service(service))
        return service

    # The lifecycle, as rclpy calls it.

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        warn_without_profile(self.get_logger())

        def configure():
            self.config = parameters.read(self, self.CONFIG)
            self.configure()

        return self._transition("configure", configure, undo=self._release)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        def activate():
            super(ManagedNode, self).on_activate(state)
            self._is_active = True
            self.activate()
            self.get_logger().info("active")

        def undo():
            self._stop(state)

        return self._transition("activate", activate, undo=undo)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._transition("deactivate", lambda: self._stop(state))

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._transition("clean up", self._release)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        def shut_down():
            if self._is_active:
                self._stop(state)
            self._release()

        return self._transition("shut down", shut_down)

    def _transition(
        self, name: str, action: Callable[[], None], undo: Callable[[], None] | None = None
    ) -> TransitionCallbackReturn:
        """Run one transition; what goes wrong is logged here, since rclpy swallows it."""
        try:
            action()
            return SUCCESS
        except (ConfigurationError, BackendError) as error:
            self.get_logger().error(f"cannot {name}: {error}")
        except Exception:
            self.get_logger().error(f"cannot {name}: {traceback.format_exc()}")
        if undo is not None:
            self._transition(f"undo '{name}'", undo)
        return FAILURE

    def _stop(self, state: LifecycleState) -> None:
        try:
            self.deactivate()
        finally:
            self._is_active = False
            super().on_deactivate(state)

    def _release(self) -> None:
        try:
            self.cleanup()
        finally:
            # By the node, which would otherwise offer them to the executor for ever.
            for remove in self._removals:
                remove()
            self._removals.clear()
            self._connections.clear()

    # Parameters, events and diagnostics.

    def _on_set_parameters(self, changes):
        checked = parameters.check(self.CONFIG, changes)
        own = {parameter.name for parameter in self.CONFIG.parameters()}
        if checked.successful and self._is_active and any(c.name in own for c in changes):
            checked.successful = False
            checked.reason = (
                "parameters cannot change while the node is active: deactivate and clean it up, "
                "set them, and configure it again"
            )
        return checked

    def _on_incompatible_qos(self, topic: str, event) -> None:
        # An own callback replaces rclpy's warning, so the warning is given here.
        policy = qos_policy_name_from_kind(event.last_policy_kind)
        self.counters.count("incompatible QoS")
        self.get_logger().warning(
            f"an endpoint on '{topic}' offers or asks for another {policy}: nothing will pass; set "
            f"'qos_overrides.{topic}' to match it"
        )

    def _publish_diagnostics(self) -> None:
        status = self._report()
        # A message is lost where the two ends have not found each other yet: told for each topic.
        connections = {name: count() for name, count in self._connections.items()}
        values = {**status.values, **self.counters.values(), **connections}
        for name, latency in self.latencies.items():
            values.update(latency.values(name))
        message = DiagnosticArray(
            status=[
                DiagnosticStatus(
                    level=status.level,
                    name=self.get_fully_qualified_name(),
                    message=status.message,
                    hardware_id="",
                    values=[KeyValue(key=k, value=str(v)) for k, v in values.items()],
                )
            ]
        )
        message.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(message)

    def _report(self) -> Status:
        if not self._is_active:
            return Status(diagnostics.WARN, "not active")
        try:
            return self.status()
        except Exception as error:
            return Status(diagnostics.ERROR, f"no status: {error!r}")


def warn_without_profile(logger) -> None:
    """Say once that Fast DDS, as it comes, loses clouds of megabytes."""
    fast_dds = os.environ.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp").startswith("rmw_fastrtps")
    known = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
    transports = "FASTDDS_BUILTIN_TRANSPORTS"
    if fast_dds and not any(name in os.environ for name in (*known, transports)):
        logger.warning(
            "Fast DDS runs without a profile and will lose clouds of megabytes; set "
            "FASTDDS_DEFAULT_PROFILES_FILE to this package's config/fastdds.xml, as its launch "
            "files do"
        )

"""The base of all nodes: lifecycle, parameters, subscriptions that survive their callbacks,
diagnostics. A node overrides configure, activate, deactivate, cleanup and status, and config_type
where its parameters depend on each other; nothing else of the lifecycle concerns it.
"""

import contextlib
import copy
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.exceptions import ParameterException
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import QoSProfile, qos_policy_name_from_kind
from rclpy.qos_overriding_options import InvalidQosOverridesError, QoSOverridingOptions

from geoaccel_ros.backend import BackendError
from geoaccel_ros.config import Configuration, ConfigurationError, parameter
from geoaccel_ros.ros import diagnostics, parameters, qos
from geoaccel_ros.ros.diagnostics import Counters, Latency, Status

# Seconds without a message after which the diagnostics warn, where messages are expected.
SILENCE = 2.0

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
    config : Configuration or None
        The parameters as read by the configure transition, with the live ones set since: then it is
        another object, checked as a whole. None while the node is not configured.
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
        self._heard: dict[str, float] = {}
        # Topic and end of what has a QoS to override, in the order of their making.
        self._endpoints: dict[tuple[str, str], None] = {}
        self._is_active = False
        self._config_type = self.config_type()
        parameters.declare(self, self._config_type)
        self.add_on_set_parameters_callback(self._on_set_parameters)
        # What a transition that may take seconds runs in: the main lets signals interrupt it.
        self.working: Callable[[], AbstractContextManager] = contextlib.nullcontext
        # Unmanaged, and on a steady timer: a node reports in every state, also while time stands.
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", qos.RELIABLE)
        self.create_timer(
            1.0, self._publish_diagnostics, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )

    # What a node overrides.

    def config_type(self) -> type[NodeConfig]:
        """Return the type of the configuration, asked for once, when the node is made.

        Where one parameter decides which others there are, :func:`parameters.given` tells it.
        """
        return self.CONFIG

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
            incompatible_qos=lambda event: self._on_incompatible_qos(topic, "publisher", event)
        )
        with _qos_overrides_of(topic):
            publisher = self.create_lifecycle_publisher(
                message_type,
                topic,
                copy.copy(profile),  # overrides are written into it
                event_callbacks=events,
                qos_overriding_options=self._overriding(topic, "publisher"),
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
        expected: bool = False,
        mended: Callable[[], bool] = lambda: False,
    ):
        """Call ``callback`` with each message while the node is active, or ``always``.

        An exception in it is logged and counted; it never ends the node. Where messages are
        ``expected``, the diagnostics warn when none came for :data:`SILENCE` seconds. A publisher
        of another QoS is warned of unless ``mended`` says that this was taken care of. Messages
        that the middleware lost are counted.
        """
        if expected:
            self._heard[topic] = time.monotonic()

        def guarded(message):
            if expected:
                self._heard[topic] = time.monotonic()
            if self._is_active or always:
                with self.guarding(f"a message on '{topic}' was dropped"):
                    callback(message)

        def incompatible(event):
            with self.guarding(f"another QoS on '{topic}' was not seen to"):
                if not mended():
                    self._on_incompatible_qos(topic, "subscription", event)

        events = SubscriptionEventCallbacks(
            incompatible_qos=incompatible,
            message_lost=lambda event: self._on_lost(topic, event.total_count_change),
        )
        with _qos_overrides_of(topic):
            subscription = self.create_subscription(
                message_type,
                topic,
                guarded,
                copy.copy(profile),
                event_callbacks=events,
                qos_overriding_options=self._overriding(topic, "subscription"),
            )
        self._removals.append(lambda: self.destroy_subscription(subscription))
        # Older rclpy does not tell what a subscription has found; the graph knows nearly as well.
        found = getattr(subscription, "get_publisher_count", lambda: self.count_publishers(topic))
        self._connections[f"publishers of {topic}"] = found
        return subscription

    def offer(self, service_type: type, name: str, callback: Callable):
        """Offer a service from configure to cleanup.

        An exception in its callback is logged, counted and answered with ``success`` false.
        """

        def guarded(request, response):
            response.success, response.message = False, "failed, see the node's log"
            with self.guarding(f"a call of '{name}' failed"):
                return callback(request, response)
            return response

        service = self.create_service(service_type, name, guarded)
        self._removals.append(lambda: self.destroy_service(service))
        return service

    @contextlib.contextmanager
    def guarding(self, what: str) -> Iterator[None]:
        """Log and count an exception of a callback: it would end the executor and the process."""
        try:
            yield
        except Exception:
            self.counters.count("exceptions")
            self.get_logger().error(f"{what}: {traceback.format_exc()}", throttle_duration_sec=5.0)

    # The lifecycle, as rclpy calls it.

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        warn_without_profile(self.get_logger())

        def configure():
            self.config = parameters.read(self, self._config_type)
            self.configure()
            self._warn_of_unknown_overrides()

        return self._transition("configure", configure, undo=self._release)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        def activate():
            super(ManagedNode, self).on_activate(state)
            self._is_active = True
            self._active_since = time.monotonic()
            self.activate()
            self.get_logger().info("active")

        return self._transition("activate", activate, undo=lambda: self._stop(state))

    # What leads down is done even where part of it fails, so it succeeds in any case.

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._transition("deactivate", lambda: self._stop(state))
        return SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._transition("clean up", self._release)
        return SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.abandon(state)
        return SUCCESS

    def abandon(self, state: LifecycleState | None = None) -> None:
        """Stop and release everything, whatever state the node is in."""
        if self._is_active:
            self._transition("deactivate", lambda: self._stop(state))
        self._transition("clean up", self._release)

    def _transition(
        self, name: str, action: Callable[[], None], undo: Callable[[], None] | None = None
    ) -> TransitionCallbackReturn:
        """Run one transition; what goes wrong is logged here, since rclpy swallows it.

        A transition that can be undone can be interrupted.
        """
        try:
            with self.working() if undo else contextlib.nullcontext():
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
            self._heard.clear()
            self._endpoints.clear()
            self.config = None

    # Parameters, events and diagnostics.

    def _on_set_parameters(self, changes):
        try:
            values = parameters.check(self._config_type, changes)
            if self.config is not None:
                self.config = parameters.changed(self.config, values, self._is_active)
        except ConfigurationError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _overriding(self, topic: str, end: str) -> QoSOverridingOptions:
        """Let the user's parameters override an endpoint, but not what it was made with before.

        rclpy declares these parameters once, and the first profile's values become theirs.
        """
        stem = f"qos_overrides.{self.resolve_topic_name(topic)}.{end}"
        self._endpoints[self.resolve_topic_name(topic), end] = None
        return qos.overridable(
            policy
            for policy in qos.OVERRIDABLE
            if f"{stem}.{policy}" in self._parameter_overrides
            or not self.has_parameter(f"{stem}.{policy}")
        )

    def _warn_of_unknown_overrides(self) -> None:
        """Tell which overrides of QoS change nothing.

        They are no error: a file of parameters may be for several nodes, or for another setting.
        """
        known = {
            f"qos_overrides.{topic}.{end}.{policy}"
            for topic, end in self._endpoints
            for policy in qos.OVERRIDABLE
        }
        for name in self._parameter_overrides:
            if name.startswith("qos_overrides.") and name not in known:
                endpoints = ", ".join(f"{topic}.{end}" for topic, end in self._endpoints)
                self.get_logger().warning(
                    f"parameter '{name}' changes nothing: what can be overridden is "
                    f"{', '.join(qos.OVERRIDABLE)} of {endpoints}"
                )

    def _on_incompatible_qos(self, topic: str, end: str, event) -> None:
        # An own callback replaces rclpy's warning, so the warning is given here.
        policy = qos_policy_name_from_kind(event.last_policy_kind)
        self.counters.count("incompatible QoS")
        parameter = f"qos_overrides.{self.resolve_topic_name(topic)}.{end}.{policy.lower()}"
        self.get_logger().warning(
            f"an endpoint on '{topic}' offers or asks for another {policy}: nothing will pass; set "
            f"'{parameter}' to match it"
        )

    def _on_lost(self, topic: str, amount: int) -> None:
        self.counters.count(f"lost: {topic}", amount)
        total = self.counters[f"lost: {topic}"]
        self.get_logger().warning(
            f"messages on '{topic}' were lost on their way, {total} by now",
            throttle_duration_sec=5.0,
        )

    def _publish_diagnostics(self) -> None:
        with self.guarding("diagnostics failed"):
            self._diagnostics.publish(self._diagnostic_array())

    def _diagnostic_array(self) -> DiagnosticArray:
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
        return message

    def _report(self) -> Status:
        if not self._is_active:
            return Status(diagnostics.WARN, "not active")
        status = self.status()
        for topic, heard in self._heard.items():
            silent = time.monotonic() - max(heard, self._active_since)
            if silent > SILENCE:
                text = f"no message on '{topic}' for {silent:.0f} s"
                if status.level == diagnostics.OK:
                    return Status(diagnostics.WARN, text, status.values)
                return Status(status.level, f"{text}; before: {status.message}", status.values)
        return status


@contextlib.contextmanager
def _qos_overrides_of(topic: str) -> Iterator[None]:
    """Turn what rclpy says of a wrong override into a user's mistake."""
    try:
        yield
    except (ParameterException, InvalidQosOverridesError, RuntimeError, ValueError) as error:
        raise ConfigurationError(f"parameters 'qos_overrides.*' of '{topic}': {error}") from None


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

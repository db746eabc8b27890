"""Quality of service of the package's topics; every endpoint can be overridden by parameters."""

from collections.abc import Iterable

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions, QoSPolicyKind

# /tf_static's publishers each keep one message; a late subscriber must have room for all of them.
LATCHED = QoSProfile(
    depth=100,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
# Loses nothing as long as the publisher keeps all, too: it then waits for those who are slower.
KEEP_ALL = QoSProfile(history=HistoryPolicy.KEEP_ALL, reliability=ReliabilityPolicy.RELIABLE)
# The same of a publisher that does not send again what was lost on the way.
KEEP_ALL_THAT_ARRIVES = QoSProfile(
    history=HistoryPolicy.KEEP_ALL, reliability=ReliabilityPolicy.BEST_EFFORT
)
# What users may override of an endpoint.
OVERRIDABLE = ("history", "depth", "reliability", "durability")
CLOCK = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


def reliable(depth: int = 10) -> QoSProfile:
    """Return reliable with a queue of ``depth``: as a publisher, satisfies every subscriber."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE)


RELIABLE = reliable()
TRANSFORMS = reliable(100)


def sensor_data(depth: int = 5) -> QoSProfile:
    """Return best effort with a queue of ``depth``: hears every sensor, reliable or not."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT)


def matched(offers: Iterable[QoSProfile], depth: int) -> QoSProfile:
    """Return what a subscription can ask for of all ``offers``, and best effort if there are none.

    As reliable as the least reliable of them, and as durable as the least durable.
    """
    offers, profile = list(offers), sensor_data(depth)
    if offers and all(o.reliability == ReliabilityPolicy.RELIABLE for o in offers):
        profile.reliability = ReliabilityPolicy.RELIABLE
    if offers and all(o.durability == DurabilityPolicy.TRANSIENT_LOCAL for o in offers):
        profile.durability = DurabilityPolicy.TRANSIENT_LOCAL
    return profile


def overridable(policies: Iterable[str] = OVERRIDABLE) -> QoSOverridingOptions:
    """Let ``qos_overrides.<topic>.<publisher|subscription>.<policy>`` change an endpoint."""
    kinds = tuple(QoSPolicyKind[policy.upper()] for policy in policies)
    return QoSOverridingOptions(policy_kinds=kinds)

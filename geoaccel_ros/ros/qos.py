"""Quality of service of the package's topics; every endpoint can be overridden by parameters."""

from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions, QoSPolicyKind

# /tf_static's publishers each keep one message; a late subscriber must have room for all of them.
LATCHED = QoSProfile(
    depth=100,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
CLOCK = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


def reliable(depth: int = 10) -> QoSProfile:
    """Return reliable with a queue of ``depth``: as a publisher, satisfies every subscriber."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE)


RELIABLE = reliable()
TRANSFORMS = reliable(100)


def sensor_data(depth: int = 5) -> QoSProfile:
    """Return best effort with a queue of ``depth``: hears every sensor, reliable or not."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT)


def overridable() -> QoSOverridingOptions:
    """Let ``qos_overrides.<topic>.<publisher|subscription>.<policy>`` change an endpoint."""
    return QoSOverridingOptions(
        policy_kinds=(
            QoSPolicyKind.HISTORY,
            QoSPolicyKind.DEPTH,
            QoSPolicyKind.RELIABILITY,
            QoSPolicyKind.DURABILITY,
        )
    )

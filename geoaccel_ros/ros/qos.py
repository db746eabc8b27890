"""Quality of service of the package's topics; every endpoint can be overridden by parameters."""

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions, QoSPolicyKind

RELIABLE = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)

# /tf_static's publishers each keep one message; a late subscriber must have room for all of them.
LATCHED = QoSProfile(
    depth=100,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
TRANSFORMS = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE)
CLOCK = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


def sensor_data(depth: int = 5) -> QoSProfile:
    """Return best effort with a queue of ``depth``: hears every sensor, reliable or not."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST, depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT
    )


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

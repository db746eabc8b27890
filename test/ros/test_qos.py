import pytest
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from geoaccel_ros.ros import qos

LATCHED = QoSProfile(
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
KEEPS_LATE = QoSProfile(
    depth=1,
    reliability=ReliabilityPolicy.BEST_EFFORT,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)


@pytest.mark.parametrize(
    ("offers", "reliable", "durable"),
    [
        ([], False, False),
        ([qos.sensor_data()], False, False),
        ([qos.RELIABLE], True, False),
        ([LATCHED], True, True),
        ([LATCHED, LATCHED], True, True),
        ([LATCHED, qos.RELIABLE], True, False),
        ([LATCHED, KEEPS_LATE], False, True),
        ([LATCHED, qos.sensor_data()], False, False),
    ],
)
def test_no_more_is_asked_for_than_everyone_offers(offers, reliable, durable):
    profile = qos.matched(iter(offers), 7)
    assert profile.depth == 7
    assert (profile.reliability == ReliabilityPolicy.RELIABLE) == reliable
    assert (profile.durability == DurabilityPolicy.TRANSIENT_LOCAL) == durable

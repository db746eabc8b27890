"""Each test process talks on a DDS domain of its own, on this machine only."""

import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parent.parent

# Set before any test imports rclpy. 1 to 101 are safe on every system; parallel workers and
# parallel checkouts must not hear each other.
os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 101)
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ["FASTDDS_DEFAULT_PROFILES_FILE"] = str(_ROOT / "config" / "fastdds.xml")


@pytest.fixture
def probe():
    """A node of the test's own that hears and speaks."""
    from ros_harness import Probe

    with Probe() as made:
        yield made


@pytest.fixture
def nodes(tmp_path):
    """Start nodes as processes; whatever still runs at the test's end is ended."""
    from ros_harness import Processes

    with Processes(tmp_path) as started:
        yield started

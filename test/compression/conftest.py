"""A codec on a real OpenCL device, made once."""

import pytest

from geoaccel_ros.compression.codec import Codec, CodecConfig
from geoaccel_ros.compression.device import Device


@pytest.fixture(scope="session")
def device():
    return Device.open()


@pytest.fixture(scope="session")
def octree():
    return Codec(CodecConfig(mode="octree", max_decoded_mib=32))


@pytest.fixture(scope="session")
def scan():
    return Codec(CodecConfig(mode="scan", max_decoded_mib=32))


@pytest.fixture(scope="session", params=["octree", "scan"])
def codec(request):
    """Return a codec of each mode."""
    return request.getfixturevalue(request.param)

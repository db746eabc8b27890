"""A codec on a real OpenCL device, made once."""

import pytest

from geoaccel_ros.compression.codec import Codec, CodecConfig
from geoaccel_ros.compression.device import Device


@pytest.fixture(scope="session")
def device():
    return Device.open()


@pytest.fixture(scope="session")
def codec():
    return Codec(CodecConfig(step=0.01, max_decoded_mib=32))

"""compression/device.py: the choice of a device and the buffers."""

import os
import subprocess
import sys

import pytest

from geoaccel_ros.compression.device import Device, grown_size
from geoaccel_ros.compression.errors import CodecError


def run(script, **environment):
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_a_part_of_the_name_selects(device):
    part = device.name.split(":")[0].upper()
    assert Device.open(part).name.split(":")[0] == device.name.split(":")[0]


def test_another_name_is_refused_with_those_present(device):
    with pytest.raises(CodecError, match="'Voodoo2'.*present: ") as caught:
        Device.open("Voodoo2")
    assert device.name in str(caught.value)


@pytest.mark.parametrize("threads", [1, 2])
def test_pocl_takes_as_many_threads_as_asked(threads):
    script = (
        "from geoaccel_ros.compression.device import Device, CodecError\n"
        f"try: print(Device.open('portable', {threads}).queue.device.max_compute_units)\n"
        "except CodecError: print('no PoCL')"
    )
    printed = run(script)
    if printed == "no PoCL":
        pytest.skip("PoCL is not installed")
    assert printed == str(threads)


def test_without_opencl_the_remedy_is_named():
    script = (
        "from geoaccel_ros.compression.codec import Codec, CodecConfig, CodecError\n"
        "try: Codec(CodecConfig())\n"
        "except CodecError as error: print(error)"
    )
    printed = run(script, OCL_ICD_VENDORS="/nonexistent")
    assert "pip install pocl-binary-distribution" in printed
    assert "\n" not in printed


def test_a_buffer_is_kept_until_it_is_too_small():
    device = Device.open()
    first = device.buffer("a", 1000)
    assert device.buffer("a", 10) is first
    assert device.buffer("b", 10) is not first
    grown = device.buffer("a", 1001)
    assert grown.size == 2000
    assert device.buffer("a", 2000) is grown


@pytest.mark.parametrize(
    ("present", "needed", "grown"),
    [(0, 10, 10), (10, 11, 20), (10, 50, 50), (600, 700, 1000), (600, 1000, 1000)],
)
def test_a_buffer_doubles_as_far_as_the_device_allows(present, needed, grown):
    assert grown_size(present, needed, limit=1000) == grown


def test_a_buffer_beyond_the_device_is_refused(device):
    with pytest.raises(CodecError, match="MiB for the cloud"):
        device.buffer("beyond", 2**60)

"""compression/device.py: the choice of a device and the buffers."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pyopencl as cl
import pytest

from geoaccel_ros.compression.device import Device
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


def test_a_buffer_that_cannot_double_grows_as_far_as_the_device_allows(monkeypatch):
    # Stand-ins: a real one would take most of the memory.
    monkeypatch.setattr(cl, "Buffer", lambda context, flags, size: SimpleNamespace(size=size))
    device = Device.open()
    limit = device.context.devices[0].max_mem_alloc_size
    device.buffer("a", limit // 2 + 1)
    grown = device.buffer("a", limit // 2 + 2)
    assert grown.size == limit
    assert device.buffer("a", limit) is grown
    with pytest.raises(CodecError, match="MiB for the cloud"):
        device.buffer("a", limit + 1)


def test_a_buffer_beyond_the_device_is_refused(device):
    with pytest.raises(CodecError, match="MiB for the cloud"):
        device.buffer("beyond", 2**60)

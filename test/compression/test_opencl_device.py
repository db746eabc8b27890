"""compression/device.py: the choice of a device and the buffers."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from geoaccel_ros.compression.device import Device, grown_size, with_includes
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.group_sizes import GroupSizes


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


def test_caps_lower_what_the_device_has(device):
    capped = Device.open(max_local_kib=1, max_group_size=32)
    kernel = capped.program("prefix_sums.cl").sum_blocks
    assert capped.local_bytes == 1024
    assert capped.group_size(kernel) == 32
    assert capped.group_size(kernel, local_bytes=128) == 8
    assert Device.open(max_local_kib=2**30).local_bytes == device.local_bytes
    largest = device.queue.device.max_work_group_size
    assert Device.open(max_group_size=2**30).group_size(kernel) <= largest


def test_an_include_is_resolved_once():
    source = with_includes('#include "integers.cl"\n#include "coder.cl"\nkernel')
    assert source.count("#define PROBABILITY_BITS") == 1
    assert source.index("#define PROBABILITY_BITS") < source.index("#define INTEGER_CONTEXTS")
    assert "#include" not in source
    assert source.endswith("kernel")


def test_measured_group_sizes_are_found_while_working(tmp_path):
    device = Device.open()
    sizes = GroupSizes(tmp_path / "sizes.json")
    device = dataclasses.replace(device, group_sizes=sizes)
    kernel = device.program("morton.cl").deinterleave
    codes = device.upload("codes", np.arange(1000, dtype=np.uint64))
    for _ in range(3 * 6 + 1):
        cells = device.upload("cells", np.zeros(3000, np.uint32))
        device.launch(kernel, 1000, codes, 1000, cells)
        # Morton code 0b111 is the cell (1, 1, 1).
        assert device.download(cells, 3000, "u4")[[7, 1007, 2007]].tolist() == [1, 1, 1]
    ((task, size),) = json.loads((tmp_path / "sizes.json").read_text()).items()
    assert task == "deinterleave 2^10"
    assert size in (32, 64, 128, 256, 512, 1024)
    assert sizes.choose(task, [size]) == (size, False)


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

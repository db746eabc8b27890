"""In processes of their own: what is asked of the C library holds for the whole process."""

import subprocess
import sys

import pytest

FAULTS = """
import resource
import sys
import numpy as np
from geoaccel_ros.memory import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(3):
    [np.ones(500_000) for _ in range(4)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    [np.ones(500_000) for _ in range(4)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_arrays_of_megabytes_come_without_page_faults():
    def faults(mode):
        command = [sys.executable, "-c", FAULTS, mode]
        return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    # 200 arrays of 4 MB: a thousand pages each, or a few huge ones.
    assert faults("keep") < 200

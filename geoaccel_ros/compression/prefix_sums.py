"""Exclusive prefix sums on an OpenCL device: where each work-item's output begins."""

import pyopencl as cl

from geoaccel_ros.compression.device import Device

# What a GPU's work-item adds up by itself, and how many values a single work-group of a CPU takes.
_GPU_RUN = 8
_CPU_BLOCK = 16384


class PrefixSums:
    """Adds up uint32 values, in place."""

    def __init__(self, device: Device):
        self._device = device
        program = device.program("prefix_sums.cl")
        self._sum = program.sum_blocks
        self._scan = program.scan_blocks

    def exclusive(self, values: cl.Buffer, count: int) -> None:
        """Replace each of the first ``count`` values by the sum of those before it.

        Parameters
        ----------
        values : Buffer
            uint32 (count + 1,); the last becomes the sum of all. Sums are modulo 2**32.
        count : int
        """
        self._exclusive(values, count, 0)

    def _exclusive(self, values: cl.Buffer, count: int, level: int) -> None:
        device = self._device
        if device.is_cpu:
            group, run = 1, max(_CPU_BLOCK, -(-count // (4 * device.compute_units)))
        else:
            group, run = device.group_size(self._scan, local_bytes=4), _GPU_RUN
        blocks = max(1, -(-count // (group * run)))
        local = cl.LocalMemory(4 * group)
        starts = device.buffer(f"block_sums_{level}", 4 * (blocks + 1))
        if blocks > 1:
            device.launch_groups(self._sum, blocks, group, values, count, run, starts, local)
            self._exclusive(starts, blocks, level + 1)
        device.launch_groups(self._scan, blocks, group, values, count, run, starts, local)

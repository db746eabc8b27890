"""Stable radix sort of 64-bit keys on an OpenCL device."""

import pyopencl as cl

from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.prefix_sums import PrefixSums

# Bits of a digit: a CPU's few work-items have room for many counters each, a GPU's many do not.
_CPU_DIGIT_BITS = 11
_GPU_DIGIT_BITS = 6
_GPU_GROUP_SIZE = 64
# Keys that a GPU's work-item takes in sequence.
_GPU_RUN = 16


class RadixSort:
    """Sorts keys together with the places that they come from."""

    def __init__(self, device: Device, sums: PrefixSums):
        self._device = device
        self._sums = sums
        program = device.program("radix_sort.cl")
        self._count = program.count_digits
        self._scatter = program.scatter_keys

    def sort(
        self, keys: cl.Buffer, count: int, bits: int, payloads: cl.Buffer | None = None
    ) -> tuple[cl.Buffer, cl.Buffer]:
        """Return sorted keys and their payloads; equal keys stay in order.

        Parameters
        ----------
        keys : Buffer
            uint64 (count,). Overwritten, as are ``payloads``.
        count : int
        bits : int
            The keys are below 2**bits.
        payloads : Buffer, optional
            uint32 (count,). Without them, the payloads are the places of the unsorted keys: the
            permutation that sorts.

        Returns
        -------
        keys : Buffer
            uint64 (count,): one of the sort's own or the one that was passed.
        payloads : Buffer
            uint32 (count,).
        """
        device = self._device
        unsorted = payloads is None
        source = keys, device.buffer("sort_payloads_0", 4 * count) if unsorted else payloads
        target = device.buffer("sort_keys", 8 * count), device.buffer("sort_payloads", 4 * count)
        lanes, digit_bits = self._shape()
        # At least one, that there are payloads.
        passes = max(1, -(-bits // digit_bits))
        digits = 1 << -(-bits // passes)
        if device.is_cpu:
            groups = min(4 * device.compute_units, -(-count // digits))
            run = -(-count // max(groups, 1))
        else:
            run = _GPU_RUN
            groups = -(-count // (lanes * run))
        if count == 0:
            return target
        counts = device.buffer("sort_counts", 4 * (digits * groups + 1))
        local = cl.LocalMemory(4 * lanes * digits)
        for number in range(passes):
            shift = number * (digits.bit_length() - 1)
            device.launch_groups(
                self._count, groups, lanes, source[0], count, run, shift, digits, counts, local
            )
            self._sums.exclusive(counts, digits * groups)
            device.launch_groups(
                self._scatter, groups, lanes,
                *source, unsorted and number == 0, count, run, shift, digits, counts, *target,
                local,
            )  # fmt: skip
            source, target = target, source
        return source

    def _shape(self) -> tuple[int, int]:
        """Return work-items of a group and bits of a digit, for which local memory suffices."""
        device = self._device
        if device.is_cpu:
            return 1, min(_CPU_DIGIT_BITS, (device.local_bytes // 4).bit_length() - 1)
        lanes = min(_GPU_GROUP_SIZE, device.group_size(self._scatter))
        bits = min(_GPU_DIGIT_BITS, (device.local_bytes // (4 * lanes)).bit_length() - 1)
        return lanes, bits

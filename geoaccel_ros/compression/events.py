"""Events of a stage's kernels, whose number is not known before: emitted apart, then packed."""

from collections.abc import Callable

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression.device import Device

# Room for usual events, at most; larger clouds' are counted first.
_LOOSE_BYTES = 1 << 27


class Events:
    """Makes a dense array of what work-items emit, each an unknown number of events."""

    def __init__(self, device: Device):
        self._device = device
        self._pack = device.program("events.cl").pack_events

    def collect(
        self, emit: Callable[[cl.Buffer, cl.Buffer, cl.Buffer], None], chunks: int, usual: int
    ) -> tuple[cl.Buffer, np.ndarray]:
        """Return all events, uint16, and where each chunk's begin, uint32 (chunks + 1,).

        Parameters
        ----------
        emit : callable
            Launches the kernel, a work-item a chunk, given counts (to be filled with the events of
            each chunk), starts and events as coder.cl has them with ``-DEMIT``.
        chunks : int
        usual : int
            Events that a chunk seldom exceeds: counting them first would take as long as emitting
            them, so they are emitted anew where one does.
        """
        device = self._device
        if 2 * usual * chunks > _LOOSE_BYTES:
            # What has no room is counted all the same.
            usual = 0
        counts = device.buffer("event_counts", 4 * chunks)
        room = np.arange(chunks + 1, dtype=np.uint32) * np.uint32(usual)
        loose = device.buffer("loose_events", 2 * usual * chunks)
        emit(counts, device.upload("event_starts", room), loose)
        found = device.download(counts, chunks, "u4")
        starts = np.concatenate([[0], np.cumsum(found, dtype=np.uint32)]).astype(np.uint32)
        events = device.buffer("events", 2 * int(starts[-1]))
        placed = device.upload("event_starts", starts)
        if found.max(initial=0) > usual:
            emit(counts, placed, events)
            return events, starts
        group = 1 if device.is_cpu else device.group_size(self._pack)
        device.launch_groups(self._pack, chunks, group, loose, usual, placed, events)
        return events, starts

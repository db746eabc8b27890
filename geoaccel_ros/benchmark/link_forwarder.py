"""Carries Ethernet frames between two tap devices as a bad link would, in a process of its own.

The kernel's netem does the same, where there is one; this takes a tap device and a seed.
"""

import contextlib
import fcntl
import json
import os
import select
import struct
import sys
import time
from collections import deque
from collections.abc import Sequence

from geoaccel_ros.benchmark.link_model import LinkConfig, LinkDirection
from geoaccel_ros.benchmark.link_worker import answer

# linux/if_tun.h
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
# Of an Ethernet frame: what is left is the IP packet.
_ETHERNET_HEADER = 14
_FRAME_MAX = 65_536
# Frames of one tap before the other has its turn.
_BATCH = 64
# A link that waits for its turn on a busy machine would be slower than it says.
_NICE = -15


def open_tap(name: str) -> int:
    """Make a tap device; return the file that its frames are read from and written to.

    Raises
    ------
    OSError
        Where that is not permitted.
    """
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    except OSError:
        os.close(tap)
        raise
    return tap


class Forwarder:
    """Both directions between two files of frames.

    Parameters
    ----------
    ends : (int, int)
        Files as of :func:`open_tap`.
    config : LinkConfig
    seed : int
    """

    def __init__(self, ends: tuple[int, int], config: LinkConfig, seed: int):
        self.directions = tuple(LinkDirection(config, 2 * seed + side) for side in range(2))
        self._ends = ends
        # Frames under way, by direction; what is sent first arrives first.
        self._under_way: tuple[deque[tuple[float, bytes]], ...] = (deque(), deque())

    def take(self, side: int, now: float) -> None:
        """Read what waits at one end and decide when it arrives at the other."""
        for _ in range(_BATCH):
            try:
                frame = os.read(self._ends[side], _FRAME_MAX)
            except BlockingIOError:
                return
            arrival = self.directions[side].offer(now, len(frame) - _ETHERNET_HEADER)
            if arrival is not None:
                self._under_way[side].append((arrival, frame))

    def deliver(self, now: float) -> None:
        """Write all frames whose time has come."""
        for side, frames in enumerate(self._under_way):
            while frames and frames[0][0] <= now:
                # A device that was taken down, as at the end, takes no frame.
                with contextlib.suppress(OSError):
                    os.write(self._ends[1 - side], frames[0][1])
                frames.popleft()

    def wait(self, now: float) -> float | None:
        """Return the seconds until a frame's time comes; None: none is under way."""
        due = [frames[0][0] for frames in self._under_way if frames]
        return max(0.0, min(due) - now) if due else None


def main(arguments: Sequence[str]) -> int:
    """Forward until standard input ends.

    Each line on it is a command: ``down`` and ``up`` begin and end an outage, ``counts`` does
    nothing; every one is answered by the counts of both directions.

    Parameters
    ----------
    arguments : sequence of str
        Names of both taps, the fields of :class:`.link_model.LinkConfig` as JSON, and the seed.
    """
    names, config, seed = arguments[:2], LinkConfig(**json.loads(arguments[2])), int(arguments[3])
    with contextlib.suppress(PermissionError):
        os.nice(_NICE)
    ends = tuple(open_tap(name) for name in names)
    forwarder = Forwarder(ends, config, seed)
    answer(None)
    while True:
        wait = forwarder.wait(time.monotonic())
        ready, _, _ = select.select([*ends, sys.stdin], [], [], wait)
        now = time.monotonic()
        for side, end in enumerate(ends):
            if end in ready:
                forwarder.take(side, now)
        forwarder.deliver(now)
        if sys.stdin in ready:
            command = sys.stdin.readline().strip()
            if not command:
                return 0
            for direction in forwarder.directions:
                direction.up = {"down": False, "up": True}.get(command, direction.up)
            answer([direction.counts.as_dict() for direction in forwarder.directions])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

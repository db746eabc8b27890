"""The forwarder between two ends, on a virtual clock; sockets stand in for the tap devices."""

import contextlib
import socket

import pytest

from geoaccel_ros.benchmark.link_forwarder import Forwarder
from geoaccel_ros.benchmark.link_model import LinkConfig


@pytest.fixture
def ends():
    """Both hosts' ends, and those of the forwarder: each write is read as one frame."""
    with contextlib.ExitStack() as stack:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        for end in (end for pair in pairs for end in pair):
            end.setblocking(False)
            stack.enter_context(end)
        yield [pair[0] for pair in pairs], tuple(pair[1].fileno() for pair in pairs)


def received(end):
    frames = []
    with contextlib.suppress(BlockingIOError):
        while True:
            frames.append(end.recv(65_536))
    return frames


def frame(number):
    # An Ethernet header and 1000 bytes, a millisecond of the link.
    return bytes([number]) * 1014


def test_frames_arrive_in_order_when_their_time_has_come(ends):
    (robot, base), taps = ends
    forwarder = Forwarder(taps, LinkConfig(8e6, delay=0.01), seed=0)
    assert forwarder.wait(0.0) is None
    for number in range(3):
        robot.send(frame(number))
    forwarder.take(0, 0.0)
    assert forwarder.wait(0.0) == pytest.approx(0.011)
    forwarder.deliver(0.0109)
    assert received(base) == []
    forwarder.deliver(0.0121)
    assert received(base) == [frame(0), frame(1)]
    assert forwarder.wait(0.0121) == pytest.approx(0.0009)
    forwarder.deliver(1.0)
    assert received(base) == [frame(2)] and received(robot) == []
    assert forwarder.wait(1.0) is None


def test_directions_do_not_wait_for_each_other(ends):
    (robot, base), taps = ends
    forwarder = Forwarder(taps, LinkConfig(8e6), seed=0)
    for number in range(20):
        robot.send(frame(number))
    base.send(frame(99))
    forwarder.take(0, 0.0)
    forwarder.take(1, 0.0)
    forwarder.deliver(0.001)
    assert received(robot) == [frame(99)] and received(base) == [frame(0)]
    assert [direction.counts.offered for direction in forwarder.directions] == [20, 1]
    assert forwarder.directions[0].counts.offered_bytes == 20_000


def test_what_the_link_drops_does_not_arrive(ends):
    (robot, base), taps = ends
    forwarder = Forwarder(taps, LinkConfig(8e6, loss=0.5, queue=30_500), seed=5)
    for number in range(40):
        robot.send(frame(number))
    forwarder.take(0, 0.0)
    forwarder.deliver(1.0)
    counts = forwarder.directions[0].counts
    arrived = received(base)
    assert len(arrived) == counts.carried and counts.lost == 30 - counts.carried > 5
    assert counts.full == 10
    assert arrived == sorted(arrived)


def test_both_directions_lose_others(ends):
    (robot, base), taps = ends
    forwarder = Forwarder(taps, LinkConfig(8e6, loss=0.5), seed=5)
    for number in range(40):
        robot.send(frame(number))
        base.send(frame(number))
    forwarder.take(0, 0.0)
    forwarder.take(1, 0.0)
    forwarder.deliver(1.0)
    assert received(base) != received(robot)

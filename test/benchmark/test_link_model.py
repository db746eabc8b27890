"""The bad link's arithmetic, on a virtual clock."""

import math
from itertools import pairwise

import pytest

from geoaccel_ros.benchmark.link_model import LinkConfig, LinkCounts, LinkDirection

# 1000 bytes take a millisecond.
_RATE = 8e6


def test_a_packet_takes_its_time_and_the_delay():
    link = LinkDirection(LinkConfig(_RATE, delay=0.02), seed=0)
    assert link.offer(5.0, 1000) == pytest.approx(5.021)
    assert link.offer(7.0, 500) == pytest.approx(7.0205)


def test_packets_wait_for_each_other_and_carry_no_more_than_the_rate():
    link = LinkDirection(LinkConfig(_RATE), seed=0)
    arrivals = [link.offer(0.0, 1000) for _ in range(100)]
    assert arrivals == pytest.approx([1e-3 * (index + 1) for index in range(100)])
    # After a pause it owes nothing, and has saved nothing up.
    assert link.offer(1.0, 1000) == pytest.approx(1.001)
    assert link.offer(1.0, 1000) == pytest.approx(1.002)


def test_the_queue_is_finite_and_drains():
    link = LinkDirection(LinkConfig(_RATE, queue=10_100), seed=0)
    fates = [link.offer(0.0, 1000) for _ in range(15)]
    assert [fate is not None for fate in fates] == [True] * 10 + [False] * 5
    # 2.5 packets on, there is room for two.
    assert link.offer(0.0025, 1000) == pytest.approx(0.011)
    assert link.offer(0.0025, 1000) == pytest.approx(0.012)
    assert link.offer(0.0025, 1000) is None
    # A small one fits where a large one does not.
    assert link.offer(0.0025, 400) is not None
    assert link.counts.full == 6 and link.counts.carried == 13


def test_overloaded_it_carries_its_rate():
    link = LinkDirection(LinkConfig(_RATE, queue=50_000), seed=0)
    # Five times the rate, for two seconds.
    arrivals = [link.offer(2e-4 * index, 1000) for index in range(10_000)]
    carried = [arrival for arrival in arrivals if arrival is not None]
    assert len(carried) == pytest.approx(2000 + 50, abs=2)
    assert all(later - earlier >= 1e-3 - 1e-9 for earlier, later in pairwise(carried))
    assert max(a - 2e-4 * i for i, a in enumerate(arrivals) if a is not None) <= 0.05 + 1e-9


def test_loss_is_that_often_by_chance_and_the_same_for_a_seed():
    def fates(seed):
        link = LinkDirection(LinkConfig(_RATE, loss=0.02, queue=10**9), seed)
        return [link.offer(0.01 * index, 1000) is None for index in range(50_000)], link.counts

    lost, counts = fates(seed=3)
    assert sum(lost) == counts.lost
    # Four standard deviations of a binomial distribution.
    assert abs(sum(lost) - 1000) < 4 * math.sqrt(50_000 * 0.02 * 0.98)
    # Each by itself: two in a row as often as chance has it.
    pairs = sum(a and b for a, b in pairwise(lost))
    assert abs(pairs - 20) < 4 * math.sqrt(20)
    assert fates(seed=3)[0] == lost and fates(seed=4)[0] != lost


def test_what_is_lost_took_its_time():
    link = LinkDirection(LinkConfig(_RATE, loss=1.0), seed=0)
    assert link.offer(0.0, 1000) is None
    assert link._free == pytest.approx(1e-3)


def test_in_an_outage_nothing_passes_and_after_it_all():
    link = LinkDirection(LinkConfig(_RATE), seed=0)
    link.up = False
    assert [link.offer(0.01 * index, 1000) for index in range(3)] == [None] * 3
    link.up = True
    assert link.offer(0.03, 1000) == pytest.approx(0.031)
    assert link.counts == LinkCounts(4, 4000, 1, 1000, 0, 0, 3)


def test_every_packet_is_counted_once():
    link = LinkDirection(LinkConfig(_RATE, loss=0.3, queue=5000), seed=1)
    for index in range(1000):
        link.up = index % 10 > 0
        link.offer(5e-4 * index, 1000)
    counts = link.counts
    assert counts.offered == 1000 == counts.carried + counts.lost + counts.full + counts.outage
    assert counts.offered_bytes == 1_000_000 and counts.carried_bytes == 1000 * counts.carried
    assert min(counts.carried, counts.lost, counts.full) > 50 and counts.outage == 100
    later = LinkCounts(*(2 * value for value in counts.as_dict().values()))
    assert later.since(counts) == counts

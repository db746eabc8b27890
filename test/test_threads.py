import threading

import numpy as np
import pytest

from geoaccel_ros.threads import Threads


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("length", [0, 1, 2, 6, 7, 8, 1000])
@pytest.mark.parametrize("block", [1, 4, 256])
def test_parts_cover_all_once(count, length, block):
    seen = np.zeros(length, int)
    parts = []

    def part(first, last, seen):
        parts.append((first, last))
        seen[first:last] += 1

    Threads(count).split(part, length, seen, block=block)
    assert (seen == 1).all()
    assert len(parts) <= count and all(last > first for first, last in parts)
    assert all(first % block == 0 for first, _ in parts)
    # Evenly, by blocks.
    blocks = [-(-(last - first) // block) for first, last in parts]
    assert not blocks or max(blocks) - min(blocks) <= 1 or len(parts) < count


def test_the_calls_run_at_the_same_time():
    meeting = threading.Barrier(3, timeout=30)
    threads = Threads(3)
    for _ in range(2):
        threads.run([(meeting.wait,)] * 3)
    assert meeting.n_waiting == 0 and not meeting.broken


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_what_a_part_raises_arrives_once_all_have_ended(bad):
    others = threading.Semaphore(0)
    ended = []

    def part(number):
        if number == bad:
            others.release(2)
            raise ZeroDivisionError(f"part {number}")
        # Not before the bad one has failed, and a while after.
        assert others.acquire(timeout=30)
        threading.Event().wait(0.05)
        ended.append(number)

    with pytest.raises(ZeroDivisionError, match=f"part {bad}"):
        Threads(3).run([(part, number) for number in range(3)])
    assert sorted(ended) == sorted({0, 1, 2} - {bad})


def test_threads_serve_after_a_failure():
    threads = Threads(2)
    with pytest.raises(ZeroDivisionError):
        threads.run([(divmod, 1, 1), (divmod, 1, 0)])
    seen = []
    threads.split(lambda first, last: seen.append((first, last)), 10)
    assert sorted(seen) == [(0, 5), (5, 10)]


def test_no_threads():
    with pytest.raises(ValueError, match="0 threads, must be 1 or more"):
        Threads(0)

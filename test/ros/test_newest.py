import threading

import pytest
from ros_harness import wait_for

from geoaccel_ros.ros.newest import NewestOnly


class Held:
    """A worker whose first item is held until it is let go."""

    def __init__(self, **options):
        self.done, self.replaced = [], 0
        self._begun, self._go = threading.Event(), threading.Event()
        self._finished = threading.Semaphore(0)
        self.newest = NewestOnly(self._work, self._count, **options)
        self.newest.put(0)
        assert self._begun.wait(10)

    def let_go(self, count):
        """Wait until ``count`` items are done."""
        self._go.set()
        for _ in range(count):
            assert self._finished.acquire(timeout=10)

    def _work(self, item):
        self._begun.set()
        assert self._go.wait(10)
        self.done.append(item)
        self._finished.release()

    def _count(self):
        self.replaced += 1


@pytest.mark.parametrize(("kept", "expected"), [(1, [0, 5]), (3, [0, 3, 4, 5]), (9, range(6))])
def test_the_newest_that_are_kept_come_in_order_and_the_others_are_counted(kept, expected):
    held = Held(kept=kept)
    for item in range(1, 6):
        held.newest.put(item)
    held.let_go(len(expected))
    held.newest.stop()
    assert held.done == list(expected)
    assert held.replaced == 6 - len(expected)


def test_one_is_kept_unless_told():
    held = Held()
    for item in 1, 2, 3:
        held.newest.put(item)
    held.let_go(2)
    held.newest.stop()
    assert held.done == [0, 3] and held.replaced == 2


def test_stopping_finishes_the_item_in_work_and_forgets_those_that_wait():
    held = Held(kept=5)
    held.newest.put(1)
    stopping = threading.Thread(target=held.newest.stop)
    stopping.start()
    wait_for(lambda: held.newest._stopping, what="the stop to be asked for")
    held.let_go(1)
    stopping.join(10)
    assert not stopping.is_alive()
    assert held.done == [0] and held.replaced == 0

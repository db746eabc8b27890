"""Ticks go on while work takes longer than a period."""

import threading
from collections import deque

from ros_harness import wait_for

from geoaccel_ros.ros.control_loop import ControlLoop


def test_it_ticks_while_it_works():
    gate, began = threading.Event(), threading.Event()
    while_busy = deque()

    def work():
        began.set()
        gate.wait(20.0)

    def tick(skipped):
        if loop.busy:
            while_busy.append(began.is_set())
        elif not began.is_set():
            loop.work(work)

    loop = ControlLoop(0.005, 1.0, tick, None, None)
    loop.start()
    wait_for(lambda: len(while_busy) > 5, what="ticks beside the work")
    loop.stop()
    ticks = len(while_busy)
    assert loop.busy
    gate.set()
    loop.join()
    assert not loop.busy and len(while_busy) == ticks


def test_what_fails_is_told_and_ends_nothing():
    errors, ticks = deque(), deque()

    def fail():
        raise RuntimeError("work")

    def tick(skipped):
        ticks.append(skipped)
        if len(ticks) == 1:
            raise RuntimeError("tick")
        if len(ticks) == 2:
            loop.work(fail)

    loop = ControlLoop(0.005, 1.0, tick, None, errors.append)
    loop.start()
    wait_for(lambda: len(errors) == 2 and len(ticks) > 5, what="both errors and further ticks")
    loop.stop()
    loop.join()
    assert [str(error) for error in errors] == ["tick", "work"]
    assert not loop.busy


def test_periods_without_a_tick_are_told():
    skips = deque()
    hold = threading.Event()

    def tick(skipped):
        skips.append(skipped)
        if len(skips) == 1:
            hold.wait(0.2)

    loop = ControlLoop(0.01, 1.0, tick, None, None)
    loop.start()
    wait_for(lambda: len(skips) > 3, what="ticks after a long one")
    loop.stop()
    loop.join()
    # 0.2 s are 20 periods, the first of which had its tick and the last of which is on time.
    assert skips[1] >= 18


def test_without_a_period_it_ticks_when_woken_and_tells_of_silence():
    heard = deque()
    loop = ControlLoop(
        None, 0.05, lambda skipped: heard.append("tick"), lambda: heard.append(""), None
    )
    loop.start()
    wait_for(lambda: "" in heard, what="silence")
    loop.wake()
    wait_for(lambda: "tick" in heard, what="the tick")
    loop.stop()
    loop.join()
    assert heard.count("tick") == 1

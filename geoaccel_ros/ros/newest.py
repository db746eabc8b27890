"""A thread that never falls behind: of the items that wait for it, it keeps the newest alone."""

import collections
import threading
from collections.abc import Callable
from typing import Any


class NewestOnly:
    """Works on items one at a time, in order, on a thread of its own.

    Parameters
    ----------
    work : callable
        Called with an item, on the thread; must not raise.
    replaced : callable
        Called without arguments for each item that newer ones replaced before its turn came.
    kept : int
        How many items may wait.
    """

    def __init__(self, work: Callable[[Any], None], replaced: Callable[[], None], kept: int = 1):
        self._work = work
        self._replaced = replaced
        self._kept = kept
        self._changed = threading.Condition()
        self._waiting: collections.deque[Any] = collections.deque()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="newest only", daemon=True)
        self._thread.start()

    def put(self, item: Any) -> None:
        """Hand over an item; never waits for the work."""
        with self._changed:
            self._waiting.append(item)
            replaced = len(self._waiting) > self._kept
            if replaced:
                self._waiting.popleft()
            self._changed.notify()
        if replaced:
            self._replaced()

    def stop(self) -> None:
        """Return when the item in work is done; those that wait are forgotten."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping:
                    return
                item = self._waiting.popleft()
            self._work(item)

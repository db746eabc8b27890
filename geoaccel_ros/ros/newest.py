"""A thread that never falls behind: of the items that wait for it, it takes the newest alone."""

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
        Called without arguments for each item that a newer one replaced before its turn came.
    """

    def __init__(self, work: Callable[[Any], None], replaced: Callable[[], None]):
        self._work = work
        self._replaced = replaced
        self._changed = threading.Condition()
        self._waiting: list[Any] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="newest only", daemon=True)
        self._thread.start()

    def put(self, item: Any) -> None:
        """Hand over an item; never waits for the work."""
        with self._changed:
            replaced, self._waiting = bool(self._waiting), [item]
            self._changed.notify()
        if replaced:
            self._replaced()

    def stop(self) -> None:
        """Return when the item in work is done; the one that waits is forgotten."""
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
                item = self._waiting.pop()
            self._work(item)

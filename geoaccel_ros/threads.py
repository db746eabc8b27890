"""Compiled loops on a fixed number of threads."""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class Threads:
    """Splits loops among ``count`` threads, the calling one among them.

    For functions that release the GIL (Numba's ``nogil``). Numba's own parallel loops are not used:
    their default scheduler ends the process when two Python threads enter one at the same time.
    """

    def __init__(self, count: int):
        if count < 1:
            raise ValueError(f"{count} threads, must be 1 or more")
        self.count = count
        self._pool = ThreadPoolExecutor(count - 1, "loop") if count > 1 else None

    def split(self, function: Callable, length: int, *arguments, block: int = 1) -> None:
        """Call ``function(first, last, *arguments)`` for parts that together are 0 to ``length``.

        All but the last part are whole multiples of ``block`` long.
        """
        if self.count == 1 or length <= block:
            if length:
                function(0, length, *arguments)
            return
        blocks = -(-length // block)
        ends = [min(blocks * k // self.count * block, length) for k in range(self.count + 1)]
        parts = [part for part in itertools.pairwise(ends) if part[0] < part[1]]
        self.run([(function, *part, *arguments) for part in parts])

    def run(self, calls: list[tuple]) -> None:
        """Make all calls, each a function and its arguments.

        Raises
        ------
        Exception
            What a call raised, the first of them, once all have ended.
        """
        if self._pool is None:
            for function, *arguments in calls:
                function(*arguments)
            return
        others = [self._pool.submit(*call) for call in calls[1:]]
        try:
            for function, *arguments in calls[:1]:
                function(*arguments)
        finally:
            # They write into the caller's arrays: none may outlive this one.
            problems = [other.exception() for other in others]
        for problem in problems:
            if problem is not None:
                raise problem

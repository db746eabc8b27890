"""Contenders that take turns, and what their times come to."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from tqdm import tqdm

Name = TypeVar("Name", bound=Hashable)


def interleave(
    contenders: Mapping[Name, Callable[[], float | Sequence[float]]], repetitions: int
) -> dict[Name, np.ndarray]:
    """Run the contenders in turn, so that a slow minute of the machine hits all of them alike.

    The first round warms up and is dropped. A progress bar is shown on a terminal.

    Parameters
    ----------
    contenders : mapping of callables
        Each returns the milliseconds that it counts for itself, one number or several, so that
        what is not measured (making its input) does not count.
    repetitions : int
        Rounds after the first.

    Returns
    -------
    dict of ndarray, shape (repetitions,) or (repetitions, M)
        Milliseconds of each contender in the order of the rounds.
    """
    times = {name: [] for name in contenders}
    # With None tqdm is silent where standard error is no terminal.
    with tqdm(total=(repetitions + 1) * len(contenders), disable=None, leave=False) as progress:
        for _ in range(repetitions + 1):
            for name, run in contenders.items():
                times[name].append(run())
                progress.update()
    return {name: np.array(values[1:], float) for name, values in times.items()}


class Stopwatch:
    """Adds up the time spent inside ``with`` blocks, in milliseconds."""

    def __init__(self):
        self.milliseconds = 0.0

    def __enter__(self):
        self._start = time.perf_counter()

    def __exit__(self, *_):
        self.milliseconds += 1e3 * (time.perf_counter() - self._start)


def spread(times: np.ndarray) -> dict[str, float]:
    """Return the median and the quartiles of a contender's times (N,)."""
    q1, median, q3 = np.percentile(times, [25, 50, 75]).tolist()
    return {"median": median, "q1": q1, "q3": q3}

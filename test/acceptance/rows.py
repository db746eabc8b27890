"""Rows of the acceptance, and the runs that they are judged by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ros_harness import Probe, Processes


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes
    ----------
    task, must : str
        What is done, and what must hold.
    seen : callable
        From the outcomes of all good runs to the numbers that the table shows.
    check : callable
        Raises an AssertionError for an outcome that does not do; by default a run asserts itself.
    """

    task: str
    must: str
    seen: Callable[[list[dict]], str]
    check: Callable[[dict], None] = lambda outcome: None


@dataclass(frozen=True)
class Series:
    """Runs of one kind, and the rows that they decide.

    Attributes
    ----------
    run : callable
        Called with a folder for what it writes and the run's number, which is its seed; returns
        its outcome, numbers by name, or raises an exception that says what did not hold.
    runs : int
    rows : sequence of Row
    """

    run: Callable[[Path, int], dict]
    runs: int
    rows: Sequence[Row]


def in_processes(run: Callable[..., dict], **values) -> Callable[[Path, int], dict]:
    """Return a run in which nodes are started as processes and a probe talks to them.

    ``run`` is called as ``run(nodes, probe, seed, **values)``.
    """

    def started(folder: Path, seed: int) -> dict:
        with Processes(folder) as nodes, Probe() as probe:
            return run(nodes, probe, seed, **values)

    return started

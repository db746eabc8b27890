"""What every node says about itself once a second on /diagnostics."""

import collections
import threading
import time
from dataclasses import dataclass, field

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus

OK = DiagnosticStatus.OK
WARN = DiagnosticStatus.WARN
ERROR = DiagnosticStatus.ERROR

# Twenty minutes of a 10 Hz sensor, or as much of it as 100 kB hold.
_WINDOW = 12_000


@dataclass
class Status:
    """One node's condition: a level, a line, and named values, written as strings."""

    level: bytes = OK
    message: str = "running"
    values: dict[str, object] = field(default_factory=dict)


class Latency:
    """Durations in milliseconds of the last :data:`_WINDOW` calls, and how often they came."""

    def __init__(self):
        self._durations = collections.deque(maxlen=_WINDOW)
        self._ends = collections.deque(maxlen=20)

    def measure(self) -> "_Stopwatch":
        """Return a context manager that adds the time spent inside it."""
        return _Stopwatch(self)

    def add(self, milliseconds: float) -> None:
        """Add one duration that ended now; any thread may."""
        self._ends.append(time.monotonic())
        self._durations.append(milliseconds)

    def values(self, name: str) -> dict[str, str]:
        """Return count, rate and percentiles, their names prefixed by ``name``."""
        # A copy first: another thread may add while this one computes.
        durations = np.array(list(self._durations))
        if not len(durations):
            return {f"{name} count": "0"}
        p50, p95, p99 = np.percentile(durations, [50, 95, 99])
        return {
            f"{name} count": str(len(durations)),
            f"{name} rate [Hz]": f"{self._rate():.2f}",
            f"{name} p50 [ms]": f"{p50:.3f}",
            f"{name} p95 [ms]": f"{p95:.3f}",
            f"{name} p99 [ms]": f"{p99:.3f}",
            f"{name} max [ms]": f"{durations.max():.3f}",
        }

    def _rate(self) -> float:
        # Up to now, not up to the last end: a stream that stopped must fall to zero.
        ends = list(self._ends)
        span = time.monotonic() - ends[0]
        return (len(ends) - 1) / span if span > 0 else 0.0


class Counters:
    """Counts of events by name, such as clouds dropped and why; any thread may count."""

    def __init__(self, *names: str):
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(names, 0)
        self._reason = ""

    def count(self, name: str, amount: int = 1, reason: str = "") -> None:
        """Add ``amount`` to the count of ``name``; the newest ``reason`` is told beside them."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + amount
            self._reason = reason or self._reason

    def __getitem__(self, name: str) -> int:
        return self._counts.get(name, 0)

    def values(self) -> dict[str, str]:
        """Return all counts as strings, and the newest reason if there was one."""
        with self._lock:
            counts = {name: str(count) for name, count in self._counts.items()}
            return {**counts, "newest reason": self._reason} if self._reason else counts


class _Stopwatch:
    def __init__(self, latency: Latency):
        self._latency = latency

    def __enter__(self):
        self._start = time.perf_counter()

    def __exit__(self, exception_type, *_):
        if exception_type is None:
            self._latency.add(1e3 * (time.perf_counter() - self._start))

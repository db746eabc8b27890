"""The budget of a link: which clouds are sent, and how coarse, so that no two seconds exceed it.

What can be given up is a ladder, whose rungs are counted here: 0 is as asked for, each further one
is coarser (:mod:`.ladder` says how). Times are seconds of any clock that does not go back.

Three things hold the budget. The rung is chosen by what clouds are expected to take, each a share
of the budget, so that a link sees a steady stream and no bursts. A cloud that came out much larger
is encoded once more. And nothing is sent that :data:`WINDOW` has no room for, whatever was
expected.
"""

import collections
import math

# Seconds in which no more is sent than the budget has for them.
WINDOW = 2.0
# The part of the budget that is aimed at: the rest is for clouds that come early, or larger.
_AIM = 0.95
# A cloud this much above its share is encoded once more.
_EXCESS = 1.25
# A finer rung is taken where clouds have fitted into this part of their share for so many seconds.
_ROOM = 0.85
_PATIENCE = 1.0
# Seconds between clouds, until there are some.
_PERIOD = 0.1
# Clouds whose distances tell their rate, and whose sizes tell what all of them take.
_ARRIVALS = 20
# What a message takes without points, about.
_EMPTY_BYTES = 300.0
# Logarithm of what a rung saves, until it was tried, and what it saves at most. Of KITTI scans with
# bit-exact intensities a step larger by the root of 2 saves 0.05 in mode scan, 0.08 in mode octree;
# of coordinates alone 0.14.
_SAVING, _MAX_SAVING = 0.08, 3.0
# In how many clouds what was learnt of other rungs is forgotten: a rung that was too fine for one
# scene is tried again in another.
_MEMORY = 200.0


class SentBytes:
    """Sizes of what was sent in the last :data:`WINDOW` seconds."""

    def __init__(self):
        self._sent: collections.deque[tuple[float, int]] = collections.deque()

    def add(self, time: float, size: int) -> None:
        """Note what is sent at ``time``, which is not before that of the last."""
        self._sent.append((time, size))
        while self._sent[0][0] < time - WINDOW:
            self._sent.popleft()

    def total(self, time: float) -> int:
        """Return the bytes sent from ``time`` - WINDOW on, that instant included."""
        return sum(size for _, size in self._since(time))

    def count(self, time: float) -> int:
        """Return the number of messages sent in that time."""
        return len(self._since(time))

    def _since(self, time: float) -> list[tuple[float, int]]:
        # A copy: diagnostics ask from another thread.
        return [(sent, size) for sent, size in list(self._sent) if sent >= time - WINDOW]


class Pace:
    """Lets things pass at a mean rate; one that comes late leaves room for the next to be early."""

    def __init__(self):
        self._due = -math.inf
        self._slack = 0.0

    def is_due(self, time: float) -> bool:
        """Return whether one may pass; early by a quarter of the distance is in time."""
        return time >= self._due - self._slack

    def spend(self, time: float, seconds: float) -> None:
        """Note that one passes which takes ``seconds`` of the rate."""
        # The first has no due time to be late for.
        base = time if self._due == -math.inf else max(self._due, time - seconds)
        self._due = base + seconds
        self._slack = seconds / 4


class Sizes:
    """What clouds take at each rung, learnt from those that were encoded.

    Attributes
    ----------
    rung : int
        Where the last cloud was encoded.
    """

    def __init__(self, rungs: int):
        # Of rung i + 1 beside rung i.
        self._savings = [_SAVING] * (rungs - 1)
        self.rung = 0
        # Logarithm of the bytes a point of the last cloud, on its rung.
        self._level: float | None = None

    def learn(self, rung: int, points: int, size: int) -> None:
        """Learn from a cloud of ``points`` that took ``size`` bytes at ``rung``."""
        if not points:
            return
        level = math.log(max((size - _EMPTY_BYTES) / points, 0.01))
        first, end = sorted((self.rung, rung))
        if self._level is not None and first < end:
            saved = abs(level - self._level) if (level < self._level) == (rung == end) else 0.0
            missed = (saved - sum(self._savings[first:end])) / (end - first)
            for index in range(first, end):
                self._savings[index] = min(max(self._savings[index] + missed, 0.0), _MAX_SAVING)
        self._savings = [saving + (_SAVING - saving) / _MEMORY for saving in self._savings]
        self.rung, self._level = rung, level

    def expected(self, rung: int, points: int) -> float:
        """Return the bytes of a cloud of ``points`` at ``rung``; before any was seen, 0."""
        if self._level is None:
            return 0.0
        saved = sum(self._savings[self.rung : rung]) - sum(self._savings[rung : self.rung])
        return _EMPTY_BYTES + points * math.exp(self._level - saved)


class Budget:
    """Chooses the rung of each cloud, and whether it is sent.

    For each cloud in turn: :meth:`choose`, encode, :meth:`coarser` and where that names a rung,
    encode again and :meth:`learn`; then :meth:`admit`, and send.

    Parameters
    ----------
    bytes_per_s : float
        At most twice as much is sent in any two seconds.
    rungs : int
        Length of the ladder, at least 1.
    sent : SentBytes
        What was sent so far; :meth:`admit` adds to it.

    Attributes
    ----------
    rung : int
        Where the ladder is stood on now.
    short_since : float or None
        Since when clouds have been left out though they were made as coarse as can be. It is so
        until all were sent for the time of a window, or of as many as tell the rate.
    """

    def __init__(self, bytes_per_s: float, rungs: int, sent: SentBytes):
        self.bytes_per_s = bytes_per_s
        self.rung = 0
        self.short_since: float | None = None
        self.sent = sent
        self._last = rungs - 1
        self._sizes = Sizes(rungs)
        self._pace = Pace()
        self._periods = collections.deque([_PERIOD], _ARRIVALS)
        self._arrived: float | None = None
        self._fits_since: float | None = None
        # What each of the last clouds takes on the last rung, sent or not.
        self._needs: collections.deque[float] = collections.deque(maxlen=_ARRIVALS)
        self._tried = self._short = -math.inf

    @property
    def rate(self) -> float:
        """Clouds a second that come; the longest pause among the last is left out."""
        periods = sorted(self._periods)
        periods = periods[:-1] or periods
        return len(periods) / max(sum(periods), 1e-6)

    @property
    def share(self) -> float:
        """Bytes that each cloud may take, so that all can be sent."""
        # Of n clouds in a window's length on average, n + 1 may lie within one.
        return _AIM * self.bytes_per_s * WINDOW / (self.rate * WINDOW + 1)

    @property
    def is_short(self) -> bool:
        """Whether clouds have been left out for a window's time; one may be larger than others."""
        since = self.short_since
        return since is not None and self._short - since >= WINDOW

    @property
    def needs(self) -> list[float]:
        """Bytes that the last clouds take on the last rung, or are expected to."""
        # A copy: diagnostics ask from another thread.
        return list(self._needs)

    def room(self, time: float) -> float:
        """Return the bytes that may be sent at ``time``."""
        return self.bytes_per_s * WINDOW - self.sent.total(time)

    def choose(self, time: float, points: int) -> int | None:
        """Return the rung for a cloud that comes now, or None if it is to be left out."""
        if self._arrived is not None:
            self._periods.append(time - self._arrived)
        self._arrived = time
        share, room = self.share, self.room(time)
        if time - self._short > max(WINDOW, _ARRIVALS / self.rate):
            self.short_since = None
        self._needs.append(self._sizes.expected(self._last, points))
        self._settle(time, points, share)
        # Of the last rung more must be known than that it saves little.
        known = self._sizes.rung == self._last
        if known and self.rung == self._last and self._sizes.expected(self.rung, points) > share:
            if not self._pace.is_due(time):
                self._leave_out(time)
                return None
        rung = self._first(self.rung, points, room)
        if self._sizes.expected(rung, points) > room:
            # Even so there is no room; what is expected may be wrong, but not soon again.
            if time - self._tried < WINDOW:
                self._leave_out(time)
                return None
        self._tried = time
        return rung

    def coarser(self, time: float, rung: int, points: int, size: int) -> int | None:
        """Return the rung to encode a cloud once more at, or None where its size will do."""
        self.learn(rung, points, size)
        share, room = self.share, self.room(time)
        if rung == self._last or size <= min(_EXCESS * share, room):
            return None
        if size > _EXCESS * share:
            self.rung = max(self.rung, self._first(rung + 1, points, share))
            self._fits_since = None
        return self._first(rung + 1, points, min(share, room))

    def learn(self, rung: int, points: int, size: int) -> None:
        """Learn from a cloud of ``points`` that took ``size`` bytes at ``rung``."""
        self._sizes.learn(rung, points, size)
        if self._needs:
            last = self._sizes.expected(self._last, points)
            self._needs[-1] = size if rung == self._last else last

    def admit(self, time: float, size: int) -> bool:
        """Return whether a message of ``size`` bytes is to be sent now."""
        if size > self.room(time):
            if self._sizes.rung == self._last:
                self._leave_out(time)
            return False
        self.sent.add(time, size)
        # The rate at which clouds of this size were their share; at least one has a window.
        self._pace.spend(time, WINDOW / max(_AIM * self.bytes_per_s * WINDOW / size - 1, 1.0))
        return True

    def _leave_out(self, time: float) -> None:
        self._short = time
        self.short_since = time if self.short_since is None else self.short_since

    def _settle(self, time: float, points: int, share: float) -> None:
        """Step down where clouds do not fit, and up where they have fitted for some time."""
        if self._sizes.expected(self.rung, points) > share:
            self.rung = self._first(self.rung, points, share)
            self._fits_since = None
        elif self.rung and self._sizes.expected(self.rung - 1, points) <= _ROOM * share:
            if self._fits_since is None:
                self._fits_since = time
            elif time - self._fits_since >= _PATIENCE:
                self.rung = self._first(0, points, _ROOM * share)
                self._fits_since = None
        else:
            self._fits_since = None

    def _first(self, begin: int, points: int, limit: float) -> int:
        """Return the finest rung from ``begin`` on that is expected to keep within ``limit``."""
        for rung in range(begin, self._last):
            if self._sizes.expected(rung, points) <= limit:
                return rung
        return self._last

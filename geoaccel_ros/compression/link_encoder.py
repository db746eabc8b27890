"""A codec that encodes a stream of clouds for a link."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic

import numpy as np

from geoaccel_ros.compression.budget import WINDOW, Budget, SentBytes
from geoaccel_ros.compression.codec import Codec, StreamInfo, inspect
from geoaccel_ros.compression.ladder import LinkConfig, Rung, ladder
from geoaccel_ros.compression.policies import check_there

# Clouds of the last rung whose sections tell what their bytes are of.
_TOLD_OF = 20


@dataclass(frozen=True)
class Encoded:
    """A cloud that may be sent.

    Attributes
    ----------
    data : bytes
        The stream.
    info : StreamInfo
        What it says of itself.
    dropped : tuple of str
        Fields that were left out of it; where they were is padding.
    """

    data: bytes
    info: StreamInfo
    dropped: tuple[str, ...]


class LinkEncoder:
    """Encodes clouds as a link has room for them.

    Parameters
    ----------
    codec : Codec
        It is reconfigured for each cloud.
    config : LinkConfig
    clock : callable
        Returns seconds that never go back.

    Attributes
    ----------
    config : LinkConfig
    sent : SentBytes
        What was sent, with a target or without.
    """

    def __init__(self, codec: Codec, config: LinkConfig, clock: Callable[[], float] = monotonic):
        self._codec = codec
        self._clock = clock
        self.sent = SentBytes()
        self._begin(config)

    def reconfigure(self, config: LinkConfig) -> None:
        """Encode by other parameters from the next cloud on."""
        if config == self.config:
            return
        # What was sent under a larger target would keep everything back.
        if (config.target_bytes_per_s or inf) < (self.config.target_bytes_per_s or inf):
            self.sent = SentBytes()
        self._begin(config)

    def encode(self, points: np.ndarray, height: int, envelope: int) -> Encoded | None:
        """Return a cloud encoded, or None where the budget has it left out.

        Parameters
        ----------
        points : ndarray, shape (N,), structured
        height : int
            As :meth:`Codec.encode` takes them.
        envelope : int
            Bytes of the message beside the stream.

        Raises
        ------
        CodecError
            As :meth:`Codec.encode`; or if a field of ``optional`` is none of the cloud's.
        """
        budget = self._budget
        if budget is None:
            return self._encode(points, height, 0)
        check_there(points.dtype.names, "optional", self.config.optional)
        rung = budget.choose(self._clock(), len(points))
        if rung is None:
            return None
        encoded = self._encode(points, height, rung)
        size = envelope + len(encoded.data)
        rung = budget.coarser(self._clock(), rung, len(points), size)
        if rung is not None:
            encoded = self._encode(points, height, rung)
            budget.learn(rung, len(points), envelope + len(encoded.data))
        return encoded

    def admit(self, size: int) -> bool:
        """Return whether a message of ``size`` bytes may be sent, and note that it is sent now."""
        now = self._clock()
        if self._budget is not None:
            return self._budget.admit(now, size)
        self.sent.add(now, size)
        return True

    def values(self) -> dict[str, str]:
        """Return what is to be known of rung, rates and target; from any thread."""
        now, budget = self._clock(), self._budget
        values = {
            "rate out [Hz]": f"{self.sent.count(now) / WINDOW:.2f}",
            "bytes/s out": f"{self.sent.total(now) / WINDOW:.0f}",
        }
        if budget is not None:
            values["target [B/s]"] = _bytes_text(budget.bytes_per_s)
            values["rung"] = f"{budget.rung} of {len(self._rungs) - 1}"
        return values

    def shortage(self) -> str:
        """Return why the budget leaves clouds out and what helps, '' while it does not."""
        budget = self._budget
        if budget is None or not budget.is_short:
            return ""
        sections: Counter[str] = Counter()
        # A copy: diagnostics ask from another thread.
        for bytes_by_section in list(self._coarsest):
            sections.update(bytes_by_section)
        if not sections:
            return ""
        needs = budget.needs
        ((name, size),) = sections.most_common(1)
        field = name.removeprefix("field ")
        remedies = ["a larger target"]
        if field == name:
            remedies.append("a larger max_step")
        else:
            article = "a larger step of" if field in self.config.steps() else "a step for"
            remedies += [f"{article} it in 'quantise'", "its name in 'optional'"]
        room = WINDOW * budget.bytes_per_s
        if min(needs) > room:
            part = "any of"
        else:
            part = "all"
            remedies.append("fewer clouds by max_rate_hz")
        return (
            f"target_bytes_per_s of {_bytes_text(budget.bytes_per_s)} cannot carry {part} "
            f"{budget.rate:.1f} clouds a second: at the coarsest they take about "
            f"{sum(needs) / len(needs):.0f} bytes on average, {max(needs):.0f} at most, where "
            f"{WINDOW:g} s carry no more than {_bytes_text(room)}; "
            f"{size / sections.total():.0%} of it is {name}; "
            f"what helps is {', '.join(remedies[:-1])} or {remedies[-1]}"
        )

    def _begin(self, config: LinkConfig) -> None:
        self.config = config
        self._rungs: list[Rung] = ladder(config)
        self._encodings = [rung.encoding(config) for rung in self._rungs]
        self._coarsest: deque[dict[str, int]] = deque(maxlen=_TOLD_OF)
        target = config.target_bytes_per_s
        self._budget = Budget(target, len(self._rungs), self.sent) if target else None

    def _encode(self, points: np.ndarray, height: int, rung: int) -> Encoded:
        dropped = self._rungs[rung].dropped
        if dropped:
            # A view: offsets and the point's size stay.
            points = points[[name for name in points.dtype.names if name not in dropped]]
        self._codec.reconfigure(self._encodings[rung])
        data = self._codec.encode(points, height)
        info = inspect(data)
        if rung == len(self._rungs) - 1:
            self._coarsest.append(info.bytes_by_section)
        return Encoded(data, info, dropped)


def _bytes_text(value: float) -> str:
    """Return a number of bytes to read, which a target may hold a part of."""
    return f"{value:.0f}" if value >= 10 else f"{value:.3g}"

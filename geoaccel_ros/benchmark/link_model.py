"""One direction of a bad link, as arithmetic on packets and instants: no clock, no sockets."""

import random
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class LinkConfig:
    """What a link does to packets, alike in both directions.

    Attributes
    ----------
    rate : float, bit/s
        One packet after the other at this rate; the next waits in the queue.
    delay : float, s
        Of every packet, after its last bit was sent.
    loss : float
        Probability that a packet is lost after it took its time on the link, each by itself.
    queue : int, bytes
        Packets beyond are dropped, the newest first, as most routers and radios do.
    """

    rate: float
    delay: float = 0.0
    loss: float = 0.0
    queue: int = 256 * 1024


@dataclass
class LinkCounts:
    """Packets and their bytes, IP headers included.

    ``offered`` is the sum of what was ``carried``, ``lost`` by chance, dropped because the queue
    was ``full``, and dropped in an ``outage``.
    """

    offered: int = 0
    offered_bytes: int = 0
    carried: int = 0
    carried_bytes: int = 0
    lost: int = 0
    full: int = 0
    outage: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    def since(self, earlier: "LinkCounts") -> "LinkCounts":
        """Return what has come since these counts were taken."""
        then = earlier.as_dict()
        return LinkCounts(**{name: count - then[name] for name, count in self.as_dict().items()})


class LinkDirection:
    """Decides what becomes of each packet of one direction.

    The same packets at the same instants meet the same fate for the same seed.

    Parameters
    ----------
    config : LinkConfig
    seed : int

    Attributes
    ----------
    up : bool
        False during an outage: packets are dropped; those already in the queue still arrive.
    counts : LinkCounts
    """

    def __init__(self, config: LinkConfig, seed: int):
        self.up = True
        self.counts = LinkCounts()
        self._config = config
        self._chance = random.Random(seed)
        # When the last bit of all that is in the queue will have been sent.
        self._free = float("-inf")

    def offer(self, now: float, size: int) -> float | None:
        """Return when a packet arrives at the other end, or None if it never does.

        Parameters
        ----------
        now : float, s
            Not before that of the last packet.
        size : int, bytes
        """
        counts, config = self.counts, self._config
        counts.offered += 1
        counts.offered_bytes += size
        if not self.up:
            counts.outage += 1
            return None
        begin = max(now, self._free)
        if (begin - now) * config.rate / 8 + size > config.queue:
            counts.full += 1
            return None
        self._free = begin + 8 * size / config.rate
        if self._chance.random() < config.loss:
            counts.lost += 1
            return None
        counts.carried += 1
        counts.carried_bytes += size
        return self._free + config.delay

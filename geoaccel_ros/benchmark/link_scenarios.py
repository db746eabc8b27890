"""The links that clouds are to cross, and what must come of it."""

from dataclasses import dataclass

from geoaccel_ros.benchmark.link_model import LinkConfig

OURS = "geoaccel, relay"
RAW, RAW_RELIABLE = "raw, best effort", "raw, reliable"


@dataclass(frozen=True)
class Scenario:
    """One link, and what is asked of the clouds that cross it.

    Attributes
    ----------
    link : LinkConfig or None
        None: both ends are on one host.
    bytes_per_s : float
        The encoder's ``target_bytes_per_s``; 0: none.
    outage : float, s
        Without any packet, in the middle of the run.
    delivered : float
        Least part of the clouds that were published while the link was up.
    age_p99 : float or None, s
        Largest 99th percentile, from a cloud's publication to its arrival; None: nothing asked.
    resumes : float or None, s
        Longest from the end of the outage to the next cloud.
    raw_fails : bool
        Whether uncompressed clouds that take more than its rate must not get through.
    """

    link: LinkConfig | None
    bytes_per_s: float = 0.0
    outage: float = 0.0
    delivered: float = 0.95
    age_p99: float | None = None
    resumes: float | None = None
    raw_fails: bool = False


SCENARIOS = {
    "30": Scenario(LinkConfig(30e6), delivered=0.99, age_p99=0.3, raw_fails=True),
    # 8 Mbit/s: what it takes to wrap them, a seventh, has to fit, too.
    "10": Scenario(LinkConfig(10e6), bytes_per_s=1.0e6, delivered=0.98, age_p99=0.5),
    "lossy": Scenario(LinkConfig(50e6, delay=0.02, loss=0.02)),
    "outage": Scenario(LinkConfig(30e6), outage=10.0, resumes=2.0),
    "one host": Scenario(None, delivered=0.99, age_p99=0.1),
}


def name_of(scenario: Scenario) -> str:
    """Return how a table calls it."""
    if scenario.link is None:
        return "one host"
    link = scenario.link
    parts = [f"{link.rate / 1e6:g} Mbit/s"]
    if link.loss:
        parts.append(f"{100 * link.loss:g} % lost")
    if link.delay:
        parts.append(f"{1e3 * link.delay:g} ms")
    if scenario.bytes_per_s:
        parts.append(f"target {scenario.bytes_per_s / 1e6:g} MB/s")
    if scenario.outage:
        parts.append(f"{scenario.outage:g} s outage")
    return ", ".join(parts)

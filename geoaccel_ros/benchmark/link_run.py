"""One run of clouds across a link: hosts, nodes, player and probe, and what came of it."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geoaccel_ros.benchmark.environment import node_environment
from geoaccel_ros.benchmark.errors import BenchmarkError
from geoaccel_ros.benchmark.link_hosts import BASE, ROBOT, Host, Link
from geoaccel_ros.benchmark.link_model import LinkCounts
from geoaccel_ros.benchmark.link_scenarios import OURS, RAW_RELIABLE, Scenario
from geoaccel_ros.benchmark.link_worker import Worker
from geoaccel_ros.cli.demo.processes import NodeProcess, stop
from geoaccel_ros.resources import share_path

# A first start compiles kernels.
_START_TIMEOUT = 150.0
# One side knows the other a moment before the other knows it; a cloud sent in between is lost.
_SETTLE = 1.5
# Clouds before those that count: kernels, buffers and budgets have seen some by then.
_WARM_UP = 20
# What comes later than this after the last cloud counts as lost.
_LATE = 3.0
# Of the encoder's diagnostics: what it sent, and why a cloud was none of that.
_BYTES = "bytes out"
_REASONS = (
    "lost: points", "not subscribed", "replaced by newer", "thinned by budget", "over budget",
    "refused",
)  # fmt: skip


@dataclass(frozen=True)
class Cloud:
    """A cloud that was published while all was measured.

    Attributes
    ----------
    published : float, s
        Since the first.
    age : float or None, s
        When it arrived; None: it did not.
    difference : dict or None
        As of :class:`.link_comparison.Difference`.
    """

    published: float
    age: float | None
    difference: dict | None


@dataclass(frozen=True)
class LinkRun:
    """What came of a run.

    Attributes
    ----------
    clouds : list of Cloud
        In the order of publication.
    strangers : int
        Clouds that arrived and were not sent, or under another stamp, or twice.
    sent : LinkCounts or None
        What the robot put on the link meanwhile; None: there was none.
    encoder : dict of str
        The encoder's diagnostics at the end, if there was one.
    left_out : dict of int
        Clouds that the encoder did not send meanwhile, by reason.
    bytes_published : int
        Of compressed clouds meanwhile; of raw ones those of their points.
    outage : (float, float) or None, s
        Begin and end, since the first cloud.
    memory : dict of ndarray (M, 2)
        By node: seconds and resident MiB, once a second.
    decoded : int or None
        Index of the original of the cloud that the probe has written; None: none came.
    """

    clouds: list[Cloud]
    strangers: int
    sent: LinkCounts | None
    encoder: dict[str, str]
    left_out: dict[str, int]
    bytes_published: int
    outage: tuple[float, float] | None
    memory: dict[str, np.ndarray]
    decoded: int | None


@dataclass(frozen=True)
class Setup:
    """What all runs share.

    Attributes
    ----------
    clouds : Path
        Folder of arrays 0.npy, 1.npy, ...
    cloud_bytes : float
        Mean of one.
    rate : float, Hz
    seconds : float
        Of each run.
    encoder : dict of str
        Parameters of the encoder.
    threads : int
    seed : int
    decoded : Path
        Where a cloud from the decoder is written.
    """

    clouds: Path
    cloud_bytes: float
    rate: float
    seconds: float
    encoder: dict[str, str]
    threads: int
    seed: int
    decoded: Path


def run_link(setup: Setup, scenario: Scenario, contender: str, folder: Path) -> LinkRun:
    """Send clouds across a link and compare what arrives.

    Parameters
    ----------
    setup : Setup
    scenario : Scenario
    contender : str
        Of :mod:`.link_scenarios`: our nodes, or the clouds as they are.
    folder : Path
        For logs.

    Raises
    ------
    BenchmarkError
        If there can be no hosts here, or something does not start.
    """
    with contextlib.ExitStack() as stack:
        # Both sides find each other across the link.
        stack.enter_context(node_environment(ROS_AUTOMATIC_DISCOVERY_RANGE="SUBNET"))
        hosts, link = _hosts(stack, scenario, setup.seed)
        plain = _profile("config/fastdds.xml")
        sender = _profile("config/fastdds_link.xml") if link else plain
        nodes = []
        if contender == OURS:
            arguments = _arguments(setup)
            nodes = [
                NodeProcess(name, arguments[name], folder / f"{name}.log", host.wrapper(**profile))
                for name, host, profile in (
                    ("cloud_encoder", hosts[ROBOT], sender),
                    ("cloud_decoder", hosts[BASE], plain),
                )
            ]
            stack.callback(stop, nodes)
            for node in nodes:
                _wait_until_active(node, folder / f"{node.name}.log")
        reliability = "reliable" if contender == RAW_RELIABLE else "best_effort"
        player = Worker(
            "geoaccel_ros.benchmark.link_player",
            [str(setup.clouds), str(setup.rate), reliability],
            hosts[ROBOT].wrapper(**(plain if nodes else sender)),
        )
        stack.callback(player.close)
        topic = "points/decompressed" if nodes else "points"
        probe = Worker(
            "geoaccel_ros.benchmark.link_probe",
            [str(setup.clouds), topic, reliability],
            hosts[BASE].wrapper(**plain),
        )
        stack.callback(probe.close)
        _wait_for_connections(player, bool(nodes))
        return _measure(setup, scenario, link, nodes, player, probe)


def _measure(
    setup: Setup,
    scenario: Scenario,
    link: Link | None,
    nodes: list[NodeProcess],
    player: Worker,
    probe: Worker,
) -> LinkRun:
    warm_up = player.ask("play", _WARM_UP, timeout=60.0 + _WARM_UP / setup.rate)
    time.sleep(_SETTLE)
    before = link.counts()[0] if link else None
    earlier = player.ask("diagnostics")
    count = max(1, round(setup.seconds * setup.rate))
    player.tell("play", count)
    outage, memory = _watch(scenario, link, nodes, count / setup.rate)
    played = player.answer(60.0)
    time.sleep(_LATE)
    sent = link.counts()[0].since(before) if link else None
    encoder = player.ask("diagnostics")
    counted = {name: _count(encoder, name) - _count(earlier, name) for name in (_BYTES, *_REASONS)}
    published = counted.pop(_BYTES) if nodes else round(count * setup.cloud_bytes)
    left_out = {name: number for name, number in counted.items() if number}
    heard = probe.ask("heard", timeout=120.0)
    decoded = probe.ask("save", setup.decoded)
    for node in nodes:
        node.check()
    clouds, strangers = _pair(played, warm_up, heard)
    if outage is not None:
        first = played[0][0]
        outage = tuple(1e-9 * (instant - first) for instant in outage)
    return LinkRun(clouds, strangers, sent, encoder, left_out, published, outage, memory, decoded)


def _watch(
    scenario: Scenario, link: Link | None, nodes: list[NodeProcess], seconds: float
) -> tuple[tuple[int, int] | None, dict[str, np.ndarray]]:
    """Wait, with the outage in the middle; return when it was (ns), and the nodes' memory."""
    start = time.monotonic()
    middle = start + max(0.0, seconds - scenario.outage) / 2
    begin = end = 0
    memory: dict[str, list] = {node.name: [] for node in nodes}
    while (now := time.monotonic()) < start + seconds:
        for node in nodes:
            node.check()
            memory[node.name].append((now - start, node.resident_mib()))
        if scenario.outage and not begin and now >= middle:
            link.down()
            begin = time.time_ns()
        if begin and not end and now >= middle + scenario.outage:
            link.up()
            end = time.time_ns()
        # An outage ends when it says.
        due = middle + scenario.outage if begin and not end else now + 1.0
        time.sleep(max(0.0, min(due, now + 1.0) - time.monotonic()))
    samples = {name: np.array(rows) for name, rows in memory.items()}
    return ((begin, end) if begin else None), samples


def _pair(
    played: list[tuple[int, int]], warm_up: list[tuple[int, int]], heard: list[dict]
) -> tuple[list[Cloud], int]:
    """Return what became of each cloud, and how many came that were none of them."""
    first = played[0][0]
    waiting = {(stamp, index): None for stamp, index in played}
    earlier = {(stamp, index) for stamp, index in warm_up}
    strangers = 0
    for cloud in heard:
        key = (cloud["stamp_ns"], cloud["index"])
        if key in earlier:
            earlier.remove(key)
        elif key in waiting and waiting[key] is None:
            waiting[key] = cloud
        else:
            strangers += 1
    clouds = [
        Cloud(
            1e-9 * (stamp - first),
            None if cloud is None else 1e-9 * (cloud["arrived_ns"] - stamp),
            None if cloud is None else cloud["difference"],
        )
        for (stamp, _), cloud in waiting.items()
    ]
    return clouds, strangers


def _arguments(setup: Setup) -> dict[str, list[str]]:
    common = {"threads": str(setup.threads)}
    return {
        name: [word for key, value in values.items() for word in ("-p", f"{key}:={value}")]
        for name, values in (("cloud_encoder", setup.encoder | common), ("cloud_decoder", common))
    }


def _hosts(
    stack: contextlib.ExitStack, scenario: Scenario, seed: int
) -> tuple[dict[str, Host], Link | None]:
    names = (ROBOT,) if scenario.link is None else (ROBOT, BASE)
    hosts = {name: Host(name, number) for number, name in enumerate(names, 1)}
    for host in hosts.values():
        stack.callback(host.close)
    if scenario.link is None:
        return {ROBOT: hosts[ROBOT], BASE: hosts[ROBOT]}, None
    link = Link([*hosts.values()], scenario.link, seed)
    stack.callback(link.close)
    return hosts, link


def _profile(file: str) -> dict[str, str]:
    return {"FASTDDS_DEFAULT_PROFILES_FILE": str(share_path(file))}


def _wait_until_active(node: NodeProcess, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT
    while "]: active" not in log.read_text(errors="replace"):
        node.check()
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{node.name} is not active after {_START_TIMEOUT:g} s")
        time.sleep(0.1)


def _wait_for_connections(player: Worker, through_encoder: bool) -> None:
    deadline = time.monotonic() + _START_TIMEOUT

    def connected() -> bool:
        if not player.ask("connections"):
            return False
        said = player.ask("diagnostics")
        return not through_encoder or said.get("subscribers of points/compressed", "0") != "0"

    while not connected():
        if time.monotonic() > deadline:
            raise BenchmarkError(f"the hosts did not find each other within {_START_TIMEOUT:g} s")
        time.sleep(0.2)
    time.sleep(_SETTLE)


def _count(diagnostics: dict[str, str], name: str) -> int:
    return int(diagnostics.get(name, 0))

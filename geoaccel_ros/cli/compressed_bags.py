"""geoaccel compress and decompress on bags: clouds to compressed messages and back.

All other messages keep their bytes, as do clouds that cannot be coded: nothing is lost.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.cli.held_signals import HeldSignals
from geoaccel_ros.compression.codec import Codec, inspect
from geoaccel_ros.compression.distortion import distortion
from geoaccel_ros.compression.messages import compressed_values, decoded_cloud
from geoaccel_ros.pointcloud.messages import points_from_message
from geoaccel_ros.pointcloud.recordings.bag_copy import BagCopy
from geoaccel_ros.pointcloud.recordings.bag_messages import CLOUD, COMPRESSED_CLOUD, BagMessages
from geoaccel_ros.pointcloud.recordings.cloud import RecordingError

_SUFFIX = "/compressed"


def compress_bag(
    bag: Path, output: Path, topics: Sequence[str] | None, codec: Codec, quiet: bool
) -> dict[str, Any]:
    """Write a bag whose clouds on ``topics`` are compressed messages on ``<topic>/compressed``.

    Parameters
    ----------
    bag, output : Path
        What :func:`~.bag_messages.find_bag` found; what is to be written.
    topics : sequence of str, or None
        None: all with clouds.
    quiet : bool
        Whether no progress is to be shown.

    Returns
    -------
    result : dict
        Counts, bytes and the largest error of a coordinate of the clouds, decoded again.

    Raises
    ------
    UserError
        If the bag cannot be read or written, has no such topic, or no cloud that can be compressed.
    """
    return _convert(bag, output, topics, _Compression(codec), quiet)


def decompress_bag(
    bag: Path, output: Path, topics: Sequence[str] | None, codec: Codec, quiet: bool
) -> dict[str, Any]:
    """Write a bag whose compressed messages on ``topics`` are clouds: :func:`compress_bag`'s back.

    Clouds from ``<topic>/compressed`` go to ``<topic>``, beside those that may be there; from a
    topic of another name to ``<topic>/decompressed``. Parameters, result and errors are alike.
    """
    return _convert(bag, output, topics, _Decompression(codec), quiet)


class _Conversion(Protocol):
    """What becomes of the messages of one type."""

    SOURCE: str
    TARGET: str
    PURPOSE: str

    def target_topic(self, topic: str, types: dict[str, str]) -> str:
        """Return where a topic's messages go; ``types`` are the bag's by topic."""

    def convert(self, bag: BagMessages, raw: bytes) -> memoryview:
        """Return the bytes of the message in place of one; ValueError says why there is none."""

    def result(self) -> dict[str, Any]:
        """Return what is to be told of all messages."""


class _Compression:
    SOURCE, TARGET, PURPOSE = CLOUD, COMPRESSED_CLOUD, "compressed"

    def __init__(self, codec: Codec):
        self._codec = codec
        self._points = self._bytes_in = self._bytes_out = 0
        self._ms: list[float] = []
        self._max_error = 0.0
        self._modes: Counter[str] = Counter()

    def target_topic(self, topic: str, types: dict[str, str]) -> str:
        target = topic + _SUFFIX
        if target in types:
            raise UserError(
                f"the bag has a topic '{target}' already, where the clouds of '{topic}' would go: "
                "choose others with --topic"
            )
        return target

    def convert(self, bag: BagMessages, raw: bytes) -> memoryview:
        message = bag.decode(raw, CLOUD)
        points = points_from_message(message)
        begin = time.perf_counter()
        stream = self._codec.encode(points, message.height)
        self._ms.append(1e3 * (time.perf_counter() - begin))
        decoded, _ = self._codec.decode(stream)
        order = self._codec.order(points, stream)
        self._max_error = max(self._max_error, distortion(points[order], decoded).max_error_m)
        self._points += len(points)
        self._bytes_in += points.nbytes
        self._bytes_out += len(stream)
        self._modes[inspect(stream).mode] += 1
        values = compressed_values(message)
        return bag.encode(
            COMPRESSED_CLOUD, **values, compressed_data=np.frombuffer(stream, np.uint8)
        )

    def result(self) -> dict[str, Any]:
        return {
            "points": self._points,
            "bytes_in": self._bytes_in,
            "bytes_out": self._bytes_out,
            "bits_per_point": 8 * self._bytes_out / self._points if self._points else None,
            "ratio": self._bytes_in / self._bytes_out,
            "max_error_m": self._max_error,
            "modes": dict(self._modes),
            "encode_ms": _spread(self._ms),
        }


class _Decompression:
    SOURCE, TARGET, PURPOSE = COMPRESSED_CLOUD, CLOUD, "decompressed"

    def __init__(self, codec: Codec):
        self._codec = codec
        self._points = self._bytes_in = self._bytes_out = 0
        self._ms: list[float] = []

    def target_topic(self, topic: str, types: dict[str, str]) -> str:
        target = topic.removesuffix(_SUFFIX)
        target = target if target not in ("", topic) else f"{topic}/decompressed"
        if types.get(target, CLOUD) != CLOUD:
            raise UserError(
                f"the bag has a topic '{target}' of {types[target]}, where the clouds of '{topic}' "
                "would go: choose others with --topic"
            )
        return target

    def convert(self, bag: BagMessages, raw: bytes) -> memoryview:
        message = bag.decode(raw, COMPRESSED_CLOUD)
        begin = time.perf_counter()
        values, points = decoded_cloud(message, self._codec)
        self._ms.append(1e3 * (time.perf_counter() - begin))
        self._points += len(points)
        self._bytes_in += len(message.compressed_data)
        self._bytes_out += points.nbytes
        return bag.encode(CLOUD, **values, data=np.frombuffer(points.tobytes(), np.uint8))

    def result(self) -> dict[str, Any]:
        return {
            "points": self._points,
            "bytes_in": self._bytes_in,
            "bytes_out": self._bytes_out,
            "decode_ms": _spread(self._ms),
        }


def _convert(
    path: Path,
    output: Path,
    topics: Sequence[str] | None,
    conversion: _Conversion,
    quiet: bool,
) -> dict[str, Any]:
    try:
        with BagMessages(path) as bag:
            targets = _targets(bag, topics, conversion)
            with HeldSignals() as signals, BagCopy(bag, output) as copy, signals.raised():
                result = _copied(bag, copy, targets, conversion, signals, quiet)
                copy.finish()
            return result
    except RecordingError as error:
        raise UserError(str(error)) from None


def _targets(
    bag: BagMessages, wanted: Sequence[str] | None, conversion: _Conversion
) -> dict[str, str]:
    """Return the topics to convert, and where their messages go."""
    types = {connection.topic: connection.msgtype for connection in bag.connections}
    present = [topic for topic, msgtype in types.items() if msgtype == conversion.SOURCE]
    kind = conversion.SOURCE.replace("/msg/", "/")
    listed = ", ".join(sorted(present)) or "none"
    chosen = present
    if wanted is not None:
        by_name = {topic.strip("/"): topic for topic in present}
        for topic in wanted:
            if topic.strip("/") not in by_name:
                raise UserError(f"'{bag.path}' has no {kind} on '{topic}'; topics of it: {listed}")
        chosen = [by_name[topic.strip("/")] for topic in wanted]
    if not chosen:
        raise UserError(f"'{bag.path}' has no topic of {kind}")
    return {topic: conversion.target_topic(topic, types) for topic in chosen}


def _copied(
    bag: BagMessages,
    copy: BagCopy,
    targets: dict[str, str],
    conversion: _Conversion,
    signals: HeldSignals,
    quiet: bool,
) -> dict[str, Any]:
    """Fill the new bag; return what is to be told."""
    connections = bag.connections
    converted = {c.id for c in connections if c.topic in targets and c.msgtype == conversion.SOURCE}
    # In the source's order: of messages of one time, a bag of ROS 1 has those of its first topic
    # first.
    places = {
        c.id: copy.topic_in_place_of(c, targets[c.topic], conversion.TARGET)
        if c.id in converted
        else copy.topic_like(c)
        for c in connections
    }
    clouds = other_messages = 0
    kept: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    progress = tqdm(
        bag.messages(connections),
        total=sum(connection.msgcount for connection in connections),
        unit="message",
        disable=quiet or not sys.stderr.isatty(),
    )
    for connection, recorded_ns, raw in progress:
        signals.check()
        if connection.id not in converted:
            copy.write(places[connection.id], recorded_ns, raw)
            other_messages += 1
            continue
        try:
            message = conversion.convert(bag, raw)
        except ValueError as error:
            kept[connection.topic] += 1
            reasons.setdefault(connection.topic, str(error))
            copy.write(copy.topic_like(connection), recorded_ns, raw)
            continue
        copy.write(places[connection.id], recorded_ns, message)
        clouds += 1
    if not clouds:
        first = [f"on '{topic}', {reason}" for topic, reason in reasons.items()]
        reason = first[0] if first else "there are none"
        raise UserError(f"'{bag.path}' has no cloud that can be {conversion.PURPOSE}: {reason}")
    return {
        "clouds": clouds,
        "kept": sum(kept.values()),
        **conversion.result(),
        "topics": targets,
        "other_messages": other_messages,
        "kept_because": {topic: f"{kept[topic]}: {reason}" for topic, reason in reasons.items()},
    }


def _spread(milliseconds: list[float]) -> dict[str, float]:
    median, p95 = np.percentile(milliseconds, [50, 95])
    return {"median": float(median), "p95": float(p95)}

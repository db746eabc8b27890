"""Feed the decoder mutated streams: each ends in CodecError or in a cloud that its header bounds.

    python tools/fuzz_codec.py [--mutations 100000] [--seed 1] [--processes 2]

Checksums are made right again after most mutations, as an attacker would: without that nothing but
the checksum would be tested. A mutation with wrong checksums has to be refused. Warnings count as
errors, and so does memory beyond what max_decoded_mib states.
"""

import argparse
import collections
import dataclasses
import faulthandler
import multiprocessing
import resource
import struct
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import google_crc32c
import numpy as np

from geoaccel_ros.compression import bitstream
from geoaccel_ros.compression.codec import Codec, CodecConfig, CodecError

_LIMIT_MIB = 8
# As max_decoded_mib states: what decoding may take.
_MEMORY = 20
# A decoder that takes longer for a cloud of a thousand points hangs: dump the stack and exit.
_HANG_S = 60
_EXTREMES = [0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]


def small_clouds() -> Iterator[tuple[CodecConfig, np.ndarray]]:
    """Yield clouds, and how to encode them, for each kind of section that a stream can have."""
    # Of more than one chunk, in fields and in scans.
    rng, count = np.random.default_rng(0), 2500
    dtype = np.dtype(
        [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("ring", "<u2"),
         ("time", "<f8"), ("rgb", ">f4"), ("echo", "<i4"), ("normal", "i1", (3,))]
    )  # fmt: skip
    points = np.zeros(count, dtype)
    azimuth = np.arange(count) // 16 * 0.02
    points["ring"] = np.arange(count) % 16
    ranges = 5 + np.sin(3 * azimuth) + rng.normal(0, 0.01, count)
    points["x"], points["y"] = ranges * np.cos(azimuth), ranges * np.sin(azimuth)
    points["z"] = ranges * np.tan(np.radians(2.0 * points["ring"] - 15))
    points["intensity"] = rng.integers(0, 100, count) / 100
    points["time"] = 1.7e9 + np.arange(count) // 16 * 1e-4
    points["rgb"].view(">u4")[:] = rng.integers(0, 2**32, count)
    points["echo"] = rng.choice([-(2**31), 0, 2**31 - 1, 77], count)
    points["normal"] = rng.integers(-128, 128, (count, 3))
    points["x"][::97] = np.nan
    points[40:60] = points[20:40]
    bare = np.zeros(500, dtype[["x", "y", "z"]])
    for axis in "xyz":
        bare[axis] = rng.normal(0, 2, 500)
    for options in (
        {"mode": "octree"},
        {"mode": "scan"},
        {"mode": "octree", "duplicates": "merge", "step": 0.5},
        {"lossless": ("x", "y", "z")},
    ):
        config = CodecConfig(max_decoded_mib=_LIMIT_MIB, **options)
        yield config, bare
        yield dataclasses.replace(config, quantise=("intensity=0.05", "echo=3")), points


def mutations(streams: list[bytes], rng: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    """Yield without end: the mutation's kind, and a stream so mutated."""
    kinds = (_flip, _flip, _overwrite, _truncate_section, _splice, _extreme, _flip_unsealed, _cut)
    while True:
        stream = streams[rng.integers(len(streams))]
        other = streams[rng.integers(len(streams))]
        kind = kinds[rng.integers(len(kinds))]
        yield kind.__name__[1:], kind(stream, other, rng)


def decode_mutated(codec: Codec, kind: str, data: bytes) -> str:
    """Return ``refused`` or ``decoded``; anything else that happens is an exception."""
    faulthandler.dump_traceback_later(_HANG_S, exit=True)
    try:
        points, height = codec.decode(data)
    except CodecError as error:
        if "\n" in str(error):
            raise AssertionError(f"an error of several lines: {error}") from error
        return "refused"
    finally:
        faulthandler.cancel_dump_traceback_later()
    if kind in ("flip_unsealed", "cut"):
        raise AssertionError("a stream with wrong checksums was decoded")
    if points.nbytes > _LIMIT_MIB * 2**20 or (len(points) % height if height else len(points)):
        raise AssertionError(f"{len(points)} points in {height} rows from a mutated stream")
    return "decoded"


def fuzz(seed: int, count: int) -> tuple[collections.Counter, float]:
    """Decode ``count`` mutations.

    Whatever is neither refused nor decoded as it should be is raised as it comes.

    Returns
    -------
    outcomes : Counter
        How often each kind was refused and decoded.
    grown_mib : float
        What the process's memory grew by at its peak.
    """
    warnings.simplefilter("error")
    streams = [Codec(config).encode(points) for config, points in small_clouds()]
    decoder = Codec(CodecConfig(max_decoded_mib=_LIMIT_MIB))
    for stream in streams:
        decoder.decode(stream)
    rng = np.random.default_rng(seed)
    before = _peak_mib()
    outcomes: collections.Counter = collections.Counter()
    for number, (kind, data) in zip(range(count), mutations(streams, rng), strict=False):
        try:
            outcome = decode_mutated(decoder, kind, data)
        except BaseException:
            print(f"seed {seed}, mutation {number} ({kind}): {data.hex()}", file=sys.stderr)
            raise
        outcomes[f"{kind} {outcome}"] += 1
    grown = _peak_mib() - before
    if grown > _MEMORY * _LIMIT_MIB:
        raise AssertionError(f"decoding took {grown:.0f} MiB for clouds of {_LIMIT_MIB} MiB")
    return outcomes, grown


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _flip(stream: bytes, _: bytes, rng: np.random.Generator) -> bytes:
    """One to three bits anywhere behind the version."""
    data = bytearray(stream)
    for _ in range(rng.integers(1, 4)):
        data[rng.integers(5, len(data))] ^= 1 << rng.integers(8)
    return _sealed(stream, data)


def _overwrite(stream: bytes, _: bytes, rng: np.random.Generator) -> bytes:
    """A run of random bytes."""
    data = bytearray(stream)
    begin = rng.integers(5, len(data))
    run = rng.integers(0, 256, rng.integers(1, 33), dtype=np.uint8).tobytes()
    data[begin : begin + len(run)] = run[: len(data) - begin]
    return _sealed(stream, data)


def _truncate_section(stream: bytes, _: bytes, rng: np.random.Generator) -> bytes:
    """A section cut short, its length told truly."""
    taken = bitstream.unpack(memoryview(stream))
    sections = {name: bytes(section) for name, section in taken.sections.items()}
    filled = [name for name, section in sections.items() if section]
    name = filled[rng.integers(len(filled))]
    sections[name] = sections[name][: rng.integers(len(sections[name]))]
    return bitstream.pack(taken.header, sections)


def _splice(stream: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """A section, or the tail of one, from another stream."""
    taken = bitstream.unpack(memoryview(stream))
    sections = {name: bytes(section) for name, section in taken.sections.items()}
    donors = [bytes(s) for s in bitstream.unpack(memoryview(other)).sections.values() if s]
    donor = donors[rng.integers(len(donors))]
    names = list(sections)
    name = names[rng.integers(len(names))]
    cut = rng.integers(len(sections[name]) + 1) if rng.integers(2) else 0
    sections[name] = sections[name][:cut] + donor[cut:]
    return bitstream.pack(taken.header, sections)


def _extreme(stream: bytes, _: bytes, rng: np.random.Generator) -> bytes:
    """A huge or tiny number in the header or at the head of a section."""
    data = bytearray(stream)
    header_size = bitstream.unpack(memoryview(stream)).header_size
    begin = rng.integers(5, header_size + 40)
    number = _EXTREMES[rng.integers(len(_EXTREMES))]
    width = 8 if number >= 2**32 or rng.integers(2) else 4
    data[begin : begin + width] = number.to_bytes(width, "little")
    return _sealed(stream, data[: len(stream)])


def _flip_unsealed(stream: bytes, _: bytes, rng: np.random.Generator) -> bytes:
    data = bytearray(stream)
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    return bytes(data)


def _cut(stream: bytes, _: bytes, rng: np.random.Generator) -> bytes:
    return stream[: rng.integers(len(stream))]


def _sealed(original: bytes, data: bytearray) -> bytes:
    """Return ``data`` with right checksums; ``original`` tells where they are."""
    taken = bitstream.unpack(memoryview(original))
    lengths = [len(section) for section in taken.sections.values()]
    position, row = taken.header_size, taken.header_size - 4 - 12 * len(lengths)
    for length in lengths:
        checksum = google_crc32c.value(bytes(data[position : position + length]))
        struct.pack_into("<I", data, row + 8, checksum)
        position, row = position + length, row + 12
    head = bytes(data[: taken.header_size - 4])
    struct.pack_into("<I", data, taken.header_size - 4, google_crc32c.value(head))
    return bytes(data)


def main() -> int:
    """Fuzz in several processes and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    shares = [
        (options.seed + index, len(range(index, options.mutations, options.processes)))
        for index in range(options.processes)
    ]
    # Spawned: an OpenCL context does not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, spawn) as pool:
        results = list(pool.map(fuzz, *zip(*shares, strict=True)))
    outcomes = sum((counts for counts, _ in results), collections.Counter())
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:8} {outcome}")
    grown = max(mebibytes for _, mebibytes in results)
    print(
        f"{sum(outcomes.values()):8} mutations: no crash, no hang, {grown:.0f} MiB more than before"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

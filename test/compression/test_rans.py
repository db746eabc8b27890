"""compression/rans.py: events against a plain decoder in Python, sizes against the entropy."""

import dataclasses
import zlib
from pathlib import Path

import numpy as np
import pytest

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.rans import (
    PROBABILITIES,
    EntropyCoder,
    best_indices,
    costs,
    flat_prior,
)

SOURCE = Path(__file__).parent / "opencl" / "bare_events.cl"
NO_EVENT = 0xFFFF


class Events:
    """Encodes arrays of events, and decodes them when given their contexts."""

    def __init__(self, device):
        self.device = device
        self.coder = EntropyCoder(device)
        self.kernel = device.build(SOURCE.read_text(), ("-DDECODE",)).decode_events

    def encode(self, chunks, prior):
        """Return the section of a list of arrays."""
        starts, events = joined(chunks)
        return self.coder.encode(self.device.upload("events", events), starts, prior)

    def decode(self, section, chunks, prior):
        """Return the chunks with the bits that the section has for their contexts."""
        starts, events = joined(chunks)
        stream = self.coder.open(section, len(chunks), prior)
        contexts = self.device.upload(
            "events", np.where(events == NO_EVENT, events, events & 0xFFFE)
        )
        self.device.launch_serial(
            self.kernel, len(chunks),
            *stream.arguments, len(chunks), self.device.upload("starts", starts), contexts,
        )  # fmt: skip
        decoded = self.device.download(contexts, len(events), "u2")
        stream.finish()
        return [decoded[a:b] for a, b in zip(starts[:-1], starts[1:], strict=True)]


def joined(chunks):
    starts = np.concatenate([[0], np.cumsum([len(c) for c in chunks])]).astype(np.uint32)
    return starts, np.concatenate([*chunks, np.empty(0, np.uint16)]).astype(np.uint16)


def random_events(seed, count, contexts, chunks=1):
    """Return chunks of events whose contexts have all kinds of probabilities."""
    rng = np.random.default_rng(seed)
    chance = rng.random(contexts) ** 4
    chance[0] = 0.5
    context = rng.integers(0, contexts, count)
    events = (context << 1 | (rng.random(count) < chance[context])).astype(np.uint16)
    return np.split(events, np.sort(rng.integers(0, count + 1, chunks - 1)))


def decode_reference(section, chunks, prior):
    """Return what the section's documentation says that it holds, in plain Python."""
    section, position = bytes(section), 0

    def section_bits():
        nonlocal position
        while True:
            byte = section[position]
            position += 1
            yield from (byte >> place & 1 for place in range(8))

    def numbers(count):
        nonlocal position
        if count == 0:
            return []
        k = section[position]
        position += 1
        reader = section_bits()
        low = [sum(next(reader) << place for place in range(k)) for _ in range(count)]
        reader = section_bits()
        return [(list(iter(reader.__next__, 1)).count(0) << k) + number for number in low]

    replaced = int.from_bytes(section[:2], "little")
    position = 2
    table, context = prior.astype(int), 0
    gaps = numbers(replaced)
    for gap, change in zip(gaps, numbers(replaced), strict=True):
        context += gap + 1
        table[context] = table[context] + (-(change + 1) // 2 if change % 2 else change // 2 + 1)
    counts = numbers(len(chunks))
    words = np.frombuffer(section[position:], "<u2").tolist()
    decoded = []
    for chunk, count in zip(chunks, counts, strict=True):
        mine, words = words[:count], words[count:]
        state = mine.pop(0) << 16 | mine.pop(0) if mine else 1 << 16
        bits = []
        for event in chunk.tolist():
            one = int(PROBABILITIES[table[event >> 1]])
            slot, high = state % 2**15, state >> 15
            bits.append(event & ~1 | (slot < one))
            state = one * high + slot if slot < one else (2**15 - one) * high + slot - one
            if state < 2**16:
                state = state << 16 | mine.pop(0)
        assert state == 2**16
        assert not mine
        decoded.append(np.array(bits, np.uint16))
    assert not words
    return decoded


def same(first, second):
    return len(first) == len(second) and all(map(np.array_equal, first, second))


@pytest.fixture(params=["as a CPU", "as a GPU", "as a GPU with little local memory"])
def events(device, request):
    # How events are counted depends on the kind of device; the bytes must not.
    small = 1024 if "little" in request.param else device.local_bytes
    return Events(
        dataclasses.replace(device, is_cpu=request.param == "as a CPU", local_bytes=small)
    )


def test_the_probabilities_of_the_stream_never_change():
    assert PROBABILITIES[128] == 2**14
    assert PROBABILITIES[[0, 1, 64, 127, 129, 255]].tolist() == [1, 1, 194, 15729, 17039, 32767]
    assert zlib.crc32(PROBABILITIES.astype("<u2").tobytes()) == 0x7F84E4C0
    assert (np.diff(PROBABILITIES.astype(int)) >= 0).all()


def test_the_best_index_is_that_of_a_search_through_all():
    rng = np.random.default_rng(1)
    counts = (10 ** rng.uniform(-1, 6, (400, 2))).astype(int)
    every = np.array([costs(counts, np.full(len(counts), i)) for i in range(256)])
    best = best_indices(counts)
    assert (costs(counts, best) == every.min(axis=0)).all()


@pytest.mark.parametrize("contexts", [1, 2, 40, 3000, 32767])
@pytest.mark.parametrize("chunks", [1, 2, 60])
def test_events_come_back(events, contexts, chunks):
    coded = random_events(contexts * chunks, 20_000, contexts, chunks)
    prior = flat_prior(contexts)
    section = events.encode(coded, prior)
    assert same(events.decode(section, coded, prior), coded)


def test_the_bytes_are_those_of_the_documentation(events):
    coded = random_events(3, 5000, 50, 7)
    prior = np.random.default_rng(3).integers(1, 255, 50).astype(np.uint8)
    prior[0] = 128
    section = events.encode(coded, prior)
    assert same(decode_reference(section, coded, prior), coded)


def test_every_kind_of_device_makes_the_same_bytes(device):
    coded = random_events(4, 30_000, 700, 9)
    sections = {
        Events(dataclasses.replace(device, is_cpu=cpu, local_bytes=local)).encode(
            coded, flat_prior(700)
        )
        for cpu, local in [(True, 48 << 10), (False, 48 << 10), (False, 1 << 10)]
    }
    assert len(sections) == 1


@pytest.mark.parametrize("chance", [0.0, 0.001, 0.5, 1.0])
def test_extreme_probabilities(events, chance):
    for index in (0, 1, 60, 127, 128, 129, 200, 254, 255):
        bits = np.random.default_rng(index).random(500) < chance
        coded = [(2 + bits).astype(np.uint16)]
        prior = np.array([128, index], np.uint8)
        section = events.encode(coded, prior)
        assert same(events.decode(section, coded, prior), coded)
        assert same(decode_reference(section, coded, prior), coded)


def test_no_chunks(events):
    assert events.encode([], flat_prior(5)) == b"\0\0"
    assert events.decode(b"\0\0", [], flat_prior(5)) == []


def test_no_events(events):
    empty = [np.empty(0, np.uint16)] * 3
    section = events.encode(empty, flat_prior(5))
    assert section == b"\0\0\0\x07"
    assert same(events.decode(section, empty, flat_prior(5)), empty)


def test_some_chunks_are_empty(events):
    coded = random_events(5, 1000, 10)
    chunks = [coded[0][:0], coded[0][:1], coded[0][1:1], coded[0][1:], coded[0][:0]]
    section = events.encode(chunks, flat_prior(10))
    assert same(events.decode(section, chunks, flat_prior(10)), chunks)


def test_unused_slots_cost_nothing(events):
    (coded,) = random_events(6, 3000, 10)
    gaps = np.full(6000, NO_EVENT, np.uint16)
    gaps[::2] = coded
    section = events.encode([gaps], flat_prior(10))
    assert section == events.encode([coded], flat_prior(10))
    assert same(events.decode(section, [gaps], flat_prior(10)), [gaps])


def test_an_event_of_no_context_is_an_error(events):
    with pytest.raises(ValueError, match="2 events have contexts"):
        events.encode([np.array([0, 20, 19, 65534], np.uint16)], flat_prior(10))


@pytest.mark.parametrize("contexts", [1, 600, 20_000])
def test_counts_are_those_of_numpy(events, contexts):
    (coded,) = random_events(8, 50_000, contexts)
    counted = events.coder.count(events.device.upload("events", coded), len(coded), contexts)
    assert counted.ravel().tolist() == np.bincount(coded, minlength=2 * contexts).tolist()


@pytest.mark.parametrize("contexts", [20, 500])
def test_the_size_is_the_entropy(events, contexts):
    count, chunks = 400_000, 40
    coded = random_events(contexts, count, contexts, chunks)
    counts = np.bincount(np.concatenate(coded), minlength=2 * contexts).reshape(-1, 2)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    entropy = -(counts * np.log2(np.where(share > 0, share, 1))).sum() / 8
    section = events.encode(coded, flat_prior(contexts))
    # A chunk costs its state, half of which carries information, and its length; a context its
    # probability.
    overhead = 4 * chunks + 1.2 * contexts
    assert entropy <= len(section) <= 1.005 * entropy + overhead


def test_a_prior_that_fits_is_not_sent_again(events):
    coded = random_events(9, 200_000, 300)
    counts = np.bincount(coded[0], minlength=600).reshape(-1, 2)
    fitting = best_indices(counts)
    fitting[0] = 128
    section = events.encode(coded, fitting)
    assert section[:2] == b"\0\0"
    assert len(section) < len(events.encode(coded, flat_prior(300)))
    assert same(events.decode(section, coded, fitting), coded)


def test_context_0_is_even_whatever_the_prior_says(events):
    coded = [np.zeros(1000, np.uint16)]
    sections = [events.encode(coded, np.array([i, 128], np.uint8)) for i in (3, 128, 250)]
    assert sections[0] == sections[1] == sections[2]
    assert 125 <= len(sections[0]) <= 134


def outcome(events, section, chunks, prior):
    try:
        return events.decode(section, chunks, prior)
    except CodecError:
        return None


def test_damage_is_noticed(events):
    coded = random_events(10, 4000, 40, 5)
    section = events.encode(coded, flat_prior(40))
    rng = np.random.default_rng(10)
    unnoticed = 0
    for _ in range(300):
        damaged = bytearray(section)
        damaged[rng.integers(len(section))] ^= 1 << rng.integers(8)
        decoded = outcome(events, bytes(damaged), coded, flat_prior(40))
        # Indices may mean the same probability, and any even bits are as good as others: the
        # stream's CRC tells.
        unnoticed += decoded is not None
    assert unnoticed <= 30


def test_another_length_is_noticed(events):
    coded = random_events(10, 4000, 40, 5)
    section = events.encode(coded, flat_prior(40))
    for end in range(len(section)):
        assert outcome(events, section[:end], coded, flat_prior(40)) is None
    assert outcome(events, section + b"\0", coded, flat_prior(40)) is None


def test_any_bytes_end_in_an_error(events):
    rng = np.random.default_rng(11)
    chunks = random_events(11, 1000, 40, 5)
    for size in list(range(40)) * 10:
        assert outcome(events, rng.bytes(size), chunks, flat_prior(40)) is None


@pytest.mark.parametrize(
    ("section", "chunks", "message"),
    [
        (b"", 0, "ends before its table"),
        (b"\0", 0, "ends before its table"),
        (b"\0\0", 1, "ends within its numbers"),
        (b"\0\0\0\xff", 2**31, "ends within its numbers"),
        (b"\xff\xff\0\xff", 0, "ends within its numbers"),
        # Contexts 4, of 0 to 3; and 1 with index 128 + 128.
        (b"\x01\0\0\x08\0\x01", 0, "context that does not exist"),
        (b"\x01\0\0\x01\x07\x7e\x02", 0, "probability that does not exist"),
        (b"\x01\0\0\x01\x1f\xff\xff\xff\x7f\x01", 0, "probability that does not exist"),
        (b"\0\0\0\x04\0\0", 1, "do not fill"),
        (b"\0\0\x1f\xff\xff\xff\x7f\x01", 1, "do not fill"),
    ],
)
def test_what_is_wrong_is_told(events, section, chunks, message):
    with pytest.raises(CodecError, match=message):
        events.coder.open(section, chunks, flat_prior(4))


def test_a_chunk_that_was_not_decoded_is_noticed(events):
    coded = random_events(12, 100, 4, 2)
    stream = events.coder.open(events.encode(coded, flat_prior(4)), 2, flat_prior(4))
    with pytest.raises(CodecError, match="do not end where its words do"):
        stream.finish()

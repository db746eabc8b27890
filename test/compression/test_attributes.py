"""compression/attributes.py: sequences survive whatever they are; neighbours against NumPy."""

import dataclasses

import numpy as np
import pytest

from geoaccel_ros.compression import events
from geoaccel_ros.compression.arranged import Arranged
from geoaccel_ros.compression.attributes import (
    CYCLE,
    LINEAR,
    MEAN,
    NEAREST,
    PREVIOUS,
    AttributeCoder,
    NeighbourSearch,
)
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.positions import CHUNK, WINDOW, Positions
from geoaccel_ros.compression.rans import EntropyCoder

VERY_NEAR, NEAR = 5, 20


@pytest.fixture(scope="module")
def coder(device):
    return AttributeCoder(device, EntropyCoder(device))


@pytest.fixture(scope="module")
def search(device):
    return NeighbourSearch(device)


def surface(count, seed=3):
    """Return cells of points scattered on a plane, in an order that is nearly local."""
    rng = np.random.default_rng(seed)
    cells = np.stack([np.arange(count) // 9, rng.integers(0, 9, count), rng.integers(0, 3, count)])
    return cells * np.array([[4], [7], [1]])


def words_of(device, neighbours, planes=3):
    words = device.download(neighbours.words, planes * neighbours.stride, "u2")
    return words.reshape(planes, neighbours.stride)[:, : neighbours.count].astype(int)


def expected_words(cells, planes):
    """The neighbours by the rules of neighbours.cl, one point after the other."""
    words = np.zeros((planes, cells.shape[1]), int)
    for i in range(cells.shape[1]):
        before = range(i - 1, max(i - i % CHUNK, i - WINDOW) - 1, -1)
        found = sorted((int(np.abs(cells[:, i] - cells[:, j]).sum()), i - j) for j in before)[
            :planes
        ]
        if not found:
            continue
        # Two classes an octave of 1 + distance, the half octave at 1.5.
        octaves = [int(np.floor(np.log2(1 + d))) for d, _ in found]
        classes = [
            2 * k + ((1 + d) >= 1.5 * 2**k) for k, (d, _) in zip(octaves, found, strict=True)
        ]
        further = [c - classes[0] for c in classes]
        weights = [((128, 91)[f % 2] >> f // 2) if f <= 4 else 0 for f in further]
        for k, (weight, (_, offset)) in enumerate(zip(weights, found, strict=True)):
            if weight:
                words[k, i] = offset | (weight * (16384 // sum(weights)) >> 7) << 6
        words[0, i] |= ((found[0][0] < VERY_NEAR) + (found[0][0] < NEAR)) << 14
    return words


@pytest.mark.parametrize("planes", [1, 3, 6])
@pytest.mark.parametrize("in_local_memory", [True, False])
def test_neighbours_are_the_nearest_of_those_before(device, planes, in_local_memory):
    rng = np.random.default_rng(4)
    # Over a chunk's end; ties, duplicates and negative cells among them.
    cells = np.concatenate([surface(2100), rng.integers(-9, 9, (3, 200))], axis=1)
    neighbours = NeighbourSearch(device, planes, in_local_memory).find(Positions(cells))
    assert (words_of(device, neighbours, planes) == expected_words(cells, planes)).all()


@pytest.mark.parametrize("local_bytes", [480, 1024, 16384])
def test_little_local_memory_changes_nothing(device, local_bytes):
    cells = surface(5000)
    small = dataclasses.replace(device, local_bytes=local_bytes, _buffers={})
    found = NeighbourSearch(small, 3, True).find(Positions(cells))
    wanted = NeighbourSearch(device).find(Positions(cells))
    assert (words_of(small, found) == words_of(device, wanted)).all()


def test_positions_too_far_apart_are_taken_coarsely(device, search):
    cells = surface(500)
    far = np.append(cells * 2**30, np.full((3, 1), 2**51 - 1), axis=1)
    near = np.append(cells, np.full((3, 1), 2**21 - 1), axis=1)
    fine = words_of(device, search.find(Positions(near)))
    assert (words_of(device, search.find(Positions(far))) & 63 == fine & 63).all()


def test_a_chunk_s_neighbours_do_not_depend_on_other_chunks(device, search):
    cells = surface(3 * CHUNK)
    cells[:, CHUNK : 2 * CHUNK] *= 2**30
    cells[:, 2 * CHUNK :] += 2**45
    whole = words_of(device, search.find(Positions(cells)))
    for chunk in range(3):
        part = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
        assert (words_of(device, search.find(Positions(cells[:, part]))) == whole[:, part]).all()


def sequences():
    rng = np.random.default_rng(8)
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    yield "noise of 64 bits", rng.integers(low, high, 5000, endpoint=True)
    yield "extremes", np.array([low, high, 0, -1, 1, high, low, low] * 300)
    yield "a walk", np.cumsum(rng.integers(-9, 10, 3 * CHUNK))
    yield "constant", np.full(CHUNK + 1, high)
    yield "powers", np.repeat([1, -1], 63) * 2 ** np.tile(np.arange(63), 2)
    yield "a ramp", 10**18 + 1000 * np.arange(2 * CHUNK - 1)
    for count in (1, 2, 3, CHUNK - 1, CHUNK, CHUNK + 1):
        yield f"{count} values", rng.integers(0, 100, count)


@pytest.mark.parametrize(("name", "values"), list(sequences()))
@pytest.mark.parametrize("predictor", [PREVIOUS, MEAN, LINEAR, NEAREST])
def test_any_sequence_survives_any_prediction(coder, search, name, values, predictor):
    neighbours = search.find(Positions(surface(len(values))))
    section = coder.encode(Arranged(values), neighbours, predictor)
    assert section[0] == predictor
    decoded = coder.decode(memoryview(section), len(values), lambda: neighbours)
    assert decoded.dtype == np.int64
    assert (decoded == values).all()


def bits_a_value(coder, values, neighbours=None):
    section = coder.encode(Arranged(values), neighbours)
    assert (coder.decode(memoryview(section), len(values), lambda: neighbours) == values).all()
    return section[0], 8 * len(section) / len(values)


def test_each_predictor_is_taken_where_it_is_best(coder):
    rng = np.random.default_rng(9)
    count = 8 * CHUNK
    ramp = 7 * np.arange(count) * (1 + np.arange(count) // 999 % 5)
    assert bits_a_value(coder, ramp)[0] == LINEAR
    steps = np.repeat(rng.integers(0, 200, count // 64), 64)
    predictor, bits = bits_a_value(coder, steps)
    assert predictor == PREVIOUS
    # 8 bits for each 64 and where they come, 7 more; the rest for a table.
    assert bits < 15 / 64 + 0.17
    noise = 1000 + np.rint(20 * rng.normal(size=count)).astype(np.int64)
    assert bits_a_value(coder, noise)[0] == MEAN


def test_neighbours_tell_more_than_the_order(coder, search):
    """Points in an order that jumps between two surfaces: the neighbour is not the one before."""
    rng = np.random.default_rng(10)
    count = 8 * CHUNK
    side = rng.integers(0, 2, count)
    cells = np.stack([np.arange(count) // 4, 1000 * side, rng.integers(0, 4, count)])
    values = 100 * side + rng.integers(0, 4, count)
    _, alone = bits_a_value(coder, values)
    predictor, bits = bits_a_value(coder, values, search.find(Positions(cells)))
    assert predictor == NEAREST
    # Noise of two bits, a little more for a prediction from noise.
    assert bits < 2.6 < alone


def test_events_without_room_are_emitted_again(coder, monkeypatch):
    rng = np.random.default_rng(18)
    # Chunks of few events, and of more than there usually are.
    values = np.concatenate([np.zeros(CHUNK, int), rng.integers(-(2**60), 2**60, CHUNK + 9)])
    section = coder.encode(Arranged(values), None, PREVIOUS)
    monkeypatch.setattr(events, "_LOOSE_BYTES", 0)
    assert coder.encode(Arranged(values), None, PREVIOUS) == section


def shots(columns, gaps, seed=15):
    """Return the rings of a lidar's shots, each with a return but for a share of them."""
    order = np.array([16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6])
    rng = np.random.default_rng(seed)
    return np.tile(order, columns)[rng.random(order.size * columns) >= gaps]


@pytest.mark.parametrize("gaps", [0.0, 0.1])
def test_rings_in_the_order_of_shots_cost_their_gaps(coder, gaps):
    rings = shots(2000, gaps)
    predictor, bits = bits_a_value(coder, rings)
    assert predictor == CYCLE
    # A shot in ten is missing at random: 0.47 bits for each of 10 / 9 shots; the table and head.
    assert bits < (0.56 if gaps else 0.04)


def test_any_small_numbers_survive_as_a_cycle(coder):
    rng = np.random.default_rng(16)
    for values in (
        np.tile(np.arange(256), 20),
        np.array([255, 0] * 9),
        shots(400, 0.5),
        # The same again: a whole round.
        np.tile([3, 3, 7], 999),
        np.append(shots(400, 0.0), 255),
        rng.integers(0, 4, 5000),
        np.array([7, 7]),
    ):
        section = coder.encode(Arranged(values), None, CYCLE)
        assert (coder.decode(memoryview(section), len(values)) == values).all()


def test_spread_neighbours_announce_spread_values(coder):
    """Stretches that are quiet and such that are not: each is coded by its own noise."""
    rng = np.random.default_rng(11)
    scale = np.repeat(rng.choice([0, 60], 512), 32)
    values = 500 + np.rint(scale * rng.uniform(-1, 1, scale.size)).astype(np.int64)
    # Of all the values together: those of the quiet half are one, the others one of 121.
    together = 0.5 * np.log2(2) + 0.5 * np.log2(2 * 121)
    _, bits = bits_a_value(coder, values)
    assert bits < together - 0.4


@pytest.mark.parametrize("predictor", [PREVIOUS, NEAREST, CYCLE])
def test_damage_is_told_or_does_no_harm(coder, search, predictor):
    values = shots(300, 0.2)
    neighbours = search.find(Positions(surface(len(values))))
    section = coder.encode(Arranged(values), None if predictor == CYCLE else neighbours, predictor)
    rng = np.random.default_rng(14)
    for _ in range(200):
        damaged = bytearray(section)
        damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
        damaged = damaged[: len(damaged) - int(rng.integers(0, 3))]
        try:
            decoded = coder.decode(memoryview(damaged), len(values), lambda: neighbours)
        except CodecError:
            continue
        assert decoded.shape == values.shape


@pytest.mark.parametrize(
    "section",
    [
        b"",
        bytes(8),
        bytes([5]) + bytes(10),
        bytes([NEAREST]) + bytes(10),
        bytes([CYCLE, 8]) + bytes(8),
    ],
)
def test_no_section_is_refused(coder, section):
    with pytest.raises(CodecError, match="damaged stream"):
        coder.decode(memoryview(section), 1)


class EventsSeen(EntropyCoder):
    """An entropy coder that keeps what it is given to encode."""

    def encode(self, events, chunk_starts, prior):
        seen = self._device.download(events, int(chunk_starts[-1]), "u2")
        self.events = np.split(seen, chunk_starts[1:-1].astype(int))
        return super().encode(events, chunk_starts, prior)


def residual_events(residual, prediction, spread, near, sense):
    """Yield (context, bit) of a residual by the description in attributes.py."""
    bits = spread.bit_length()
    if bits < 2:
        spread_class = bits
    elif spread < 64:
        spread_class = 2 * bits - 2 + (spread >> bits - 2 & 1)
    else:
        spread_class = min(18, bits + 5)
    level = min(7, prediction.bit_length()) if prediction > 0 else 0
    cell, magnitude = 8 * spread_class + level, abs(residual)
    base, k, expected = 1 + 8 * (4 * cell + near), magnitude.bit_length(), max(bits - 2, 0)
    if expected > 0:
        yield base, int(k < expected)
    j = 0
    if k < expected:
        while expected - 1 - j > 0:
            yield base + 1 + min(j, 2), int(k == expected - 1 - j)
            if k == expected - 1 - j:
                break
            j += 1
    else:
        while expected + j < 64:
            yield base + 4 + min(j, 3), int(k == expected + j)
            if k == expected + j:
                break
            j += 1
    if k == 0:
        return
    yield 4865 + 3 * (152 * (near == 0) + cell) + sense, int(residual < 0)
    if k > 1:
        mantissa = 5777 + 3 * (14 * (near == 0) + min(k - 1, 14) - 1)
        second = magnitude >> k - 2 & 1
        yield mantissa, second
    if k > 2:
        yield mantissa + 1 + second, magnitude >> k - 3 & 1
    for shift in range(k - 4, -1, -1):
        yield 0, magnitude >> shift & 1


def value_events(values, centre, predictor, words):
    a = b = c = centre
    errors = [0, 0]
    for i, value in enumerate(values):
        near, sense = 0, 1 + (a > b) - (a < b)
        spread = 2 * abs(a - b) + abs(b - c) + sum(errors)
        prediction = {MEAN: b + (a - b + 1 >> 1), LINEAR: 2 * a - b}.get(predictor, a)
        found = [plane[i] for plane in words if plane[i] & 63]
        if predictor == NEAREST and found:
            weighed = [(word >> 6 & 255, values[i - (word & 63)]) for word in found]
            nearest = weighed[0][1]
            prediction = nearest + (sum(w * (v - nearest) for w, v in weighed[1:]) + 64 >> 7)
            spread = (sum(w * abs(v - prediction) for w, v in weighed) >> 6) + sum(errors)
            near = 1 + (found[0] >> 14)
            sense = 1 + (nearest > prediction) - (nearest < prediction)
        residual = value - prediction
        yield from residual_events(residual, prediction, spread, near, sense)
        a, b, c = value, a, b
        errors = [abs(residual), errors[0]]


def cycle_events(values, cycle):
    place_of = {value: place for place, value in enumerate(cycle)}
    place, is_there, rounds = 0, 1, [0] * len(cycle)
    for value in values:
        for step in range(1, len(cycle) + 1):
            place = (place + 1) % len(cycle)
            after = rounds[(place + 1) % len(cycle)] & 1
            context = 5861 + (rounds[place] & 7) + 8 * is_there + 16 * after
            is_there = int(step == len(cycle) or place == place_of[value])
            if step < len(cycle):
                yield context, is_there
            rounds[place] = rounds[place] << 1 | is_there
            if is_there:
                break


@pytest.mark.parametrize("predictor", [PREVIOUS, MEAN, LINEAR, NEAREST, CYCLE])
def test_the_events_are_those_described(device, search, predictor):
    rng = np.random.default_rng(17)
    count = CHUNK + 500
    scale = 4.0 ** rng.integers(0, 12, count // 100 + 1).repeat(100)[:count]
    values = np.rint(scale * rng.normal(size=count)).astype(np.int64)
    if predictor == CYCLE:
        values = shots(400, 0.3)
    neighbours = search.find(Positions(surface(len(values))))
    words = words_of(device, neighbours)
    entropy = EventsSeen(device)
    section = AttributeCoder(device, entropy).encode(
        Arranged(values), None if predictor == CYCLE else neighbours, predictor
    )
    cycle = list(section[2 : 3 + section[1]])
    assert len(entropy.events) == -(-len(values) // CHUNK)
    for chunk, seen in enumerate(entropy.events):
        part = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
        if predictor == CYCLE:
            expected = cycle_events(values[part].tolist(), cycle)
        else:
            expected = value_events(
                values[part].tolist(), int(values[0]), predictor, words[:, part].tolist()
            )
        assert [(e >> 1, e & 1) for e in seen.tolist()] == list(expected)

"""Sequences of 64-bit integers, as the fields of a cloud become, to sections and back, in OpenCL.

A sequence is cut into chunks of 2048 values. A value is predicted from values before it in its
chunk: from those just before it, or from the nearest of the points just before it, whose positions
are known. A section is

- the predictor, one byte: 0 the value before, 1 the mean of the two before, 2 the line through
  them, 3 the weighted mean of three neighbours, 4 the next in a cycle;
- for 0 to 3 the value that stands before each chunk's first, int64; for 4 the places of the cycle
  less 1, one byte, and the value at each of them, one byte;
- the events of the residuals, or of the ways along the cycle (:mod:`.rans`), in the chunks of the
  values.

All that follows is in integers modulo 2**64; >> keeps the sign; bits(n) is the number of bits of n.

Neighbours of a point are the three nearest of the 32 points before it, of its chunk. Distances are
sums over the axes of differences of cells, relative to the lowest cell of the chunk and shifted
right until the largest has 21 bits; of two as far the later point is nearer. The class of a
distance d is 2 * k for 2**k <= 1 + d < 1.5 * 2**k, else 2 * k + 1 with the same k = bits(1 + d) -
1. A neighbour f classes further than the nearest weighs (128, 91, 64, 45, 32)[f], above 4 nothing;
each weight w becomes w * (16384 // the sum of all) >> 7.

With a, b, c the values before, the last first, and e the sum of the last two residuals' magnitudes
(at a chunk's beginning the value of the head, and 0), predictors 0 to 2 predict a, b + (a - b + 1
>> 1) and 2 * a - b; the spread s is 2 * |a - b| + |b - c| + e; the sense is 0, 1 or 2 for a below,
at or above b; near is 0. Predictor 3, where there is a neighbour, predicts p = v + (the sum over
the other neighbours of w' * (v' - v) + 64 >> 7), v the value of the nearest; s = (the sum over all
of w' * |v' - p| >> 6) + e; the sense is that of v to p; near is 1, 2 below a distance of 20 to the
nearest, or 3 below 5. Where there is none it does as predictor 0.

The spread's class is bits(s) for s < 2, 2 * bits(s) - 2 + the second highest bit of s below 64, at
most 18 and bits(s) + 5 above; level is bits(p) for p > 0, at most 7, else 0; cell = 8 * class +
level. A residual's class k is the bits of its magnitude; E = max(bits(s) - 2, 0). With B = 1 + 8 *
(4 * cell + near), the events are: if E > 0, k < E in context B; then either, for j = 0, 1 and so on
while k is not found and E - 1 - j > 0, k == E - 1 - j in B + 1 + min(j, 2); or, while E + j < 64, k
== E + j in B + 4 + min(j, 3). For k > 0 follow the sign (1: negative) in 4865 + 3 * (152 * (near ==
0) + cell) + sense; for k > 1 the second highest bit of the magnitude in M = 5777 + 3 * (14 * (near
== 0) + min(k - 1, 14) - 1), for k > 2 the third in M + 1 + the second, and the others from the
highest to the lowest in context 0.

For predictor 4 the values are places in the cycle; a chunk begins at place 0 with nothing there
before. Each place after the last value's is told to be the next or not (1), but for the last that
is left, in context 5861 + its last three rounds (1, 2, 4: it was there; the latest is 1) + 8 * the
place before it is there (the first of a chunk: 1) + 16 * the place after it was there in its latest
round.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression.arranged import Arranged
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.events import Events
from geoaccel_ros.compression.positions import CHUNK, WINDOW, Positions
from geoaccel_ros.compression.rans import EntropyCoder, costs

PREVIOUS, MEAN, LINEAR, NEAREST, CYCLE = range(5)

# As in window.cl and attributes.cl.
_NEIGHBOURS = 3
_SPREADS, _LEVELS, _NEARS = 19, 8, 4
CONTEXTS = 1 + _SPREADS * _LEVELS * (8 * _NEARS + 2 * 3) + 2 * 3 * 14 + 32
_MAX_CYCLE = 256

# Of a value: more are rare in fields that compress.
_USUAL_EVENTS = 16
# Chunks and values on which predictors are compared, at most.
_COMPARED, _COMPARED_VALUES = 8, 4096
_CENTRE = struct.Struct("<q")
# Places of a cycle that are passed for each value, at most.
_LONGEST_WAY = 3.0


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of points in their coding order, on the device: see neighbours.cl.

    Attributes
    ----------
    count : int
        Points.
    words : Buffer
    stride : int
        Words from a neighbour's plane to the next's.
    """

    count: int
    words: cl.Buffer
    stride: int


class NeighbourSearch:
    """Finds the nearest of the points just before each.

    Parameters
    ----------
    device : Device
    neighbours : int
        Of each point; 1 to 8.
    tile_in_local_memory : bool or None
        None: unless the device has none of its own, or too little.
    """

    def __init__(
        self,
        device: Device,
        neighbours: int = _NEIGHBOURS,
        tile_in_local_memory: bool | None = None,
    ):
        self._device = device
        self._neighbours = neighbours
        tile = CHUNK
        while tile > 8 and self._local_bytes(tile) > device.local_bytes:
            tile //= 2
        if tile_in_local_memory is None:
            own = device.queue.device.local_mem_type == cl.device_local_mem_type.LOCAL
            tile_in_local_memory = own and self._local_bytes(tile) <= device.local_bytes
        self._tile = tile
        self._is_local = tile_in_local_memory
        options = [f"-DNEIGHBOURS={neighbours}"]
        if not tile_in_local_memory:
            options.append("-DTILE_IN_GLOBAL_MEMORY")
        program = device.program("neighbours.cl", tuple(options))
        self._find, self._place = program.find_neighbours, program.place_cells

    def find(self, positions: Positions) -> Neighbours:
        """Return the neighbours of points in their coding order."""
        device = self._device
        count = positions.count
        planes, plane = positions.planes(device, self._place)
        stride = plane - WINDOW
        words = device.buffer(f"neighbours {self._neighbours}", 2 * self._neighbours * stride)
        if count:
            local = [cl.LocalMemory(self._local_bytes(self._tile))] if self._is_local else []
            group = min(device.group_size(self._find), self._tile // 8)
            device.launch_groups(
                self._find, -(-stride // self._tile), 1 if device.is_cpu else group,
                planes, plane, stride, self._tile, words, *local,
            )  # fmt: skip
        return Neighbours(count, words, stride)

    @staticmethod
    def _local_bytes(tile: int) -> int:
        return 3 * 4 * (tile + WINDOW)


class AttributeCoder:
    """Encodes and decodes sequences of values.

    Parameters
    ----------
    device : Device
    entropy : EntropyCoder
    table : ndarray, shape (CONTEXTS,), uint8, or None
        Probabilities' indices; None for those of ``entropy``.
    neighbours : int
        Of a point, as the search finds them.
    """

    def __init__(
        self,
        device: Device,
        entropy: EntropyCoder,
        table: np.ndarray | None = None,
        neighbours: int = _NEIGHBOURS,
    ):
        self._device = device
        self._entropy = entropy
        self._prior = entropy.prior("attributes") if table is None else table
        once = np.ones(CONTEXTS, np.int64)
        # Of each event.
        self._costs = np.stack(
            [
                costs(np.stack(bits, axis=1), self._prior)
                for bits in ((once, 0 * once), (0 * once, once))
            ],
            axis=1,
        ).reshape(-1)
        options = f"-DNEIGHBOURS={neighbours}"
        programs = {
            way: device.program("attributes.cl", (way, options)) for way in ("-DEMIT", "-DDECODE")
        }
        self._values = {way: each.code_values for way, each in programs.items()}
        self._cycles = {way: each.code_cycles for way, each in programs.items()}
        emitting = programs["-DEMIT"]
        self._gather = {4: emitting.gather_values32, 8: emitting.gather_values64}
        self._collected = Events(device)

    def encode(
        self,
        values: Arranged,
        neighbours: Neighbours | None = None,
        predictor: int | None = None,
    ) -> bytes:
        """Return the section of a sequence.

        Parameters
        ----------
        values : Arranged
            N is not 0.
        neighbours : Neighbours or None
            Of the points that the values belong to; None where their positions are not known.
        predictor : int or None
            None: that whose events cost least on a few chunks.
        """
        models = self._models(values, neighbours)
        if predictor is None:
            predictor = self._cheapest(models, values)
        model = models[predictor]
        events, starts = self._events(model, len(values), (0, 1, _chunks(len(values)), CHUNK))
        return model.head + self._entropy.encode(events, starts, self._prior)

    def decode(
        self,
        section: memoryview,
        count: int,
        find_neighbours: Callable[[], Neighbours | None] = lambda: None,
        first: int = 0,
        end: int | None = None,
    ) -> np.ndarray:
        """Return the sequence of a section, int64 (count,), or of some of its chunks.

        Parameters
        ----------
        section : memoryview
        count : int
            Not 0.
        find_neighbours : callable
            Returns the neighbours of the points that are decoded, None where their positions are
            not known; called if they are needed.
        first, end : int
            Chunks [first, end) alone are decoded; by default all.

        Raises
        ------
        CodecError
            If the section is damaged.
        """
        predictor = section[0] if len(section) else -1
        chunks = _chunks(count)
        end = chunks if end is None else end
        decoded = min(end * CHUNK, count) - first * CHUNK
        buffer = self._device.buffer("attribute_values", 8 * decoded)
        if predictor == CYCLE:
            cycle, events_at = _read_cycle(section)
            model = self._cycle_model(buffer, cycle)
        else:
            events_at = 1 + _CENTRE.size
            if len(section) < events_at:
                raise CodecError("damaged stream: a field's section is cut short")
            neighbours = find_neighbours() if predictor == NEAREST else None
            if not PREVIOUS <= predictor <= NEAREST or (predictor == NEAREST) != bool(neighbours):
                raise CodecError("damaged stream: unknown prediction of a field")
            (centre,) = _CENTRE.unpack_from(section, 1)
            model = self._value_model(buffer, predictor, centre, neighbours)
        stream = self._entropy.open(
            section[events_at:], chunks, self._prior, "attributes", first, end
        )
        self._launch(model, "-DDECODE", decoded, (0, 1, end - first, CHUNK), *stream.arguments)
        stream.finish()
        values = self._device.download(buffer, decoded, "i8")
        return cycle[values].astype(np.int64) if predictor == CYCLE else values

    def _models(self, values: Arranged, neighbours: Neighbours | None) -> dict[int, "_Model"]:
        """Return each model that can code these values, with them, by its predictor."""
        buffer = values.upload(self._device, "attribute_values", self._gather)
        models = {
            predictor: self._value_model(buffer, predictor, int(values[0]), neighbours)
            for predictor in (PREVIOUS, MEAN, LINEAR, NEAREST)
            if neighbours is not None or predictor != NEAREST
        }
        cycle = _cycle_of(values.all()) if neighbours is None else None
        if cycle is not None:
            places = np.zeros(_MAX_CYCLE, np.int64)
            places[cycle] = np.arange(len(cycle))
            buffer = self._device.upload("attribute_places", places[values.all()])
            models[CYCLE] = self._cycle_model(buffer, cycle)
        return models

    def _value_model(
        self, buffer: cl.Buffer, predictor: int, centre: int, neighbours: Neighbours | None
    ) -> "_Model":
        words, stride = (buffer, 0) if neighbours is None else (neighbours.words, neighbours.stride)
        arguments = predictor, np.int64(centre), words, stride
        return _Model(self._values, bytes([predictor]) + _CENTRE.pack(centre), buffer, arguments)

    def _cycle_model(self, buffer: cl.Buffer, cycle: np.ndarray) -> "_Model":
        head = bytes([CYCLE, len(cycle) - 1]) + cycle.astype(np.uint8).tobytes()
        return _Model(self._cycles, head, buffer, (len(cycle),))

    def _cheapest(self, models: dict[int, "_Model"], values: Arranged) -> int:
        """Return the predictor of the model whose events cost least on a few chunks."""
        count = len(values)
        compared = min(_COMPARED, _chunks(count))
        every, length = _chunks(count) // compared, min(_COMPARED_VALUES // compared, CHUNK)
        first = every // 2
        parts = [
            values[at : at + length]
            for at in range(first * CHUNK, (first + every * compared) * CHUNK, every * CHUNK)
        ]
        best_along = _best_along(parts)
        cost = {}
        for predictor in models.keys() - {PREVIOUS, MEAN, LINEAR} | {best_along}:
            events, starts = self._events(
                models[predictor], count, (first, every, compared, length)
            )
            on_host = self._device.download(events, int(starts[-1]), "u2")
            cost[predictor] = self._costs[on_host].sum()
        return min(cost, key=cost.get)

    def _events(
        self, model: "_Model", count: int, chunks: tuple[int, int, int, int]
    ) -> tuple[cl.Buffer, np.ndarray]:
        """Return the events of chunks (first, step, number, values), and where each one's begin."""

        def emit(*buffers: cl.Buffer) -> None:
            self._launch(model, "-DEMIT", count, chunks, *buffers)

        return self._collected.collect(emit, chunks[2], _USUAL_EVENTS * CHUNK)

    def _launch(self, model: "_Model", way: str, count: int, chunks: tuple, *coder) -> None:
        self._device.launch_serial(
            model.kernels[way], chunks[2], model.buffer, count, *chunks, *model.arguments, *coder
        )


@dataclass(frozen=True)
class _Model:
    """A way to code a sequence: kernels by way of compilation, section's head, and arguments."""

    kernels: dict[str, cl.Kernel]
    head: bytes
    buffer: cl.Buffer
    arguments: tuple


def _chunks(count: int) -> int:
    return -(-count // CHUNK)


def _best_along(parts: list[np.ndarray]) -> int:
    """Return which of the predictors along the order leaves least, on parts of a sequence."""
    bits = {PREVIOUS: 0.0, MEAN: 0.0, LINEAR: 0.0}
    for part in parts:
        steps = np.diff(part)
        bits[PREVIOUS] += _bits(steps[1:])
        bits[MEAN] += _bits(steps[1:] + (steps[:-1] >> 1))
        bits[LINEAR] += _bits(np.diff(steps))
    return min(bits, key=bits.get)


def _bits(residuals: np.ndarray) -> float:
    return float(np.log2(1 + np.abs(residuals.astype(np.float32))).sum())


def _cycle_of(values: np.ndarray) -> np.ndarray | None:
    """Return the values in the order in which they come round; None if they do not."""
    if values.min() < 0 or values.max() >= _MAX_CYCLE:
        return None
    pairs = values[:-1] * _MAX_CYCLE + values[1:]
    follows = np.bincount(pairs, minlength=_MAX_CYCLE**2).reshape(_MAX_CYCLE, _MAX_CYCLE)
    is_used = np.bincount(values, minlength=_MAX_CYCLE) > 0
    follows[:, ~is_used] = -1
    cycle = [int(values[0])]
    # Each time the one that follows most often of those not seen yet.
    for _ in range(int(is_used.sum()) - 1):
        follows[:, cycle[-1]] = -1
        cycle.append(int(follows[cycle[-1]].argmax()))
    cycle = np.array(cycle)
    places = np.zeros(_MAX_CYCLE, np.int64)
    places[cycle] = np.arange(len(cycle))
    ways = (np.diff(places[values]) - 1) % len(cycle) + 1
    return cycle if len(ways) and ways.mean() <= _LONGEST_WAY else None


def _read_cycle(section: memoryview) -> tuple[np.ndarray, int]:
    """Return the values of a cycle's places, and where the section's events begin."""
    end = 2 + section[1] + 1 if len(section) > 1 else len(section) + 1
    if len(section) < end:
        raise CodecError("damaged stream: a field's section is cut short")
    return np.frombuffer(section[2:end], np.uint8), end

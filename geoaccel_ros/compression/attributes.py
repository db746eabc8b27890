"""Sequences of 64-bit integers, as the fields of a cloud become, to sections and back, in OpenCL.

A sequence is cut into chunks of 2048 values. A value is predicted from values before it in its
chunk: from those just before it, or from the nearest of the points just before it, whose positions
are known. A section is

- the predictor, one byte: 0 the value before, 1 the mean of the two before, 2 the line through
  them, 3 the weighted mean of three neighbours;
- the value that stands before each chunk's first, int64;
- the events of the residuals (:mod:`.rans`), in the chunks of the values; attributes.cl says which.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.prefix_sums import PrefixSums
from geoaccel_ros.compression.rans import EntropyCoder, costs, prior

PREVIOUS, MEAN, LINEAR, NEAREST = range(4)

# As in window.cl and attributes.cl.
CHUNK = 2048
_WINDOW = 32
_NEIGHBOURS = 3
_SPREADS, _LEVELS, _NEARS = 19, 8, 4
CONTEXTS = 1 + _SPREADS * _LEVELS * (8 * _NEARS + 2 * 3) + 2 * 3 * 14

_POSITION_BITS = 21
# Chunks on which predictors are compared, at most.
_COMPARED = 4
_HEAD = struct.Struct("<Bq")


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
        self._find = device.program("neighbours.cl", tuple(options)).find_neighbours

    def find(self, cells: np.ndarray) -> Neighbours:
        """Return the neighbours of points in their coding order.

        Parameters
        ----------
        cells : ndarray, shape (3, N), integer
            Positions. Those of a cloud of more than 2**21 cells are taken more coarsely.
        """
        device = self._device
        count = cells.shape[1]
        stride = -(-count // 8) * 8
        planes = np.zeros((3, _WINDOW + stride), np.int32)
        if count:
            relative = cells.astype(np.int64) - cells.min(axis=1, keepdims=True)
            excess = int(relative.max()).bit_length() - _POSITION_BITS
            planes[:, _WINDOW : _WINDOW + count] = relative >> max(excess, 0)
        positions = device.upload("positions", planes)
        words = device.buffer(f"neighbours {self._neighbours}", 2 * self._neighbours * stride)
        if count:
            local = [cl.LocalMemory(self._local_bytes(self._tile))] if self._is_local else []
            group = min(device.group_size(self._find), self._tile // 8)
            device.launch_groups(
                self._find, -(-stride // self._tile), 1 if device.is_cpu else group,
                positions, _WINDOW + stride, stride, self._tile, words, *local,
            )  # fmt: skip
        return Neighbours(count, words, stride)

    @staticmethod
    def _local_bytes(tile: int) -> int:
        return 3 * 4 * (tile + _WINDOW)


class AttributeCoder:
    """Encodes and decodes sequences of values.

    Parameters
    ----------
    device : Device
    entropy : EntropyCoder
    table : ndarray, shape (CONTEXTS,), uint8, or None
        Probabilities' indices; None for the shipped ones.
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
        self._prior = prior("attributes") if table is None else table
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
        self._count, self._emit, self._decode = (
            device.program("attributes.cl", (way, options)).code_values
            for way in ("-DCOUNT", "-DEMIT", "-DDECODE")
        )
        self._sums = PrefixSums(device)

    def encode(
        self,
        values: np.ndarray,
        neighbours: Neighbours | None = None,
        predictor: int | None = None,
    ) -> bytes:
        """Return the section of a sequence.

        Parameters
        ----------
        values : ndarray, shape (N,), int64
        neighbours : Neighbours or None
            Of the points that the values belong to; None where their positions are not known.
        predictor : int or None
            None: that whose events cost least on a few chunks.
        """
        if predictor is None:
            predictor = self._best_predictor(values, neighbours)
        centre = int(values[0]) if len(values) else 0
        chunks = -(-len(values) // CHUNK)
        buffer = self._device.upload("attribute_values", values)
        events, starts = self._events(
            buffer, len(values), (0, 1, chunks), predictor, centre, neighbours
        )
        return _HEAD.pack(predictor, centre) + self._entropy.encode(events, starts, self._prior)

    def decode(
        self,
        section: memoryview,
        count: int,
        find_neighbours: Callable[[], Neighbours | None] = lambda: None,
    ) -> np.ndarray:
        """Return the sequence of a section, int64 (count,).

        Parameters
        ----------
        section : memoryview
        count : int
        find_neighbours : callable
            Returns the points' neighbours, None where their positions are not known; called if
            they are needed.

        Raises
        ------
        CodecError
            If the section is damaged.
        """
        if len(section) < _HEAD.size:
            raise CodecError("damaged stream: a field's section is cut short")
        predictor, centre = _HEAD.unpack_from(section)
        neighbours = find_neighbours() if predictor == NEAREST else None
        if predictor > NEAREST or (predictor == NEAREST and neighbours is None):
            raise CodecError("damaged stream: unknown prediction of a field")
        chunks = -(-count // CHUNK)
        stream = self._entropy.open(section[_HEAD.size :], chunks, self._prior, "attributes")
        if not count:
            return np.empty(0, np.int64)
        buffer = self._device.buffer("attribute_values", 8 * count)
        self._launch(
            self._decode, buffer, count, (0, 1, chunks), predictor, centre, neighbours,
            *stream.arguments,
        )  # fmt: skip
        stream.finish()
        return self._device.download(buffer, count, "i8")

    def _best_predictor(self, values: np.ndarray, neighbours: Neighbours | None) -> int:
        chunks = -(-len(values) // CHUNK)
        if not chunks:
            return PREVIOUS
        compared = min(_COMPARED, chunks)
        every = chunks // compared
        buffer = self._device.upload("attribute_values", values)
        candidates = [PREVIOUS, MEAN, LINEAR] + [NEAREST] * (neighbours is not None)
        cost = {}
        for predictor in candidates:
            events, starts = self._events(
                buffer, len(values), (every // 2, every, compared), predictor, int(values[0]),
                neighbours,
            )  # fmt: skip
            cost[predictor] = self._costs[
                self._device.download(events, int(starts[-1]), "u2")
            ].sum()
        return min(cost, key=cost.get)

    def _events(self, buffer, count, chunks, predictor, centre, neighbours):
        """Return the events of these chunks (first, step, number), and where each one's begin."""
        device = self._device
        number = chunks[2]
        starts = device.buffer("attribute_starts", 4 * (number + 1))
        arguments = buffer, count, chunks, predictor, centre, neighbours
        self._launch(self._count, *arguments, starts)
        self._sums.exclusive(starts, number)
        on_host = device.download(starts, number + 1, "u4")
        events = device.buffer("attribute_events", 2 * int(on_host[-1]))
        self._launch(self._emit, *arguments, starts, events)
        return events, on_host

    def _launch(self, kernel, buffer, count, chunks, predictor, centre, neighbours, *coder):
        words, stride = (buffer, 0) if neighbours is None else (neighbours.words, neighbours.stride)
        self._device.launch_serial(
            kernel, chunks[2],
            buffer, count, *chunks, predictor, np.int64(centre), words, stride, *coder,
        )  # fmt: skip

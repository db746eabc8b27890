"""Entropy coding of binary events with contexts: static probabilities, rANS, chunks in parallel.

An event is a uint16, ``context << 1 | bit``, with a context below 32767; 0xFFFF is skipped.
A section holds the events of one stage, in chunks that are decoded independently. All is
little-endian; the sequences of numbers are those of rice.py:

- uint16 r: number of contexts whose probability differs from the prior's;
- r numbers: contexts between one of these and the one before (the first: before context 1);
- r numbers: the index of its probability less the prior's, d, as 2 d - 2 if d > 0, else -2 d - 1;
- a number for each chunk: its words;
- the words, uint16, chunk after chunk.

Index i of a probability: ``PROBABILITIES[i]`` of 2**15 is the chance of bit 1. With the odds
o(0) = 2**32 and o(k + 1) = 12 * o(k) // 13, that of index 128 - k is
2**15 * o(k) / (o(k) + 2**32), rounded to the nearest and at least 1, and that of 128 + k is 2**15
less that. Context 0 always has index 128.

A chunk's first two words are the decoder's first state x, high word first. A bit of a context of
probability p takes s = x mod 2**15: it is 1 if s < p; x becomes p * (x >> 15) + s, or
(2**15 - p) * (x >> 15) + s - p for 0; if that is below 2**16, the next word is appended to it:
x << 16 | word. After the last bit, x is 2**16 and no word is left. A chunk without words has no
bits.
"""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.rice import decode_rice, encode_rice

_TABLES = "geoaccel_ros.compression.tables"
_PROBABILITY_BITS = 15
_ONE = 1 << _PROBABILITY_BITS
EVEN_INDEX = 128
# A cost is in 2**-24 bits: 2**32 events of 15 bits fit an int64.
_BIT = 1 << 24
# What sending a context costs, measured: its index takes 6 bits, the gap 3 to 8.
_SENT_COST = 12 * _BIT
# A GPU's histograms, for each of its compute units, and the local memory of one: several
# work-groups shall have room beside each other.
_COUNTING_GROUPS = 2
_MAX_HISTOGRAM_BYTES = 32 << 10


def _probabilities() -> np.ndarray:
    """Return the chance of bit 1 of each index, uint16 (256,), as described above."""
    # In integers, that every machine has the same.
    odds, below = 1 << 32, []
    for _ in range(EVEN_INDEX + 1):
        below.append(max(1, (odds * _ONE + (odds + (1 << 32)) // 2) // (odds + (1 << 32))))
        odds = odds * 12 // 13
    return np.array(below[:0:-1] + [_ONE - p for p in below[:EVEN_INDEX]], np.uint16)


PROBABILITIES = _probabilities()
# Cost of a 0 and of a 1, int64 (2, 256).
_COSTS = np.rint(
    -np.log2(np.stack([_ONE - PROBABILITIES.astype(float), PROBABILITIES]) / _ONE) * _BIT
).astype(np.int64)
# The indices of distinct probabilities, and what the step from one to the next adds to a 0 and
# saves a 1: costs are convex, so that steps pay up to the best. None beyond the last pays.
_DISTINCT = np.unique(PROBABILITIES, return_index=True)[1]
_ADDED = np.zeros(256, np.int64)
_SAVED = np.zeros(256, np.int64)
_ADDED[: len(_DISTINCT) - 1] = np.diff(_COSTS[0][_DISTINCT])
_SAVED[: len(_DISTINCT) - 1] = -np.diff(_COSTS[1][_DISTINCT])


def flat_prior(contexts: int) -> np.ndarray:
    """Return the table that knows nothing, uint8 (contexts,)."""
    return np.full(contexts, EVEN_INDEX, np.uint8)


def prior(name: str, folder: Path | None = None) -> np.ndarray:
    """Return the table of this name, uint8 (contexts,): indices of probabilities.

    Parameters
    ----------
    name : str
    folder : Path or None
        Where it lies; None: the package's.
    """
    content = (folder or resources.files(_TABLES)).joinpath(f"{name}.bin").read_bytes()
    return np.frombuffer(content, np.uint8)


def best_indices(counts: np.ndarray) -> np.ndarray:
    """Return the cheapest index for each context, uint8 (contexts,).

    Parameters
    ----------
    counts : ndarray, shape (contexts, 2), integer
        How often the bit was 0 and 1.
    """
    zeros, ones = counts.astype(np.int64).T
    best = np.zeros(len(counts), np.int64)
    for step in (128, 64, 32, 16, 8, 4, 2, 1):
        last = best + step - 1
        best += step * (ones * _SAVED[last] > zeros * _ADDED[last])
    return _DISTINCT[best].astype(np.uint8)


def costs(counts: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return the cost of each context's events, int64 (contexts,), in 2**-24 bits."""
    zeros, ones = counts.astype(np.int64).T
    return zeros * _COSTS[0][table] + ones * _COSTS[1][table]


@dataclass
class Stream:
    """A section on the device, ready to be decoded by a stage's kernel.

    Attributes
    ----------
    chunks : int
    words : Buffer
        uint16, of all chunks.
    chunk_words : Buffer
        uint32 (chunks + 1,): where each chunk's words begin.
    probabilities : Buffer
        uint16 (contexts,): chance of bit 1.
    verdicts : Buffer
        uint8 (chunks,): 1 for a chunk that ended right.
    """

    device: Device
    chunks: int
    words: cl.Buffer
    chunk_words: cl.Buffer
    probabilities: cl.Buffer
    verdicts: cl.Buffer

    @property
    def arguments(self) -> tuple[cl.Buffer, ...]:
        """What a kernel's ``CODER`` parameters take when it decodes."""
        return self.words, self.chunk_words, self.probabilities, self.verdicts

    def finish(self, first: int = 0, end: int | None = None) -> None:
        """Wait for the kernels; check that chunks [first, end) ended where their encoder began.

        Raises
        ------
        CodecError
            If one did not, or was not decoded.
        """
        end = self.chunks if end is None else end
        if not (self.device.download(self.verdicts, end - first, "u1", first) == 1).all():
            raise CodecError("damaged stream: the events of a chunk do not end where its words do")


class EntropyCoder:
    """Encodes sections, and opens them for the stages' kernels.

    Parameters
    ----------
    device : Device
    tables : Path or None
        Folder of the stages' tables; None: the package's.
    """

    def __init__(self, device: Device, tables: Path | None = None):
        self._device = device
        self._tables = tables
        program = device.program("rans.cl")
        self._count_runs = program.count_runs
        self._count_in_groups = program.count_in_groups
        self._sum = program.sum_histograms
        self._encode = program.encode_chunks
        self._gather = program.gather_words
        symbols = _symbols()
        self._symbols = cl.Buffer(
            device.context, cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, hostbuf=symbols
        )

    def prior(self, name: str) -> np.ndarray:
        """Return a stage's table, uint8 (contexts,)."""
        return prior(name, self._tables)

    def encode(self, events: cl.Buffer, chunk_starts: np.ndarray, prior: np.ndarray) -> bytes:
        """Return the section of these events, whose buffer is used up.

        Parameters
        ----------
        events : Buffer
            uint16: events as above. Overwritten.
        chunk_starts : ndarray, shape (chunks + 1,), uint32
            Where each chunk's events begin, ascending from 0; the last is the number of events.
        prior : ndarray, shape (contexts,), uint8
            The table that the decoder has too.

        Raises
        ------
        ValueError
            If an event's context is not in the table: an error of the stage.
        """
        chunks = len(chunk_starts) - 1
        if chunks == 0 or chunk_starts[-1] == 0:
            return b"\0\0" + encode_rice(np.zeros(chunks, np.int64))
        device = self._device
        replaced, table = self._choose(self.count(events, int(chunk_starts[-1]), len(prior)), prior)
        starts = device.upload("rans_starts", np.asarray(chunk_starts, np.uint32))
        # With a place behind the last context, for what is skipped.
        of_contexts = device.upload("rans_table", np.append(table, table[:1]))
        word_counts = device.buffer("rans_word_counts", 4 * chunks)
        states = device.buffer("rans_states", 4 * chunks)
        device.launch_serial(
            self._encode, chunks,
            events, starts, chunks, 2 * len(prior), of_contexts, self._symbols, word_counts, states,
        )  # fmt: skip
        counts = device.download(word_counts, chunks, "u4").astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
        words = device.buffer("rans_words", 2 * int(ends[-1]))
        device.launch_groups(
            self._gather, chunks, 1 if device.is_cpu else device.group_size(self._gather),
            events, starts, states, device.upload("rans_chunk_words", ends), words,
        )  # fmt: skip
        return b"".join(
            (
                _coded_choice(replaced, table, prior),
                encode_rice(counts),
                device.download(words, int(ends[-1]), "<u2").tobytes(),
            )
        )

    def count(self, events: cl.Buffer, count: int, contexts: int) -> np.ndarray:
        """Return how often each context's bit was 0 and 1, uint32 (contexts, 2).

        Parameters
        ----------
        events : Buffer
            uint16 (count,).
        count, contexts : int

        Raises
        ------
        ValueError
            If an event's context is not below ``contexts``: an error of the stage.
        """
        device = self._device
        bins = 2 * contexts
        # The bins of what is skipped and of what is no event.
        columns = bins + 2
        if device.is_cpu:
            rows = min(device.compute_units, -(-count // columns))
            histograms = device.buffer("rans_histograms", 4 * rows * columns)
            device.launch_groups(self._count_runs, rows, 1, events, count, bins, rows, histograms)
        else:
            group = device.group_size(self._count_in_groups)
            window = min(columns, min(device.local_bytes, _MAX_HISTOGRAM_BYTES) // 4)
            windows = -(-columns // window)
            rows = min(_COUNTING_GROUPS * device.compute_units, -(-count // (4 * group)))
            histograms = device.buffer("rans_histograms", 4 * rows * columns)
            device.launch_groups(
                self._count_in_groups, rows * windows, group,
                events, count, bins, windows, window, histograms, cl.LocalMemory(4 * window),
            )  # fmt: skip
        sums = device.buffer("rans_sums", 4 * columns)
        device.launch(self._sum, columns, histograms, rows, columns, sums)
        counts = device.download(sums, columns, "u4")
        if counts[-1]:
            raise ValueError(f"{counts[-1]} events have contexts that the table does not")
        return counts[:bins].reshape(contexts, 2)

    def open(
        self,
        section: memoryview,
        chunks: int,
        prior: np.ndarray,
        name: str = "",
        first: int = 0,
        end: int | None = None,
    ) -> Stream:
        """Return the section on the device, checked as far as that is possible before decoding.

        Parameters
        ----------
        section : memoryview
            As from :meth:`encode`; may be hostile.
        chunks : int
            Number of its chunks, as the stage knows it.
        prior : ndarray, shape (contexts,), uint8
        name : str
            Of the stage: streams that are open at the same time need names of their own.
        first, end : int
            Chunks [first, end) are all that the stream has, numbered from 0; by default all.

        Raises
        ------
        CodecError
            If the section is damaged.
        """
        section = np.frombuffer(section, np.uint8)
        table, position = _decoded_choice(section, prior)
        counts, position = decode_rice(section, position, chunks)
        words = section[position:]
        if 2 * int(counts.sum()) != len(words):
            raise CodecError("damaged stream: the chunks' words do not fill their section")
        ends = np.concatenate([[0], np.cumsum(counts)])
        if end is not None:
            ends, chunks = ends[first : end + 1], end - first
            words = words[2 * ends[0] : 2 * ends[-1]]
        device = self._device
        return Stream(
            device=device,
            chunks=chunks,
            words=device.upload(f"words {name}", words),
            chunk_words=device.upload(f"chunk_words {name}", (ends - ends[0]).astype(np.uint32)),
            probabilities=device.upload(f"probabilities {name}", PROBABILITIES[table]),
            verdicts=device.upload(f"verdicts {name}", np.zeros(chunks, np.uint8)),
        )

    def _choose(self, counts: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the contexts whose own probability is worth its cost, and the table with these."""
        # Context 0 has no choice.
        used = 1 + np.flatnonzero(counts[1:].any(axis=1))
        counts, best = counts[used], best_indices(counts[used])
        pays = costs(counts, prior[used]) - costs(counts, best) > _SENT_COST
        replaced = used[pays]
        table = _table_of(prior)
        table[replaced] = best[pays]
        return replaced, table


def _table_of(prior: np.ndarray) -> np.ndarray:
    table = prior.copy()
    table[0] = EVEN_INDEX
    return table


def _coded_choice(replaced: np.ndarray, table: np.ndarray, prior: np.ndarray) -> bytes:
    """Return what a section says of the contexts whose probability is not the prior's."""
    change = table[replaced].astype(np.int64) - prior[replaced]
    return b"".join(
        (
            len(replaced).to_bytes(2, "little"),
            encode_rice(np.diff(replaced, prepend=0) - 1),
            encode_rice(np.where(change > 0, 2 * change - 2, -2 * change - 1)),
        )
    )


def _decoded_choice(section: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the table of a section, which may be hostile, and the position behind it."""
    if len(section) < 2:
        raise CodecError("damaged stream: an entropy-coded section ends before its table")
    count = int(section[0]) | int(section[1]) << 8
    gaps, position = decode_rice(section, 2, count)
    changes, position = decode_rice(section, position, count)
    contexts = np.cumsum(gaps + 1)
    if count and contexts[-1] >= len(prior):
        raise CodecError("damaged stream: a probability of a context that does not exist")
    indices = prior[contexts] + np.where(changes & 1, -(changes + 1) // 2, changes // 2 + 1)
    if ((indices < 0) | (indices > 255)).any():
        raise CodecError("damaged stream: a probability that does not exist")
    table = _table_of(prior)
    table[contexts] = indices
    return table, position


def _symbols() -> np.ndarray:
    """Return what encodes a bit of each probability, (512,): index << 1 | bit; see rans.cl."""
    symbols = np.zeros((256, 2), [("reciprocal", "u8"), ("frequency", "u4"), ("start", "u4")])
    for index, one in enumerate(PROBABILITIES.tolist()):
        for bit, frequency, start in ((0, _ONE - one, one), (1, one, 0)):
            symbols[index, bit] = -(-(2**47) // frequency), frequency, start
    return symbols.reshape(-1)

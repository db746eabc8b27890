"""Coordinates of a cloud in scan order, to a section and back, in OpenCL.

Points are coded in the order of their lines (:mod:`.lines`), in chunks of 1024 that are decoded
independently. scan.cl says how. A section is

- the model: 0 linear, 1 spin; plus 2 if the points where the sensor was, which many sensors send
  for beams without a return, are told by a flag (linear: those at the origin);
- for the spin model: the number of line starts, a number as in :mod:`.rans` (0: the lines are those
  of the order), and the length of each line but the last; int32 the step of azimuth in 2**-32 of
  a turn; five bytes: the usual multiple, after how many points multiples repeat themselves or 0,
  the loop's gains for phase and step (shifts), and 1 if beams pass the axis plus 2 if the sensor
  moved; then signed integers as numbers, n >= 0 as 2 n and n < 0 as -2 n - 1: if it moved the ten
  of scan.cl's parameters from SEAM on; for each line its slope (2**16 is 1) less that of the line
  before, its height and, if beams pass the axis, its offset (both in 1/16 of a cell);
- the events of the points (:mod:`.rans`).
"""

import struct
from dataclasses import dataclass

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression import spinning
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.events import Events
from geoaccel_ros.compression.leb128 import decode_counts, encode_numbers, encode_signed, signed
from geoaccel_ros.compression.lines import Lines
from geoaccel_ros.compression.rans import (
    EntropyCoder,
    costs,
)

LINEAR, SPIN = 0, 1
_HAS_ORIGINS = 2
TABLES = {LINEAR: "scan_linear", SPIN: "scan_spin"}

# As in scan.cl.
CHUNK = 1024
_NEAR, _FAR, _FRACTIONS = 4, 26, 8
_SCALE, _COARSE = _NEAR * _FRACTIONS + _FAR, _NEAR + _FAR
_MODEL_AT = 5
SPIN_CONTEXTS = (
    _MODEL_AT + (48 + 3) * _COARSE + 4 * (6 * _SCALE + 10 * _COARSE) + (4 * 12 + 12) * _SCALE
)
LINEAR_CONTEXTS = _MODEL_AT + 3 * 4 * (6 * _SCALE + 8 * _COARSE)
SPIN_LIMIT = 2**22
_SINES = 4096

# Gains of the loop that follows the azimuth, as shifts: from sensors with a jitter of their own, or
# clouds that were corrected for motion, to those of a perfect raster.
_GAINS = ((2, 7), (5, 9), (6, 11))
_MAX_GAIN = 20
_MAX_USUAL = 16
_MAX_REPETITION = 16
_MAX_STARTS = 1024
_LEAST_STEP, _MOST_STEP = 2**12, 2**30
# Events of a point that there is room for at first.
_USUAL_EVENTS = 20
# No sensor measures more in a sweep: such clouds are maps, and to look for beams there takes time.
MOST_OF_SWEEP = 2**19
# Chunks on which models are compared, at most.
_COMPARED = 2
# Pieces that tell a map's size, and their points: a GPU takes as long as the longest.
_PRICED, _PIECE = 32, 256
# The context of bits that are 1 as often as 0.
_EVEN = 0
# Bits that tell a context's own probability, about.
_TOLD = 12
# More points at the origin than one in so many are told by a flag.
_RARE = 1000
# Of a line's slope, height and offset; what each may be at most, in its unit.
_BEAM_UNITS = np.array([1, 16, 16])
_BEAM_LIMITS = np.array([2**30, 2**26, 2**16])
# Numbers of the pose, and what all but the seam may be at most.
_POSE = 10
_POSE_LIMIT = 2**26
_HAS_OFFSETS, _HAS_POSE = 1, 2
_SPIN_HEAD = struct.Struct("<iBBBBB")


def sines() -> np.ndarray:
    """Return sin(2 pi i / 4096) for 1.25 turns, int32 (5122,), 2**30 is 1."""
    quarter = np.rint(np.sin(np.arange(_SINES // 4 + 1) * (2 * np.pi / _SINES)) * 2**30)
    half = np.concatenate([quarter, quarter[-2:0:-1]])
    turn = np.concatenate([half, -half])
    return np.concatenate([turn, turn[: _SINES // 4 + 2]]).astype(np.int32)


@dataclass(frozen=True)
class Plan:
    """How a cloud's cells are coded; on the device, until the next plan.

    Attributes
    ----------
    model : int
    head : bytes
        What the section tells of it.
    points : int
    bits : float or None
        That the section takes, by a few chunks; None where no models were compared.
    """

    model: int
    head: bytes
    points: int
    bits: float | None
    _arguments: tuple


class Scan:
    """Encodes and decodes cells in scan order.

    Parameters
    ----------
    device : Device
    entropy : EntropyCoder
    priors : mapping or None
        The table of each model, uint8; None for those of ``entropy``.
    """

    def __init__(
        self,
        device: Device,
        entropy: EntropyCoder,
        priors: dict[int, np.ndarray] | None = None,
    ):
        self._device = device
        self._entropy = entropy
        self._priors = priors or {model: entropy.prior(name) for model, name in TABLES.items()}
        emit, decode = (device.program("scan.cl", (f"-D{way}",)) for way in ("EMIT", "DECODE"))
        self._emit = {LINEAR: emit.code_linears, SPIN: emit.code_spins}
        self._events_of = Events(device)
        self._decode = {LINEAR: decode.code_linears, SPIN: decode.code_spins}
        self._costs = {model: _event_costs(prior) for model, prior in self._priors.items()}
        self._sines = cl.Buffer(
            device.context, cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, hostbuf=sines()
        )

    def plan(self, cells: np.ndarray, points: np.ndarray, lines: Lines, step: float) -> Plan:
        """Return the model whose events cost least on a few chunks.

        Parameters
        ----------
        cells : ndarray, shape (3, N), integers of 32 bits
            Of the global grid.
        points : ndarray, shape (3, N), float64
            The coordinates themselves, in cells: azimuths are found better from these.
        lines : Lines
            The coding order.
        step : float
            Of the grid, in metres.
        """
        cells = np.ascontiguousarray(cells, np.int32)
        count = cells.shape[1]
        device = self._device
        returned = cells.any(axis=0)
        has_origins = int(count - np.count_nonzero(returned) > count // _RARE)
        arguments = (
            device.upload("scan_cells", cells),
            device.upload("scan_order", lines.order),
            count,
            has_origins,
        )
        head = bytes([LINEAR + _HAS_ORIGINS * has_origins])
        if not 0 < count <= MOST_OF_SWEEP:
            return Plan(LINEAR, head, count, None, arguments)
        compared = _compared(count, _COMPARED)
        share = compared[2] / _chunks(count)
        cost = self._cost(LINEAR, arguments, compared, 1)[0]
        linear = Plan(LINEAR, head, count, cost / share + 8 * len(head), arguments)
        if max(-int(cells.min()), int(cells.max())) > SPIN_LIMIT:
            return linear
        # A few points at the origin do no harm to what is found out; to leave them out takes time.
        seen = np.flatnonzero(returned[lines.order]) if has_origins else slice(None)
        order = lines.order[seen]
        starts, line = _lines_of(points, seen, lines)
        found = spinning.fit(points, order, line[seen], step)
        if found is None or not _LEAST_STEP <= abs(found.step) < _MOST_STEP:
            return linear
        has_origins |= int(found.unreturned > 1 / _RARE)
        fine = np.rint(points[:2] * 256).astype(np.int32)
        # The last lines may have no returns at all.
        beams = np.zeros((int(line[-1]) + 1, 3), np.int64)
        beams[: len(found.beams)] = _in_units(found.beams)
        pose = _pose_in_units(found.pose)
        rows = [
            (found.usual, found.step, *gains, has_offsets, found.repetition, *pose)
            for has_offsets in range(1 + int(beams[:, 2].any()))
            for gains in _GAINS
        ]
        spin = *arguments[:-1], has_origins, device.upload("scan_fine", fine)
        costs = self._cost(
            SPIN, (*spin, *self._spin_arguments(line, beams, rows)), compared, len(rows)
        )
        best = costs.argmin()
        if cost <= costs[best]:
            return linear
        head = bytes([SPIN + _HAS_ORIGINS * has_origins]) + _spin_head(starts, beams, rows[best])
        arguments = *spin, *self._spin_arguments(line, beams, [rows[best]])
        return Plan(SPIN, head, count, costs[best] / share + 8 * len(head), arguments)

    def price(self, cells: np.ndarray, count: int) -> float:
        """Return the bits that model linear takes of a cloud, by :func:`priced` points of it.

        Parameters
        ----------
        cells : ndarray, shape (3, n), int32
            Of these points.
        count : int
            Points of the cloud.
        """
        sampled = cells.shape[1]
        has_origins = int(sampled - np.count_nonzero(cells.any(axis=0)) > sampled // _RARE)
        upload = self._device.upload
        order = np.arange(sampled, dtype=np.uint32)
        arguments = upload("scan_cells", cells), upload("scan_order", order), sampled, has_origins
        (cost,) = self._cost(LINEAR, arguments, (0, 1, -(-sampled // _PIECE)), 1, _PIECE)
        return cost * count / sampled

    def encode(self, plan: Plan) -> bytes:
        """Return the section of a cloud."""
        events, starts = self._all_events(plan)
        return plan.head + self._entropy.encode(events, starts, self._priors[plan.model])

    def count(self, plan: Plan) -> np.ndarray:
        """Return the counts of a cloud's events as tables need them, uint32 (contexts, 2)."""
        events, starts = self._all_events(plan)
        return self._entropy.count(events, int(starts[-1]), len(self._priors[plan.model]))

    def decode(self, section: memoryview, lines: Lines) -> np.ndarray:
        """Return the cells of a section in the cloud's order, int32 (3, N).

        Raises
        ------
        CodecError
            If the section is damaged.
        """
        return self._decoded(section, lines, 0, _chunks(len(lines.order)))

    def decode_chunks(self, section: memoryview, lines: Lines, first: int, end: int) -> np.ndarray:
        """Return the cells of chunks [first, end) in the coding order, int32 (3, n).

        Raises
        ------
        CodecError
            If the section is damaged.
        """
        coded = lines.order[first * CHUNK : end * CHUNK]
        return self._decoded(section, lines, first, end)[:, coded]

    def _decoded(self, section, lines, first, end) -> np.ndarray:
        """Return the cells of the cloud, int32 (3, N): right are those of chunks [first, end)."""
        count = len(lines.order)
        model, has_origins, spin, events_at = _read_head(section, lines)
        stream = self._entropy.open(
            section[events_at:], _chunks(count), self._priors[model], "geometry"
        )
        if first >= end:
            return np.empty((3, count), np.int32)
        device = self._device
        cells = device.buffer("scan_cells", 12 * count)
        arguments = cells, device.upload("scan_order", lines.order), count, has_origins
        if model == SPIN:
            line, beams, row = spin
            # Fine coordinates are the encoder's alone.
            arguments += cells, *self._spin_arguments(line, beams, [row])
        device.launch_serial(
            self._decode[model], end - first,
            *stream.arguments, first, 1, end - first, CHUNK, 1, *arguments,
        )  # fmt: skip
        stream.finish(first, end)
        return device.download(cells, 3 * count, "i4").reshape(3, count)

    def _spin_arguments(self, line, beams, rows):
        upload = self._device.upload
        return (
            upload("scan_lines", line.astype(np.uint16)),
            upload("scan_beams", (beams * _BEAM_UNITS).astype(np.int32)),
            upload("scan_rows", np.array(rows, np.int32)),
            self._sines,
        )

    def _cost(self, model, arguments, chunks, rows, size=CHUNK) -> np.ndarray:
        """Return what these chunks cost in bits as parts of the whole cloud, float (rows,)."""
        _, every, compared = chunks
        events, starts = self._events(model, arguments, chunks, rows, size)
        of_rows = np.split(
            self._device.download(events, int(starts[-1]), "u2"), starts[compared:-1:compared]
        )
        bins = 2 * len(self._priors[model])
        counts = np.stack([np.bincount(each, minlength=bins) for each in of_rows])
        even = counts[:, 2 * _EVEN] + counts[:, 2 * _EVEN + 1]
        total = counts.sum(axis=0)
        used = np.flatnonzero(total[::2] + total[1::2])
        used = used[used != _EVEN]
        # Not as one array: NumPy is slow at sums of two.
        zeros, ones = counts[:, 2 * used], counts[:, 2 * used + 1]
        cost = self._costs[model][used]
        by_prior = zeros * cost[:, 0] + ones * cost[:, 1]
        # Contexts of which the prior is wrong get a probability of their own, told once.
        own = _times_log(zeros + ones) - _times_log(zeros) - _times_log(ones)
        return even + np.minimum(by_prior, own + _TOLD / every).sum(axis=1)

    def _all_events(self, plan):
        return self._events(plan.model, plan._arguments, (0, 1, _chunks(plan.points)), 1)

    def _events(self, model, arguments, chunks, rows, size=CHUNK):
        """Return the events of these chunks (first, step, number), and where each one's begin.

        Those of a stream are of :data:`CHUNK` points.
        """
        items = rows * chunks[2]

        def emit(counts: cl.Buffer, starts: cl.Buffer, events: cl.Buffer) -> None:
            self._device.launch_serial(
                self._emit[model], items, starts, events, counts, *chunks, size, rows, *arguments
            )

        return self._events_of.collect(emit, items, size * _USUAL_EVENTS)


def priced(order: np.ndarray) -> np.ndarray:
    """Return the points of a few pieces, by which :meth:`Scan.price` tells what all take."""
    first, every, number = _compared(len(order), _PRICED)
    begins = CHUNK * np.arange(first, first + number * every, every)
    return np.concatenate([order[begin : begin + _PIECE] for begin in begins])


def _chunks(count: int) -> int:
    return -(-count // CHUNK)


def _compared(count: int, most: int) -> tuple[int, int, int]:
    """Return the first of at most so many chunks spread evenly, their distance, and how many."""
    chunks = _chunks(count)
    compared = min(most, chunks)
    every = chunks // compared
    return every // 2, every, compared


def _event_costs(prior: np.ndarray) -> np.ndarray:
    """Return the cost in bits of a 0 and a 1 in each context, float (contexts, 2)."""
    once, never = np.ones(len(prior), np.int64), np.zeros(len(prior), np.int64)
    bits = np.stack([once, never], axis=1), np.stack([never, once], axis=1)
    return np.stack([costs(bit, prior) for bit in bits], axis=1) / 2**24


def _times_log(counts: np.ndarray) -> np.ndarray:
    return counts * np.log2(np.maximum(counts, 1))


def _lines_of(points, seen, lines) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts of lines that the order does not have, and the line of each point."""
    none, count = np.empty(0, np.int64), points.shape[1]
    if lines.count > 1:
        return none, lines.line
    # The order is as it is.
    starts = spinning.line_starts(points[:, seen])
    if len(starts) == 1:
        return none, lines.line
    starts = np.arange(count)[seen][starts]
    starts[0] = 0
    return starts, _numbered(starts, count)


def _numbered(starts: np.ndarray, count: int) -> np.ndarray:
    line = np.zeros(count, np.int64)
    line[starts[1:]] = 1
    return np.cumsum(line)


def _in_units(beams: np.ndarray) -> np.ndarray:
    """Return slopes, heights and offsets as the section holds them, int64 (lines, 3)."""
    return np.rint(np.clip(beams / _BEAM_UNITS, -_BEAM_LIMITS, _BEAM_LIMITS)).astype(np.int64)


def _pose_in_units(pose: np.ndarray) -> list[int]:
    """Return the seam, the place and so on as the section holds them."""
    seam = (round(float(pose[0])) + 2**31) % 2**32 - 2**31
    return [seam, *np.rint(np.clip(pose[1:], -_POSE_LIMIT, _POSE_LIMIT)).astype(int).tolist()]


def _spin_head(starts: np.ndarray, beams: np.ndarray, row: tuple[int, ...]) -> bytes:
    usual, step, *gains, has_offsets, repetition = row[:6]
    pose = np.array(row[6:])
    moved = bool(pose.any())
    told = beams[:, : 2 + has_offsets].copy()
    # Slopes mostly rise or fall from line to line.
    told[1:, 0] -= beams[:-1, 0]
    numbers = np.concatenate([pose[: len(pose) * moved], told.ravel()]).astype(np.int64)
    return b"".join(
        (
            encode_numbers(np.concatenate([[len(starts)], np.diff(starts)])),
            _SPIN_HEAD.pack(step, usual, repetition, *gains, has_offsets + _HAS_POSE * moved),
            encode_signed(numbers),
        )
    )


def _read_head(section: memoryview, lines: Lines):
    """Return the model, whether origins are told, what spin needs, and where the events begin.

    Spin needs the line of each point, the beams int64 (lines, 3) and the row of parameters.
    """
    damaged = CodecError("damaged stream: unknown model of the scan")
    count = len(lines.order)
    content = np.frombuffer(section, np.uint8)
    if not len(content) or content[0] > SPIN + _HAS_ORIGINS:
        raise damaged
    model, has_origins = int(content[0]) & 1, int(content[0]) >> 1
    if model == LINEAR:
        return model, has_origins, None, 1
    (starts,), position = decode_counts(content, 1, 1)
    if starts > _MAX_STARTS or not starts and lines.count > _MAX_STARTS:
        raise damaged
    lengths, position = decode_counts(content, position, max(int(starts) - 1, 0))
    line, number = lines.line, lines.count
    if starts:
        ends = np.cumsum(lengths)
        if (lengths < 1).any() or len(ends) and ends[-1] >= count:
            raise damaged
        line, number = _numbered(np.concatenate([[0], ends]), count), int(starts)
    if len(content) < position + _SPIN_HEAD.size:
        raise damaged
    step, usual, repetition, *gains, flags = _SPIN_HEAD.unpack_from(section, position)
    if (
        not _LEAST_STEP <= abs(step) < _MOST_STEP
        or not 1 <= usual <= _MAX_USUAL
        or repetition > _MAX_REPETITION
        or max(gains) > _MAX_GAIN
        or flags > _HAS_OFFSETS + _HAS_POSE
    ):
        raise damaged
    columns = 2 + (flags & _HAS_OFFSETS)
    of_pose = _POSE if flags & _HAS_POSE else 0
    numbers, position = decode_counts(
        content, position + _SPIN_HEAD.size, of_pose + columns * number
    )
    told = signed(numbers)
    pose = told[:of_pose].tolist() or [0] * _POSE
    beams = np.zeros((number, 3), np.int64)
    beams[:, :columns] = told[of_pose:].reshape(number, columns)
    beams[:, 0] = np.cumsum(beams[:, 0])
    if (
        (np.abs(beams) > _BEAM_LIMITS).any()
        or not -(2**31) <= pose[0] < 2**31
        or max(map(abs, pose[1:])) > _POSE_LIMIT
    ):
        raise damaged
    row = (usual, step, *gains, flags & _HAS_OFFSETS, repetition, *pose)
    return model, has_origins, (line, beams, row), position

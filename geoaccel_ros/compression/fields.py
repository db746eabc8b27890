"""Every field but x, y and z: a column of a cloud to a section and back.

A column becomes sequences of integers (:mod:`.sequences`): a field of several values a point one
for each, packed colours one for each byte, others one. The section has for each its length, as a
LEB128 number, and then

- its head (:mod:`.sequences`); that is all of a constant one;
- one byte: 0 if the integers follow the coding order of the points, 1 if the order of the cloud;
- for the former, where the points' positions are known, the basis (:mod:`.bases`), which is
  subtracted from the integers;
- the section of the attribute coder (:mod:`.attributes`).

Bytes of packed colours: the second lowest (green), then the lowest and the third lowest, each less
the first, then the highest.
"""

from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from geoaccel_ros.compression.arranged import Arranged
from geoaccel_ros.compression.attributes import AttributeCoder, Neighbours, NeighbourSearch
from geoaccel_ros.compression.bases import best_basis, read_basis, roughness
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.leb128 import decode_number, encode_number
from geoaccel_ros.compression.nonfinite import as_unsigned
from geoaccel_ros.compression.policies import COLOURS
from geoaccel_ros.compression.positions import Positions
from geoaccel_ros.compression.rans import EntropyCoder
from geoaccel_ros.compression.sequences import Sequence, read_head, to_sequence

_IN_CODING_ORDER, _IN_CLOUD_ORDER = 0, 1


@dataclass
class Places:
    """What both sides know of a cloud's points when a field is coded.

    Attributes
    ----------
    count : int
        Points, N.
    order : ndarray, shape (N,), integer, or None
        Which point of the cloud is the i-th in coding order; None: the i-th.
    positions : Positions or None
        None where they are not known yet.
    is_order_told : bool
        Whether the decoder has the order too, and returns to that of the cloud.
    """

    count: int
    order: np.ndarray | None = None
    positions: Positions | None = None
    is_order_told: bool = True
    neighbours: Neighbours | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Span:
    """Chunks of a cloud's coding order (:mod:`.attributes`) that are decoded without the others.

    Attributes
    ----------
    first, end : int
        Chunks [first, end).
    count : int
        Points of the cloud.
    order : ndarray, shape (n,), integer
        Which point of the cloud is the i-th of these chunks.
    """

    first: int
    end: int
    count: int
    order: np.ndarray


class FieldCoder:
    """Encodes and decodes fields on an OpenCL device.

    Parameters
    ----------
    device : Device
    entropy : EntropyCoder
    table : ndarray or None
        Of :class:`.attributes.AttributeCoder`.
    """

    def __init__(self, device: Device, entropy: EntropyCoder, table: np.ndarray | None = None):
        self._attributes = AttributeCoder(device, entropy, table)
        self._search = NeighbourSearch(device)

    def encode(self, sequences: list[Sequence], places: Places) -> bytes:
        """Return the section of a field, which has become sequences in the cloud's order."""
        parts = []
        for sequence in sequences:
            part = self._encode_sequence(sequence, places)
            parts += [encode_number(len(part)), part]
        return b"".join(parts)

    def decode(
        self,
        name: str,
        section: memoryview,
        target: np.ndarray,
        places: Places,
        span: Span | None = None,
    ) -> None:
        """Fill a field's column, of any byte order, from its section.

        With a span the column and the places are those of its points, in the coding order.

        Raises
        ------
        CodecError
            If the section is damaged.
        """
        section = memoryview(section)
        position = 0
        if places.count:
            native = target.dtype.newbyteorder("=")
            columns = []
            dtype, parts = _parts(name, target)
            for _ in range(parts):
                length, position = decode_number(section, position)
                part = section[position : position + length]
                position += length
                columns.append(self._decode_sequence(part, dtype, places, span))
            as_unsigned(target)[...] = _joined(name, columns, native, target.shape)
        if position != len(section):
            raise CodecError(f"damaged stream: the section of field '{name}' does not end right")

    def _encode_sequence(self, sequence: Sequence, places: Places) -> bytes:
        if not len(sequence.values):
            return sequence.head
        values = Arranged(sequence.values)
        ordered = Arranged(sequence.values, places.order)
        basis = b""
        if places.positions is not None:
            basis, ordered = best_basis(ordered, places.positions)
        may_stay = places.order is not None and places.is_order_told
        if may_stay and roughness(values) < roughness(ordered):
            section = self._attributes.encode(values)
            return sequence.head + bytes([_IN_CLOUD_ORDER]) + section
        section = self._attributes.encode(ordered, self._neighbours(places))
        return sequence.head + bytes([_IN_CODING_ORDER]) + basis + section

    def _decode_sequence(
        self, part: memoryview, dtype: np.dtype, places: Places, span: Span | None
    ) -> np.ndarray:
        count = places.count if span is None else span.count
        head, position = read_head(part, 0, count)
        if head.is_constant:
            if position != len(part):
                raise CodecError("damaged stream: a constant field has values")
            return head.to_values(np.zeros(places.count, np.int64), dtype)
        order = part[position] if position < len(part) else None
        position += 1
        if order == _IN_CLOUD_ORDER:
            values = self._attributes.decode(part[position:], count)
            if span is not None:
                values = values[span.order]
        elif order == _IN_CODING_ORDER:
            basis = None
            if places.positions is not None:
                basis, position = read_basis(part, position)
            chunks = (0, None) if span is None else (span.first, span.end)
            ordered = self._attributes.decode(
                part[position:], count, lambda: self._neighbours(places), *chunks
            )
            if basis is not None:
                ordered += basis.values(places.positions.all())
            values = ordered
            if places.order is not None:
                values = np.empty_like(ordered)
                values[places.order] = ordered
        else:
            raise CodecError("damaged stream: unknown order of a field")
        return head.to_values(values, dtype)

    def _neighbours(self, places: Places) -> Neighbours | None:
        """Return the points' neighbours, found once a cloud; None without positions."""
        if places.neighbours is None and places.positions is not None:
            places.neighbours = self._search.find(places.positions)
        return places.neighbours


class Columns:
    """A cloud's fields as sequences, which are made aside and once, whoever codes them.

    Parameters
    ----------
    points : ndarray, shape (N,), structured
    steps : dict of str to float
        Of :func:`.policies.field_steps`, of the fields to be made; 0 for bit-exact.
    aside : Executor
        Where they are made.

    Attributes
    ----------
    names : list of str
        Of these fields.
    """

    def __init__(self, points: np.ndarray, steps: dict[str, float], aside: Executor):
        self.names = list(steps)
        self._points = points
        self._steps = steps
        self._made = {
            name: aside.submit(sequences_of, name, points[name], step)
            for name, step in steps.items()
        }

    def is_exact(self, name: str) -> bool:
        """Tell whether a field is kept bit for bit."""
        return not self._steps.get(name, 0.0)

    def sequences(self, name: str, taken: np.ndarray | None = None) -> list[Sequence]:
        """Return a field's sequences in the order of the cloud, or of the points that are taken.

        A field that is not among those made, as a coordinate, is bit-exact.
        """
        if name in self._made and taken is None:
            return self._made[name].result()
        column = self._points[name] if taken is None else self._points[name][taken]
        return sequences_of(name, column, self._steps.get(name, 0.0))


def sequences_of(name: str, column: np.ndarray, step: float) -> list[Sequence]:
    """Return the sequences that become a field's section; the host's part of the work.

    Parameters
    ----------
    name : str
    column : ndarray, shape (N,) or (N, values of a point)
        In the order of the cloud.
    step : float
        Of :func:`.policies.field_steps`: 0 for bit-exact.
    """
    if not len(column):
        return []
    return [to_sequence(values, step) for values in _split(name, column)]


def _is_colour(name: str, dtype: np.dtype) -> bool:
    return name.lower() in COLOURS and dtype.itemsize == 4


def _split(name: str, column: np.ndarray) -> list[np.ndarray]:
    """Return the parts of a field that are coded by themselves, each (N,)."""
    if column.ndim > 1:
        return list(column.T)
    if not _is_colour(name, column.dtype):
        return [column]
    bits = _native_bits(column)
    blue, green, red, rest = ((bits >> shift & 255).astype(np.int64) for shift in (0, 8, 16, 24))
    return [green, blue - green, red - green, rest]


def _parts(name: str, column: np.ndarray) -> tuple[np.dtype, int]:
    """Return the native type of a field's parts, and how many there are."""
    dtype = column.dtype.newbyteorder("=")
    if column.ndim > 1:
        return dtype, column.shape[1]
    return (np.dtype(np.int64), 4) if _is_colour(name, dtype) else (dtype, 1)


def _joined(
    name: str, parts: list[np.ndarray], dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray:
    """Return the bits of a column from its parts, unsigned, of a native type."""
    unsigned = f"u{dtype.itemsize}"
    if len(shape) > 1:
        return np.stack([part.view(unsigned) for part in parts], axis=1)
    if not _is_colour(name, dtype):
        return parts[0].view(unsigned)
    green, blue, red, rest = parts
    bits = (
        (blue + green & 255) | (green & 255) << 8 | (red + green & 255) << 16 | (rest & 255) << 24
    )
    return bits.astype(unsigned)


def _native_bits(values: np.ndarray) -> np.ndarray:
    bits = as_unsigned(values)
    return bits.astype(bits.dtype.newbyteorder("="))

"""Values of a field as bytes that compress well, bit-exact.

``planes``: all lowest bytes, then all second bytes, and so on (a shuffle): bytes of one
significance resemble each other. ``palette``: the distinct values, then the planes of each value's
index among them: sensors report few distinct intensities, rings and times in types that could hold
many.
"""

import numpy as np

from geoaccel_ros.compression.errors import CodecError

_PLANES, _PALETTE = 0, 1
_PALETTE_HEAD = 3
_MAX_PALETTE = 65536


def encode_values(values: np.ndarray) -> bytes:
    """Return values of any shape, type and byte order as bytes for the entropy coder."""
    bits = _as_unsigned(values).ravel()
    if bits.itemsize >= 4:
        # Below four values a point of the palette the indices would save little.
        palette = np.unique(bits)
        if len(palette) <= min(_MAX_PALETTE, len(bits) // 4):
            indices = np.searchsorted(palette, bits).astype(_index_type(len(palette)))
            head = bytes([_PALETTE]) + (len(palette) - 1).to_bytes(2, "little")
            distinct = palette.astype(palette.dtype.newbyteorder("<")).tobytes()
            return head + distinct + planes(indices)
    return bytes([_PLANES]) + planes(bits)


def decode_values(content: bytes, count: int, itemsize: int) -> np.ndarray:
    """Return ``count`` values as unsigned integers of ``itemsize`` bytes, native byte order.

    Raises
    ------
    CodecError
        If the bytes do not hold that many.
    """
    if content[:1] == bytes([_PLANES]):
        return unplanes(content, 1, count, itemsize)
    if content[:1] != bytes([_PALETTE]) or len(content) < _PALETTE_HEAD:
        raise CodecError("damaged stream: unknown coding of a field")
    size = 1 + int.from_bytes(content[1:_PALETTE_HEAD], "little")
    indices_at = _PALETTE_HEAD + size * itemsize
    if len(content) < indices_at:
        raise CodecError("damaged stream: a field's palette is cut short")
    palette = np.frombuffer(content, f"<u{itemsize}", size, _PALETTE_HEAD)
    indices = unplanes(content, indices_at, count, _index_type(size).itemsize)
    if int(indices.max(initial=0)) >= size:
        raise CodecError("damaged stream: an index beyond its field's palette")
    return palette.astype(f"u{itemsize}")[indices]


def planes(values: np.ndarray) -> bytes:
    """Return the byte planes of a native array (N,), the least significant first."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little.view(np.uint8).reshape(len(values), -1).T).tobytes()


def unplanes(content: bytes, offset: int, count: int, itemsize: int) -> np.ndarray:
    """Return the values, unsigned native (count,), of the planes from ``offset`` to the end.

    Raises
    ------
    CodecError
        If there are more or fewer bytes.
    """
    if len(content) - offset != count * itemsize:
        raise CodecError("damaged stream: a section does not fit the number of points")
    if count == 0:
        return np.empty(0, f"u{itemsize}")
    by_plane = np.frombuffer(content, np.uint8, offset=offset).reshape(itemsize, count)
    little = np.ascontiguousarray(by_plane.T).view(f"<u{itemsize}").reshape(count)
    return little.astype(f"u{itemsize}", copy=False)


def as_unsigned_view(values: np.ndarray) -> np.ndarray:
    """Return the bits as unsigned integers of the same byte order: copies keep NaNs as they are."""
    return values.view(f"{values.dtype.byteorder}u{values.dtype.itemsize}")


def _as_unsigned(values: np.ndarray) -> np.ndarray:
    bits = as_unsigned_view(values)
    return bits.astype(bits.dtype.newbyteorder("="))


def _index_type(palette_size: int) -> np.dtype:
    return np.dtype(np.uint8 if palette_size <= 256 else np.uint16)

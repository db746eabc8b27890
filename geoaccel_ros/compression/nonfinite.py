"""Points of which a coordinate is NaN or infinite: split off before the geometry, kept bit for bit.

Where the order is kept, section "nonfinite" begins with a bit for each point of the cloud, the
lowest of a byte first, 1 for those points; then for each field that the section holds the points'
values as byte planes: all lowest bytes, then all second lowest, and so on. It holds x, y and z, in
mode octree every field. What there is is one zstd frame that states its content's size.
"""

import numpy as np
import zstandard

from geoaccel_ros.compression.errors import CodecError

# More gains nothing: the values are nearly always all alike.
_LEVEL = 1


def encode(points: np.ndarray, names: list[str], mask: np.ndarray | None = None) -> bytes:
    """Return the section of points (K,) structured, of which the fields ``names`` are kept.

    ``mask`` is a bool for each point of the cloud where the order is kept.
    """
    if not len(points):
        return b""
    content = b"" if mask is None else np.packbits(mask, bitorder="little").tobytes()
    for name in names:
        bits = as_unsigned(points[name])
        little = bits.astype(bits.dtype.newbyteorder("<"))
        content += np.ascontiguousarray(little.reshape(-1, 1).view(np.uint8).T).tobytes()
    return zstandard.ZstdCompressor(level=_LEVEL).compress(content)


def decode(
    section: memoryview, count: int, points: int, dtype: np.dtype, names: list[str], has_mask: bool
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the mask, bool (points,), None if there is none, and the values, structured (count,).

    Raises
    ------
    CodecError
        If the section is damaged.
    """
    values = np.zeros(count, dtype)
    if not count:
        if len(section):
            raise CodecError("damaged stream: a section of points that there are not")
        return None, values
    mask_size = -(-points // 8) if has_mask else 0
    content = _decompress(section, mask_size + count * sum(dtype[name].itemsize for name in names))
    position, mask = mask_size, None
    if has_mask:
        packed = np.frombuffer(content, np.uint8, mask_size)
        mask = np.unpackbits(packed, count=points, bitorder="little").astype(bool)
        if np.count_nonzero(mask) != count:
            raise CodecError("damaged stream: the mask marks another number of points than stated")
    for name in names:
        bits = as_unsigned(values[name])
        planes = np.frombuffer(content, np.uint8, bits.nbytes, position)
        little = np.ascontiguousarray(planes.reshape(bits.itemsize, -1).T)
        bits[...] = little.view(f"<u{bits.itemsize}").reshape(bits.shape)
        position += bits.nbytes
    return mask, values


def as_unsigned(values: np.ndarray) -> np.ndarray:
    """Return the bits as unsigned integers of the same byte order: copies keep NaNs as they are."""
    return values.view(f"{values.dtype.byteorder}u{values.dtype.itemsize}")


def _decompress(section: memoryview, size: int) -> bytes:
    try:
        # Compared before anything is allocated.
        if zstandard.get_frame_parameters(section).content_size != size:
            raise CodecError("damaged stream: a section's content has another size than stated")
        return zstandard.ZstdDecompressor().decompress(section, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CodecError(f"damaged stream: {error}") from None

"""Entropy coding of a section: zstd frames that state their content's size."""

import zstandard

from geoaccel_ros.compression.errors import CodecError


def compress(content: bytes, level: int) -> bytes:
    """Return ``content`` as a zstd frame of this level (1 to 19); nothing for nothing."""
    return zstandard.ZstdCompressor(level=level).compress(content) if content else b""


def decompress(stored: memoryview, size: int) -> bytes:
    """Return the content of a frame, which must have exactly ``size`` bytes.

    The size is compared before anything is allocated.

    Raises
    ------
    CodecError
        If the frame is damaged or states another size.
    """
    if size == 0 and len(stored) == 0:
        return b""
    try:
        if zstandard.get_frame_parameters(stored).content_size != size:
            raise CodecError("damaged stream: a section's content has another size than stated")
        return zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CodecError(f"damaged stream: {error}") from None

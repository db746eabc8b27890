"""liblzf's compression (Marc Lehmann), which PCD's binary_compressed uses."""

from geoaccel_ros.pointcloud.formats.malformed import Malformed


def decompress(data: bytes, size: int) -> bytes:
    """Undo the compression: literal runs and copies of what came before.

    Raises
    ------
    Malformed
        If the result is not of ``size`` bytes; no more than that is ever held.
    """
    out = bytearray()
    position = 0
    try:
        while position < len(data):
            control = data[position]
            position += 1
            if control < 32:
                end = position + control + 1
                if end > len(data) or len(out) + control + 1 > size:
                    raise IndexError
                out += data[position:end]
                position = end
                continue
            length = control >> 5
            if length == 7:
                length += data[position]
                position += 1
            start = len(out) - ((control & 31) << 8) - data[position] - 1
            position += 1
            length += 2
            if start < 0 or len(out) + length > size:
                raise IndexError
            available = len(out) - start
            if length <= available:
                out += out[start : start + length]
            else:
                # The copy overlaps itself: a pattern that repeats.
                pattern = bytes(out[start:])
                out += (pattern * (length // available + 1))[:length]
    except IndexError:
        raise Malformed("its compressed data is damaged") from None
    if len(out) != size:
        raise Malformed("its compressed data is damaged")
    return bytes(out)

"""What the codec refuses."""


class CodecError(ValueError):
    """A cloud that cannot be encoded, bytes that are no valid stream, no usable device."""

"""What the codec refuses."""

from geoaccel_ros.backend import BackendError


class CodecError(ValueError):
    """A cloud that cannot be encoded, bytes that are no valid stream, no usable device."""


class DeviceError(CodecError, BackendError):
    """There is no OpenCL device, or none of the name asked for."""


class ForeignFormatError(CodecError):
    """A message whose format names another codec."""


class FutureVersionError(CodecError):
    """A stream, or a message's format, of a later version than is known here."""


class DeclarationError(CodecError):
    """A message that declares another cloud than its stream holds, or contradicts itself."""


class TooLargeError(CodecError):
    """A cloud of more bytes than the codec was allowed."""

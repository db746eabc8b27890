"""What the accelerated capabilities share about their devices."""


class BackendError(RuntimeError):
    """A backend that was asked for cannot be used; the message says why and what helps."""

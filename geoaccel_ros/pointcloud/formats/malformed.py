"""The one way in which a reader or writer refuses."""


class Malformed(ValueError):
    """What is wrong with a file, without its name; may quote the file as it is."""

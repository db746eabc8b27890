"""What keeps a benchmark from running, in one line."""


class BenchmarkError(Exception):
    """A benchmark cannot run as asked; the message names the reason and the remedy."""

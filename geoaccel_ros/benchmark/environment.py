"""What the processes of a benchmark share."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

from geoaccel_ros.cli.demo.processes import demo_environment


@contextlib.contextmanager
def node_environment(**others: str) -> Iterator[None]:
    """Use the demo's variables and ``others``; take nodes along when ended from outside."""
    variables = dict(os.environ)
    os.environ.update(demo_environment() | others)
    handlers = {
        number: signal.signal(number, lambda number, _: sys.exit(128 + number))
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.environ.clear()
        os.environ.update(variables)

"""Processes that take commands: a line of words to standard input, a line of JSON back."""

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Callable, Sequence

from geoaccel_ros.benchmark.errors import BenchmarkError

# A process imports and starts in seconds; where the machine is busy, in more of them.
_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 3.0


class Worker:
    """A process that serves commands, started and ready; to be closed.

    Parameters
    ----------
    module : str
        Whose main serves by :func:`serve`.
    arguments : sequence of str
    wrapper : sequence of str
        Command that runs another, such as nsenter.

    Raises
    ------
    BenchmarkError
        If it does not start.
    """

    def __init__(self, module: str, arguments: Sequence[str], wrapper: Sequence[str] = ()):
        self._name = module.rpartition(".")[2]
        self._process = subprocess.Popen(
            [*wrapper, sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is for who started it, and ends it by its standard input.
            start_new_session=True,
        )
        try:
            self.answer(_START_TIMEOUT)
        except BenchmarkError:
            self.close()
            raise

    def ask(self, *words: object, timeout: float = 30.0):
        """Return the answer to a command."""
        self.tell(*words)
        return self.answer(timeout)

    def tell(self, *words: object) -> None:
        """Give a command whose answer is asked for later."""
        with contextlib.suppress(BrokenPipeError):
            print(*words, file=self._process.stdin, flush=True)

    def answer(self, timeout: float):
        """Return the answer to the first command that has had none.

        Raises
        ------
        BenchmarkError
            If the process ended, or none comes within ``timeout`` seconds.
        """
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            what = "ended" if ready else f"did not answer within {timeout:g} s"
            raise BenchmarkError(f"{self._name} {what}: what it wrote to standard error tells why")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def serve(commands: dict[str, Callable]) -> int:
    """Answer commands until standard input ends.

    Parameters
    ----------
    commands : dict of callable
        By the first word of a line; called with the others, returns what is written as JSON.
    """
    answer(None)
    for line in sys.stdin:
        name, *words = line.split()
        answer(commands[name](*words))
    return 0


def answer(value) -> None:
    """Write an answer; the first says that the process is ready."""
    print(json.dumps(value), flush=True)

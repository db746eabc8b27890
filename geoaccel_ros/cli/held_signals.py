"""Signals that end the command, held back where they would leave something behind."""

import contextlib
import signal
import sys
from collections.abc import Iterator


class HeldSignals:
    """SIGINT, SIGTERM and SIGHUP, held back in this context but for where :meth:`raised` is.

    Python raises KeyboardInterrupt between any two instructions, so also in the midst of a file's
    making or of its removal. What is still held back at the end is forgotten: the work is done. A
    signal that the process ignores (nohup) stays ignored. For the main thread alone.
    """

    def __init__(self):
        self._raises = False
        self._number: int | None = None

    def __enter__(self) -> "HeldSignals":
        self._handlers = {
            number: signal.signal(number, self._handle)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) != signal.SIG_IGN
        }
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Raise the first signal here, one that was held back included; others are held back.

        SIGINT is a KeyboardInterrupt, the others end the command with the status that a shell
        expects.
        """
        self._raises = True
        try:
            self.check()
            yield
            self.check()
        finally:
            self._raises = False

    def check(self) -> None:
        """Raise, within :meth:`raised`, what came before or was lost.

        Python drops an exception that comes in a destructor: who works long asks now and then.
        """
        if self._number is not None:
            self._raise(self._number)

    def _handle(self, number: int, _) -> None:
        self._number = number
        if self._raises:
            self._raise(number)

    def _raise(self, number: int) -> None:
        # Once: a second Ctrl-C must not break off what the first one began to undo.
        self._raises = False
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

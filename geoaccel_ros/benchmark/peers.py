"""Other packages that do the same work, and which of them can take part here."""

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from geoaccel_ros.versions import installed_versions


@dataclass(frozen=True)
class Peer:
    """A contender from another package.

    Attributes
    ----------
    name : str
        As the tables show it.
    distribution : str
        The package as pip names it.
    module : str
        What the contender imports of it.
    contender : callable
        Makes what the benchmark runs; imports the package itself. What it takes and returns is
        between it and its benchmark.
    """

    name: str
    distribution: str
    module: str
    contender: Callable

    def problem(self) -> str | None:
        """Return why the peer cannot take part here, with the remedy, or None if it can."""
        try:
            importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name == self.module.partition(".")[0]:
                return "not installed: pip install 'geoaccel_ros[bench]'"
            return f"{self.distribution} cannot be imported ({error})"
        # A missing system library is one or the other.
        except (ImportError, OSError) as error:
            return f"{self.distribution} cannot be imported ({error})"
        return None

    def versions(self) -> dict[str, str]:
        """Return the version of what takes part, by its name."""
        return installed_versions([self.distribution])


def take_part(peers: Iterable[Peer]) -> tuple[list[Peer], list[dict[str, str]]]:
    """Return the peers that can take part, and for the others contender and reason."""
    present, left_out = [], []
    for peer in peers:
        reason = peer.problem()
        if reason is None:
            present.append(peer)
        else:
            left_out.append({"contender": peer.name, "reason": reason})
    return present, left_out

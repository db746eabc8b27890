"""Work-group sizes by measurement: while a kernel works, each size is tried; the fastest is kept.

The choices are kept in a file for each device and driver, in the user's cache directory. They
decide how fast a kernel is, never what it computes.
"""

import json
import os
import re
import tempfile
from pathlib import Path

# The fastest of so many runs counts: the first of a kernel may compile it.
_RUNS = 3


def cache_path(device: str) -> Path:
    """Return the file for a device, which ``device`` names together with its driver."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (
        Path(root) / "geoaccel_ros" / f"group_sizes_{re.sub(r'[^0-9A-Za-z.]+', '_', device)}.json"
    )


class GroupSizes:
    """The sizes that were found fastest, and the measurements under way.

    Parameters
    ----------
    path : Path
        File that keeps them. One that cannot be read or written is ignored.
    """

    def __init__(self, path: Path):
        self._path = path
        self._chosen = _read(path)
        self._times: dict[str, dict[int, list[float]]] = {}

    def choose(self, task: str, candidates: list[int]) -> tuple[int, bool]:
        """Return the size to use now, and whether :meth:`record` shall be told how long it took.

        Parameters
        ----------
        task : str
            A kernel, with about as many work-items.
        candidates : list of int
            The sizes that it can have.
        """
        if self._chosen.get(task) in candidates:
            return self._chosen[task], False
        times = self._times.setdefault(task, {})
        return min(candidates, key=lambda size: len(times.get(size, ()))), True

    def record(self, task: str, size: int, seconds: float, candidates: list[int]) -> None:
        """Note a run; the last that was wanted decides, and is kept."""
        times = self._times[task]
        times.setdefault(size, []).append(seconds)
        if all(len(times.get(candidate, ())) >= _RUNS for candidate in candidates):
            self._chosen[task] = min(candidates, key=lambda candidate: min(times[candidate]))
            self._write()

    def _write(self) -> None:
        # What other processes have found since is kept, and no process ever reads half a file.
        self._chosen = _read(self._path) | self._chosen
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._path.parent, delete=False) as file:
                json.dump(self._chosen, file, indent=1, sort_keys=True)
            os.replace(file.name, self._path)
        except OSError:
            pass


def _read(path: Path) -> dict[str, int]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {task: size for task, size in content.items() if isinstance(size, int)}
    except (OSError, ValueError, AttributeError):
        return {}

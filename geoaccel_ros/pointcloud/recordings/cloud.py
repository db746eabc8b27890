"""One cloud of a recording."""

from dataclasses import dataclass

import numpy as np


class RecordingError(ValueError):
    """A recording that cannot be read; one line names it, says why, and what helps."""


@dataclass(frozen=True)
class RecordedCloud:
    """A cloud as it was recorded, or what is wrong with it.

    Attributes
    ----------
    name : str
        The file, or the number of the message on its topic, from 0.
    stamp_ns : int, nanoseconds
        The header's stamp; of a message that cannot be read, the time of its recording.
    frame_id : str
        The sensor's frame; empty in a file.
    points : structured ndarray (N,) or None
        None where the cloud cannot be read. There may be no points.
    problem : str
        Why ``points`` is None, one line; else empty.
    """

    name: str
    stamp_ns: int
    frame_id: str
    points: np.ndarray | None
    problem: str = ""

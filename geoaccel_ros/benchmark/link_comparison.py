"""A cloud that came over a link beside what was sent, point by point."""

from dataclasses import dataclass

import numpy as np

from geoaccel_ros.pointcloud.layout import coordinates


@dataclass(frozen=True)
class Difference:
    """What became of a cloud whose points keep their order.

    Attributes
    ----------
    problem : str
        What makes the clouds incomparable; empty: nothing, and only then the others count.
    error : float, m
        Largest of one coordinate, without the rounding of its own float type.
    changed : dict of float
        By field other than x y z that is not bit for bit the same: its largest difference, as that
        of coordinates.
    dropped : tuple of str
        Fields that did not come.
    """

    problem: str = ""
    error: float = 0.0
    changed: dict[str, float] | None = None
    dropped: tuple[str, ...] = ()

    def is_within(self, step: float, steps: dict[str, float]) -> bool:
        """Return whether it is what an encoder may do that rounds to these steps.

        Parameters
        ----------
        step : float, m
            Of coordinates.
        steps : dict of float
            Of fields that may be rounded, in their own units; all others are to be bit-exact.
        """
        if self.problem or self.error > step / 2:
            return False
        return all(
            name in steps and most <= steps[name] / 2 for name, most in (self.changed or {}).items()
        )


def compare(original: np.ndarray, received: np.ndarray) -> Difference:
    """Compare clouds of structured points (N,), row by row."""
    if len(original) != len(received):
        return Difference(f"{len(received)} points instead of {len(original)}")
    strange = [name for name in received.dtype.names if name not in original.dtype.names]
    if strange:
        return Difference(f"field '{strange[0]}' was not sent")
    sent, came = coordinates(original), coordinates(received)
    finite = np.isfinite(sent)
    if not np.array_equal(finite, np.isfinite(came)):
        return Difference("other coordinates are finite")
    error = _largest(sent[finite], came[finite])
    changed = {}
    for name in original.dtype.names:
        if name in "xyz" or name not in received.dtype.names:
            continue
        before, after = original[name], received[name]
        if before.tobytes() != after.tobytes():
            changed[name] = _largest(before, after)
    dropped = tuple(n for n in original.dtype.names if n not in received.dtype.names)
    return Difference("", error, changed, dropped)


def _largest(before: np.ndarray, after: np.ndarray) -> float:
    """Return the largest difference beyond half a unit in the last place, which is the type's."""
    is_float = np.issubdtype(after.dtype, np.floating)
    unit = np.spacing(np.abs(after)).astype(float) if is_float else 0.0
    difference = np.abs(after.astype(float) - before.astype(float)) - unit / 2
    # Not finite in both; in one alone it stays, and is within nothing.
    difference[(before == after) | (np.isnan(before) & np.isnan(after))] = 0.0
    return float(np.max(difference, initial=0.0))

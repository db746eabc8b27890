"""Fields as integers, for packages that compress nothing else."""

import numpy as np
import zstandard


class Unsuitable(Exception):
    """A cloud that a contender cannot take; the message says why."""


class Integers:
    """A field as unsigned integers and back, value for value.

    Parameters
    ----------
    values : ndarray, shape (N,)
    wide : type
        The integers', unsigned.

    Attributes
    ----------
    table : bytes
        What a decoder needs besides: empty for values that are integers, or integers divided by
        100 or 255; else zstd on the distinct values.

    Raises
    ------
    Unsuitable
        If there are more distinct values than integers.
    """

    def __init__(self, values: np.ndarray, wide: type):
        self._dtype, self._wide, self.table = values.dtype, wide, b""
        self._divisor = self.divisor_of(values, wide)
        if self._divisor is None:
            self._values = np.unique(values)
            if len(self._values) > np.iinfo(wide).max:
                raise Unsuitable(f"a field has more than {np.iinfo(wide).max} distinct values")
            self.table = zstandard.compress(self._values.tobytes())

    @staticmethod
    def divisor_of(values: np.ndarray, wide: type) -> int | None:
        """Return by what integers of a type are divided to give exactly the values, or None."""
        if not np.isfinite(values).all():
            return None
        for divisor in (1, 100, 255):
            integers = np.rint(values.astype(float) * divisor)
            if integers.min(initial=0) < 0 or integers.max(initial=0) > np.iinfo(wide).max:
                return None
            if np.array_equal(_divided(integers, divisor, values.dtype), values):
                return divisor
        return None

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return the integers (N,) of values (N,)."""
        if self._divisor is None:
            return np.searchsorted(self._values, values).astype(self._wide)
        if self._divisor == 1:
            return values.astype(self._wide)
        return np.rint(values * self._dtype.type(self._divisor)).astype(self._wide)

    def decode(self, integers: np.ndarray) -> np.ndarray:
        """Return the values (N,) of integers (N,)."""
        if self._divisor is None:
            return self._values[integers]
        return _divided(integers, self._divisor, self._dtype)


def _divided(integers: np.ndarray, divisor: int, dtype: np.dtype) -> np.ndarray:
    values = integers.astype(dtype)
    return values if divisor == 1 else values / dtype.type(divisor)


def is_time(name: str) -> bool:
    """Return whether a field of that name holds the points' times."""
    return name in ("t", "time", "timestamp", "offset_time")

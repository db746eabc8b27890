"""The step that meets a target: bits a point, or a mean error."""

import math
from collections.abc import Callable

from geoaccel_ros.compression.errors import CodecError

# A target is met within this part of it.
TOLERANCE = 0.05
_MAX_TRIALS = 12
# Steps that configurations accept, in metres.
FINEST_STEP, COARSEST_STEP = 1e-6, 100.0


def step_for(
    measure: Callable[[float], float],
    target: float,
    first: float,
    slope: float,
    what: str,
    is_budget: bool = False,
) -> float:
    """Return a step at which ``measure`` is within 5 % of ``target``.

    The search is by secants on the logarithm of the step: bits a point fall by about three, or by
    less where cells merge, with every doubling; the logarithm of a mean error grows by one.

    Parameters
    ----------
    measure : callable
        Monotone in the step; may raise CodecError for a step that is too fine.
    target, first : float
        Value to be met; step in metres to begin with.
    slope : float
        Change of ``measure`` with a doubling of the step, about.
    what : str
        The target's name and unit in messages.
    is_budget : bool
        Less will do where the finest step that the cloud allows does not reach the target.

    Raises
    ------
    CodecError
        If no step meets it; the message says how near one comes.
    """
    finest, coarsest = math.log2(FINEST_STEP), math.log2(COARSEST_STEP)
    at = math.log2(first)
    below = above = None  # the nearest trials on both sides of the target: (log2 step, value)
    nearest, reason = None, ""
    for _ in range(_MAX_TRIALS):
        try:
            value = measure(2.0**at)
        except CodecError as error:
            # Too fine for this cloud: the search goes on above.
            finest, reason = at, f" ({error})"
            at = (at + (above or below or (coarsest, 0.0))[0]) / 2
            continue
        if nearest is None or abs(value - target) < abs(nearest[1] - target):
            nearest = (at, value)
        if abs(value - target) <= TOLERANCE / 2 * target:
            break
        if value < target:
            below = (at, value)
        else:
            above = (at, value)
        if below and above:
            # The secant, kept off the ends so that the bracket always shrinks.
            share = (target - below[1]) / (above[1] - below[1])
            at = below[0] + min(max(share, 0.1), 0.9) * (above[0] - below[0])
        else:
            wanted = at + (target - value) / slope
            at = min(max(wanted, at - 6.0, finest), at + 6.0, coarsest)
            if at == nearest[0]:
                break
    if nearest is not None and abs(nearest[1] - target) <= TOLERANCE * target:
        return 2.0 ** nearest[0]
    if is_budget and below is not None and above is None:
        return 2.0 ** below[0]
    if nearest is None:
        raise CodecError(f"no step meets {what} of {target:g}{reason}")
    raise CodecError(
        f"no step meets {what} of {target:g}: the nearest is {nearest[1]:.4g} at "
        f"{2.0 ** nearest[0]:.3g} m{reason}"
    )

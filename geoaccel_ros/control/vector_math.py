"""Sine, cosine, exponential and logarithm in float32, in arithmetic alone.

A loop over samples that calls the C library is computed one sample at a time. Without a call and
without a branch the compiler computes as many at once as a register holds. Errors are below two
units in the last place; what is not finite stays so.
"""

import math
from types import ModuleType

import numba
import numpy as np

_ONE = np.float32(1.0)
_HALF = np.float32(0.5)
_TWO = np.float32(2.0)
_THREE = np.float32(3.0)
_FOUR = np.float32(4.0)
_QUARTER = np.float32(0.25)
_THREE_EIGHTHS = np.float32(0.375)
# Numbers from here to 2^24 have no fraction.
_NO_FRACTION = np.float32(1.5 * 2.0**23)

# Half a turn's half in three parts, the first two of so few bits that multiples of them are exact
# (Cody and Waite 1980).
_PER_QUADRANT = np.float32(2.0 / math.pi)
_QUADRANT_HIGH = np.float32(1.5703125)
_QUADRANT_MIDDLE = np.float32(4.837512969970703125e-4)
_QUADRANT_LOW = np.float32(7.549789954891882e-8)
# Minimax polynomials within an eighth of a turn, and of 2^x within half a unit (Moshier, Cephes).
_SINE = tuple(np.float32(c) for c in (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4))
_COSINE = tuple(np.float32(c) for c in (4.166664568e-2, -1.388731625e-3, 2.443315711e-5))
_EXPONENTIAL = tuple(
    np.float32(c)
    for c in (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3)
    + (1.9875691500e-4,)
)
_PER_DOUBLING = np.float32(1.0 / math.log(2.0))
_DOUBLING_HIGH = np.float32(0.693359375)
_DOUBLING_LOW = np.float32(-2.12194440e-4)
_LOGARITHM = tuple(
    np.float32(c)
    for c in (3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1)
    + (-1.2420140846e-1, 1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2)
)
_ROOT_OF_HALF = np.float32(math.sqrt(0.5))
_SMALLEST_NORMAL = np.finfo(np.float32).tiny
_MANTISSA = np.int32(0x7FFFFF)
# The exponent of numbers from a half to one.
_EXPONENT_OF_HALF = np.int32(126)
# Beyond these, 0 and infinity.
_LEAST_EXPONENT = np.float32(-87.0)
_LARGEST_EXPONENT = np.float32(88.0)
_ZERO = np.float32(0.0)
_INFINITY = np.float32(np.inf)
_EXPONENT_BIAS = np.int32(127)
_MANTISSA_BITS = np.int32(23)


@numba.njit(inline="always")
def sine_near_zero(x):
    """Return the sine of ``x``, within pi / 4 of zero."""
    square = x * x
    a, b, c = _SINE
    return ((c * square + b) * square + a) * square * x + x


@numba.njit(inline="always")
def cosine_near_zero(x):
    """Return the cosine of ``x``, within pi / 4 of zero."""
    square = x * x
    a, b, c = _COSINE
    return ((c * square + b) * square + a) * square * square - _HALF * square + _ONE


@numba.njit(inline="always")
def _reduced(x):
    """Return the quadrant (0 to 3, around multiples of pi / 2) and the angle from its middle."""
    quadrants = _nearest(x * _PER_QUADRANT)
    angle = x - quadrants * _QUADRANT_HIGH
    angle = angle - quadrants * _QUADRANT_MIDDLE
    angle = angle - quadrants * _QUADRANT_LOW
    # Of a number so large that its neighbours are turns apart any angle is as good; not NaN's.
    angle = angle if abs(angle) < _ONE else angle - angle
    return quadrants - _FOUR * _nearest(quadrants * _QUARTER - _THREE_EIGHTHS), angle


@numba.njit(inline="always")
def _nearest(x):
    """Return the integer nearest to ``x``, if it is below 2^22.

    In two additions, which only a compiler that may not re-order them leaves as they are: NumPy's
    functions for this do not exist on CUDA.
    """
    return (x + _NO_FRACTION) - _NO_FRACTION


@numba.njit(inline="always")
def sin(x):
    quadrant, angle = _reduced(x)
    sideways = (quadrant == _ONE) | (quadrant == _THREE)
    value = cosine_near_zero(angle) if sideways else sine_near_zero(angle)
    return -value if quadrant >= _TWO else value


@numba.njit(inline="always")
def cos(x):
    quadrant, angle = _reduced(x)
    sideways = (quadrant == _ONE) | (quadrant == _THREE)
    value = sine_near_zero(angle) if sideways else cosine_near_zero(angle)
    return -value if (quadrant == _ONE) | (quadrant == _TWO) else value


@numba.njit(inline="always")
def exp(x):
    within = min(max(x, _LEAST_EXPONENT), _LARGEST_EXPONENT)
    doublings = np.floor(within * _PER_DOUBLING + _HALF)
    rest = within - doublings * _DOUBLING_HIGH
    rest = rest - doublings * _DOUBLING_LOW
    a, b, c, d, e, f = _EXPONENTIAL
    power = ((((f * rest + e) * rest + d) * rest + c) * rest + b) * rest + a
    power = power * rest * rest + rest + _ONE
    exponent = (np.int32(doublings) + _EXPONENT_BIAS) << _MANTISSA_BITS
    scale = np.int32(exponent).view(np.float32)
    value = power * scale
    value = _ZERO if x < _LEAST_EXPONENT else value
    value = _INFINITY if x > _LARGEST_EXPONENT else value
    return value if x == x else x


@numba.njit(inline="always")
def log(x):
    """Return the natural logarithm; of 0 and below, and of denormal numbers, that is NaN."""
    bits = np.float32(x).view(np.int32)
    exponent = np.float32((bits >> _MANTISSA_BITS) - _EXPONENT_OF_HALF)
    fraction = np.int32((bits & _MANTISSA) | (_EXPONENT_OF_HALF << _MANTISSA_BITS)).view(np.float32)
    # From sqrt(0.5) to sqrt(2), around 1.
    below = fraction < _ROOT_OF_HALF
    exponent = exponent - _ONE if below else exponent
    rest = (fraction + fraction if below else fraction) - _ONE
    a, b, c, d, e, f, g, h, i = _LOGARITHM
    square = rest * rest
    series = ((((((i * rest + h) * rest + g) * rest + f) * rest + e) * rest + d) * rest + c) * rest
    series = ((series + b) * rest + a) * rest * square
    value = series + exponent * _DOUBLING_LOW - _HALF * square + rest + exponent * _DOUBLING_HIGH
    value = value if x < _INFINITY else x
    return value if x >= _SMALLEST_NORMAL else x * np.float32(np.nan)


def as_math() -> ModuleType:
    """Return a module like :mod:`math` in which these functions take the place of its own."""
    module = trigonometry_as_math()
    vars(module).update(exp=exp, log=log)
    return module


def trigonometry_as_math() -> ModuleType:
    """Return a module like :mod:`math` in which sine and cosine have no branch.

    For CUDA, where a branch in one of them keeps all that does not depend on it waiting; its
    exponential and logarithm have none.
    """
    module = ModuleType("vector_math")
    vars(module).update(vars(math), sin=sin, cos=cos)
    return module

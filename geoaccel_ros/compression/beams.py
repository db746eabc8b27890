"""The rings of a spinning lidar, or the ground, as the octree's coder knows them.

Ring i of a spinning lidar lies on a cone about the sensor's axis: z = a_i rho + b_i with
rho = hypot(x, y). Where a cloud was corrected for the sensor's motion, the sensor was elsewhere for
each azimuth: z = a_i (rho + D) + A rho + b_i + B, with how far it was in front of what it measured
and by how much it was tilted and higher. D, A and B are given at 17 knots, four a quadrant from
behind round to behind, where a turn begins, and are linear between these. Azimuth is measured by
|y| / (|x| + |y|), which is quick to compute in integers: 0 on the -x axis, 1 on the -y axis, to 4.

Where no rings are seen, the ground is one cone of slope 0, whose knots follow its shape.

Section "beams", a sequence of unsigned LEB128 numbers; a signed number v is sent as 2 v, or
-2 v - 1 where it is negative:

- the number of beams;
- the slopes a_i in 2**-17, ascending: the first, then differences;
- the heights b_i in 1/32 of a cell, likewise;
- 1 if knots follow, else 0: the tilts A in 2**-17, then the offsets B and the shifts D in 1/32 of
  a cell.
"""

from dataclasses import dataclass

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.leb128 import decode_counts, encode_numbers, encode_signed, signed

KNOTS = 17
_KNOTS_PER_QUADRANT = 4
# What is sent, and by how much beams.cl's units are finer: slopes in 2**-20, heights in 1/512 cell.
_SLOPE, _FINER_SLOPE = 2**17, 8
_HEIGHT, _FINER_HEIGHT = 32, 16
_MAX_BEAMS = 1024
# What keeps beams.cl's products within 64 bits.
_MAX_SLOPE = 2**22
_MAX_HEIGHT = 2**25
MAX_CELL = 2**23

# Points that a fit uses, about; its rounds, and those before the knots join, if they are needed.
_SAMPLE = 4500
# No sensor measures more in a sweep: such clouds are maps, and to look for rings there takes time.
_MOST_OF_SWEEP = 2**19
_ROUNDS = 7
# A round that leaves more than this share of the residual is the last.
_SETTLED = 0.97
_STRAIGHT_ROUNDS = 3
# Nearer points tell little; residuals below this are the coordinates' own resolution: metres.
_NEAR = 0.5
_FINEST = 3e-4
# Square of the spread of distances, in metres, below which a ring's slope cannot be told.
_STIFF = 1e-4
_MIN_POINTS = 8
_MIN_BEAMS = 4
# Chance alone gives residuals of a quarter of the gap to the next ring.
_GOOD_FIT = 0.08
_NO_FIT = 0.2
# With a residual below this, in metres, no other guess at the rings is made.
_CERTAIN = 2e-3
# The ground: the height that most points near the sensor have is looked for, then the knots fitted
# to points within the spread, for as far as the share of them pays: metres.
_GROUND_BEGINS = 15.0
_GROUND_BIN = 0.1
_GROUND_SPREAD = 0.06
_GROUND_SHARE = 0.08
_GROUND_ROUNDS = 8
# What keeps A and B at 0 where no ground is seen, as so many points would; and next to nothing.
_GROUND_STIFFNESS = (30.0, 0.1)
_LIMP = 1e-6
# The histogram that finds rings by elevation reaches from -1 to 1.
_BIN = 1 / 2000
_BINS = 2000
# More are noise: no sensor has them.
_MAX_FREQUENT = 128


@dataclass(frozen=True)
class Beams:
    """The cones of a sensor's rings in fixed point, for a grid's step.

    Attributes
    ----------
    slopes, heights : ndarray, shape (beams,), int64
        a_i in 2**-17, ascending; b_i in 1/32 of a cell.
    tilts, offsets, shifts : ndarray, shape (KNOTS,), int64
        A, B and D at the knots, in the same units.
    """

    slopes: np.ndarray
    heights: np.ndarray
    tilts: np.ndarray
    offsets: np.ndarray
    shifts: np.ndarray

    @property
    def bent(self) -> bool:
        """Whether there are knots."""
        return bool(self.tilts.any() or self.offsets.any() or self.shifts.any())

    def gap(self, xyz: np.ndarray, step: float) -> float:
        """Return how many cells neighbouring rings are apart at the median distance of points."""
        if len(self.slopes) < _MIN_BEAMS:
            return 0.0
        stride = xyz.shape[1] // _SAMPLE | 1
        distance = np.median(np.hypot(xyz[0, ::stride], xyz[1, ::stride]))
        return float(np.median(np.diff(self.slopes)) / _SLOPE * distance / step)

    def to_bytes(self) -> bytes:
        """Return the section."""
        values = [np.diff(self.slopes, prepend=0), np.diff(self.heights, prepend=0)]
        bent = self.bent
        knots = [self.tilts, self.offsets, self.shifts] if bent else []
        return b"".join(
            (
                encode_numbers([len(self.slopes)]),
                encode_signed(np.concatenate(values)),
                encode_numbers([bent]),
                encode_signed(np.concatenate(knots)) if bent else b"",
            )
        )

    @classmethod
    def from_bytes(cls, section: memoryview) -> "Beams":
        """Return the beams of a section, which may be hostile.

        Raises
        ------
        CodecError
            If it is damaged.
        """
        content = np.frombuffer(section, np.uint8)
        (count,), position = decode_counts(content, 0, 1)
        damaged = CodecError("damaged stream: beams that no sensor has")
        if not 1 <= count <= _MAX_BEAMS:
            raise damaged
        values, position = decode_counts(content, position, 2 * int(count))
        (bent,), position = decode_counts(content, position, 1)
        knots = np.zeros(3 * KNOTS, np.int64)
        if bent == 1:
            knots, position = decode_counts(content, position, 3 * KNOTS)
        slopes, heights = np.cumsum(signed(values).reshape(2, -1), axis=1)
        tilts, offsets, shifts = signed(knots).reshape(3, -1)
        if (
            bent > 1
            or position != len(content)
            or max(np.abs(slopes).max(), np.abs(tilts).max()) > _MAX_SLOPE
            or np.abs(np.concatenate([heights, offsets, shifts])).max() > _MAX_HEIGHT
        ):
            raise damaged
        return cls(slopes, heights, tilts, offsets, shifts)

    def upload(self, device: Device) -> tuple[cl.Buffer | int, ...]:
        """Return what kernels take: slopes, heights, their number, if bent, the knots."""
        slopes, heights, *knots = (
            device.upload(f"beam_{name}", (values * finer).astype(np.int32))
            for name, values, finer in (
                ("slopes", self.slopes, _FINER_SLOPE),
                ("heights", self.heights, _FINER_HEIGHT),
                ("tilts", self.tilts, _FINER_SLOPE),
                ("offsets", self.offsets, _FINER_HEIGHT),
                ("shifts", self.shifts, _FINER_HEIGHT),
            )
        )
        return slopes, heights, len(self.slopes), int(self.bent), *knots


NO_BEAMS = Beams(*(np.empty(0, np.int64),) * 5)


def fit_beams(
    xyz: np.ndarray, step: float, ring: np.ndarray | None = None, ground_alone: bool = False
) -> Beams | None:
    """Return the beams of a sensor at the origin; else the ground as one; None if neither is seen.

    Weighted least squares on some ten thousand points, with Cauchy's weights, which fall with the
    residual (Holland and Welsch, "Robust regression using iteratively reweighted least-squares",
    1977).

    Parameters
    ----------
    xyz : ndarray, shape (3, N), float64
        Finite points in metres, in the sensor's frame, in the order in which they were measured if
        that is known.
    step : float
        Edge of a cell in metres.
    ring : ndarray, shape (N,), integer, or None
        Ring of each point: a field, or the rows of an organised cloud. Without it, rings begin
        where the azimuth begins anew, or are found by the elevations that are frequent.
    ground_alone : bool
        Do not look for rings.
    """
    if not _MIN_POINTS <= xyz.shape[1] <= _MOST_OF_SWEEP:
        return None
    if max(xyz.max(), -xyz.min()) >= MAX_CELL / 4 * step:
        return None
    # Odd: drivers that write column by column have an even number of rings.
    stride = xyz.shape[1] // _SAMPLE | 1
    x, y, z = xyz[:, ::stride]
    rho = np.hypot(x, y)
    far = rho > _NEAR
    x, y, z, rho = x[far], y[far], z[far], rho[far]
    if len(z) < _MIN_POINTS:
        return None
    azimuth = _diamond_angle(-x, -y) * _KNOTS_PER_QUADRANT
    if ground_alone:
        guesses = ()
    elif ring is not None:
        guesses = (lambda: _ranks(ring[::stride][far]),)
    else:
        guesses = (lambda: _turns(xyz)[::stride][far], lambda: _frequent_elevations(z / rho))
    best, cones = np.inf, None
    for guess in guesses:
        residual, fitted = _fit_rings(azimuth, z, rho, guess())
        if residual < best:
            best, cones = residual, fitted
        if best < _CERTAIN:
            break
    if cones is None:
        cones = _fit_ground(azimuth, z, rho)
    if cones is None:
        return None
    a, b, knots = cones
    slope, height = _SLOPE, _HEIGHT / step
    told = a * slope, b * height
    bends = [knots[0] * slope, knots[1] * height, knots[2] * height]
    # What the stream has no room for: rings that point straight up, say.
    kept = (np.abs(told[0]) < _MAX_SLOPE) & (np.abs(told[1]) < _MAX_HEIGHT)
    limits = _MAX_SLOPE, _MAX_HEIGHT, _MAX_HEIGHT
    if not kept.any() or not all(
        np.abs(bend).max() < limit for bend, limit in zip(bends, limits, strict=True)
    ):
        return None
    values = [values[kept] for values in told] + bends
    return Beams(*(np.rint(value).astype(np.int64) for value in values))


def _ranks(ring: np.ndarray) -> np.ndarray:
    """Return rings numbered from 0 without gaps."""
    return np.unique(ring, return_inverse=True)[1]


def _turns(xyz: np.ndarray) -> np.ndarray:
    """Return rings that begin where the azimuth passes the x axis."""
    x, y = xyz[0], xyz[1]
    return np.append(0, np.cumsum((y[1:] >= 0) & (y[:-1] < 0) & (x[1:] > 0)))


def _frequent_elevations(elevations: np.ndarray) -> np.ndarray:
    """Return the nearest of the frequent elevations, z / rho, of each."""
    bins = np.clip(np.rint(elevations / _BIN).astype(np.int64), -_BINS, _BINS) + _BINS
    counts = np.bincount(bins, minlength=2 * _BINS + 1)
    near = np.convolve(counts, (1, 2, 3, 2, 1), "same") / 9
    background = np.convolve(counts, np.ones(25), "same") / 25
    peaks = (near >= np.append(0, near[:-1])) & (near > np.append(near[1:], 0))
    peaks &= (near > 1.3 * background) & (near > len(elevations) / 4000)
    centres = (np.flatnonzero(peaks) - _BINS) * _BIN
    if not 0 < len(centres) <= _MAX_FREQUENT:
        return np.zeros(len(elevations), np.int64)
    return np.searchsorted((centres[1:] + centres[:-1]) / 2, elevations)


# a, b, and A, B and D at the knots, in metres.
_Cones = tuple[np.ndarray, np.ndarray, np.ndarray]


def _fit_rings(
    azimuth: np.ndarray, z: np.ndarray, rho: np.ndarray, rings: np.ndarray
) -> tuple[float, _Cones | None]:
    """Return the median residual and the cones; none if the rings are no cones."""
    populated = np.bincount(rings) >= _MIN_POINTS
    count = np.count_nonzero(populated)
    if not _MIN_BEAMS <= count <= _MAX_BEAMS:
        return np.inf, None
    used = populated[rings]
    azimuth, z, rho = azimuth[used], z[used], rho[used]
    rings = (np.cumsum(populated) - 1)[rings[used]]
    knot, part = _knots(azimuth)
    knots = np.zeros((3, KNOTS))
    bend, weights, middle = np.zeros(len(z)), np.ones(len(z)), np.inf
    for round_ in range(_ROUNDS):
        a, b = _lines(rho, z - bend, weights, rings, count)
        residuals = z - a[rings] * rho - b[rings]
        if round_ >= _STRAIGHT_ROUNDS:
            factors = rho, np.ones(len(z)), a[rings]
            knots, bend = _bend(factors, residuals, weights, knot, part, (_LIMP,) * 3)
            residuals -= bend
        residuals = np.abs(residuals)
        before, middle = middle, float(np.median(residuals))
        weights = 1 / (1 + (residuals / (2 * max(middle, _FINEST))) ** 2)
        if round_ < _STRAIGHT_ROUNDS - 1:
            continue
        order = np.argsort(a, kind="stable")
        # Each point's gap to the next ring, at its distance.
        gaps = np.empty(count)
        gaps[order] = np.gradient(a[order])
        gap = np.abs(gaps[rings]) * rho + _FINEST
        share = np.median(residuals / gap)
        if round_ > _STRAIGHT_ROUNDS and share > _NO_FIT:
            return np.inf, None
        straight = round_ < _STRAIGHT_ROUNDS
        if middle < 2 * _FINEST if straight else middle > _SETTLED * before:
            break
    if share > _GOOD_FIT:
        return np.inf, None
    return middle, (a[order], b[order], knots)


def _fit_ground(azimuth: np.ndarray, z: np.ndarray, rho: np.ndarray) -> _Cones | None:
    """Return the ground as a single cone of slope 0, or None if few points are on it."""
    near = z[rho < _GROUND_BEGINS]
    if len(near) < _MIN_POINTS:
        return None
    low = float(near.min())
    counts = np.bincount(((near - low) / _GROUND_BIN).astype(np.int64) % (1 << 20))
    height = low + (np.argmax(np.convolve(counts, (1, 1, 1))) - 0.5) * _GROUND_BIN
    knot, part = _knots(azimuth)
    bend = np.zeros(len(z))
    for round_ in range(_GROUND_ROUNDS):
        scale = max(_GROUND_BIN * 3 * 0.7**round_, _GROUND_SPREAD)
        weights = 1 / (1 + ((z - height - bend) / scale) ** 2) ** 2
        # Outwards from the sensor, as far as it is known where the ground goes on.
        weights *= rho < _GROUND_BEGINS * (1 + round_ / 2)
        factors = rho, np.ones(len(z))
        knots, bend = _bend(factors, z - height, weights, knot, part, _GROUND_STIFFNESS)
    if np.mean(np.abs(z - height - bend) < 2 * _GROUND_SPREAD) < _GROUND_SHARE:
        return None
    return np.zeros(1), np.array([height]), np.append(knots, np.zeros((1, KNOTS)), axis=0)


def _knots(azimuth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the knot before each azimuth, in knots, and how far it is from there to the next."""
    knot = np.minimum(azimuth.astype(np.int64), KNOTS - 2)
    return knot, azimuth - knot


def _lines(
    rho: np.ndarray, z: np.ndarray, weights: np.ndarray, rings: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return slope and height of each ring's line, by weighted least squares."""

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(rings, values, count)

    total = sums(weights)
    mean_rho, mean_z = sums(weights * rho) / total, sums(weights * z) / total
    off = rho - mean_rho[rings]
    # A ring at one distance alone keeps the slope from its height: through the origin.
    slope = (sums(weights * off * (z - mean_z[rings])) + _STIFF * total * mean_z / mean_rho) / (
        sums(weights * off * off) + _STIFF * total
    )
    return slope, mean_z - slope * mean_rho


def _bend(
    factors: tuple[np.ndarray, ...],
    z: np.ndarray,
    weights: np.ndarray,
    knot: np.ndarray,
    part: np.ndarray,
    stiffness: tuple[float, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """Return what residuals z show by weighted least squares: knots and z as they give it.

    Each factor is multiplied by values at knots, (factors, KNOTS). Where no points are, the
    stiffness of each keeps them at 0.
    """
    # The parts of each factor that go to the knot before and to that behind.
    columns = [each for factor in factors for each in ((1 - part) * factor, part * factor)]
    size = len(factors) * KNOTS
    normal, right = np.zeros((size, size)), np.zeros(size)
    # Where the values at the knots from 0 and from 1 on begin, of each factor.
    firsts = [i * KNOTS + behind for i in range(len(factors)) for behind in (0, 1)]
    for i, (first, value) in enumerate(zip(firsts, columns, strict=True)):
        weighted = weights * value
        right[first : first + KNOTS - 1] += np.bincount(knot, weighted * z, KNOTS - 1)
        for second, other in zip(firsts[i:], columns[i:], strict=True):
            products = np.bincount(knot, weighted * other, KNOTS - 1)
            normal.reshape(-1)[first * size + second :: size + 1][: KNOTS - 1] += products
    # Each column is before those that it was multiplied with: so far it is upper triangular.
    normal += np.triu(normal, 1).T
    solved = _solve(normal + np.diag(np.repeat(stiffness, KNOTS)), right)
    bend = sum(
        value * solved[first : first + KNOTS - 1][knot]
        for first, value in zip(firsts, columns, strict=True)
    )
    return solved.reshape(-1, KNOTS), bend


def _solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the solution of a positive definite system by Gaussian elimination.

    LAPACK's last bits differ from machine to machine, and with them the stream would.
    """
    # The right side is the last column.
    matrix = np.append(matrix, right[:, None], axis=1)
    for i in range(len(right) - 1):
        row = matrix[i, i:]
        matrix[i + 1 :, i:] -= np.multiply.outer(matrix[i + 1 :, i] / row[0], row)
    solution = matrix[:, -1].copy()
    for i in reversed(range(len(right))):
        rest = (matrix[i, i + 1 : -1] * solution[i + 1 :]).sum()
        solution[i] = (solution[i] - rest) / matrix[i, i]
    return solution


def _diamond_angle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the azimuths as the module's docstring measures them."""
    part = np.where((x < 0) == (y < 0), np.abs(y), np.abs(x)) / (np.abs(x) + np.abs(y))
    return part + np.where(y < 0, np.where(x < 0, 2, 3), np.where(x < 0, 1, 0))

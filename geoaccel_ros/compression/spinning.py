"""What the encoder finds out about a spinning lidar: its lines, its step of azimuth, its beams.

All of it only makes a stream smaller or larger: the decoder is told what was found.
"""

from dataclasses import dataclass

import numpy as np

# Unit of slopes (Q16), of heights and offsets (1/256 of a cell) and of angles (2**32 a turn).
_SLOPE, _LENGTH, _TURN = 65536, 256, 2**32
# Points in each run of consecutive ones, and how many runs, from which the step of azimuth is found
# and the offsets are; single points from which cones are.
_STEP_WINDOWS = 256, 48
_OFFSET_WINDOWS = 512, 192
# Of so many turns one tells which part of the most frequent one is the step.
_STEP_SAMPLE = 4
_CONE_POINTS = 4096
# Steps of azimuth as parts of the most frequent one.
_MAX_DIVISOR = 4
_MAX_REPETITION = 16
# What two azimuths differ by from a multiple at least, in radians.
_JITTER = 1e-4
# A beam may pass the axis by this much, in metres (HDL-64E: 26 mm).
_MAX_OFFSET, _OFFSET_STEP = 0.04, 0.004
_OFFSET_POINTS = 6144
# Where 1 / r changes so little, an offset does not show; where r is so short, cells hide it.
_LEAST_CHANGE, _LEAST_RANGE = 0.004, 2.0
_LEAST_EVIDENCE = 15
_MAX_LINES = 1024
# Place x and y, motion x, y and z, tilt x and y, tilting x and y.
_MOTION_UNITS = np.array([_LENGTH] * 5 + [_SLOPE] * 4)
# Where the time of a sweep may begin.
_SEAMS = np.pi * np.array([0, 0.5, 1, -0.5])
_SEAM_EVERY = 8
# Cones that fit to so many cells are right; a motion must make the misfit smaller by this factor.
_STILL, _MOVED = 0.15, 0.5
# A change of so many cells at a distance that is so many times the nearest is none.
_SETTLED, _FAR = 0.1, 10
# Points that are nearer, in metres, may be no returns: they count less.
_NEAR = 2.0
_SEAM = 16


@dataclass(frozen=True)
class Spin:
    """The beams of a scan.

    Attributes
    ----------
    step : int
        Of azimuth, in 2**-32 of a turn; negative for clockwise.
    usual : int
        Steps from most points to the next.
    repetition : int
        After how many points these numbers repeat themselves; 0 if they do not.
    beams : float64 (lines, 3)
        Slope (2**16 is 1) and height of each line's cone, and the distance at which its beam passes
        the axis, both in 1/256 of a cell.
    pose : float64 (10,)
        Where the sensor was and how it stood, as scan.cl's parameters from SEAM on: zeros for a
        sensor that stood upright at the origin.
    unreturned : float
        Part of the points where the sensor was, if it was not at the origin.
    """

    step: int
    usual: int
    repetition: int
    beams: np.ndarray
    pose: np.ndarray
    unreturned: float


def fit(points: np.ndarray, order: np.ndarray, line: np.ndarray, cell: float) -> Spin | None:
    """Return the beams of a scan, or None if azimuth has no step.

    Parameters
    ----------
    points : ndarray, shape (3, N), float64
        In cells.
    order : ndarray, shape (M,), integer
        Points in the coding order.
    line : ndarray, shape (M,), integer
        Line of each of these, ascending from 0.
    cell : float
        Metres.
    """
    if len(order) < _LEAST_EVIDENCE:
        return None
    near = _NEAR / cell
    seam, motion, slopes, heights = _cones(points, order, line, near)
    step, usual, repetition = _step(points, order, line, near, seam, motion)
    if not usual:
        return None
    offsets = _offsets(points, order, line, step, cell, seam, motion)
    beams = np.stack([slopes * _SLOPE, heights * _LENGTH, offsets * _LENGTH], axis=1)
    pose = np.concatenate([[seam / (2 * np.pi) * _TURN], motion * _MOTION_UNITS])
    step = round(step / (2 * np.pi) * _TURN)
    unreturned = _unreturned(points, order, seam, motion)
    return Spin(step, usual, repetition, beams, pose, unreturned)


def line_starts(points: np.ndarray) -> np.ndarray:
    """Return where each turn about the axis begins, int64 (turns,), from 0; [0] if there is none.

    Parameters
    ----------
    points : ndarray, shape (3, N), float64
        In the order of the scan.
    """
    x, y, z = points
    count = len(x)
    if count < 2 * _SEAM:
        return np.zeros(1, np.int64)
    # Turns are counted where the beam passes the azimuth of the first point.
    beyond = x[0] * y >= y[0] * x
    passed = np.flatnonzero(beyond[1:] != beyond[:-1]) + 1
    is_near = x[0] * x[passed] + y[0] * y[passed] > 0
    is_near &= x[0] * x[passed - 1] + y[0] * y[passed - 1] > 0
    passed = passed[is_near]
    forwards = np.count_nonzero(beyond[passed])
    passed = passed[beyond[passed] == (2 * forwards > len(passed))]
    passed = passed[(passed > _SEAM) & (passed < count - _SEAM)]
    if not 0 < len(passed) < _MAX_LINES:
        return np.zeros(1, np.int64)
    # A line may begin a few points before or after: where the elevation changes most.
    window = passed[:, None] + np.arange(-_SEAM, _SEAM)
    tangent = z[window] / np.maximum(np.hypot(x[window], y[window]), 1)
    sums = np.cumsum(tangent, axis=1)
    change = np.abs(sums[:, 6:] - 2 * sums[:, 3:-3] + sums[:, :-6])
    starts = passed - _SEAM + 4 + change.argmax(axis=1)
    return np.unique(np.concatenate([[0], starts]))


def _windows(count: int, window: int, windows: int) -> np.ndarray:
    """Return so many runs of consecutive indices below ``count``, spread evenly, by rows."""
    if count <= window * windows:
        return np.arange(count)[None]
    starts = np.linspace(0, count - window, windows).astype(np.int64)
    return starts[:, None] + np.arange(window)


def _step(
    points: np.ndarray,
    order: np.ndarray,
    line: np.ndarray,
    near: float,
    seam: float,
    motion: np.ndarray,
) -> tuple[float, int, int]:
    """Return the step of azimuth in radians, how many of them are usual, 0 if there is none, and
    after how many points the numbers of steps repeat themselves, 0 if they do not.
    """
    at = _windows(len(order), *_STEP_WINDOWS)
    x, y = _corrected(*points[:2].take(order.take(at), axis=1), seam, motion)
    turns = _between(np.arctan2(y, x))
    line = line.take(at)
    is_far = _distance(x, y) > near / 2
    clear = (line[:, 1:] == line[:, :-1]) & is_far[:, 1:] & is_far[:, :-1]
    sequences, turns = turns, turns[clear & (np.abs(turns) > 1e-5)]
    if len(turns) < _LEAST_EVIDENCE:
        return 0.0, 0, 0
    middle = np.median(turns)
    turns = turns * np.sign(middle)
    turns = turns[(turns > 0) & (turns < 8 * abs(middle))]
    # Which of them it is, some of the turns tell; how long it is, all.
    found = []
    few = turns[::_STEP_SAMPLE]
    for divisor in range(1, _MAX_DIVISOR + 1):
        step = _adjusted_step(few, abs(middle) / divisor, 4)
        if not step:
            return 0.0, 0, 0
        misfit = np.abs(few - np.rint(few / step) * step)
        # In bits; the finer the step, the more fits by chance.
        bits = np.log2(1 + misfit / _JITTER).mean() + 0.2 * divisor
        found.append((bits, step, divisor))
    _, step, divisor = min(found)
    step = _adjusted_step(turns, step, 2)
    if not step:
        return 0.0, 0, 0
    step *= float(np.sign(middle))
    return step, divisor, _repetition(np.rint(sequences / step))


def _adjusted_step(turns: np.ndarray, step: float, rounds: int) -> float:
    """Return the step that most of the turns are multiples of, from one near it; 0 if none are."""
    for _ in range(rounds):
        steps = turns / step
        multiples = np.rint(steps)
        fits = (multiples > 0) & (np.abs(steps - multiples) < 0.3)
        # Of sums: what is added to one turn is most often missing in the next.
        step = turns[fits].sum() / max(multiples[fits].sum(), 1)
        if not step:
            break
    return float(step)


def _repetition(sequences: np.ndarray) -> int:
    """Return after how many numbers sequences, by rows, repeat themselves; 0 if they do not."""
    # A number that is nearly always the same, the median then, is known better by that.
    always = np.mean(sequences == np.median(sequences))
    if sequences.shape[1] <= 2 * _MAX_REPETITION or always > 0.6:
        return 0
    agreement = [
        np.mean(sequences[:, lag:] == sequences[:, :-lag]) for lag in range(1, _MAX_REPETITION + 1)
    ]
    best = int(np.argmax(agreement))
    return best + 1 if agreement[best] > 0.6 else 0


def _cones(
    points: np.ndarray, order: np.ndarray, line: np.ndarray, near: float
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return the seam, the motion and the slope and height of each line's cone.

    Most sensors stood upright at the origin. Clouds that were corrected for the motion of a sweep,
    or moved to another frame, are as if it had moved and tilted by the time, which the azimuth
    tells from a seam on.
    """
    lines = int(line[-1]) + 1
    every = max(1, len(order) // _CONE_POINTS)
    points, line = points[:, order[::every]], line[::every]
    seam, motion = 0.0, np.zeros(len(_MOTION_UNITS))
    misfit, _, *cones = _adjusted(points, line, near, seam, 4)
    if misfit > _STILL:
        some = points[:, ::_SEAM_EVERY], line[::_SEAM_EVERY]
        tried = [(*_adjusted(*some, near, at, 2, motion)[:2], at) for at in _SEAMS]
        roughly, begin, likely = min(tried, key=lambda each: each[0])
        if roughly < misfit:
            moved = _adjusted(points, line, near, likely, 5, begin)
            if moved[0] < _MOVED * misfit:
                seam, (_, motion, *cones) = likely, moved
    present = np.flatnonzero(np.bincount(line, minlength=lines))
    slopes, heights = np.zeros((2, lines))
    slopes[present], heights[present] = cones
    return seam, motion, slopes, heights


def _distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return sqrt(x^2 + y^2): a fraction of the time of ``np.hypot``, and far from overflow."""
    return np.sqrt(x * x + y * y)


def _between(azimuths: np.ndarray) -> np.ndarray:
    """Return the turn, -pi to pi, from each azimuth to the next along the last axis."""
    turns = np.diff(azimuths)
    return turns - 2 * np.pi * np.rint(turns / (2 * np.pi))


def _turned(x: np.ndarray, y: np.ndarray, seam: float) -> np.ndarray:
    """Return the part of a turn, -1/2 to 1/2, that lies between the seam's opposite and a point."""
    turned = (np.arctan2(y, x) - seam) / (2 * np.pi)
    return turned - np.floor(turned) - 0.5


def _seen(
    x: np.ndarray, y: np.ndarray, motion: np.ndarray, turned: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y as the sensor saw them."""
    return x - motion[0] - motion[2] * turned, y - motion[1] - motion[3] * turned


def _corrected(
    x: np.ndarray, y: np.ndarray, seam: float, motion: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y as the sensor saw them, the azimuth being that from the sensor's place."""
    if not motion.any():
        return x, y
    return _seen(x, y, motion, _turned(*_seen(x, y, motion, _turned(x, y, seam)), seam))


def _unreturned(points: np.ndarray, order: np.ndarray, seam: float, motion: np.ndarray) -> float:
    """Return which part of the points are at the sensor's place, if that is not the origin."""
    if not motion.any():
        return 0.0
    x, y, _ = points[:, order[:: max(1, len(order) // _CONE_POINTS)]]
    # Their azimuths tell nothing; but the places lie on a line.
    (place_x, place_y), (motion_x, motion_y) = motion[:2], motion[2:4]
    along = (x - place_x) * motion_x + (y - place_y) * motion_y
    along /= max(motion_x**2 + motion_y**2, 1e-9)
    x, y = _seen(x, y, motion, np.clip(along, -0.5, 0.5))
    return float(np.mean(_distance(x, y) < 1))


def _adjusted(
    points: np.ndarray,
    line: np.ndarray,
    near: float,
    seam: float,
    rounds: int,
    motion: np.ndarray | None = None,
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean misfit in cells, the motion, and slopes and heights: z = slope * r + height.

    Gauss and Newton's method with Cauchy's weights.

    Parameters
    ----------
    points : ndarray, shape (3, N), float64
    line : ndarray, shape (N,), integer
        Ascending. Slopes and heights are of those lines that there are.
    near, seam : float
    rounds : int
    motion : ndarray, optional
        Where to begin to look for one; None: there is none.
    """
    moves, far = motion is not None, _FAR * near
    x, y, z = points
    starts = np.flatnonzero(np.diff(line, prepend=-1))
    numbers = np.diff(starts, append=len(line))
    turned = _turned(x, y, seam) if moves else 0.0
    motion = motion.copy() if moves else np.zeros(len(_MOTION_UNITS))
    weight = known = np.minimum(_distance(x, y) / near, 1.0) ** 4

    def total(values):
        return np.add.reduceat(weight * values, starts, axis=-1)

    def at_points(values):
        """Return what is given by line for each point."""
        return np.repeat(values, numbers, axis=-1)

    def off_lines(values):
        """Return what a regression on r leaves in each line, and its mean and slope."""
        mean = total(values) / number
        slope = np.where(is_wide, total(aside * values) / variance, 0)
        left = values - at_points(mean)
        left -= at_points(slope) * aside
        return left, mean, slope

    for _ in range(rounds):
        from_x, from_y = _seen(x, y, motion, turned)
        if moves:
            turned = _turned(from_x, from_y, seam)
        r = np.maximum(_distance(from_x, from_y), 1e-9)
        c, s = from_x / r, from_y / r
        tilt = (motion[5] + motion[7] * turned) * c + (motion[6] + motion[8] * turned) * s
        number = np.maximum(total(np.ones(len(r))), 1e-9)
        mean_r = total(r) / number
        aside = r - at_points(mean_r)
        variance = total(aside * aside)
        # A line at one distance alone is a cone through the origin.
        is_wide = variance > 1e-6 * number * np.maximum(mean_r, 1) ** 2
        variance = np.where(is_wide, variance, 1)
        error, mean, slope = off_lines(z - motion[4] * turned - tilt * r)
        narrow = np.where(is_wide, 0, mean / np.maximum(mean_r, 1e-9))
        slope = slope + narrow
        error -= at_points(narrow) * aside
        scale = np.maximum(total(np.abs(error)) / number, 0.3)
        weight = known / (1 + (error / (2 * at_points(scale))) ** 2)
        if moves:
            across = -at_points(slope)
            columns = np.stack([across * c, across * s, r * c, r * s])
            columns = np.concatenate(
                [columns[:2], columns[:2] * turned, turned[None], columns[2:], columns[2:] * turned]
            )
            columns, *_ = off_lines(columns)
            weighted = columns * weight
            normal = np.einsum("in,jn->ij", weighted, columns)
            # What a scan does not tell stays as it is.
            normal[np.diag_indices(len(normal))] *= 1 + 1e-4
            normal[np.diag_indices(len(normal))] += 1e-9
            more = np.linalg.solve(normal, (weighted * error).sum(axis=1))
            motion += more
            if np.abs(more[:5]).max() < _SETTLED and np.abs(more[5:]).max() * far < _SETTLED:
                break
    misfit = (weight * np.abs(error)).sum() / max(weight.sum(), 1e-9)
    return misfit, motion, slope, mean - slope * mean_r


def _offsets(
    points: np.ndarray,
    order: np.ndarray,
    line: np.ndarray,
    step: float,
    cell: float,
    seam: float,
    motion: np.ndarray,
) -> np.ndarray:
    """Return the distance in cells at which each line's beam passes the axis.

    Where r jumps, the azimuth moves by the difference of offset / r beside a multiple of the step.
    """
    lines = int(line[-1]) + 1
    at = _windows(len(order), *_OFFSET_WINDOWS)
    change = np.diff(1 / np.maximum(_distance(*points[:2].take(order.take(at), axis=1)), 1e-9))
    jumps = np.zeros(at.shape, bool)
    jumps[:, :-1] = np.abs(change) > _LEAST_CHANGE * cell
    at = at[jumps]
    at = at[line[at] == line[at + 1]]
    at = at[:: 1 + len(at) // _OFFSET_POINTS]
    x, y = _corrected(*points[:2, order[np.stack([at, at + 1], axis=1)]], seam, motion)
    r = np.maximum(_distance(x, y), 1e-9)
    is_far = r.min(axis=1) > _LEAST_RANGE / cell
    line = line[at[is_far]]
    change = np.diff(1 / r[is_far])[:, 0] / step
    turns = _between(np.arctan2(y[is_far], x[is_far]))[:, 0] / step
    near = np.abs(turns) < 5
    turns, change, line = turns[near], change[near], line[near]
    result = np.zeros(lines)
    if not len(line):
        return result
    starts = np.flatnonzero(np.diff(line, prepend=-1))
    numbers = np.diff(starts, append=len(line))

    def best(offsets):
        """Return the best of each line's offsets (tried, lines that there are)."""
        steps = turns - np.repeat(offsets, numbers, axis=1) * change
        misfits = np.minimum(np.abs(steps - np.rint(steps)), 0.15)
        # Of equals the least.
        misfits = np.add.reduceat(misfits, starts, axis=1) + 1e-6 * np.abs(offsets)
        return offsets[misfits.argmin(axis=0), np.arange(len(starts))]

    tried = np.arange(-_MAX_OFFSET, _MAX_OFFSET + _OFFSET_STEP / 2, _OFFSET_STEP)
    coarse = best(np.repeat(tried[:, None] / cell, len(starts), axis=1))
    fine = best(coarse + np.linspace(-0.5, 0.5, 7)[:, None] * _OFFSET_STEP / cell)
    # Of lines with little evidence none.
    result[line[starts]] = np.where(numbers > _LEAST_EVIDENCE, fine, 0)
    return result

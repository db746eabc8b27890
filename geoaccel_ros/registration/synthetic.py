"""Pairs of clouds whose alignment is known."""

from dataclasses import dataclass

import numpy as np

from geoaccel_ros.registration import se3


@dataclass(frozen=True)
class SyntheticPair:
    """Two clouds and the truth.

    Attributes
    ----------
    target, source : ndarray (N, 3) of float64, metres
        Each in its own frame.
    T_target_source : ndarray (4, 4)
    """

    target: np.ndarray
    source: np.ndarray
    T_target_source: np.ndarray


def synthetic_pair(
    points: int = 200_000,
    *,
    extent: float = 25.0,
    angle: float = np.radians(3.0),
    translation: float = 0.2,
    noise: float = 0.01,
    outliers: float = 0.0,
    overlap: float = 1.0,
    seed: int = 0,
) -> SyntheticPair:
    """Return points spread evenly in a cube, and the same ones moved, with noise and outliers.

    The same arguments give the same pair; with other noise, outliers or motion it is the same
    target. Point for point source and target correspond if they overlap fully, but for outliers.

    Parameters
    ----------
    points : int
        Of each cloud.
    extent : float, metres
        Half the cube's edge; it is centred at the target's origin.
    angle, translation : float, radians and metres
        How far the clouds are apart, about an axis and in a direction at random. The rotation is
        about the cube's centre.
    noise : float, metres
        Standard deviation, an axis, of the source's points.
    outliers : float
        Share of the source's points, from 0 to 1, that lie anywhere in the cube instead.
    overlap : float
        Share of the points, from 0 to 1, that both clouds have; the other ones of the target lie
        at the cube's one end along x, those of the source at the opposite end.
    seed : int

    Raises
    ------
    ValueError
        If a parameter is out of its range.
    """
    if points < 1:
        raise ValueError(f"points is {points}, must be 1 or more")
    for name, value in (("extent", extent), ("noise", noise)):
        if not value >= 0.0:
            raise ValueError(f"{name} is {value}, must not be negative")
    for name, value in (("outliers", outliers), ("overlap", overlap)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} is {value}, must be 0 to 1")
    # A stream each, so that a change of one leaves the others as they are.
    in_cube, motion, errors, strays = map(
        np.random.default_rng, np.random.SeedSequence(seed).spawn(4)
    )

    world = in_cube.uniform(-extent, extent, (2 * points - round(overlap * points), 3))
    if len(world) > points:
        world = world[np.argsort(world[:, 0])]
    target, seen_too = world[:points], world[-points:]

    axis, direction = (unit / np.linalg.norm(unit) for unit in motion.normal(size=(2, 3)))
    T_target_source = np.eye(4)
    T_target_source[:3, :3] = se3.exp_rotation(angle * axis)
    T_target_source[:3, 3] = translation * direction

    source = seen_too + errors.normal(0.0, noise, (points, 3))
    replaced = strays.permutation(points)[: round(outliers * points)]
    source[replaced] = strays.uniform(-extent, extent, (len(replaced), 3))
    source = se3.apply(se3.inverse(T_target_source), source)
    return SyntheticPair(target, source, T_target_source)

"""compression/beams.py: cones that were put into a cloud are found, and survive their bytes."""

import numpy as np
import pytest

from geoaccel_ros.compression.beams import KNOTS, Beams, fit_beams
from geoaccel_ros.compression.errors import CodecError

SLOPES = np.sort(np.tan(np.radians(np.linspace(-22, 10, 16) + 0.3 * np.sin(np.arange(16)))))
HEIGHTS = 0.2 + 0.1 * np.sin(np.arange(16))


def scan(heights=HEIGHTS, motion=0.0, noise=0.001, seed=0, turns=900):
    """Return xyz (3, N) and the ring of each point, ring after ring, anticlockwise.

    ``motion`` is how far the sensor went along x and up meanwhile, from behind to behind, in
    metres; the points are where its end sees them.
    """
    rng = np.random.default_rng(seed)
    azimuth = np.tile(np.linspace(0.001, 2 * np.pi - 0.001, turns), len(SLOPES))
    ring = np.repeat(np.arange(len(SLOPES)), turns)
    rho = rng.uniform(2, 40, len(ring))
    z = SLOPES[ring] * rho + heights[ring] + rng.normal(0, noise, len(ring))
    gone = motion * (np.mod(azimuth + np.pi, 2 * np.pi) / (2 * np.pi) - 1)
    return np.stack([rho * np.cos(azimuth) + gone, rho * np.sin(azimuth), z + gone]), ring


def heights_at(beams, rho, azimuth, ring):
    """Return where the beams are, in metres for a step of 1 cm: the docstring's formula."""
    x, y = -np.cos(azimuth), -np.sin(azimuth)
    knot = 4 * (np.where((x < 0) == (y < 0), np.abs(y), np.abs(x)) / (np.abs(x) + np.abs(y)))
    knot += 4 * np.where(y < 0, np.where(x < 0, 2, 3), np.where(x < 0, 1, 0))
    tilt, offset, shift = (
        np.interp(knot, np.arange(KNOTS), knots)
        for knots in (beams.tilts / 2**17, beams.offsets / 3200, beams.shifts / 3200)
    )
    sloped = beams.slopes[ring] / 2**17 * (rho + shift)
    return sloped + tilt * rho + beams.heights[ring] / 3200 + offset


@pytest.mark.parametrize("known", [True, False], ids=["ring field", "order alone"])
@pytest.mark.parametrize("motion", [0.0, 0.8])
def test_cones_are_found_to_a_millimetre(known, motion):
    xyz, ring = scan(motion=motion)
    beams = fit_beams(xyz, 0.01, ring if known else None)
    assert len(beams.slopes) == 16
    azimuth = np.mod(np.arctan2(xyz[1], xyz[0]), 2 * np.pi)
    off = heights_at(beams, np.hypot(xyz[0], xyz[1]), azimuth, ring) - xyz[2]
    # Noise of 1 mm; a smooth function of the azimuth is not quite straight between knots.
    assert np.median(np.abs(off)) < (0.001 if motion == 0 else 0.003)


def test_rings_are_found_by_elevation_in_an_unordered_cloud():
    xyz, _ = scan(heights=np.zeros(16))
    shuffled = xyz[:, np.random.default_rng(3).permutation(xyz.shape[1])]
    beams = fit_beams(shuffled, 0.01)
    assert len(beams.slopes) == 16
    assert np.allclose(beams.slopes / 2**17, SLOPES, atol=1e-4)


def test_outliers_do_not_move_the_cones():
    xyz, ring = scan()
    xyz[2, ::10] += np.random.default_rng(5).uniform(-3, 3, xyz[2, ::10].shape)
    assert np.allclose(fit_beams(xyz, 0.01, ring).slopes / 2**17, SLOPES, atol=2e-4)


@pytest.mark.parametrize(
    "xyz",
    [
        np.random.default_rng(1).uniform(-20, 20, (3, 5000)),
        np.zeros((3, 5000)),
        np.zeros((3, 0)),
        np.ones((3, 5)),
        np.random.default_rng(1).uniform(0, 1e6, (3, 5000)),
    ],
    ids=["a full cube", "all at the origin", "empty", "five points", "a map"],
)
def test_other_clouds_have_none(xyz):
    assert fit_beams(xyz, 0.01) is None
    assert fit_beams(xyz, 0.01, np.zeros(xyz.shape[1], np.uint16)) is None


def test_the_fit_is_the_same_again():
    xyz, ring = scan(motion=0.8)
    assert fit_beams(xyz, 0.01, ring).to_bytes() == fit_beams(xyz.copy(), 0.01, ring).to_bytes()


@pytest.mark.parametrize("motion", [0.0, 0.8])
def test_bytes_and_back(motion):
    xyz, ring = scan(motion=motion)
    beams = fit_beams(xyz, 0.01, ring)
    again = Beams.from_bytes(memoryview(beams.to_bytes()))
    for name in ("slopes", "heights", "tilts", "offsets", "shifts"):
        assert (getattr(again, name) == getattr(beams, name)).all()


def test_the_bytes_are_as_documented():
    beams = Beams(np.array([-3, 70]), np.array([5, 4]), *np.zeros((3, 17), int))
    # 2 beams; -3, +73 (146 = 0x92 0x01); 5, -1; no knots.
    assert beams.to_bytes() == bytes([2, 5, 0x92, 1, 10, 1, 0])


@pytest.mark.parametrize(
    "section",
    [
        b"",
        bytes([0, 0]),
        bytes([1, 0]),
        bytes([1, 0, 0, 2]),
        bytes([1, 0, 0, 1]),
        bytes([1, 0, 0, 0, 0]),
        bytes([1, 0xFF, 0xFF, 0xFF, 0xFF, 15, 0, 0]),
        bytes([0x81, 8]) + bytes(2 * 1025 + 1),
    ],
)
def test_damaged_bytes_are_refused(section):
    with pytest.raises(CodecError):
        Beams.from_bytes(memoryview(section))

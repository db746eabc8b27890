"""compression/spinning.py: what a scan tells of its sensor is what the sensor was made of."""

import numpy as np
import pytest

from geoaccel_ros.compression import spinning

CELL = 0.01
TURN = 2**32


def scan(multiples, rings=8, step=0.003, offset=0.0, clockwise=False):
    """Points in cells, ring by ring, and their lines: walls at 4 to 12 m, a cone for each beam."""
    rng = np.random.default_rng(1)
    azimuth = np.tile(np.cumsum(multiples) * step, rings) * (-1 if clockwise else 1)
    line = np.repeat(np.arange(rings), len(multiples))
    r = (8 + 4 * np.cos(azimuth) * np.sign(np.sin(19 * azimuth))) / CELL
    r += rng.normal(scale=0.5, size=r.shape)
    side = offset / CELL * (-1.0) ** line
    x = r * np.cos(azimuth) - side * np.sin(azimuth)
    y = r * np.sin(azimuth) + side * np.cos(azimuth)
    z = (0.03 * line - 0.1) * np.hypot(x, y) + 2 * line
    return np.stack([x, y, z]), line


def fitted(points, line):
    return spinning.fit(points, np.arange(len(line)), line, CELL)


@pytest.mark.parametrize("clockwise", [False, True])
def test_a_raster_of_azimuths_is_found(clockwise):
    found = fitted(*scan(np.ones(2000, int), clockwise=clockwise))
    step = -found.step if clockwise else found.step
    assert step == pytest.approx(0.003 / (2 * np.pi) * TURN, rel=1e-6)
    assert (found.usual, found.repetition) == (1, 0)
    assert not found.pose.any()


def test_an_odd_half_step_now_and_then_makes_the_step_half_as_long():
    found = fitted(*scan(np.tile([2, 2, 2, 2, 2, 2, 1], 150), step=0.0015))
    assert found.step == pytest.approx(0.0015 / (2 * np.pi) * TURN, rel=1e-6)
    assert found.usual == 2


def test_columns_that_come_in_another_order_repeat_themselves():
    found = fitted(*scan(np.tile([2, -1, -4, 2, -1, 8], 300)))
    assert found.repetition % 6 == 0
    assert found.repetition > 0


def test_cones_and_offsets_are_those_of_the_beams():
    found = fitted(*scan(np.ones(2000, int), offset=0.026))
    lines = np.arange(8)
    assert found.beams[:, 0] == pytest.approx((0.03 * lines - 0.1) * 65536, abs=1)
    assert found.beams[:, 1] == pytest.approx(2 * lines * 256, abs=1)
    # The last search goes by two thirds of a millimetre, the noise is of half a centimetre.
    assert found.beams[:, 2] == pytest.approx(256 * 2.6 * (-1.0) ** lines, abs=256 * 0.15)


def test_the_motion_of_the_sensor_is_found_in_a_corrected_scan():
    points, line = scan(np.ones(2094, int))
    turned = np.arctan2(points[1], points[0]) / (2 * np.pi)
    moved = points + np.outer([80.0, -6.0, 3.0], turned) + np.array([[5.0], [3.0], [0.0]])
    found = fitted(moved, line)
    assert found.pose[0] % TURN == TURN / 2
    assert found.pose[1:6] / 256 == pytest.approx([5, 3, 80, -6, 3], abs=0.1)
    assert found.pose[6:] / 65536 == pytest.approx([0] * 4, abs=1e-4)


def test_an_azimuth_without_a_step_is_no_spinning_scan():
    assert fitted(np.zeros((3, 3)), np.zeros(3, int)) is None
    assert fitted(np.tile([[300.0], [0], [0]], 500), np.zeros(500, int)) is None


def test_turns_about_the_axis_begin_where_the_elevation_jumps():
    points, line = scan(np.ones(2094, int), rings=5)
    assert spinning.line_starts(points).tolist() == [0, 2094, 4188, 6282, 8376]
    # A turn that ends a few points early, at another azimuth than the first point's.
    kept = np.delete(np.arange(len(line)), np.arange(2090, 2094))
    assert spinning.line_starts(points[:, kept]).tolist() == [0, 2090, 4184, 6278, 8372]


def test_no_turn_is_seen_where_there_is_none():
    flat = np.stack([np.linspace(500, 600, 3000), np.linspace(-100, 100, 3000), np.ones(3000)])
    assert spinning.line_starts(flat).tolist() == [0]
    assert spinning.line_starts(flat[:, :5]).tolist() == [0]

"""Rate against distortion: D1 PSNR by hand, and a sweep of one's own cloud."""

import numpy as np
import pytest

from geoaccel_ros.compression.codec import CodecConfig
from geoaccel_ros.compression.rate_distortion import d1_psnr, sweep
from geoaccel_ros.pointcloud.files import from_xyz

LINE = np.array([[0.0, 0.0, 0.0], [10.0, 0.0, 0.0]])


def test_psnr_by_hand():
    # Errors 0 and 0.3 m: mean square 0.045; 3 * 10^2 / 0.045.
    decoded = LINE + [[0, 0, 0], [0, 0.3, 0]]
    assert d1_psnr(LINE, decoded) == pytest.approx(10 * np.log10(300 / 0.045))
    # In any order, and in any unit.
    assert d1_psnr(LINE, decoded[::-1]) == d1_psnr(1e3 * LINE, 1e3 * decoded)


def test_the_larger_of_both_ways_counts():
    # Nothing is lost of the original, and 3 m away there is a point that was not there.
    decoded = np.vstack([LINE, [[10.0, 3.0, 0.0]]])
    assert d1_psnr(LINE, decoded) == pytest.approx(10 * np.log10(300 / (9 / 3)))
    # The peak is the original's longest edge, 3 m along y being shorter.
    assert d1_psnr(decoded, LINE) == pytest.approx(10 * np.log10(300 / (9 / 3)))


def test_psnr_at_its_ends():
    assert d1_psnr(LINE, LINE[::-1]) == np.inf
    assert d1_psnr(LINE, np.vstack([LINE, np.full((1, 3), np.nan)])) == np.inf
    assert np.isnan(d1_psnr(LINE, np.empty((0, 3))))


def test_a_sweep_of_one_s_own_cloud():
    xyz = np.random.default_rng(0).uniform(-5.0, 5.0, (500, 3)).astype(np.float32)
    xyz[3] = np.nan
    points = sweep(from_xyz(xyz), CodecConfig(), (0.01, 0.1))
    assert [point.step_m for point in points] == [0.01, 0.1]
    fine, coarse = points
    # Uniform in a cell: the mean square of the distance is step^2 / 4, the peak nearly 10 m.
    assert fine.d1_psnr_db == pytest.approx(10 * np.log10(300 / (0.01**2 / 4)), abs=0.4)
    assert fine.d1_psnr_db - coarse.d1_psnr_db == pytest.approx(20.0, abs=0.3)
    assert fine.bits_per_point > coarse.bits_per_point > 0
    assert 0.0045 < fine.max_error_m <= 0.005 + 1e-6
    assert fine.mean_m == pytest.approx(0.0048, rel=0.05)

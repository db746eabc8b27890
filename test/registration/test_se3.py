import numpy as np
import pytest

from geoaccel_ros.registration import se3

TWISTS = [
    np.zeros(6),
    np.array([1.0, -2.0, 3.0, 0.0, 0.0, 0.0]),
    np.array([1.0, 2.0, 3.0, 1e-6, -2e-6, 1e-6]),
    np.array([0.3, 0.2, -0.1, 0.5, -1.0, 0.7]),
    np.array([5.0, 0.0, 1.0, 0.0, 0.0, 3.1]),
    np.array([5.0, 0.0, 1.0, 1.0, 2.0, 2.0]) * (np.pi - 1e-7) / 3.0,
]


def _series(twist):
    """The exponential of the 4 x 4 matrix, from its definition."""
    generator = np.zeros((4, 4))
    generator[:3, :3] = se3.cross_matrix(twist[3:])
    generator[:3, 3] = twist[:3]
    term, total = np.eye(4), np.eye(4)
    for k in range(1, 60):
        term = term @ generator / k
        total = total + term
    return total


@pytest.mark.parametrize("twist", TWISTS)
def test_exp_is_the_matrix_exponential(twist):
    np.testing.assert_allclose(se3.exp(twist), _series(twist), atol=1e-12)


@pytest.mark.parametrize("twist", TWISTS)
def test_log_undoes_exp(twist):
    # Near pi the sine that gives the axis is as small as 1e-7 and has that many digits fewer.
    np.testing.assert_allclose(se3.log(se3.exp(twist)), twist, atol=1e-7)


def test_log_of_half_a_turn():
    for axis in (np.array([1.0, 0, 0]), np.array([0.6, -0.8, 0]), np.array([2.0, 2.0, 1.0]) / 3.0):
        rotation = 2.0 * np.outer(axis, axis) - np.eye(3)
        found = se3.log_rotation(rotation)
        assert np.linalg.norm(found) == pytest.approx(np.pi)
        np.testing.assert_allclose(se3.exp_rotation(found), rotation, atol=1e-9)


def test_inverse():
    transform = se3.exp(TWISTS[3])
    np.testing.assert_allclose(se3.inverse(transform) @ transform, np.eye(4), atol=1e-14)


def test_perturbed_turns_about_the_own_origin():
    transform = se3.exp(TWISTS[3])
    moved = se3.perturbed(transform, np.array([0.1, 0.2, 0.3, 0.0, 0.0, np.pi / 2]))
    np.testing.assert_allclose(moved[:3, 3], transform[:3, 3] + [0.1, 0.2, 0.3])
    turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(moved[:3, :3], turn @ transform[:3, :3], atol=1e-14)


def test_orthonormal_mends_rounding_and_keeps_rotations():
    rotation = se3.exp(TWISTS[3])[:3, :3]
    np.testing.assert_allclose(se3.orthonormal(rotation), rotation, atol=1e-14)
    mended = se3.orthonormal(rotation + 1e-6)
    np.testing.assert_allclose(mended @ mended.T, np.eye(3), atol=1e-14)


def test_apply_takes_points_of_any_layout():
    rng = np.random.default_rng(0)
    transform = se3.exp(rng.normal(size=6))
    records = np.zeros(50, {"names": ["a", "xyz"], "formats": ["u1", "3f4"], "itemsize": 17})
    records["xyz"] = rng.normal(size=(50, 3))
    frozen = np.array(records["xyz"], np.float64)
    frozen.flags.writeable = False
    swapped = records["xyz"].astype(">f4")
    for points in (records["xyz"], frozen, frozen[::2], swapped, frozen.astype(int), frozen[:0]):
        expected = np.array(points, float) @ transform[:3, :3].T + transform[:3, 3]
        moved = se3.apply(transform, points)
        assert moved.dtype == np.float64
        np.testing.assert_allclose(moved, expected, atol=1e-12)

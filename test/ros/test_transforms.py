import numpy as np
import pytest
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Pose
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from tf2_msgs.msg import TFMessage

from geoaccel_ros.registration.frames import StaticTransforms
from geoaccel_ros.ros.transforms import (
    matrix_from_pose,
    set_pose,
    stamped_transform,
    yaw,
)


def rigid(rotation_vector, translation):
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_rotvec(rotation_vector).as_matrix()
    matrix[:3, 3] = translation
    return matrix


vectors = st.lists(st.floats(-10, 10), min_size=3, max_size=3)


@given(vectors, vectors)
def test_a_pose_survives_the_message(rotation, translation):
    matrix = rigid(rotation, translation)
    pose = Pose()
    set_pose(pose, matrix)
    assert np.allclose(matrix_from_pose(pose), matrix, atol=1e-12)


@pytest.mark.parametrize("axis", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1), (-1, 2, 0.1)])
@pytest.mark.parametrize("degrees", [0, 1e-6, 60, 120, 179.999, 180, 180.001, 270])
def test_a_quaternion_is_scipy_s_with_the_largest_part_positive(axis, degrees):
    turn = Rotation.from_rotvec(np.radians(degrees) * np.array(axis) / np.linalg.norm(axis))
    pose, matrix = Pose(), np.eye(4)
    matrix[:3, :3] = turn.as_matrix()
    set_pose(pose, matrix)
    o = pose.orientation
    quaternion = np.array([o.x, o.y, o.z, o.w])
    assert quaternion[np.argmax(np.abs(quaternion))] > 0
    # The same rotation whatever the sign, which is free where two parts are equally large.
    assert abs(quaternion @ turn.as_quat()) == pytest.approx(1.0, abs=1e-12)


def test_a_quarter_turn_about_z():
    pose = Pose()
    pose.position.x = 2.0
    pose.orientation.z = pose.orientation.w = np.sqrt(0.5)
    expected = [[0, -1, 0, 2], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert np.allclose(matrix_from_pose(pose), expected)
    assert np.isclose(yaw(matrix_from_pose(pose)), np.pi / 2)


@pytest.mark.parametrize("quaternion", [(0, 0, 0, 0), (0, 0, 0, 2), (np.nan, 0, 0, 1)])
def test_a_quaternion_of_wrong_norm_is_refused(quaternion):
    pose = Pose()
    o = pose.orientation
    o.x, o.y, o.z, o.w = map(float, quaternion)
    with pytest.raises(ValueError, match="not a pose"):
        matrix_from_pose(pose)


def static(parent, child, matrix):
    return TFMessage(transforms=[stamped_transform(Time(), parent, child, matrix)])


def test_a_chain_is_followed_in_both_directions():
    T_base_mast = rigid([0, 0, 1.0], [0.1, 0, 0.5])
    T_mast_lidar = rigid([0, 0.2, 0], [0, 0, 0.3])
    transforms = StaticTransforms()
    transforms.add(static("/base_link", "mast", T_base_mast))
    assert transforms.lookup("base_link", "lidar") is None
    transforms.add(static("mast", "lidar", T_mast_lidar))
    expected = T_base_mast @ T_mast_lidar
    assert np.allclose(transforms.lookup("base_link", "lidar"), expected)
    assert np.allclose(transforms.lookup("lidar", "base_link"), np.linalg.inv(expected))
    assert np.allclose(transforms.lookup("lidar", "lidar"), np.eye(4))


def test_a_transform_told_again_replaces_the_first():
    transforms = StaticTransforms()
    transforms.add(static("base_link", "lidar", rigid([0, 0, 0], [1, 0, 0])))
    transforms.add(static("base_link", "lidar", rigid([0, 0, 0], [2, 0, 0])))
    assert transforms.lookup("base_link", "lidar")[0, 3] == 2.0

import pytest

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.ros.params_file import check_parameter_files


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "params.yaml"
        path.write_text(text)
        return ["node", "--ros-args", "--params-file", str(path)]

    return write


@pytest.mark.parametrize(
    "section",
    [
        "lidar_odometry:\n  ros__parameters: {voxel: 1.0}",
        "/lidar_odometry:\n  ros__parameters: {voxel: 1.0}",
        "/**:\n  ros__parameters: {voxel: 1.0}",
        "/*:\n  ros__parameters: {voxel: 1.0}",
        "/**/lidar_odometry:\n  ros__parameters: {voxel: 1.0}",
        "other:\n  ros__parameters: {x: 1}\nlidar_odometry:\n  ros__parameters: {voxel: 1.0}",
    ],
)
def test_a_file_with_a_section_for_the_node_is_accepted(write, section):
    check_parameter_files(write(section), "lidar_odometry")


def test_namespace_and_name_are_those_after_remapping(write):
    text = "/robot/front:\n  ros__parameters: {voxel: 1.0}"
    remapping = ["-r", "__ns:=/robot", "-r", "__node:=front"]
    check_parameter_files([*write(text), *remapping], "lidar_odometry")
    nested = "robot:\n  front:\n    ros__parameters: {voxel: 1.0}"
    check_parameter_files([*write(nested), *remapping], "lidar_odometry")
    with pytest.raises(ConfigurationError, match="no section for node '/lidar_odometry'"):
        check_parameter_files(write(text), "lidar_odometry")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("other:\n  ros__parameters: {voxel: 1.0}", r"no section .*'/lidar_odometry'.*/other"),
        ("/*/lidar_odometry:\n  ros__parameters: {a: 1}", "no section"),
        ("lidar_odometry:\n  ros_parameters: {voxel: 1.0}", "none with the key 'ros__parameters'"),
        ("", "holds no mapping"),
        ("- 1\n- 2", "holds no mapping"),
        ("lidar_odometry: [", "not valid YAML"),
        ("lidar_odometry:\n\tros__parameters: {}", "not valid YAML"),
        ("/**:\n  ros__parameters:\n    goals: [1.0, 2]", "'goals' .* mixes integers and decimals"),
        ("/**:\n  ros__parameters:\n    a:\n      b: [[1, 2], [3, 4]]", "'a.b' .* nested list"),
    ],
)
def test_a_file_that_ros_would_misread_is_refused(write, text, message):
    with pytest.raises(ConfigurationError, match=message):
        check_parameter_files(write(text), "lidar_odometry")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="absent.yaml' does not exist"):
        check_parameter_files(
            ["node", "--ros-args", "--params-file", str(tmp_path / "absent.yaml")], "node"
        )


def test_other_arguments_are_left_alone():
    check_parameter_files(["node", "--params-file", "not-for-ros.yaml"], "node")
    check_parameter_files(["node", "--ros-args", "--", "--params-file", "x.yaml"], "node")

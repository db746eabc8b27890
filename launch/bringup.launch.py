"""Everything, as in the demo: ros2 launch geoaccel_ros bringup.launch.py rviz:=true."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, SetLaunchConfiguration
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from geoaccel_ros.resources import share_path
from geoaccel_ros.ros.launching import description

_NODES = [
    "mujoco_simulation",
    "lidar_odometry",
    "cloud_encoder",
    "cloud_decoder",
    "mppi_controller",
]


def generate_launch_description():
    rviz = DeclareLaunchArgument("rviz", default_value="false", description="Also start RViz.")
    sim_time = SetLaunchConfiguration("use_sim_time", "true")
    truth = DeclareLaunchArgument(
        "truth_topic", default_value="ground_truth/odom", description="Topic of the true pose."
    )
    nodes = description(
        _NODES,
        remappings={"mujoco_simulation": [("odom", "truth_topic")]},
        params_file="config/demo.yaml",
        arguments=[truth],
    )
    viewer = Node(
        package="rviz2",
        executable="rviz2",
        arguments=["-d", str(share_path("rviz/bringup.rviz"))],
        parameters=[{"use_sim_time": True}],
        condition=IfCondition(LaunchConfiguration("rviz")),
    )
    return LaunchDescription([rviz, sim_time, nodes, viewer])

"""A robot that is controlled on its true state: ros2 launch geoaccel_ros closed_loop.launch.py."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

from geoaccel_ros.resources import share_path


def generate_launch_description():
    robot = DeclareLaunchArgument(
        "robot",
        default_value="cartpole",
        choices=["cartpole", "quadrotor", "quadruped"],
        description="World and system.",
    )
    return LaunchDescription(
        [
            robot,
            _include("mppi", system=LaunchConfiguration("robot"), use_sim_time="true"),
            _include("simulation", world=LaunchConfiguration("robot"), truth_topic="odom"),
        ]
    )


def _include(name, **arguments):
    source = PythonLaunchDescriptionSource(str(share_path(f"launch/{name}.launch.py")))
    return IncludeLaunchDescription(source, launch_arguments=arguments.items())

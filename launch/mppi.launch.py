"""MPPI control of a differential drive: ros2 launch geoaccel_ros mppi.launch.py topic:=/points."""

from launch.actions import DeclareLaunchArgument

from geoaccel_ros.ros.launching import description


def generate_launch_description():
    arguments = [
        DeclareLaunchArgument("topic", default_value="points", description="Topic of the clouds."),
        DeclareLaunchArgument("odom_topic", default_value="odom", description="Topic of the pose."),
        DeclareLaunchArgument(
            "cmd_vel_topic", default_value="cmd_vel", description="Topic of the commands."
        ),
    ]
    remappings = [("points", "topic"), ("odom", "odom_topic"), ("cmd_vel", "cmd_vel_topic")]
    return description(
        ["mppi_controller"], remappings={"mppi_controller": remappings}, arguments=arguments
    )

"""The simulated robot in its yard: ros2 launch geoaccel_ros simulation.launch.py."""

from launch.actions import DeclareLaunchArgument

from geoaccel_ros.ros.launching import description


def generate_launch_description():
    arguments = [
        DeclareLaunchArgument(
            "truth_topic", default_value="ground_truth/odom", description="Topic of the true pose."
        ),
        DeclareLaunchArgument(
            "realtime_factor", default_value="", description="Pace (default: the YAML's, 1.0)."
        ),
    ]
    return description(
        ["mujoco_simulation"],
        remappings={"mujoco_simulation": [("odom", "truth_topic")]},
        parameters={"mujoco_simulation": {"realtime_factor": "realtime_factor"}},
        arguments=arguments,
    )

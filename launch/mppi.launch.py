"""MPPI control of a robot: ros2 launch geoaccel_ros mppi.launch.py topic:=/points."""

from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration

from geoaccel_ros.resources import share_path
from geoaccel_ros.ros.launching import description

# Argument, the topic that it says where to find, and what that is.
_TOPICS = {
    "topic": ("points", "the clouds"),
    "odom_topic": ("odom", "the pose"),
    "joint_states_topic": ("joint_states", "the joints"),
    "cmd_vel_topic": ("cmd_vel", "the commands of a wheeled robot"),
    "commands_topic": ("commands", "the commands of any other"),
}


def generate_launch_description():
    arguments = [
        DeclareLaunchArgument(
            "system",
            default_value="diff_drive",
            choices=["diff_drive", "cartpole", "quadrotor", "quadruped"],
            description="Which bundled robot's YAML to take, where no params_file is given.",
        ),
        *(
            DeclareLaunchArgument(name, default_value=topic, description=f"Topic of {what}.")
            for name, (topic, what) in _TOPICS.items()
        ),
    ]
    remappings = [(topic, name) for name, (topic, _) in _TOPICS.items()]
    return description(
        ["mppi_controller"],
        remappings={"mppi_controller": remappings},
        arguments=arguments,
        copies=_parameter_file,
    )


def _parameter_file(context):
    """Return the argument that gives the robot's own parameters, where it has some."""
    system = LaunchConfiguration("system").perform(context)
    if system == "diff_drive" or LaunchConfiguration("params_file").perform(context):
        return [{}]
    return [{"params_file": str(share_path(f"config/{system}_controller.yaml"))}]

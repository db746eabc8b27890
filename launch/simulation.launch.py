"""A simulated robot in its world: ros2 launch geoaccel_ros simulation.launch.py world:=field."""

from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration

from geoaccel_ros.resources import share_path
from geoaccel_ros.ros.launching import description

_WORLDS = ["yard", "corridor", "field", "cartpole", "quadrotor", "quadruped"]


def generate_launch_description():
    arguments = [
        DeclareLaunchArgument(
            "world",
            default_value="yard",
            choices=_WORLDS,
            description="Which bundled world's YAML to take, where no params_file is given.",
        ),
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
        copies=_parameter_file,
    )


def _parameter_file(context):
    """Return the argument that gives the world's own parameters, where it has some."""
    world = LaunchConfiguration("world").perform(context)
    if world == "yard" or LaunchConfiguration("params_file").perform(context):
        return [{}]
    return [{"params_file": str(share_path(f"config/{world}_simulation.yaml"))}]

"""Clouds over a weak link: ros2 launch geoaccel_ros compression.launch.py topic:=/points.

Starts encoder and decoder on one machine; `nodes:=encoder` on the robot and `nodes:=decoder` at the
base station.
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration

from geoaccel_ros.ros.launching import description

_NODES = {
    "both": ["cloud_encoder", "cloud_decoder"],
    "encoder": ["cloud_encoder"],
    "decoder": ["cloud_decoder"],
}
_ARGUMENTS = [
    DeclareLaunchArgument(
        "nodes", default_value="both", choices=list(_NODES), description="Which."
    ),
    DeclareLaunchArgument(
        "topic", default_value="points", description="Topic of the clouds to encode."
    ),
    DeclareLaunchArgument(
        "compressed_topic", default_value="points/compressed", description="Between the two."
    ),
    DeclareLaunchArgument(
        "decompressed_topic", default_value="points/decompressed", description="What is decoded."
    ),
    DeclareLaunchArgument(
        "step", default_value="", description="Edge of a cell in metres (default: the YAML's)."
    ),
]


def generate_launch_description():
    return LaunchDescription([*_ARGUMENTS, OpaqueFunction(function=_start)])


def _start(context):
    nodes = _NODES[LaunchConfiguration("nodes").perform(context)]
    return [
        description(
            nodes,
            remappings={
                "cloud_encoder": [("points", "topic"), ("points/compressed", "compressed_topic")],
                "cloud_decoder": [
                    ("points/compressed", "compressed_topic"),
                    ("points/decompressed", "decompressed_topic"),
                ],
            },
            parameters={"cloud_encoder": {"step": "step"}},
        )
    ]

"""Clouds over a weak link: ros2 launch geoaccel_ros compression.launch.py topic:=/points.

Starts encoder and decoder on one machine; `node:=cloud_encoder` on the robot and
`node:=cloud_decoder` at the base station.
"""

from launch.actions import DeclareLaunchArgument

from geoaccel_ros.ros.launching import description


def generate_launch_description():
    arguments = [
        DeclareLaunchArgument(
            "topic", default_value="points", description="Topic of the clouds to encode."
        ),
        DeclareLaunchArgument(
            "compressed_topic", default_value="points/compressed", description="Between the two."
        ),
        DeclareLaunchArgument(
            "decompressed_topic",
            default_value="points/decompressed",
            description="Topic of the decoded clouds.",
        ),
        DeclareLaunchArgument(
            "step", default_value="", description="Edge of a cell in metres (default: the YAML's)."
        ),
    ]
    encoder = [("points", "topic"), ("points/compressed", "compressed_topic")]
    decoder = [
        ("points/compressed", "compressed_topic"),
        ("points/decompressed", "decompressed_topic"),
    ]
    return description(
        ["cloud_encoder", "cloud_decoder"],
        selection="node",
        remappings={"cloud_encoder": encoder, "cloud_decoder": decoder},
        parameters={"cloud_encoder": {"step": "step"}},
        arguments=arguments,
    )

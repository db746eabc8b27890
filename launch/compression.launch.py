"""Clouds over a weak link:
ros2 launch geoaccel_ros compression.launch.py topic:=/velodyne_points step_m:=0.01.

Starts encoder and decoder on one machine; the same with `node:=cloud_encoder profile:=link` on the
robot and `node:=cloud_decoder` at the base station.
"""

from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration

from geoaccel_ros.ros.launching import description, profile_of_its_own


def generate_launch_description():
    arguments = [
        DeclareLaunchArgument(
            "topic", default_value="points", description="Topic of the clouds to encode."
        ),
        DeclareLaunchArgument(
            "topics",
            default_value="",
            description="Several topics, as [/front/points,/rear/points], in place of 'topic': a "
            "pair of nodes for each, in the namespace of that name.",
        ),
        DeclareLaunchArgument(
            "compressed_topic",
            default_value="",
            description="Between the two (default: <topic>/compressed).",
        ),
        DeclareLaunchArgument(
            "decompressed_topic",
            default_value="",
            description="Topic of the decoded clouds (default: <topic>/decompressed).",
        ),
        DeclareLaunchArgument(
            "step_m",
            default_value="",
            description="Edge of a cell in metres (default: the YAML's).",
        ),
        DeclareLaunchArgument(
            "profile",
            default_value="local",
            choices=["local", "link"],
            description="Of the encoder's Fast DDS, unless FASTDDS_DEFAULT_PROFILES_FILE is set: "
            "local, or link, which sends small packets and asks soon for what a link has lost.",
        ),
    ]
    weak = profile_of_its_own("config/fastdds_link.xml")

    def environment(context, node):
        # The decoder sends to its own machine, where small packets are too many.
        crosses = node == "cloud_encoder" and LaunchConfiguration("profile").perform(context)
        return weak if crosses == "link" else {}

    encoder = [("points", "topic"), ("points/compressed", "compressed_topic")]
    decoder = [
        ("points/compressed", "compressed_topic"),
        ("points/decompressed", "decompressed_topic"),
    ]
    return description(
        ["cloud_encoder", "cloud_decoder"],
        selection="node",
        remappings={"cloud_encoder": encoder, "cloud_decoder": decoder},
        parameters={"cloud_encoder": {"step": "step_m"}},
        arguments=arguments,
        copies=_pairs,
        environment=environment,
    )


def _pairs(context):
    """Return the arguments of each pair of nodes."""

    def argument(name):
        return LaunchConfiguration(name).perform(context)

    given = {name: argument(name) for name in ("compressed_topic", "decompressed_topic")}
    if not argument("topics"):
        topic = argument("topic")
        return [_named(topic) | {name: value for name, value in given.items() if value}]
    topics = [item.strip("'\" ") for item in argument("topics").strip("[] ").split(",")]
    superfluous = [name for name, value in given.items() if value]
    if argument("topic") != "points":
        superfluous.append("topic")
    if superfluous:
        raise ValueError(f"topics names those of each pair: leave out {', '.join(superfluous)}")
    if not all(topics) or len(set(topics)) < len(topics):
        raise ValueError(
            f"topics is '{argument('topics')}', must be as [/front/points,/rear/points]"
        )
    namespace = argument("namespace").strip("/")
    pairs = []
    for topic in topics:
        # Absolute: a relative name would be one below the pair's own namespace.
        own = "/" + "/".join(filter(None, [namespace, topic.strip("/")]))
        pairs.append(_named(topic if topic.startswith("/") else own) | {"namespace": own})
    return pairs


def _named(topic):
    return {
        "topic": topic,
        "compressed_topic": f"{topic}/compressed",
        "decompressed_topic": f"{topic}/decompressed",
    }

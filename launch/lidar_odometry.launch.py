"""LiDAR odometry of one lidar: ros2 launch geoaccel_ros lidar_odometry.launch.py topic:=/points."""

from launch.actions import DeclareLaunchArgument

from geoaccel_ros.ros.launching import description


def generate_launch_description():
    topic = DeclareLaunchArgument(
        "topic", default_value="points", description="Topic of the clouds (PointCloud2)."
    )
    return description(
        ["lidar_odometry"], remappings={"lidar_odometry": [("points", "topic")]}, arguments=[topic]
    )

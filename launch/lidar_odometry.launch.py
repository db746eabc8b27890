"""LiDAR odometry: ros2 launch geoaccel_ros lidar_odometry.launch.py topic:=/points."""

from launch.actions import DeclareLaunchArgument

from geoaccel_ros.ros.launching import description


def generate_launch_description():
    arguments = [
        DeclareLaunchArgument(
            "topic", default_value="points", description="Topic of the clouds (PointCloud2)."
        ),
        DeclareLaunchArgument(
            "lossless",
            default_value="",
            description="true for bags: every cloud in its order; the player must be reliable and "
            "keep all (default: the YAML's).",
        ),
        DeclareLaunchArgument(
            "prior",
            default_value="",
            description="Sensor that predicts the motion: none, wheel_odometry or imu (default: "
            "the YAML's).",
        ),
        DeclareLaunchArgument(
            "wheel_odometry_topic",
            default_value="wheel_odometry",
            description="Topic of the wheel odometry (nav_msgs/Odometry), for that prior.",
        ),
        DeclareLaunchArgument(
            "imu_topic",
            default_value="imu",
            description="Topic of the IMU (sensor_msgs/Imu), for that prior.",
        ),
    ]
    remappings = [
        ("points", "topic"),
        ("wheel_odometry", "wheel_odometry_topic"),
        ("imu", "imu_topic"),
    ]
    return description(
        ["lidar_odometry"],
        remappings={"lidar_odometry": remappings},
        parameters={"lidar_odometry": {"lossless": "lossless", "prior": "prior"}},
        arguments=arguments,
    )

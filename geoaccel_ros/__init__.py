"""LiDAR odometry, point-cloud compression and MPPI control, accelerated, as ROS 2 nodes."""

__version__ = "0.1.0"

"""The launch file that starts everything: the robot drives, clouds reach the base station."""

import unittest

import pytest

pytest.importorskip("launch_testing", reason="launch and launch_testing come with a distribution")
pytest.importorskip("launch_ros", reason="launch_ros comes with a distribution")

import launch_testing
from launch import LaunchDescription
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from nav_msgs.msg import Odometry
from ros_harness import START_TIMEOUT, Probe, wait_for
from sensor_msgs.msg import PointCloud2

from geoaccel_ros.resources import share_path
from geoaccel_ros.ros import qos

_NODES = (
    "mujoco_simulation",
    "lidar_odometry",
    "cloud_encoder",
    "cloud_decoder",
    "mppi_controller",
)


@pytest.mark.launch_test
def generate_test_description():
    source = PythonLaunchDescriptionSource(str(share_path("launch/bringup.launch.py")))
    included = IncludeLaunchDescription(source)
    return LaunchDescription([included, launch_testing.actions.ReadyToTest()])


class TestRunning(unittest.TestCase):
    def test_the_robot_drives_and_clouds_arrive(self, proc_output):
        with Probe() as probe:
            odometry = probe.listen(Odometry, "/odom", qos.RELIABLE)
            clouds = probe.listen(PointCloud2, "/points/decompressed", qos.RELIABLE)
            for node in _NODES:
                proc_output.assertWaitFor(
                    f"{node}]: active", timeout=START_TIMEOUT, stream="stderr"
                )
            wait_for(lambda: len(odometry) > 20 and len(clouds) > 20, 60.0, "poses and clouds")
            first = odometry[0].pose.pose.position

            def travelled():
                last = odometry[-1].pose.pose.position
                return abs(last.x - first.x) + abs(last.y - first.y) > 0.5

            wait_for(travelled, 30.0, "the robot to drive to the goals of its parameter file")
            assert len(clouds[-1].data) == clouds[-1].width * clouds[-1].point_step > 0


@launch_testing.post_shutdown_test()
class TestStopped(unittest.TestCase):
    def test_all_ended_cleanly(self, proc_info):
        launch_testing.asserts.assertExitCodes(proc_info)

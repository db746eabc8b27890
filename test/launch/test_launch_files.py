"""Each launch file, as `ros2 launch` runs it: nodes become active, and end cleanly when it ends."""

import unittest

import pytest

pytest.importorskip("launch_testing", reason="launch and launch_testing come with a distribution")
pytest.importorskip("launch_ros", reason="launch_ros comes with a distribution")

import launch_testing
from launch import LaunchDescription
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from ros_harness import START_TIMEOUT

from geoaccel_ros.resources import share_path

# Launch file, its arguments, the nodes that it starts.
_FILES = [
    ("lidar_odometry", {"topic": "/scan", "threads": "1", "lossless": "true"}, ["lidar_odometry"]),
    ("compression", {"step_m": "0.02"}, ["cloud_encoder", "cloud_decoder"]),
    ("compression", {"node": "cloud_decoder", "profile": "link"}, ["cloud_decoder"]),
    ("mppi", {"namespace": "robot"}, ["mppi_controller"]),
    ("mppi", {"system": "quadrotor", "odom_topic": "/pose"}, ["mppi_controller"]),
    ("closed_loop", {"robot": "cartpole"}, ["mppi_controller", "mujoco_simulation"]),
    ("simulation", {"realtime_factor": "1"}, ["mujoco_simulation"]),
    ("simulation", {"world": "quadrotor", "truth_topic": "odom"}, ["mujoco_simulation"]),
]


@pytest.mark.launch_test
@launch_testing.parametrize("name,arguments,nodes", _FILES)
def generate_test_description(name, arguments, nodes):
    source = PythonLaunchDescriptionSource(str(share_path(f"launch/{name}.launch.py")))
    included = IncludeLaunchDescription(source, launch_arguments=arguments.items())
    return LaunchDescription([included, launch_testing.actions.ReadyToTest()])


class TestRunning(unittest.TestCase):
    def test_nodes_become_active(self, proc_output, nodes):
        for node in nodes:
            proc_output.assertWaitFor(f"{node}]: active", timeout=START_TIMEOUT, stream="stderr")


@launch_testing.post_shutdown_test()
class TestStopped(unittest.TestCase):
    def test_all_ended_cleanly(self, proc_info):
        launch_testing.asserts.assertExitCodes(proc_info)

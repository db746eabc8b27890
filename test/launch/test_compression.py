"""compression.launch.py with several topics: a pair of nodes for each, under its name."""

import unittest

import pytest

pytest.importorskip("launch_testing", reason="launch and launch_testing come with a distribution")
pytest.importorskip("launch_ros", reason="launch_ros comes with a distribution")

import launch_testing
import numpy as np
from launch import LaunchDescription
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from point_cloud_interfaces.msg import CompressedPointCloud2
from ros_harness import START_TIMEOUT, Probe, wait_for
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from geoaccel_ros.pointcloud.layout import packed_dtype
from geoaccel_ros.resources import share_path
from geoaccel_ros.ros import qos
from geoaccel_ros.ros.pointcloud2 import message_from_points, points_from_message

# As given, as it is below the namespace, and the nodes' namespace.
_TOPICS = {"front/points": "/robot/front/points", "/rear/points": "/rear/points"}
_NAMESPACES = ("robot.front.points", "robot.rear.points")
_ARGUMENTS = {"namespace": "robot", "topics": "[front/points, /rear/points]", "step_m": "0.5"}


def _cloud(seed):
    points = np.zeros(500, packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4")]))
    for axis in "xyz":
        points[axis] = np.random.default_rng(seed).uniform(-9, 9, len(points))
    return points


@pytest.mark.launch_test
def generate_test_description():
    source = PythonLaunchDescriptionSource(str(share_path("launch/compression.launch.py")))
    included = IncludeLaunchDescription(source, launch_arguments=_ARGUMENTS.items())
    return LaunchDescription([included, launch_testing.actions.ReadyToTest()])


class TestRunning(unittest.TestCase):
    def test_each_topic_goes_through_its_own_pair(self, proc_output):
        with Probe() as probe:
            decoded, players = {}, {}
            for topic in _TOPICS.values():
                decoded[topic] = probe.listen(PointCloud2, f"{topic}/decompressed", qos.RELIABLE)
                probe.listen(CompressedPointCloud2, f"{topic}/compressed", qos.RELIABLE)
            for namespace in _NAMESPACES:
                for node in "cloud_encoder", "cloud_decoder":
                    proc_output.assertWaitFor(
                        f"{namespace}.{node}]: active", timeout=START_TIMEOUT, stream="stderr"
                    )
            for seed, topic in enumerate(_TOPICS.values()):
                player = probe.speak(PointCloud2, topic, qos.RELIABLE)
                players[topic] = player, message_from_points(Header(frame_id=topic), _cloud(seed))

            def arrived():
                for player, message in players.values():
                    player.publish(message)
                return all(len(found) for found in decoded.values())

            wait_for(arrived, 60.0, "a cloud of each topic")
            for seed, (topic, found) in enumerate(decoded.items()):
                assert {message.header.frame_id for message in found} == {topic}
                back, points = points_from_message(found[0]), _cloud(seed)
                # In cells of half a metre, whose order may be another.
                cells = np.unique(np.round(np.stack([points[a] for a in "xyz"]) / 0.5), axis=1)
                centres = np.unique(np.stack([back[a] for a in "xyz"]) / 0.5, axis=1)
                np.testing.assert_array_equal(centres, cells)


@launch_testing.post_shutdown_test()
class TestStopped(unittest.TestCase):
    def test_all_ended_cleanly(self, proc_info):
        launch_testing.asserts.assertExitCodes(proc_info)

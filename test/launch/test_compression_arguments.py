"""Arguments of compression.launch.py: contradictions are refused; the profile of Fast DDS."""

import pytest

pytest.importorskip("launch", reason="launch comes with a distribution")
pytest.importorskip("launch_ros", reason="launch_ros comes with a distribution")

from launch import LaunchContext
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.utilities import perform_substitutions

from geoaccel_ros.resources import share_path

_PROFILE = "FASTDDS_DEFAULT_PROFILES_FILE"


def started(**arguments):
    """Return what the launch file starts, and the context, without starting it."""
    context = LaunchContext()
    context.launch_configurations.update(arguments)
    source = PythonLaunchDescriptionSource(str(share_path("launch/compression.launch.py")))
    waiting, found = list(source.get_launch_description(context).entities), []
    while waiting:
        entity = waiting.pop(0)
        if type(entity).__name__ == "Node":
            found.append(entity)
        else:
            waiting = list(entity.visit(context) or []) + waiting
    return found, context


@pytest.fixture
def no_profile(monkeypatch):
    # Set first, so that what the launch file sets is undone at the end.
    monkeypatch.setenv(_PROFILE, "")
    monkeypatch.delenv(_PROFILE)


def own_profiles(nodes, context):
    """Return the profile that each node has for itself, None where it has all nodes'."""
    found = []
    for node in nodes:
        variables = {
            perform_substitutions(context, name): perform_substitutions(context, value)
            for name, value in node.process_description.additional_env or ()
        }
        found.append(variables.get(_PROFILE))
    return found


@pytest.mark.parametrize("arguments", [{}, {"profile": "local"}])
def test_all_nodes_have_the_profile_for_clouds(no_profile, arguments):
    nodes, context = started(**arguments)
    assert context.environment[_PROFILE] == str(share_path("config/fastdds.xml"))
    assert own_profiles(nodes, context) == [None, None]


def test_the_link_s_profile_is_that_of_who_sends_across_it(no_profile):
    nodes, context = started(profile="link")
    assert context.environment[_PROFILE] == str(share_path("config/fastdds.xml"))
    assert own_profiles(nodes, context) == [str(share_path("config/fastdds_link.xml")), None]
    nodes, context = started(profile="link", node="cloud_decoder")
    assert own_profiles(nodes, context) == [None]


def test_the_users_own_profile_stays(monkeypatch):
    monkeypatch.setenv(_PROFILE, "/own.xml")
    nodes, context = started(profile="link")
    assert context.environment[_PROFILE] == "/own.xml"
    assert own_profiles(nodes, context) == [None, None]


@pytest.mark.parametrize(
    ("topics", "number"),
    [("", 2), ("[/a/points]", 2), ("[/a, /b, c/d]", 6), ("/a,/b", 4), ("['/a', \"/b\"]", 4)],
)
def test_a_pair_for_each_topic(no_profile, topics, number):
    assert len(started(topics=topics)[0]) == number
    assert len(started(topics=topics, node="cloud_decoder")[0]) == number // 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topics": "[/a,/a]"}, "must be as"),
        ({"topics": "[/a,]"}, "must be as"),
        ({"topics": "[]"}, "must be as"),
        ({"topics": "[/a]", "topic": "/b"}, "leave out topic"),
        ({"topics": "[/a]", "compressed_topic": "/b"}, "leave out compressed_topic"),
        ({"profile": "radio"}, "not a valid|profile"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(no_profile, arguments, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        started(**arguments)

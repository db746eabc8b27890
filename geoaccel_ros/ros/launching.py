"""What the launch files share; the only module that needs a ROS distribution's `launch`."""

import os
from collections.abc import Callable, Mapping, Sequence

from launch import Action, LaunchContext, LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    LogInfo,
    OpaqueFunction,
    SetEnvironmentVariable,
)
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from geoaccel_ros.resources import share_path

_PROFILE = "FASTDDS_DEFAULT_PROFILES_FILE"
# More threads than this gain nothing in any node, and some refuse them.
_THREADS_MAX = 64

# Arguments that become parameters of every node when they are given; YAML decides otherwise.
_OVERRIDES = {
    "use_sim_time": "Follow /clock: true or false (default: what the parameter file says).",
    "autostart": "Configure and activate at start: true or false (default: the parameter file's).",
    "threads": "CPU threads of each node (default: the parameter file's, or else the machine's "
    "cores divided among the nodes).",
}


def description(
    nodes: Sequence[str],
    *,
    selection: str | None = None,
    remappings: dict[str, Sequence[tuple[str, str]]] | None = None,
    parameters: dict[str, dict] | None = None,
    arguments: Sequence[DeclareLaunchArgument] = (),
    params_file: str | None = None,
    copies: Callable[[LaunchContext], Sequence[Mapping[str, str]]] = lambda context: [{}],
    environment: Callable[[LaunchContext, str], dict[str, str]] = lambda context, node: {},
) -> LaunchDescription:
    """Return the description that starts ``nodes``, with the arguments that all launch files take.

    Parameters
    ----------
    nodes : sequence of str
        Executables of this package; each node has its executable's name.
    selection : str, optional
        Name of a launch argument that picks one of ``nodes``, or all by ``all``.
    remappings : dict
        By node: pairs of topic and the name of the launch argument that says where it goes.
    parameters : dict
        By node: parameter and the name of the launch argument that sets it when it is given.
    arguments : sequence of DeclareLaunchArgument
        The launch file's own arguments.
    params_file : str, optional
        Default parameter file for all nodes, below share; each node's own one if not given.
    copies : callable
        Returns the launch arguments that another start of the nodes has instead, one a start;
        namespaces among them, where there are several.
    environment : callable
        Returns the variables that a node of that name has for itself.
    """
    remappings, parameters = remappings or {}, parameters or {}
    where = share_path(params_file) if params_file else "config/<node>.yaml of the package"
    common = [
        DeclareLaunchArgument(
            "params_file", default_value="", description=f"Parameter file (default: {where})."
        ),
        DeclareLaunchArgument("namespace", default_value="", description="Namespace of the nodes."),
        DeclareLaunchArgument(
            "log_level", default_value="info", description="debug, info, warn or error."
        ),
        *(
            DeclareLaunchArgument(name, default_value="", description=text)
            for name, text in _OVERRIDES.items()
        ),
    ]

    if selection is not None:
        choices = ["all", *nodes]
        text = "Which of the nodes to start."
        common.append(
            DeclareLaunchArgument(selection, default_value="all", choices=choices, description=text)
        )

    def start(context: LaunchContext) -> list[Node]:
        wanted = LaunchConfiguration(selection).perform(context) if selection else "all"
        each = copies(context)
        return [
            _node(
                context, own, name, len(nodes) * len(each), params_file,
                remappings.get(name, ()), parameters.get(name, {}), environment(context, name),
            )
            for own in each
            for name in nodes
            if wanted in ("all", name)
        ]  # fmt: skip

    return LaunchDescription(
        [*common, *arguments, *fast_dds_profile(), OpaqueFunction(function=start)]
    )


def fast_dds_profile() -> list[Action]:
    """Return the action that gives Fast DDS room for clouds; the user's own profile stays."""
    if _PROFILE in os.environ:
        return [LogInfo(msg=f"{_PROFILE} stays {os.environ[_PROFILE]}")]
    return [SetEnvironmentVariable(_PROFILE, str(share_path("config/fastdds.xml")))]


def profile_of_its_own(file: str) -> dict[str, str]:
    """Return the variable that gives one node another profile; none if the user has set one.

    To be called before anything is started: what is launched sets the variable, too.
    """
    return {} if _PROFILE in os.environ else {_PROFILE: str(share_path(file))}


def _node(
    context: LaunchContext,
    own: Mapping[str, str],
    name: str,
    nodes: int,
    params_file: str | None,
    remappings: Sequence[tuple[str, str]],
    parameters: dict[str, str],
    environment: dict[str, str],
) -> Node:
    def argument(key: str) -> str:
        return own.get(key) or LaunchConfiguration(key).perform(context)

    file = argument("params_file") or str(share_path(params_file or f"config/{name}.yaml"))
    given = {**{key: key for key in _OVERRIDES}, **parameters}
    overrides = {key: _typed(argument(source)) for key, source in given.items() if argument(source)}
    if "threads" not in overrides and not (argument("params_file") or params_file):
        # The package's own file holds the default, which knows nothing of this machine.
        overrides["threads"] = min(max(1, (os.cpu_count() or 1) // nodes), _THREADS_MAX)
    return Node(
        package="geoaccel_ros",
        executable=name,
        name=name,
        namespace=argument("namespace"),
        output="screen",
        parameters=[file, overrides],
        remappings=[(topic, argument(source)) for topic, source in remappings],
        arguments=["--ros-args", "--log-level", argument("log_level")],
        additional_env=environment,
    )


def _typed(text: str) -> bool | int | float | str:
    """Return a launch argument in the type that a parameter file would give it."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

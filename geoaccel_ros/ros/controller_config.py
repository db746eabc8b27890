"""Parameters of mppi_controller: its own, and those of the robot that it controls."""

import dataclasses
import functools
import typing
from dataclasses import dataclass

from geoaccel_ros.config import ConfigurationError, parameter
from geoaccel_ros.control.goals import GoalConfig
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.obstacles import ObstacleConfig
from geoaccel_ros.control.systems import load_system
from geoaccel_ros.pointcloud.times import PointTimesConfig
from geoaccel_ros.registration.frames import FramesConfig, RobotFramesConfig
from geoaccel_ros.ros.node import NodeConfig

# Of the sampling, what a plan that was begun can go on with: not its length, nor where it is found.
_LIVE = (
    "samples",
    "sigma",
    "ess_fraction",
    "temperature",
    "temperature_min",
    "temperature_max",
    "elite_fraction",
    "smoothing_window",
    "smoothing_order",
    "sigma_adaptation",
    "sigma_floor",
    "plan_hold",
    "rate_limits",
    "command_delay",
)


@dataclass(frozen=True)
class ControllerConfig(NodeConfig, RobotFramesConfig, MppiConfig):
    """Parameters of the controller of any robot."""

    system: str = parameter(
        "diff_drive",
        "The robot: cartpole, diff_drive, quadrotor, quadruped, a module (package.module) or a "
        "file (/path/robot.py). Its own parameters are parameters of the node.",
        read_only=True,
    )
    rate: float = parameter(
        20.0, "Updates a second, on a steady clock.", unit="Hz", minimum=1.0, maximum=500.0
    )
    update_on: str = parameter(
        "clock",
        "Updates follow that clock; or each new state, for a simulation that waits for commands.",
        choices=("clock", "state"),
    )
    samples_min: int = parameter(
        64,
        "Where updates take longer than a period, samples are halved, but not below this; where "
        "there is time they are doubled again.",
        minimum=16,
        maximum=1 << 20,
    )
    goals: tuple[float, ...] = parameter(
        (), "Goals in odom_frame, one after the other; of diff_drive x1, y1, x2, y2, … [m]."
    )
    at_goal: str = parameter(
        "stop",
        "Once the last goal is reached or all are cancelled: the safe command, or the robot is "
        "held there.",
        choices=("stop", "hold"),
    )
    state_timeout: float = parameter(
        0.5, "Stop when the newest state is older than this.", unit="s", minimum=0.01, live=True
    )
    state_deviation_max: float = parameter(
        1.0,
        "Stop when the pose's own standard deviation of x or y is larger: it is not known then.",
        unit="m",
        minimum=0.001,
        live=True,
    )

    dump_file: str = parameter("mppi_update.npz", "File that ~/dump_update writes.")

    def __post_init__(self):
        super().__post_init__()
        system = load_system(self.system)
        width = len(system.goal)
        if len(self.goals) % width:
            raise ConfigurationError(
                f"parameter 'goals' has {len(self.goals)} numbers, must have "
                f"{' and '.join(system.goal)} for each goal"
            )
        self.check(system)


@dataclass(frozen=True)
class PlanarControllerConfig(
    ControllerConfig, FramesConfig, PointTimesConfig, ObstacleConfig, GoalConfig
):
    """Parameters of the controller of a robot that drives on a plane among obstacles."""

    obstacle_source: str = parameter(
        "clouds",
        "Obstacles are what clouds show (points), what an occupancy grid says (map), or both.",
        choices=("clouds", "map", "both"),
    )
    map_occupied: int = parameter(
        65, "Cells of the occupancy grid are obstacles from so many percent on.", minimum=1,
        maximum=100,
    )  # fmt: skip
    map_unknown: str = parameter(
        "occupied", "What unknown cells of the occupancy grid are.", choices=("occupied", "free")
    )
    obstacle_height_min: float = parameter(
        0.2, "Points lower than this above base_frame are ground.", unit="m", live=True
    )
    obstacle_height_max: float = parameter(
        1.5, "Points higher than this above base_frame are passed under.", unit="m", live=True
    )
    obstacle_timeout: float = parameter(
        1.0,
        "Stop when the newest cloud on the map is older than this; 0 drives without clouds.",
        unit="s",
        minimum=0.0,
        live=True,
    )


@functools.cache
def controller_config(name: str) -> type[ControllerConfig]:
    """Return the configuration of the controller of one robot.

    It has the robot's own parameters beside the controller's; they, and what a plan that was begun
    can go on with, are live. Defaults of the sampling are the robot's SAMPLING, and at its goal a
    robot on a plane stops while others, which may need to be balanced, are held.

    Raises
    ------
    ConfigurationError
        If there is no such system, or one of its parameters has the name of the controller's.
    """
    system = load_system(name)
    base = PlanarControllerConfig if system.is_planar else ControllerConfig
    own = {field.name: field for field in dataclasses.fields(base)}
    taken = [field.name for field in dataclasses.fields(system.parameters) if field.name in own]
    if taken:
        raise ConfigurationError(
            f"system '{name}': its parameter '{taken[0]}' has the name of one of the controller's"
        )
    robot = {field.name: field for field in dataclasses.fields(system.parameters)}
    kinds = typing.get_type_hints(base) | typing.get_type_hints(system.parameters)
    defaults = {
        "at_goal": "stop" if system.is_planar else "hold",
        **system.sampling,
        "system": name,
    }
    fields = [
        _field(field, kinds[field.name], defaults.get(field.name, field.default), is_live)
        for field, is_live in (
            *((field, field.name in _LIVE) for field in own.values()),
            *((field, True) for field in robot.values()),
        )
        if is_live or field.name in defaults
    ]
    return dataclasses.make_dataclass(
        "MppiControllerConfig",
        fields,
        bases=(base, system.parameters),
        frozen=True,
        namespace={"__doc__": f"Parameters of mppi_controller of a {name}."},
    )


def _field(field: dataclasses.Field, kind: type, default, is_live: bool) -> tuple:
    """Return a field with another default, or live, as make_dataclass takes it."""
    metadata = {**field.metadata, "live": is_live or field.metadata["live"]}
    return field.name, kind, dataclasses.field(default=default, metadata=metadata)

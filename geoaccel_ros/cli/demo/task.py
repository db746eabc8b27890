"""What a demo's parameter file asks of the robot."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.control.systems import load_system
from geoaccel_ros.ros.controller_config import controller_config
from geoaccel_ros.ros.params_file import read_parameters


@dataclass(frozen=True, eq=False)
class Task:
    """The goals, and by what a way to them is judged.

    Attributes
    ----------
    goals : ndarray (N, 2)
        In the odom frame, metres.
    goal_tolerance : float
        A goal is reached at this distance, m.
    clearance_limit : float
        The controller lets the robot come no nearer to an obstacle, m.
    model : str
        Name or file of the simulated world.
    base_body : str
        The robot in it.
    prior : str
        What lidar_odometry predicts by, its topic; or none.
    """

    goals: np.ndarray
    goal_tolerance: float
    clearance_limit: float
    model: str
    base_body: str
    prior: str


def read_task(config: Path) -> Task:
    """Return what a parameter file of all nodes says.

    Raises
    ------
    UserError
        If it gives mppi_controller no goals, or a robot that does not drive on a plane.
    ConfigurationError
        If a parameter of mppi_controller is wrong.
    """
    parameters = read_parameters(config, "/mppi_controller")
    name = parameters.get("system", "diff_drive")
    system = load_system(name)
    if not system.is_planar:
        raise UserError(f"'{config}' names the system {name}, which does not drive on a plane")
    config_type = controller_config(name)
    # What else there may be, use_sim_time or qos_overrides, is ROS's; the node refuses the rest.
    known = {parameter.name for parameter in config_type.parameters()}
    controller = config_type(**{key: parameters[key] for key in parameters if key in known})
    if not controller.goals:
        raise UserError(f"'{config}' gives mppi_controller no 'goals' (x1, y1, x2, y2, …)")
    simulation = read_parameters(config, "/mujoco_simulation")
    return Task(
        goals=np.array(controller.goals).reshape(-1, len(system.goal))[:, :2],
        goal_tolerance=controller.goal_tolerance,
        clearance_limit=system.clearance_limit(controller.subset(system.parameters)),
        model=simulation.get("model", "yard"),
        base_body=simulation.get("base_body", "base_link"),
        prior=read_parameters(config, "/lidar_odometry").get("prior", "none"),
    )

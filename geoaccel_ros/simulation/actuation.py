"""What commands mean to a model's actuators."""

import mujoco
import numpy as np

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.simulation.model import actuator_names, joint_actuator

# In m/s and rad/s: far beyond any wheels, and far from where wheel speeds would overflow.
_LARGEST_COMMAND = 1e6


class Wheels:
    """A differential drive: speed forward (m/s) and turning rate (rad/s) to two wheels' speeds.

    More than the wheels can do is scaled down with its curvature kept.

    Parameters
    ----------
    model : mujoco.MjModel
    left, right : str
        The wheels' hinges, each with a velocity actuator. Their bodies have the same parent, and
        hold a sphere or cylinder each that rolls.

    Raises
    ------
    ConfigurationError
        If a joint, its actuator or what rolls is missing.

    Attributes
    ----------
    radius, separation : float, m
    max_speed : float, rad/s
        Of a wheel; infinite if the model gives no ctrlrange.
    qpos, dof : (2,) int
        Where MuJoCo's qpos and qvel hold the wheels' angles and speeds, left and right.
    """

    names = ("v", "w")

    def __init__(self, model: mujoco.MjModel, left: str, right: str):
        found = [
            joint_actuator(model, joint, parameter)
            for joint, parameter in ((left, "left_wheel"), (right, "right_wheel"))
        ]
        bodies = [int(model.jnt_bodyid[joint]) for joint, _ in found]
        joints = [joint for joint, _ in found]
        self.qpos, self.dof = model.jnt_qposadr[joints], model.jnt_dofadr[joints]
        self._actuators = [actuator for _, actuator in found]
        self._count = model.nu
        if model.body_geomnum[bodies[0]] == 0:
            raise ConfigurationError(
                f"parameter 'left_wheel': the body of joint '{left}' holds no geom that rolls"
            )
        self.radius = float(model.geom_size[model.body_geomadr[bodies[0]], 0])
        self.separation = float(model.body_pos[bodies[0], 1] - model.body_pos[bodies[1], 1])
        limited = model.actuator_ctrllimited[self._actuators].astype(bool)
        largest = model.actuator_ctrlrange[self._actuators, 1]
        self.max_speed = float(np.where(limited, largest, np.inf).min())

    def ctrl(self, values: np.ndarray) -> np.ndarray:
        """Return the actuators' ctrl (nu,) for ``v``, ``w``; other actuators get 0."""
        v, w = values
        largest = max(abs(v), abs(w))
        if largest > _LARGEST_COMMAND:
            # In this order: neither overflows.
            v, w = v / largest * _LARGEST_COMMAND, w / largest * _LARGEST_COMMAND
        half_track = self.separation / 2
        speeds = np.array([v - w * half_track, v + w * half_track]) / self.radius
        excess = np.abs(speeds).max() / self.max_speed
        ctrl = np.zeros(self._count)
        ctrl[self._actuators] = speeds / max(excess, 1.0)
        return ctrl


class Actuators:
    """One value for each actuator in the model's order, in its own unit; MuJoCo limits them."""

    def __init__(self, model: mujoco.MjModel):
        self.names = actuator_names(model)

    def ctrl(self, values: np.ndarray) -> np.ndarray:
        """Return the actuators' ctrl (nu,)."""
        return values.copy()

"""MuJoCo models by name or path, and what is in them."""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import mujoco
import numpy as np

from geoaccel_ros.config import ConfigurationError

# Geoms of this group may be touched: floor, ramp.
GROUND_GROUP = 1
_SINGLE = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
# An error lists so many of the names that it might have meant.
_NAMES_TOLD = 20


def load_model(name: str) -> mujoco.MjModel:
    """Load a bundled model by name, or a file by path (anything that ends in .xml or .urdf).

    Raises
    ------
    ConfigurationError
        If there is none, or MuJoCo refuses it; the message says why.
    """
    if Path(name).suffix in (".xml", ".urdf"):
        path = Path(name)
        if not path.is_file():
            raise ConfigurationError(f"parameter 'model': no file {name}")
    else:
        folder = Path(str(resources.files(__package__) / "models"))
        path = folder / f"{name}.xml"
        names = sorted(file.stem for file in folder.glob("*.xml"))
        if name not in names:
            raise ConfigurationError(
                f"parameter 'model' is '{name}', must be a path or one of {', '.join(names)}"
            )
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise ConfigurationError(f"model '{name}': {error}") from error


@dataclass(frozen=True)
class Frame:
    """A coordinate frame of a model: a site's or a body's.

    Attributes
    ----------
    kind : mujoco.mjtObj
        mjOBJ_SITE or mjOBJ_XBODY.
    id, body : int
        Of the site or the body, and of the body that carries it.
    """

    kind: mujoco.mjtObj
    id: int
    body: int

    def pose(self, data: mujoco.MjData) -> np.ndarray:
        """Return T_world_frame, (4, 4) float64, by ``data``'s kinematics."""
        site = self.kind == mujoco.mjtObj.mjOBJ_SITE
        T = np.eye(4)
        T[:3, 3] = (data.site_xpos if site else data.xpos)[self.id]
        T[:3, :3] = (data.site_xmat if site else data.xmat)[self.id].reshape(3, 3)
        return T

    def twist(self, model: mujoco.MjModel, data: mujoco.MjData) -> tuple[np.ndarray, np.ndarray]:
        """Return linear (m/s) and angular (rad/s) velocity, (3,) each, in the frame itself."""
        twist = np.empty(6)
        mujoco.mj_objectVelocity(model, data, self.kind, self.id, twist, True)
        return twist[3:], twist[:3]

    def specific_force(self, model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
        """Return what an accelerometer there feels, (3,) in m/s^2, in the frame itself.

        By ``data``'s accelerations, whose bodies' part mj_rnePostConstraint brings up to date.
        """
        acceleration = np.empty(6)
        mujoco.mj_rnePostConstraint(model, data)
        mujoco.mj_objectAcceleration(model, data, self.kind, self.id, acceleration, True)
        return acceleration[3:]


def find_frame(model: mujoco.MjModel, name: str, parameter: str) -> Frame:
    """Return the site of that name, or else the body: URDF has links only.

    Raises
    ------
    ConfigurationError
        If there is neither; the message names ``parameter`` and what the model has.
    """
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, name)
    if site >= 0:
        return Frame(mujoco.mjtObj.mjOBJ_SITE, site, int(model.site_bodyid[site]))
    body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name)
    if body >= 0:
        return Frame(mujoco.mjtObj.mjOBJ_XBODY, body, body)
    sites = [model.site(i).name for i in range(model.nsite)]
    bodies = [model.body(i).name for i in range(1, model.nbody)]
    raise ConfigurationError(
        f"parameter '{parameter}': the model has no site or body '{name}'; '' means none;"
        f" sites: {_told(sites)}; bodies: {_told(bodies)}"
    )


def find_body(model: mujoco.MjModel, name: str, parameter: str) -> Frame:
    """Return the frame of a body.

    Raises
    ------
    ConfigurationError
        As :func:`find_frame`.
    """
    body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name)
    if body < 0:
        bodies = [model.body(i).name for i in range(1, model.nbody)]
        raise ConfigurationError(
            f"parameter '{parameter}': the model has no body '{name}'; '' means none; bodies:"
            f" {_told(bodies)}"
        )
    return Frame(mujoco.mjtObj.mjOBJ_XBODY, body, body)


def find_keyframe(model: mujoco.MjModel, name: str, parameter: str) -> int:
    """Return a keyframe's number.

    Raises
    ------
    ConfigurationError
        As :func:`find_frame`.
    """
    key = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_KEY, name)
    if key < 0:
        keys = [model.key(i).name for i in range(model.nkey)]
        raise ConfigurationError(
            f"parameter '{parameter}': the model has no keyframe '{name}'; '' means none;"
            f" keyframes: {_told(keys)}"
        )
    return key


def single_joints(model: mujoco.MjModel) -> tuple[tuple[str, ...], np.ndarray]:
    """Return names and numbers of all hinges and slides in the model's order.

    One without a name is called ``joint<number>``.
    """
    joints = np.flatnonzero(np.isin(model.jnt_type, _SINGLE))
    return tuple(model.joint(j).name or f"joint{j}" for j in joints), joints


def joint_actuator(model: mujoco.MjModel, joint: str, parameter: str) -> tuple[int, int]:
    """Return the numbers of a joint and of the actuator that moves it.

    Raises
    ------
    ConfigurationError
        If either is missing; the message names ``parameter`` and what the model has.
    """
    number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, joint)
    if number < 0:
        raise ConfigurationError(
            f"parameter '{parameter}': the model has no joint '{joint}'; '' means none; joints:"
            f" {_told(single_joints(model)[0])}"
        )
    moves = (model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT)) & (
        model.actuator_trnid[:, 0] == number
    )
    if not moves.any():
        raise ConfigurationError(
            f"parameter '{parameter}': the model has no actuator on joint '{joint}'; actuators:"
            f" {_told(actuator_names(model))}"
        )
    return number, int(np.flatnonzero(moves)[0])


def actuator_names(model: mujoco.MjModel) -> tuple[str, ...]:
    """Return the actuators' names; one without is called ``actuator<number>``."""
    return tuple(model.actuator(i).name or f"actuator{i}" for i in range(model.nu))


def _told(names: list[str] | tuple[str, ...]) -> str:
    named = [name for name in names if name]
    more = len(named) - _NAMES_TOLD
    listed = ", ".join(named[:_NAMES_TOLD])
    return (listed or "none") + (f" and {more} more" if more > 0 else "")

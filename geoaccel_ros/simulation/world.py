"""A robot with sensors in a MuJoCo world, stepped by its caller.

models/yard.xml lists what a model must name. Frames follow REP 103 and 105: ``base_link`` is x
forward, y left, z up, with its origin midway between the wheels on their axle (so above the ground
by a wheel's radius); the world frame is MuJoCo's.
"""

import logging
import threading
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import mujoco
import numpy as np

from geoaccel_ros.config import ConfigurationError, parameter
from geoaccel_ros.simulation.events import (
    ClockTick,
    Event,
    ImuSample,
    JointState,
    TruthState,
)
from geoaccel_ros.simulation.lidar import LidarConfig, SpinningLidar

_BASE = "base_link"
_WHEELS = ("left_wheel", "right_wheel")
_GROUND_GROUP = 1
# In m/s and rad/s: far beyond any wheels, and far from where wheel speeds would overflow.
_LARGEST_COMMAND = 1e6
# The other warnings tell of buffers that are full; the physics goes on with what fits.
_DIVERGED = [
    int(getattr(mujoco.mjtWarning, f"mjWARN_{name}"))
    for name in ("INERTIA", "BADQPOS", "BADQVEL", "BADQACC", "BADCTRL")
]

_log = logging.getLogger(__name__)


class SimulationError(RuntimeError):
    """Physics that diverged, or a command that is not a number."""


@dataclass(frozen=True)
class SimulationConfig(LidarConfig):
    """The world, its pace and the rates and noise of its sensors."""

    model: str = parameter("yard", "Name of a bundled model, or path of an MJCF or URDF file")
    realtime_factor: float = parameter(
        1.0, "Simulated seconds a second; 0: as fast as possible", minimum=0.0, maximum=100.0
    )
    start_paused: bool = parameter(False, "Hold time until resumed")
    start_x: float = parameter(0.0, "Start in the world frame", unit="m")
    start_y: float = parameter(0.0, "Start in the world frame", unit="m")
    start_yaw: float = parameter(0.0, "Start heading in the world frame", unit="rad")
    clock_rate: float = parameter(
        100.0, "Clock ticks a simulated second", unit="Hz", minimum=1.0, maximum=100.0
    )
    imu_rate: float = parameter(100.0, "IMU samples a second", unit="Hz", minimum=0.1)
    joint_rate: float = parameter(50.0, "Joint states a second", unit="Hz", minimum=0.1)
    truth_rate: float = parameter(50.0, "True poses a second", unit="Hz", minimum=0.1)
    imu_gyro_noise: float = parameter(
        0.001, "Standard deviation of an angular velocity", unit="rad/s", minimum=0.0
    )
    imu_accelerometer_noise: float = parameter(
        0.02, "Standard deviation of an acceleration", unit="m/s^2", minimum=0.0
    )
    command_timeout: float = parameter(
        0.5, "Simulated time after which an old command becomes zero", unit="s", minimum=0.01
    )
    seed: int = parameter(0, "Of all noise", minimum=0)


class Simulation:
    """Physics, sensors and the robot's drive; one thread steps it, any thread may command it.

    Parameters
    ----------
    config : SimulationConfig

    Raises
    ------
    ConfigurationError
        If the model cannot be loaded, lacks something that the simulation needs (the message names
        it), or a sensor is faster than the physics.

    Attributes
    ----------
    model, data : mujoco.MjModel, mujoco.MjData
        ``data`` belongs to the thread that steps.
    T_base_lidar, T_base_imu : (4, 4) float64
        Mounts of the sensors.
    T_world_start : (4, 4) float64
        base_link's pose at the start and after each reset.
    wheel_radius, wheel_separation : float, m
    max_wheel_speed : float, rad/s
    joint_names : tuple of str
    time_ns, epoch, contacts : int
        Simulated time; number of resets; how often the robot began to touch something that is not
        ground. None of them ever decreases.
    """

    def __init__(self, config: SimulationConfig | None = None):
        self.config = config or SimulationConfig()
        self.model = load_model(self.config.model)
        # A diverged simulation would start anew by itself, its time jumping back.
        self.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        # MuJoCo's own handler writes MUJOCO_LOG.TXT into the current folder. A kind of warning is
        # handed over when it first occurs, and again after a reset.
        mujoco.set_mju_user_warning(_log.warning)
        self.data = mujoco.MjData(self.model)
        self.timestep_ns = round(self.model.opt.timestep * 1e9)
        self._check_rates()

        self._base = self._id(mujoco.mjtObj.mjOBJ_BODY, _BASE)
        self._lidar_site = self._id(mujoco.mjtObj.mjOBJ_SITE, "lidar")
        self._imu_site = self._id(mujoco.mjtObj.mjOBJ_SITE, "imu")
        self._id(mujoco.mjtObj.mjOBJ_SENSOR, "gyro")
        self._id(mujoco.mjtObj.mjOBJ_SENSOR, "accelerometer")
        self._find_joints()
        self._find_wheels()
        of_robot = self.model.body_rootid == self.model.body_rootid[self._base]
        self._is_robot = of_robot[self.model.geom_bodyid]
        self._is_ground = self.model.geom_group == _GROUND_GROUP

        lidar_seed, imu_seed = np.random.SeedSequence(self.config.seed).spawn(2)
        self._imu_rng = np.random.default_rng(imu_seed)
        self._lidar = SpinningLidar(
            self.model, self.config, np.flatnonzero(self._is_robot), lidar_seed
        )

        self._command_lock = threading.Lock()
        self._steps = 0
        self.epoch = 0
        self.contacts = 0
        self._place()
        self.T_world_start = self.T_world_base()
        inverse_base = np.linalg.inv(self.T_world_start)
        self.T_base_lidar = inverse_base @ self._site_pose(self._lidar_site)
        self.T_base_imu = inverse_base @ self._site_pose(self._imu_site)

    @property
    def time_ns(self) -> int:
        # Counted in steps: MuJoCo's own time gathers rounding errors and returns to 0 at a reset.
        return self._steps * self.timestep_ns

    def command(self, v: float, w: float) -> None:
        """Drive at ``v`` m/s forward and ``w`` rad/s to the left until told otherwise or timed out.

        More than the wheels can do is scaled down with its curvature kept.

        Raises
        ------
        SimulationError
            If a value is not finite; the previous command stays.
        """
        if not (np.isfinite(v) and np.isfinite(w)):
            raise SimulationError(f"command v={v} w={w} is not finite")
        largest = max(abs(v), abs(w))
        if largest > _LARGEST_COMMAND:
            # In this order: neither overflows.
            v, w = v / largest * _LARGEST_COMMAND, w / largest * _LARGEST_COMMAND
        with self._command_lock:
            self._command = (v, w, self.time_ns)

    def step(self) -> list[Event]:
        """Advance by one timestep and return what is due at the new instant, the clock first.

        Raises
        ------
        SimulationError
            If the physics diverged. The simulation is then of no use until reset.
        """
        start_ns, T_world_lidar_start = self.time_ns, self._T_world_lidar
        self._drive()
        mujoco.mj_step(self.model, self.data)
        # mj_step moves the state on but leaves what sensors read a step behind.
        mujoco.mj_forward(self.model, self.data)
        self._check_physics()
        self._steps += 1
        self._T_world_lidar = self._site_pose(self._lidar_site)
        self._count_contacts()

        events = self._sample()
        events += self._lidar.advance(
            self.data, start_ns, self.time_ns, T_world_lidar_start, self._T_world_lidar
        )
        return events

    def reset(self) -> None:
        """Put the robot back to its start, at rest.

        Time goes on and ``epoch`` counts up. The sweep in progress is dropped; the noise continues.
        """
        self.epoch += 1
        self._place()
        self._lidar.restart(self.time_ns)

    def T_world_base(self) -> np.ndarray:
        """Return base_link's pose, (4, 4)."""
        return _pose(self.data.xpos[self._base], self.data.xmat[self._base])

    def _place(self) -> None:
        mujoco.mj_resetData(self.model, self.data)
        adr = self.model.jnt_qposadr[self.model.body_jntadr[self._base]]
        config = self.config
        self.data.qpos[adr : adr + 2] = config.start_x, config.start_y
        yaw = np.array([np.cos(config.start_yaw / 2), 0, 0, np.sin(config.start_yaw / 2)])
        orientation = self.data.qpos[adr + 3 : adr + 7]
        mujoco.mju_mulQuat(orientation, yaw, orientation.copy())
        mujoco.mj_forward(self.model, self.data)
        self._T_world_lidar = self._site_pose(self._lidar_site)
        self._touching: frozenset[int] = frozenset()
        with self._command_lock:
            self._command = (0.0, 0.0, self.time_ns)

    def _drive(self) -> None:
        with self._command_lock:
            v, w, stamp_ns = self._command
        if self.time_ns - stamp_ns > self.config.command_timeout * 1e9:
            v = w = 0.0
        half_track = self.wheel_separation / 2
        speeds = np.array([v - w * half_track, v + w * half_track]) / self.wheel_radius
        excess = np.abs(speeds).max() / self.max_wheel_speed
        self.data.ctrl[self._actuators] = speeds / max(excess, 1.0)

    def _check_physics(self) -> None:
        numbers = self.data.warning.number
        for kind in _DIVERGED:
            if numbers[kind]:
                name = mujoco.mjtWarning(kind).name.removeprefix("mjWARN_")
                raise SimulationError(
                    f"physics diverged at {self.time_ns * 1e-9:.3f} s: warning {name}"
                    f" (index {self.data.warning.lastinfo[kind]})"
                )

    def _count_contacts(self) -> None:
        geoms = self.data.contact.geom
        ours = self._is_robot[geoms]
        # One side is the robot's, the other neither its nor ground.
        other = geoms[ours[:, ::-1] & ~ours & ~self._is_ground[geoms]]
        touching = frozenset(other.tolist())
        self.contacts += len(touching - self._touching)
        self._touching = touching

    def _sample(self) -> list[Event]:
        config, stamp_ns = self.config, self.time_ns
        events: list[Event] = []
        if self._due(config.clock_rate):
            events.append(ClockTick(stamp_ns))
        if self._due(config.imu_rate):
            noise = self._imu_rng.standard_normal((2, 3))
            gyro = self.data.sensor("gyro").data + config.imu_gyro_noise * noise[0]
            force = self.data.sensor("accelerometer").data
            force = force + config.imu_accelerometer_noise * noise[1]
            events.append(ImuSample(stamp_ns, gyro, force))
        if self._due(config.joint_rate):
            events.append(
                JointState(
                    stamp_ns,
                    self.joint_names,
                    self.data.qpos[self._joint_qpos],
                    self.data.qvel[self._joint_dof],
                    self.data.qfrc_actuator[self._joint_dof],
                )
            )
        if self._due(config.truth_rate):
            twist = np.empty(6)
            mujoco.mj_objectVelocity(
                self.model, self.data, mujoco.mjtObj.mjOBJ_XBODY, self._base, twist, True
            )
            events.append(
                TruthState(stamp_ns, self.T_world_base(), twist[3:], twist[:3], self.epoch)
            )
        return events

    def _due(self, rate: float) -> bool:
        """Return whether a multiple of 1 / rate lies in the step that has just ended."""
        per_step = rate * self.timestep_ns * 1e-9
        # The margin keeps a multiple that falls on a step in that step despite rounding.
        return int(self._steps * per_step + 1e-6) > int((self._steps - 1) * per_step + 1e-6)

    def _site_pose(self, site: int) -> np.ndarray:
        return _pose(self.data.site_xpos[site], self.data.site_xmat[site])

    def _check_rates(self) -> None:
        fastest = 1e9 / self.timestep_ns
        for name in ("clock_rate", "imu_rate", "joint_rate", "truth_rate", "lidar_rate"):
            if getattr(self.config, name) > fastest * (1 + 1e-9):
                raise ConfigurationError(
                    f"parameter '{name}' is {getattr(self.config, name):g}, must be <="
                    f" {fastest:g} (the physics' steps a second in model '{self.config.model}')"
                )

    def _find_joints(self) -> None:
        model = self.model
        first = model.body_jntadr[self._base]
        if first < 0 or model.jnt_type[first] != int(mujoco.mjtJoint.mjJNT_FREE):
            raise ConfigurationError(f"model '{self.config.model}': {_BASE} has no freejoint")
        root = model.body_rootid[self._base]
        single = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
        joints = [
            j
            for j in range(model.njnt)
            if model.body_rootid[model.jnt_bodyid[j]] == root and model.jnt_type[j] in single
        ]
        self.joint_names = tuple(model.joint(j).name for j in joints)
        self._joint_qpos = model.jnt_qposadr[joints]
        self._joint_dof = model.jnt_dofadr[joints]

    def _find_wheels(self) -> None:
        model = self.model
        self._actuators = [self._id(mujoco.mjtObj.mjOBJ_ACTUATOR, name) for name in _WHEELS]
        bodies = [model.jnt_bodyid[self._id(mujoco.mjtObj.mjOBJ_JOINT, name)] for name in _WHEELS]
        self.wheel_radius = float(model.geom_size[model.body_geomadr[bodies[0]], 0])
        self.wheel_separation = float(model.body_pos[bodies[0], 1] - model.body_pos[bodies[1], 1])
        self.max_wheel_speed = float(model.actuator_ctrlrange[self._actuators, 1].min())

    def _id(self, kind: mujoco.mjtObj, name: str) -> int:
        number = mujoco.mj_name2id(self.model, kind, name)
        if number < 0:
            what = kind.name.removeprefix("mjOBJ_").lower()
            raise ConfigurationError(f"model '{self.config.model}' has no {what} '{name}'")
        return number


def load_model(name: str) -> mujoco.MjModel:
    """Load a bundled model by name, or a file by path (anything that ends in .xml or .urdf).

    Raises
    ------
    ConfigurationError
        If there is none, or MuJoCo refuses it; the message says why.
    """
    try:
        if Path(name).suffix in (".xml", ".urdf"):
            if not Path(name).is_file():
                raise ConfigurationError(f"parameter 'model': no file {name}")
            return mujoco.MjModel.from_xml_path(name)
        bundled = resources.files(__package__) / "models"
        names = sorted(f.name[:-4] for f in bundled.iterdir() if f.name.endswith(".xml"))
        if name not in names:
            raise ConfigurationError(
                f"parameter 'model' is '{name}', must be a path or one of {', '.join(names)}"
            )
        return mujoco.MjModel.from_xml_string((bundled / f"{name}.xml").read_text("utf-8"))
    except ValueError as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"model '{name}': {error}") from error


def _pose(position: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3] = rotation.reshape(3, 3)
    T[:3, 3] = position
    return T

"""A robot with sensors in a MuJoCo world, stepped by its caller.

Any model that MuJoCo loads; the configuration says which body is the robot's base, which joints are
wheels, and where sensors sit. Frames follow REP 103 and 105; the world frame is MuJoCo's.
"""

import logging
import threading
from dataclasses import dataclass

import mujoco
import numpy as np

from geoaccel_ros.config import ConfigurationError, parameter
from geoaccel_ros.simulation.actuation import Actuators, Wheels
from geoaccel_ros.simulation.events import (
    ClockTick,
    Event,
    ImuSample,
    JointState,
    TruthState,
    WheelOdometry,
)
from geoaccel_ros.simulation.lidar import LidarConfig, SpinningLidar
from geoaccel_ros.simulation.lidar_thread import LidarThread
from geoaccel_ros.simulation.model import (
    GROUND_GROUP,
    Frame,
    find_body,
    find_frame,
    find_keyframe,
    load_model,
    single_joints,
)
from geoaccel_ros.simulation.wheel_odometry import WheelOdometer

_GROUND_TYPES = (int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_HFIELD))
# The other warnings tell of buffers that are full; the physics goes on with what fits.
_DIVERGED = [
    int(getattr(mujoco.mjtWarning, f"mjWARN_{name}"))
    for name in ("INERTIA", "BADQPOS", "BADQVEL", "BADQACC", "BADCTRL")
]

_log = logging.getLogger(__name__)


class SimulationError(RuntimeError):
    """Physics that diverged, or a command that cannot be executed."""


@dataclass(frozen=True)
class SimulationConfig(LidarConfig):
    """The world, what of it is robot and sensors, its pace, and the sensors' rates and noise."""

    model: str = parameter("yard", "Name of a bundled model, or path of an MJCF or URDF file")
    base_body: str = parameter("base_link", "Body whose true pose is told; '': none")
    left_wheel: str = parameter(
        "left_wheel",
        "Hinge of the left wheel, driven by a velocity actuator; '': no wheels, a command is one "
        "value for each actuator",
    )
    right_wheel: str = parameter("right_wheel", "Hinge of the right wheel; '': no wheels")
    lidar_site: str = parameter("lidar", "Site or body that carries the lidar; '': no lidar")
    imu_site: str = parameter("imu", "Site or body that carries the IMU; '': no IMU")
    realtime_factor: float = parameter(
        1.0, "Simulated seconds a second; 0: as fast as possible", minimum=0.0, maximum=100.0
    )
    stepping: str = parameter(
        "time",
        "Time runs at realtime_factor, or stands until a command comes and goes on for "
        "command_period",
        choices=("time", "command"),
    )
    command_period: float = parameter(
        0.02, "Simulated time for each command when stepping by command", unit="s", minimum=1e-4
    )
    start_paused: bool = parameter(False, "Hold time until resumed")
    keyframe: str = parameter("", "The model's keyframe to start from; '': its default pose")
    start_qpos: tuple[float, ...] = parameter(
        (), "MuJoCo's qpos at the start, instead of the keyframe's"
    )
    start_ctrl: tuple[float, ...] = parameter(
        (), "One value for each actuator until the first command, instead of the keyframe's"
    )
    start_x: float = parameter(0.0, "Start of a free base in the world frame", unit="m")
    start_y: float = parameter(0.0, "Start of a free base in the world frame", unit="m")
    start_yaw: float = parameter(
        0.0, "Turn of a free base at the start, about the world's z", unit="rad"
    )
    clock_rate: float = parameter(
        100.0, "Clock ticks a simulated second", unit="Hz", minimum=1.0, maximum=100.0
    )
    imu_rate: float = parameter(100.0, "IMU samples a second", unit="Hz", minimum=0.1)
    joint_rate: float = parameter(
        50.0, "Joint states, and poses by the wheels, a second", unit="Hz", minimum=0.1
    )
    truth_rate: float = parameter(50.0, "True poses a second", unit="Hz", minimum=0.1)
    imu_gyro_noise: float = parameter(
        0.001, "Standard deviation of an angular velocity", unit="rad/s", minimum=0.0
    )
    imu_accelerometer_noise: float = parameter(
        0.02, "Standard deviation of an acceleration", unit="m/s^2", minimum=0.0
    )
    command_timeout: float = parameter(
        0.5, "Simulated time after which a command is old", unit="s", minimum=0.01
    )
    on_timeout: str = parameter(
        "zero", "What an old command becomes: all zeros, or it stays", choices=("zero", "hold")
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
        If the model cannot be loaded, lacks something that is configured (the message names it and
        what there is), or a sensor is faster than the physics.

    Attributes
    ----------
    model, data : mujoco.MjModel, mujoco.MjData
        ``data`` belongs to the thread that steps.
    actuation : Wheels or Actuators
        What commands mean.
    has_base, has_lidar, has_imu : bool
        Whether they are configured.
    T_base_lidar, T_base_imu : (4, 4) float64 or None
        Mounts of the sensors; in the world frame where there is no base. None without the sensor,
        or if a joint lies between, so that the mount is no constant.
    T_world_start : (4, 4) float64
        The base's pose at the start and after each reset.
    steps_per_command : int
        Physics steps for each command where ``stepping`` is by command, else 0.
    lidar : SpinningLidar, LidarThread or None
        What casts rays for whoever steps; a LidarThread may take its place.
    joint_names : tuple of str
        All hinges and slides of the model, in its order.
    time_ns, epoch, contacts : int
        Simulated time; number of resets; how often the robot began to touch something that is not
        ground. None of them ever decreases. Ground are planes, height fields and geoms of group 1;
        the robot is the base's kinematic tree, or all that moves where there is no base.
    """

    def __init__(self, config: SimulationConfig | None = None):
        self.config = config or SimulationConfig()
        model = self.model = load_model(self.config.model)
        # A diverged simulation would start anew by itself, its time jumping back.
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        # MuJoCo's own handler writes MUJOCO_LOG.TXT into the current folder. A kind of warning is
        # handed over when it first occurs, and again after a reset.
        mujoco.set_mju_user_warning(_log.warning)
        self.data = mujoco.MjData(model)
        self.timestep_ns = round(model.opt.timestep * 1e9)

        self._base = find_body(model, self.config.base_body or "world", "base_body")
        self.has_base = bool(self.config.base_body)
        self._lidar_frame = self._optional_frame("lidar_site")
        self._imu_frame = self._optional_frame("imu_site")
        self.has_lidar = self._lidar_frame is not None
        self.has_imu = self._imu_frame is not None
        self.joint_names, joints = single_joints(model)
        self._joint_qpos, self._joint_dof = model.jnt_qposadr[joints], model.jnt_dofadr[joints]
        self.actuation = self._find_actuation()
        self._odometer: WheelOdometer | None = None
        if isinstance(self.actuation, Wheels):
            self._odometer = WheelOdometer(self.actuation.radius, self.actuation.separation)
        self._check_rates()
        self.steps_per_command = self._find_period()
        self._find_start()
        of_robot = model.body_weldid != 0
        if self.has_base:
            of_robot = model.body_rootid == model.body_rootid[self._base.body]
        self._is_robot = of_robot[model.geom_bodyid]
        self._is_ground = (model.geom_group == GROUND_GROUP) | np.isin(
            model.geom_type, _GROUND_TYPES
        )

        lidar_seed, imu_seed = np.random.SeedSequence(self.config.seed).spawn(2)
        self._imu_rng = np.random.default_rng(imu_seed)
        self.lidar: SpinningLidar | LidarThread | None = None
        if self.has_lidar:
            robot_geoms = np.flatnonzero(self._is_robot)
            self.lidar = SpinningLidar(model, self.config, robot_geoms, lidar_seed)

        self._command_lock = threading.Lock()
        self._steps = 0
        self.epoch = 0
        self.contacts = 0
        self._place()
        self.T_world_start = self.T_world_base()
        self.T_base_lidar = self._mount(self._lidar_frame)
        self.T_base_imu = self._mount(self._imu_frame)

    @property
    def time_ns(self) -> int:
        # Counted in steps: MuJoCo's own time gathers rounding errors and returns to 0 at a reset.
        return self._steps * self.timestep_ns

    def command(self, *values: float) -> None:
        """Do this until told otherwise or timed out.

        ``values`` are v (m/s forward) and w (rad/s to the left) where there are wheels, else one
        for each actuator.

        Raises
        ------
        SimulationError
            As :meth:`check_command`; the previous command stays.
        """
        self.check_command(*values)
        ctrl = self.actuation.ctrl(np.array(values, float))
        with self._command_lock:
            self._command = (ctrl, self.time_ns)

    def check_command(self, *values: float) -> None:
        """Raise a SimulationError if a command has a wrong length or a value is not finite."""
        names = self.actuation.names
        if len(values) != len(names):
            raise SimulationError(
                f"a command of {len(values)} values; there must be {len(names)}: {', '.join(names)}"
            )
        if not np.isfinite(values).all():
            told = " ".join(f"{n}={v:g}" for n, v in zip(names, values, strict=True))
            raise SimulationError(f"command {told} is not finite")

    def step(self) -> list[Event]:
        """Advance by one timestep and return what is due at the new instant.

        The clock comes first and the state last, so that who answers the state has seen the rest.

        Raises
        ------
        SimulationError
            If the physics diverged. The simulation is then of no use until reset.
        """
        start_ns = self.time_ns
        self._actuate()
        mujoco.mj_step(self.model, self.data)
        # mj_step moves the state on but leaves what sensors read a step behind.
        mujoco.mj_forward(self.model, self.data)
        self._check_physics()
        self._steps += 1
        self._count_contacts()

        return [
            *self._clock_tick(),
            *self._imu_sample(),
            *self._scans(start_ns),
            *self._states(),
        ]

    def state(self) -> list[Event]:
        """Return what is known of the state now: joints, wheels and truth, of one stamp."""
        events: list[Event] = []
        if self.joint_names:
            events += self._joint_states()
        if self.has_base:
            events.append(self._truth())
        return events

    def reset(self) -> None:
        """Put the robot back to its start, at rest.

        Time goes on and ``epoch`` counts up. The sweep in progress is dropped; the noise continues.
        """
        self.epoch += 1
        self._place()
        if self.has_lidar:
            self.lidar.restart(self.time_ns)

    def T_world_base(self) -> np.ndarray:
        """Return the base's pose, (4, 4); the identity where there is no base."""
        return self._base.pose(self.data)

    def _place(self) -> None:
        self._reset(self.data)
        self.data.qpos[:] = self._start_qpos
        mujoco.mj_forward(self.model, self.data)
        if self._odometer is not None:
            self._odometer.reset(*self.data.qpos[self.actuation.qpos])
        if self.has_lidar:
            self._T_world_lidar = self._lidar_frame.pose(self.data)
        self._touching: frozenset[int] = frozenset()
        with self._command_lock:
            self._command = (self._start_ctrl, None)

    def _actuate(self) -> None:
        with self._command_lock:
            ctrl, stamp_ns = self._command
        old = stamp_ns is not None and (self.time_ns - stamp_ns > self.config.command_timeout * 1e9)
        self.data.ctrl[:] = 0.0 if old and self.config.on_timeout == "zero" else ctrl

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
        if not self.data.ncon:
            self._touching = frozenset()
            return
        geoms = self.data.contact.geom
        ours = self._is_robot[geoms]
        # One side is the robot's, the other neither its nor ground.
        other = geoms[ours[:, ::-1] & ~ours & ~self._is_ground[geoms]]
        touching = frozenset(other.tolist())
        self.contacts += len(touching - self._touching)
        self._touching = touching

    def _clock_tick(self) -> list[Event]:
        due = self._period_ends() or self._due(self.config.clock_rate)
        return [ClockTick(self.time_ns)] if due else []

    def _imu_sample(self) -> list[Event]:
        if not (self.has_imu and self._due(self.config.imu_rate)):
            return []
        noise = self._imu_rng.standard_normal((2, 3))
        _, gyro = self._imu_frame.twist(self.model, self.data)
        force = self._imu_frame.specific_force(self.model, self.data)
        sample = ImuSample(
            self.time_ns,
            gyro + self.config.imu_gyro_noise * noise[0],
            force + self.config.imu_accelerometer_noise * noise[1],
        )
        return [sample]

    def _scans(self, start_ns: int) -> list[Event]:
        if not self.has_lidar:
            return []
        T_start, T_end = self._T_world_lidar, self._lidar_frame.pose(self.data)
        self._T_world_lidar = T_end
        return self.lidar.advance(self.data, start_ns, self.time_ns, T_start, T_end)

    def _states(self) -> list[Event]:
        if self.steps_per_command:
            return self.state() if self._period_ends() else []
        events: list[Event] = []
        if self.joint_names and self._due(self.config.joint_rate):
            events += self._joint_states()
        if self.has_base and self._due(self.config.truth_rate):
            events.append(self._truth())
        return events

    def _period_ends(self) -> bool:
        return self.steps_per_command > 0 and self._steps % self.steps_per_command == 0

    def _joint_states(self) -> list[Event]:
        joints = JointState(
            self.time_ns,
            self.joint_names,
            self.data.qpos[self._joint_qpos],
            self.data.qvel[self._joint_dof],
            self.data.qfrc_actuator[self._joint_dof],
        )
        return [joints] if self._odometer is None else [joints, self._wheel_odometry()]

    def _wheel_odometry(self) -> WheelOdometry:
        self._odometer.update(*self.data.qpos[self.actuation.qpos])
        speeds = self._odometer.forward_and_turn(*self.data.qvel[self.actuation.dof])
        return WheelOdometry(self.time_ns, self._odometer.pose, *map(float, speeds))

    def _truth(self) -> TruthState:
        linear, angular = self._base.twist(self.model, self.data)
        return TruthState(self.time_ns, self.T_world_base(), linear, angular, self.epoch)

    def _due(self, rate: float) -> bool:
        """Return whether a multiple of 1 / rate lies in the step that has just ended."""
        per_step = rate * self.timestep_ns * 1e-9
        # The margin keeps a multiple that falls on a step in that step despite rounding.
        return int(self._steps * per_step + 1e-6) > int((self._steps - 1) * per_step + 1e-6)

    # What the configuration names in the model.

    def _optional_frame(self, parameter_name: str) -> Frame | None:
        name = getattr(self.config, parameter_name)
        return find_frame(self.model, name, parameter_name) if name else None

    def _mount(self, frame: Frame | None) -> np.ndarray | None:
        weld = self.model.body_weldid
        if frame is None or weld[frame.body] != weld[self._base.body]:
            return None
        return np.linalg.inv(self.T_world_start) @ frame.pose(self.data)

    def _find_actuation(self) -> Wheels | Actuators:
        left, right = self.config.left_wheel, self.config.right_wheel
        if bool(left) != bool(right):
            raise ConfigurationError(
                f"parameters 'left_wheel' and 'right_wheel' are '{left}' and '{right}': name both,"
                " or set both to '' for a robot without wheels"
            )
        return Wheels(self.model, left, right) if left else Actuators(self.model)

    def _find_start(self) -> None:
        config, model = self.config, self.model
        name = config.keyframe
        self._keyframe = find_keyframe(model, name, "keyframe") if name else None
        data = mujoco.MjData(model)
        self._reset(data)
        for name, target in (("start_qpos", data.qpos), ("start_ctrl", data.ctrl)):
            values = getattr(config, name)
            if values and len(values) != len(target):
                raise ConfigurationError(
                    f"parameter '{name}' has {len(values)} values, must have {len(target)} in"
                    f" model '{config.model}'"
                )
            if values:
                target[:] = values
        if (config.start_x, config.start_y, config.start_yaw) != (0.0, 0.0, 0.0):
            joint = model.body_jntadr[self._base.body]
            if joint < 0 or model.jnt_type[joint] != int(mujoco.mjtJoint.mjJNT_FREE):
                raise ConfigurationError(
                    "parameters 'start_x', 'start_y' and 'start_yaw' need a base_body with a"
                    f" freejoint; '{config.base_body}' of model '{config.model}' has none"
                )
            adr = model.jnt_qposadr[joint]
            data.qpos[adr : adr + 2] = config.start_x, config.start_y
            yaw = np.array([np.cos(config.start_yaw / 2), 0, 0, np.sin(config.start_yaw / 2)])
            orientation = data.qpos[adr + 3 : adr + 7]
            mujoco.mju_mulQuat(orientation, yaw, orientation.copy())
        mujoco.mj_normalizeQuat(model, data.qpos)
        self._start_qpos, self._start_ctrl = data.qpos.copy(), data.ctrl.copy()

    def _reset(self, data: mujoco.MjData) -> None:
        if self._keyframe is None:
            mujoco.mj_resetData(self.model, data)
        else:
            mujoco.mj_resetDataKeyframe(self.model, data, self._keyframe)

    def _find_period(self) -> int:
        """Return the physics steps of ``command_period``; 0 where commands step nothing."""
        if self.config.stepping == "time":
            return 0
        period, timestep = self.config.command_period, self.timestep_ns * 1e-9
        steps = round(period / timestep)
        if steps < 1 or abs(steps * timestep - period) > 1e-9:
            raise ConfigurationError(
                f"parameter 'command_period' is {period:g}, must be a multiple of {timestep:g} (the"
                f" physics' timestep in model '{self.config.model}')"
            )
        if period > self.config.command_timeout:
            raise ConfigurationError(
                f"parameter 'command_period' is {period:g}, must be <= 'command_timeout'"
                f" ({self.config.command_timeout:g})"
            )
        return steps

    def _check_rates(self) -> None:
        used = {
            "clock_rate": True,
            "imu_rate": self.has_imu,
            "joint_rate": bool(self.joint_names),
            "truth_rate": self.has_base,
            "lidar_rate": self.has_lidar,
        }
        fastest = 1e9 / self.timestep_ns
        for name in (name for name, is_used in used.items() if is_used):
            if getattr(self.config, name) > fastest * (1 + 1e-9):
                raise ConfigurationError(
                    f"parameter '{name}' is {getattr(self.config, name):g}, must be <="
                    f" {fastest:g} (the physics' steps a second in model '{self.config.model}')"
                )

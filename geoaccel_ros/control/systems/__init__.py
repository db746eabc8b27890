"""Robot models for MPPI: one module each, bundled here or anywhere else.

A module defines, in plain Python that Numba compiles for the CPU and for CUDA alike:

STATE, CONTROL, GOAL : tuple of str
    Names of the components; a state reaches the functions as a tuple in this order.
Parameters : type of Configuration
    Limits, model parameters and weights of the cost terms. The functions get it as ``p``, a named
    tuple of float32 (float64 where a state is predicted).
limits(p) -> (lower, upper)
    Smallest and largest controls. Called once, on the host.
maneuvers(p) -> controls
    Optional: constant controls that every update tries beside its noise; the first one is what is
    safe when there is no plan. Called once, on the host. Without it zero is, within the limits.
SAMPLING : dict
    Optional: values of :class:`~geoaccel_ros.control.mppi_config.MppiConfig` that suit the robot.
TASK : dict
    Optional: what a closed loop has it do: the ``goal``, the state to ``start`` in, and how many
    seconds it shall ``hold`` there. Without a start, it is the model's own, or zero.
reached(x, goal, p) -> bool
    Optional: whether it is there. Never compiled.
step(x, u, p, dt) -> x
    The state after ``dt`` seconds of control ``u``. May be missing where there is a MODEL: then
    only MuJoCo can roll the robot out.
MODEL : str
    Optional: the MuJoCo model that the robot is, a file beside the module, in simulation/models or
    anywhere. STATE is its qpos followed by its qvel, CONTROL its ctrl, in its order.
apply(model, p)
    Optional: writes the parameters (masses, lengths) into an MjModel of MODEL; what MuJoCo derives
    from them follows.
RUNNING, TERMINAL : tuple of str
    Names of the terms of the costs. For a term ``name`` Parameters has a ``name_weight``, for a
    terminal one a ``final_name_weight``.
running(x, u, u_before, goal, p), terminal(x, goal, p) -> terms
    Cost of a second spent in ``x``, and of ending there: tuples of terms, each times its weight, in
    the order of their names. Rollouts add them up; updates tell what each contributed.

A robot that drives on a plane among obstacles defines more:

clearance_limit(p) -> m
    The distance between the robot's centre and the nearest obstacle below which it has crashed.
running(x, u, u_before, goal, clearance, detour, p), terminal(x, goal, clearance, detour, p)
    -> terms
    ``clearance`` is the distance from the robot's centre to the nearest obstacle, ``detour`` how
    far the way to the goal exceeds the straight line.

Its STATE and GOAL begin with x and y in the frame of the obstacles.

They may call functions and use constants of their module. Compiled, they compute in float32; so
numbers that take part are written ``2.0``, not ``2``, which Numba would promote to float64. A state
of zeros must have a finite cost: controllers are warmed up with it.
"""

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import math
import pkgutil
import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import mujoco
import numpy as np

from geoaccel_ros import simulation
from geoaccel_ros.config import Configuration, ConfigurationError, unknown_name_message

# What a module must define; the arguments of its functions.
_CONSTANTS = ("STATE", "CONTROL", "GOAL", "RUNNING", "TERMINAL", "Parameters")
_FUNCTIONS = {
    "limits": "p",
    "step": "x, u, p, dt",
    "running": "x, u, u_before, goal, p",
    "terminal": "x, goal, p",
}
_PLANAR_FUNCTIONS = _FUNCTIONS | {
    "running": "x, u, u_before, goal, clearance, detour, p",
    "terminal": "x, goal, clearance, detour, p",
}


@dataclass(frozen=True)
class System:
    """A robot model: what :mod:`geoaccel_ros.control.systems` says of its module."""

    name: str
    state: tuple[str, ...]
    control: tuple[str, ...]
    goal: tuple[str, ...]
    parameters: type[Configuration]
    limits: Callable
    step: Callable | None
    running: Callable
    terminal: Callable
    running_terms: tuple[str, ...]
    terminal_terms: tuple[str, ...]
    sampling: Mapping = dataclasses.field(default_factory=dict, compare=False)
    task: Mapping = dataclasses.field(default_factory=dict, compare=False)
    reached: Callable | None = None
    maneuvers: Callable | None = None
    clearance_limit: Callable | None = None
    model: Path | None = None
    apply: Callable | None = None

    @property
    def is_planar(self) -> bool:
        """Whether the robot drives on a plane among obstacles."""
        return self.clearance_limit is not None

    def pack(self, parameters: Configuration, dtype: type = np.float32) -> tuple:
        """Return the parameters as the model's functions take them: a named tuple of ``dtype``.

        Raises
        ------
        ConfigurationError
            If one is finite, but not as ``dtype``.
        """
        values = dataclasses.asdict(parameters)
        with np.errstate(over="ignore"):
            packed = {name: dtype(value) for name, value in values.items()}
        for name, value in values.items():
            if math.isfinite(value) and not np.isfinite(packed[name]):
                raise ConfigurationError(
                    f"parameter '{name}' is {value:g}, beyond what float32 holds"
                )
        return _parameter_tuple(self)(**packed)

    def mujoco_model(self, p: Configuration | tuple) -> mujoco.MjModel:
        """Return MuJoCo's model of the robot with parameters ``p``, packed or not.

        Raises
        ------
        ConfigurationError
            If the system defines no MODEL, MuJoCo refuses it, or its coordinates or actuators are
            not as many as STATE or CONTROL.
        """
        if self.model is None:
            raise ConfigurationError(f"system '{self.name}' has no MuJoCo model: define MODEL")
        try:
            model = mujoco.MjModel.from_xml_path(str(self.model))
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise ConfigurationError(f"system '{self.name}': {self.model}: {reason}") from error
        if model.nq + model.nv != len(self.state) or model.nu != len(self.control):
            raise ConfigurationError(
                f"system '{self.name}': {self.model} has nq + nv = {model.nq + model.nv} and nu = "
                f"{model.nu}, STATE has {len(self.state)} names and CONTROL {len(self.control)}"
            )
        if self.apply is not None:
            self.apply(model, p)
            mujoco.mj_setConst(model, mujoco.MjData(model))
        return model

    def check_limits(self, parameters: Configuration) -> None:
        """Raise ConfigurationError if a smallest control is not at most the largest."""
        for name, lower, upper in zip(self.control, *self.limits(parameters), strict=True):
            if not lower <= upper:
                raise ConfigurationError(
                    f"system '{self.name}': limits of {name} are {lower:g} to {upper:g}"
                )

    def tried_controls(self, parameters: Configuration) -> np.ndarray:
        """Return the maneuvers (N, U) float32, the safe one first."""
        if self.maneuvers is not None:
            return np.array(self.maneuvers(parameters), np.float32)
        safe = np.clip(np.zeros(len(self.control)), *self.limits(parameters))
        return safe[None].astype(np.float32)


@functools.cache
def _parameter_tuple(system: System) -> type:
    return namedtuple("Parameters", [field.name for field in dataclasses.fields(system.parameters)])


def available() -> list[str]:
    """Return the names of the bundled systems."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


@functools.cache
def load_system(name: str) -> System:
    """Return a system by the name of a bundled one, of a module, or of a file.

    Loaded once a process, so that a file that was edited since stays what it was.

    Parameters
    ----------
    name : str
        ``diff_drive``, ``package.module`` or ``/path/robot.py``.

    Raises
    ------
    ConfigurationError
        If there is none, it cannot be imported, or something is missing in it; the message says
        which.
    """
    if name.endswith(".py"):
        return _system_of(name, _import(name, lambda: _module_of_file(Path(name).resolve())))
    if "." in name:
        return _system_of(name, _import(name, lambda: importlib.import_module(name)))
    if name not in available():
        known = unknown_name_message(name, available()).replace("parameter", "system")
        raise ConfigurationError(f"{known}; or give a module (package.module) or a file (robot.py)")
    return _system_of(name, importlib.import_module(f"{__name__}.{name}"))


def _import(name: str, load: Callable[[], ModuleType]) -> ModuleType:
    # Whatever code of others raises, a user is told in a line which system it was.
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise ConfigurationError(
            f"system '{name}' cannot be imported: {type(error).__name__}: {error}"
        ) from error


def _module_of_file(path: Path) -> ModuleType:
    # By its path, a robot.py hides no module of that name.
    spec = importlib.util.spec_from_file_location(str(path), path)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by its name.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def _system_of(name: str, module: ModuleType) -> System:
    functions = _PLANAR_FUNCTIONS if hasattr(module, "clearance_limit") else _FUNCTIONS
    if hasattr(module, "MODEL"):
        functions = functions | {"apply": "model, p"}
        optional = [what for what in ("step", "apply") if not hasattr(module, what)]
        functions = {what: takes for what, takes in functions.items() if what not in optional}
    missing = [what for what in (*_CONSTANTS, *functions) if not hasattr(module, what)]
    if missing:
        raise ConfigurationError(
            f"system '{name}' does not define {', '.join(missing)}: {__name__} says what a system "
            "consists of"
        )
    for function, arguments in functions.items():
        if len(inspect.signature(getattr(module, function)).parameters) != arguments.count(",") + 1:
            raise ConfigurationError(f"system '{name}': {function} must take ({arguments})")
    _check_names(name, module)
    _check_parameters(name, module.Parameters)
    system = System(
        name,
        module.STATE,
        module.CONTROL,
        module.GOAL,
        module.Parameters,
        module.limits,
        getattr(module, "step", None),
        module.running,
        module.terminal,
        module.RUNNING,
        module.TERMINAL,
        getattr(module, "SAMPLING", {}),
        getattr(module, "TASK", {}),
        getattr(module, "reached", None),
        getattr(module, "maneuvers", None),
        getattr(module, "clearance_limit", None),
        _model_file(name, module),
        getattr(module, "apply", None),
    )
    _check_model(system)
    _check_terms(system)
    _check_task(system)
    return system


def _check_names(name: str, module: ModuleType) -> None:
    """Raise ConfigurationError if what names things is no tuple of different names."""
    for constant in ("STATE", "CONTROL", "GOAL", "RUNNING", "TERMINAL"):
        names = getattr(module, constant)
        if not isinstance(names, tuple) or not all(isinstance(text, str) for text in names):
            raise ConfigurationError(
                f"system '{name}': {constant} is {names!r}, must be a tuple of names"
            )
        if len(set(names)) < len(names):
            raise ConfigurationError(f"system '{name}': {constant} has a name twice: {names}")


def _check_parameters(name: str, kind: type) -> None:
    """Raise ConfigurationError if the parameters are not numbers with defaults."""
    if not (isinstance(kind, type) and issubclass(kind, Configuration)):
        raise ConfigurationError(f"system '{name}': Parameters must be a Configuration")
    try:
        values = dataclasses.asdict(kind())
    except TypeError as error:
        raise ConfigurationError(
            f"system '{name}': Parameters cannot be made without arguments: {error}"
        ) from error
    for parameter, value in values.items():
        if not isinstance(value, int | float):
            raise ConfigurationError(
                f"system '{name}': Parameters.{parameter} is {value!r}, must be a number"
            )


def _check_model(system: System) -> None:
    """Raise ConfigurationError if limits, maneuvers or step do not return what they must."""
    parameters = system.parameters()
    p = system.pack(parameters, np.float64)
    x, u = _zeros(system.state), _zeros(system.control)
    limits = _returned(system, "limits", parameters)
    for limit in limits:
        _check_count(system, "limits", limit, system.control)
    system.check_limits(parameters)
    if system.maneuvers is not None:
        for controls in _returned(system, "maneuvers", parameters):
            _check_count(system, "maneuvers", tuple(controls), system.control)
            if not np.isfinite(controls).all():
                raise ConfigurationError(
                    f"system '{system.name}': maneuvers returns {tuple(controls)}, must be finite"
                )
    if system.step is not None:
        found = _returned(system, "step", x, u, p, np.float64(0.01))
        _check_count(system, "step", found, system.state)


def _check_terms(system: System) -> None:
    """Raise ConfigurationError if the terms of the costs are not those that are named."""
    parameters = {field.name for field in dataclasses.fields(system.parameters)}
    x, u, goal = (_zeros(names) for names in (system.state, system.control, system.goal))
    around = (np.float64(0.0), np.float64(0.0)) if system.is_planar else ()
    p = system.pack(system.parameters(), np.float64)
    for function, names, prefix, arguments in (
        ("running", system.running_terms, "", (x, u, u, goal, *around, p)),
        ("terminal", system.terminal_terms, "final_", (x, goal, *around, p)),
    ):
        weights = [f"{prefix}{name}_weight" for name in names]
        missing = [weight for weight in weights if weight not in parameters]
        if missing:
            raise ConfigurationError(
                f"system '{system.name}': Parameters has no {', '.join(missing)}, of terms that "
                f"{function.upper()} names"
            )
        terms = _returned(system, function, *arguments)
        if not isinstance(terms, tuple) or len(terms) != len(names):
            found = len(terms) if isinstance(terms, tuple) else "no tuple of"
            raise ConfigurationError(
                f"system '{system.name}': {function} returns {found} terms, must return a tuple of "
                f"{len(names)}, {', '.join(names)}, as {function.upper()} names them"
            )


def _check_task(system: System) -> None:
    """Raise ConfigurationError if TASK is not what a closed loop needs, or reached fails."""
    for key, names in (("goal", system.goal), ("start", system.state)):
        values = system.task.get(key, (0.0,) * len(names))
        if np.shape(values) != (len(names),) or not _are_numbers(values):
            raise ConfigurationError(
                f"system '{system.name}': TASK's {key} is {values!r}, must have a number for each "
                f"of {', '.join(names)}"
            )
    hold = system.task.get("hold", 1.0)
    if not _are_numbers((hold,)) or hold < 0.0:
        raise ConfigurationError(f"system '{system.name}': TASK's hold is {hold!r}, must be s >= 0")
    if system.reached is not None:
        p = system.pack(system.parameters(), np.float64)
        _returned(system, "reached", _zeros(system.state), _zeros(system.goal), p)


def _are_numbers(values) -> bool:
    return all(isinstance(value, int | float | np.number) for value in values)


def _zeros(names: tuple[str, ...]) -> tuple:
    return tuple(np.zeros(len(names)))


def _returned(system: System, function: str, *arguments):
    """Return what a function of the system returns, in a state of zeros."""
    try:
        with np.errstate(all="ignore"):
            return getattr(system, function)(*arguments)
    except Exception as error:
        raise ConfigurationError(
            f"system '{system.name}': {function} fails in a state of zeros: "
            f"{type(error).__name__}: {error}"
        ) from error


def _check_count(system: System, function: str, values: tuple, names: tuple[str, ...]) -> None:
    if not isinstance(values, tuple) or len(values) != len(names):
        found = len(values) if isinstance(values, tuple) else "no tuple of"
        raise ConfigurationError(
            f"system '{system.name}': {function} returns {found} values, must return one for each "
            f"of {', '.join(names)}"
        )


def _model_file(name: str, module: ModuleType) -> Path | None:
    file = getattr(module, "MODEL", None)
    if file is None:
        return None
    beside = Path(module.__file__).resolve().parent / file
    candidates = (beside, Path(simulation.__file__).parent / "models" / file)
    for path in candidates:
        if path.is_file():
            return path
    looked = " or ".join(dict.fromkeys(map(str, candidates)))
    raise ConfigurationError(f"system '{name}': MODEL '{file}' does not exist: no file {looked}")

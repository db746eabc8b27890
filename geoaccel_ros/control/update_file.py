"""One update of a controller in a file, to look at afterwards."""

import json
import zipfile
from pathlib import Path

import numpy as np

from geoaccel_ros.config import Configuration
from geoaccel_ros.control.mppi import Mppi, MppiUpdate

# Trajectories take most of the room; those of least weight say least.
_TRAJECTORIES = 200
_NAMES = (
    "system",
    "state_names",
    "control_names",
    "goal_names",
    "term_names",
    "stamp",
    "dt",
    "state",
    "goal",
    "command",
    "lower",
    "upper",
    "plan_controls",
    "plan_states",
    "controls",
    "costs",
    "weights",
    "trajectories",
    "terms",
    "ess",
    "temperature",
    "configuration",
)


def write_update(
    path: str | Path,
    engine: Mppi,
    update: MppiUpdate,
    state: np.ndarray,
    goal: np.ndarray,
    stamp: float,
    dt: float,
    configuration: Configuration,
) -> int:
    """Write an engine's last update as an NPZ; return how many samples it had.

    With K samples, T steps, U controls and X components of a state, the file holds

    ====================  ==========================================================================
    system                name of the system
    state_names, …        names of the components: also control_names, goal_names, term_names
    stamp, dt             s
    state                 (X,) where all rollouts begin: predicted to when the command acts
    goal                  (G,)
    command               (U,) that was sent
    lower, upper          (U,) limits of the controls
    plan_controls         (T, U) the new plan
    plan_states           (T+1, X) where it leads
    controls              (K, T, U) of all samples, those of most weight first
    costs, weights        (K,) theirs; costs are infinite where a rollout crashed or is not finite
    trajectories          (N, T+1, X) of the first N samples, at most 200
    terms                 what each of term_names adds to the plan's cost
    ess, temperature      of the weights
    configuration         all parameters as JSON
    ====================  ==========================================================================

    Parameters
    ----------
    path : str or Path
    engine : Mppi
        Must not have updated since.
    update : MppiUpdate
    state, goal : np.ndarray
        What the update was called with.
    stamp, dt : float
        s.
    configuration : Configuration

    Raises
    ------
    ValueError
        If the update had no plan: then there are no samples.
    OSError
        If the file cannot be written.
    """
    controls, costs, weights = engine.samples()
    if not len(controls):
        raise ValueError(f"the last update had no plan: {update.reason}")
    trajectories, _ = engine.rollouts(_TRAJECTORIES)
    system = engine.system
    with open(path, "wb") as file:
        np.savez_compressed(
            file,
            system=system.name,
            state_names=system.state,
            control_names=system.control,
            goal_names=system.goal,
            term_names=list(update.terms),
            stamp=stamp,
            dt=dt,
            state=state,
            goal=goal,
            command=update.command,
            lower=engine.limits[0],
            upper=engine.limits[1],
            plan_controls=update.controls,
            plan_states=update.plan,
            controls=controls,
            costs=costs,
            weights=weights,
            trajectories=trajectories,
            terms=list(update.terms.values()),
            ess=update.ess,
            temperature=update.temperature,
            configuration=json.dumps(configuration.as_dict()),
        )
    return len(controls)


def read_update(path: str | Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file that :func:`write_update` wrote, by their names.

    Raises
    ------
    ValueError
        If it is no such file; the message says why.
    OSError
        If it cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            update = dict(file)
    # A TypeError where it is a single array, which is no context.
    except (ValueError, EOFError, TypeError, zipfile.BadZipFile):
        raise ValueError("no NPZ file") from None
    if missing := [name for name in _NAMES if name not in update]:
        raise ValueError(f"no update of a controller: it has no {', '.join(missing)}")
    return update

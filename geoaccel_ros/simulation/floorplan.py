"""A world seen from above: what a picture of a drive shows beside its path."""

import mujoco
import numpy as np
from scipy.spatial import ConvexHull

from geoaccel_ros.simulation.model import GROUND_GROUP

# Corners by which a round footprint is drawn.
_CIRCLE = np.linspace(0, 2 * np.pi, 24, endpoint=False)


def obstacle_footprints(
    model: mujoco.MjModel, min_height: float = 0.15, with_ground: bool = True
) -> list[np.ndarray]:
    """Return the outlines of the fixed boxes, cylinders and spheres that rise above the floor.

    Parameters
    ----------
    model : mujoco.MjModel
    min_height : float
        Lower geoms are left out, in metres above z = 0.
    with_ground : bool
        Whether what the robot may drive on, such as a ramp, is among them.

    Returns
    -------
    list of (M, 2) float64 arrays
        Convex polygons in the world frame, counter-clockwise, in the order of the geoms.
    """
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    footprints = []
    for geom in range(model.ngeom):
        corners = _corners(model.geom_type[geom], model.geom_size[geom])
        # weldid 0: fixed to the world, directly or through bodies without joints.
        fixed = model.body_weldid[model.geom_bodyid[geom]] == 0
        is_left_out = not with_ground and model.geom_group[geom] == GROUND_GROUP
        if corners is None or not fixed or is_left_out:
            continue
        corners = corners @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
        if corners[:, 2].max() > min_height:
            flat = corners[:, :2]
            footprints.append(flat[ConvexHull(flat).vertices])
    return footprints


def goals(model: mujoco.MjModel) -> np.ndarray:
    """Return the goals that the model proposes (its numeric ``goals``): (N, 2), world frame."""
    number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_NUMERIC, "goals")
    if number < 0:
        return np.empty((0, 2))
    return model.numeric("goals").data.reshape(-1, 2).copy()


def _corners(kind: int, size: np.ndarray) -> np.ndarray | None:
    """Return points (M, 3) in the geom's frame whose convex hull is the geom, None for others."""
    if kind == int(mujoco.mjtGeom.mjGEOM_BOX):
        signs = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
        return signs * size
    circle = np.stack([np.cos(_CIRCLE), np.sin(_CIRCLE)], axis=1) * size[0]
    if kind == int(mujoco.mjtGeom.mjGEOM_CYLINDER):
        return np.concatenate(
            [np.column_stack([circle, np.full(len(circle), z)]) for z in (-size[1], size[1])]
        )
    if kind == int(mujoco.mjtGeom.mjGEOM_SPHERE):
        flat = np.column_stack([circle, np.zeros(len(circle))])
        return np.concatenate([flat, [[0, 0, size[0]]]])
    return None

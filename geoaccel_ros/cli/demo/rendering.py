"""Pictures of a robot in its world, rendered without a screen."""

from collections.abc import Iterator

import mujoco
import numpy as np
from scipy.ndimage import gaussian_filter1d

# Both multiples of 16, which video encoders want; MuJoCo's default buffer is of this size.
_WIDTH, _HEIGHT = 640, 480
# Camera: behind and above, looking down at a place ahead; turned no faster than a person would.
_DISTANCE = 6.0  # m
_AHEAD = 1.5  # m
_ELEVATION = -30.0  # degrees
_CALM = 1.0  # s, standard deviation of what smooths the heading
_GOAL_RADIUS = 0.15  # m
_GREEN = np.array([0.2, 0.8, 0.3, 0.8], np.float32)


class NoContext(RuntimeError):
    """OpenGL cannot be had."""


def frames(
    model: mujoco.MjModel,
    base_body: str,
    times: np.ndarray,
    poses: np.ndarray,
    goals: np.ndarray,
) -> Iterator[np.ndarray]:
    """Yield a picture (H, W, 3), uint8, of each pose (N, 4, 4) at ``times`` (N,), evenly spaced.

    Raises
    ------
    NoContext
        If there is no OpenGL, by what the variable MUJOCO_GL named when MuJoCo was imported.
    """
    data = mujoco.MjData(model)
    start = model.jnt_qposadr[model.body_jntadr[model.body(base_body).id]]
    headings = np.unwrap(np.arctan2(poses[:, 1, 0], poses[:, 0, 0]))
    if len(times) > 1:
        headings = gaussian_filter1d(headings, _CALM / (times[1] - times[0]), mode="nearest")
    camera = mujoco.MjvCamera()
    camera.distance, camera.elevation = _DISTANCE, _ELEVATION
    # A world's own light may leave corners dark.
    model.vis.headlight.ambient[:], model.vis.headlight.diffuse[:] = 0.35, 0.5
    try:
        renderer = mujoco.Renderer(model, _HEIGHT, _WIDTH)
    # Whatever is missing: a library (ImportError, AttributeError), a driver or a device.
    except Exception as error:
        raise NoContext(" ".join(str(error).split()) or type(error).__name__) from None
    with renderer:
        for pose, heading in zip(poses, headings, strict=True):
            data.qpos[start : start + 3] = pose[:3, 3]
            mujoco.mju_mat2Quat(data.qpos[start + 3 : start + 7], pose[:3, :3].ravel())
            mujoco.mj_forward(model, data)
            ahead = np.array([np.cos(heading), np.sin(heading), 0.0])
            camera.lookat[:] = pose[:3, 3] + _AHEAD * ahead
            camera.azimuth = np.degrees(heading)
            renderer.update_scene(data, camera)
            _mark(renderer.scene, goals)
            yield renderer.render()


def _mark(scene: mujoco.MjvScene, goals: np.ndarray) -> None:
    """Add a ball at each goal, as far as there is room in the scene."""
    for x, y in goals[: scene.maxgeom - scene.ngeom]:
        mujoco.mjv_initGeom(
            scene.geoms[scene.ngeom],
            mujoco.mjtGeom.mjGEOM_SPHERE,
            np.full(3, _GOAL_RADIUS),
            np.array([x, y, _GOAL_RADIUS]),
            np.eye(3).ravel(),
            _GREEN,
        )
        scene.ngeom += 1

"""A film of a drive, rendered afterwards from its true poses: the run itself is not slowed."""

import importlib.util
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np

from geoaccel_ros.cli.errors import UserError
from geoaccel_ros.registration.metrics import interpolate_poses

# Simulated seconds a second, frames a second.
_SPEED = 4.0
_RATE = 20
# By import name, what renders and writes.
_PACKAGES = {"OpenGL": "pyopengl", "imageio": "imageio", "imageio_ffmpeg": "imageio-ffmpeg"}


class _NotRendered(RuntimeError):
    """One way of rendering does not work here."""


def check_packages() -> None:
    """Raise a UserError if a package that films need is not installed."""
    missing = [name for module, name in _PACKAGES.items() if not importlib.util.find_spec(module)]
    if missing:
        raise UserError(f"--video needs {', '.join(missing)}: pip install 'geoaccel_ros[video]'")


def write_film(
    path: Path, model: str, base_body: str, stamps: np.ndarray, poses: np.ndarray, goals: np.ndarray
) -> None:
    """Write an MP4 of the robot in its world, from behind and above, at four times its speed.

    It is rendered by EGL, or else by OSMesa, or by what the variable MUJOCO_GL names; in a process
    of its own, since that cannot be changed in a process, and a driver that crashes takes it along.

    Parameters
    ----------
    path : Path
    model : str
        Name or file of the world.
    base_body : str
        The robot; it must be free.
    stamps : ndarray (N,)
        Seconds.
    poses : ndarray (N, 4, 4)
        The robot's, in the world.
    goals : ndarray (M, 2)
        In the world.

    Raises
    ------
    UserError
        If no way of rendering works, or the file cannot be written.
    """
    chosen = os.environ.get("MUJOCO_GL")
    why = []
    for way in (chosen,) if chosen else ("egl", "osmesa"):
        os.environ["MUJOCO_GL"] = way
        try:
            # Not forked: threads of ROS would not come along, what they hold would.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                pool.submit(_render, path, model, base_body, stamps, poses, goals).result()
            return
        except _NotRendered as error:
            why.append(f"{way}: {error}")
        except BrokenProcessPool:
            why.append(f"{way}: crashed")
        except OSError as error:
            raise UserError(f"cannot write '{path}': {error}") from None
        finally:
            if chosen is None:
                del os.environ["MUJOCO_GL"]
    raise UserError(
        f"no OpenGL without a screen ({'; '.join(why)}): install a driver, on Debian and Ubuntu by"
        " 'apt install libegl1 libgl1-mesa-dri' or 'apt install libosmesa6', or name another way by"
        " MUJOCO_GL"
    )


def _render(path, model_name, base_body, stamps, poses, goals) -> None:
    """Write the film by what MUJOCO_GL names; MuJoCo reads it when it is imported."""
    import imageio.v2

    try:
        from geoaccel_ros.cli.demo.rendering import NoContext, frames
        from geoaccel_ros.simulation.model import load_model
    # PyOpenGL raises what it likes where a library is missing.
    except (ImportError, AttributeError, TypeError, OSError) as error:
        raise _NotRendered(f"not installed ({error})") from None
    model = load_model(model_name)
    times = np.arange(stamps[0], stamps[-1], _SPEED / _RATE)
    poses = interpolate_poses(stamps, poses, times)
    try:
        with imageio.v2.get_writer(path, fps=_RATE, macro_block_size=16) as film:
            for frame in frames(model, base_body, times, poses, goals):
                film.append_data(frame)
    except NoContext as error:
        raise _NotRendered(str(error)) from None

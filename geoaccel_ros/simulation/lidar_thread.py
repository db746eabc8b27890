"""A LiDAR's rays on a thread of their own, so that the physics does not wait for them."""

import contextlib
import math
import queue
import threading
from collections.abc import Callable

import mujoco
import numpy as np

from geoaccel_ros.simulation.events import Scan
from geoaccel_ros.simulation.lidar import SpinningLidar

# What MuJoCo's rays read of a state.
_SEEN = (
    "xpos",
    "xmat",
    "xipos",
    "ximat",
    "geom_xpos",
    "geom_xmat",
    "flexvert_xpos",
    "bvh_aabb_dyn",
)
# Simulated seconds by which the rays may be behind; the physics waits rather than losing sweeps.
_BEHIND_MAX = 0.2


class LidarThread:
    """Takes a lidar's place in a simulation: same calls, same points, cast by a thread.

    What a step sees is copied, so the points do not depend on when they are cast. A sweep comes out
    of the first :meth:`advance` after it is complete, so a step or more later than without. Where
    rays stay behind by 0.2 s of simulated time, :meth:`advance` waits.

    Parameters
    ----------
    model : mujoco.MjModel
        As the lidar left it.
    lidar : SpinningLidar
        Its own from now until :meth:`stop`.
    """

    def __init__(self, model: mujoco.MjModel, lidar: SpinningLidar):
        self._lidar = lidar
        self._data = mujoco.MjData(model)
        self._work: queue.Queue[Callable[[], list[Scan]] | None] = queue.Queue(
            max(1, math.ceil(_BEHIND_MAX / model.opt.timestep))
        )
        self._scans: queue.SimpleQueue[Scan] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="lidar", daemon=True)
        self._thread.start()

    def advance(
        self,
        data: mujoco.MjData,
        step_start_ns: int,
        step_end_ns: int,
        T_world_lidar_start: np.ndarray,
        T_world_lidar_end: np.ndarray,
    ) -> list[Scan]:
        """Have the step's columns cast; return the sweeps that are complete by now.

        Raises
        ------
        Exception
            What ended the thread.
        """
        seen = [(name, getattr(data, name).copy()) for name in _SEEN]

        def cast() -> list[Scan]:
            for name, values in seen:
                getattr(self._data, name)[:] = values
            return self._lidar.advance(
                self._data, step_start_ns, step_end_ns, T_world_lidar_start, T_world_lidar_end
            )

        self._work.put(cast)
        return self.complete()

    def restart(self, now_ns: int) -> None:
        """Drop the sweep in progress, and those not yet returned; the next begins at ``now_ns``."""

        def restart() -> list[Scan]:
            self._lidar.restart(now_ns)
            return []

        self._work.put(restart)
        # What comes out later began before the restart.
        self._work.join()
        self.complete()

    def complete(self) -> list[Scan]:
        """Return the sweeps that are complete and not yet returned.

        Raises
        ------
        Exception
            What ended the thread.
        """
        if self._error is not None:
            raise self._error
        scans = []
        with contextlib.suppress(queue.Empty):
            while True:
                scans.append(self._scans.get_nowait())
        return scans

    def stop(self) -> SpinningLidar:
        """Wait for what is to be cast, end the thread, and give the lidar back."""
        self._work.put(None)
        self._thread.join()
        return self._lidar

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            # After an error nothing is cast, but nobody may wait for room for ever.
            if self._error is None:
                try:
                    for scan in work():
                        self._scans.put(scan)
                except Exception as error:
                    self._error = error
            self._work.task_done()

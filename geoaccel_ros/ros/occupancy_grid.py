"""Occupancy grids: from messages to cells of the obstacle grid."""

import numpy as np
from nav_msgs.msg import OccupancyGrid

from geoaccel_ros.control.obstacles import OccupiedCells, occupied_cells
from geoaccel_ros.registration.frames import clean_frame
from geoaccel_ros.ros.controller_config import PlanarControllerConfig
from geoaccel_ros.ros.transforms import matrix_from_pose

# Of an origin that is turned about z alone, cos of its tilt.
_LEVEL = 1.0 - 1e-6


def cells_of(message: OccupancyGrid, config: PlanarControllerConfig) -> OccupiedCells:
    """Return what a grid says is occupied.

    Raises
    ------
    ValueError
        If it cannot be used; the message says why.
    """
    frame, info = clean_frame(message.header.frame_id), message.info
    if frame != config.odom_frame:
        raise ValueError(f"it is in frame '{frame}', must be in '{config.odom_frame}'")
    if not (np.isfinite(info.resolution) and info.resolution > 0.0):
        raise ValueError(f"its resolution is {info.resolution:g} m")
    if len(message.data) != info.width * info.height:
        raise ValueError(f"it has {len(message.data)} cells, not {info.width} x {info.height}")
    T_odom_map = matrix_from_pose(info.origin)
    if T_odom_map[2, 2] < _LEVEL:
        raise ValueError("its origin is tilted")
    percent = np.array(message.data, np.int8).reshape(info.height, info.width)
    occupied = percent >= config.map_occupied
    if config.map_unknown == "occupied":
        occupied |= percent < 0
    return occupied_cells(occupied, info.resolution, T_odom_map, config.obstacle_resolution)

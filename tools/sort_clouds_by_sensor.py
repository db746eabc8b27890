#!/usr/bin/env python3
"""Sort clouds for training: those of `geoaccel bench compression --data DATA` to OUT/SENSOR/*.npy.

Every field is kept, and each point that is a return: finite and not all zero. Clouds whose sensor
is not known are left out, and of the sensors all folders are made.
"""

import argparse
from pathlib import Path

import numpy as np

from geoaccel_ros.benchmark.compression_clouds import SENSORS, read_clouds
from geoaccel_ros.pointcloud.files import write_points
from geoaccel_ros.pointcloud.layout import coordinates, packed_dtype


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    for sensor in SENSORS.values():
        (arguments.out / sensor).mkdir(parents=True, exist_ok=True)
    for cloud in read_clouds([], [arguments.data]):
        if not cloud.sensor:
            continue
        xyz = coordinates(cloud.points)
        points = cloud.points[np.isfinite(xyz).all(axis=1) & xyz.any(axis=1)]
        packed = np.empty(
            len(points), packed_dtype((n, points.dtype[n].str) for n in points.dtype.names)
        )
        for name in packed.dtype.names:
            packed[name] = points[name]
        write_points(arguments.out / cloud.sensor / f"{cloud.name.replace('/', '_')}.npy", packed)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Train the tables of the scan mode: CLOUDS/SENSOR/*.{bin,npy,pcd,ply} to OUT/scan_*.bin.

Each folder holds clouds of one sensor, in the order in which it sent them; a ``ring`` or ``row``
field is used. Scans of the simulated lidar are added. Every sensor counts the same, at every step.
With --held-out also write DIR/SENSOR/scan_*.bin, trained without that sensor; a folder may be
empty. With --report, also print what each sensor takes with these.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from geoaccel_ros.benchmark.yard import drive
from geoaccel_ros.compression import lines
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.rans import EVEN_INDEX, EntropyCoder, best_indices, flat_prior
from geoaccel_ros.compression.scan import (
    LINEAR,
    LINEAR_CONTEXTS,
    SPIN,
    SPIN_CONTEXTS,
    TABLES,
    Scan,
)
from geoaccel_ros.pointcloud.files import read_points

_STEPS = (0.002, 0.005, 0.01, 0.02, 0.05)
_REPORTED = (0.01, 0.02)
_CONTEXTS = {LINEAR: LINEAR_CONTEXTS, SPIN: SPIN_CONTEXTS}
# Events that a sensor counts for, a point of a mean cloud having about ten.
_WEIGHT = 4e6
# A context seen less often is told too little by it.
_SEEN = 16
# Which model and gains are taken depends on the tables that they are priced with.
_ROUNDS = 2


def clouds_of(folder: Path) -> dict[str, list[np.ndarray]]:
    """Return the clouds of each sensor."""
    clouds = {
        sensor.name: [read_points(path) for path in sorted(sensor.iterdir())]
        for sensor in sorted(folder.iterdir())
        if sensor.is_dir()
    }
    clouds["simulated"] = [scan.points for scan in drive(1.0)[0][::4]]
    return clouds


def ready(points: np.ndarray, step: float) -> tuple:
    """Return what the scan mode takes of a cloud; of one that is too large for the step, a part."""
    xyz = np.stack([points[axis] for axis in "xyz"]).astype(np.float64) / step
    # False where it is not finite, too.
    finite = (np.abs(xyz) < 2**31 - 1).all(axis=0)
    xyz = xyz[:, finite]
    cells = np.rint(xyz).astype(np.int32)
    keys = {
        name: points[name][finite].astype(np.int64)
        for name in lines.KEYS
        if name in points.dtype.names
    }
    return cells, xyz, lines.find(cells, keys), step


def counted(scan: Scan, clouds: dict[str, list[np.ndarray]]) -> dict[int, dict[str, np.ndarray]]:
    """Return the counts of each model and sensor, all sensors' adding up to the same."""
    counts = {model: defaultdict(float) for model in _CONTEXTS}
    for sensor, of_sensor in clouds.items():
        for points in of_sensor:
            for step in _STEPS:
                plan = scan.plan(*ready(points, step))
                counts[plan.model][sensor] += scan.count(plan) / len(points)
        for of_model in counts.values():
            if sensor in of_model:
                of_model[sensor] *= _WEIGHT / (len(of_sensor) * len(_STEPS))
    return counts


def tables(counts: dict[int, dict[str, np.ndarray]], without: str = "") -> dict[int, np.ndarray]:
    """Return the table of each model from the counts of all sensors but one."""
    made = {}
    for model, of_sensors in counts.items():
        total = sum(count for sensor, count in of_sensors.items() if sensor != without)
        if isinstance(total, int):
            made[model] = flat_prior(_CONTEXTS[model])
            continue
        # One more of each bit: nothing is impossible.
        made[model] = best_indices(np.rint(total).astype(np.int64) + 1)
        made[model][total.sum(axis=1) < _SEEN] = EVEN_INDEX
        made[model][0] = EVEN_INDEX
    return made


def write(folder: Path, made: dict[int, np.ndarray]) -> None:
    """Write the tables of the models."""
    folder.mkdir(parents=True, exist_ok=True)
    for model, table in made.items():
        (folder / f"{TABLES[model]}.bin").write_bytes(table.tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clouds", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--held-out", type=Path, metavar="DIR")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    device = Device.open()
    entropy = EntropyCoder(device)
    clouds = clouds_of(arguments.clouds)
    made = {model: flat_prior(contexts) for model, contexts in _CONTEXTS.items()}
    for _ in range(_ROUNDS):
        counts = counted(Scan(device, entropy, made), clouds)
        made = tables(counts)
    write(arguments.out, made)
    if arguments.held_out:
        for sensor in arguments.clouds.iterdir():
            write(arguments.held_out / sensor.name, tables(counts, sensor.name))
    if not arguments.report:
        return
    print("sensor, points: bits a point with tables of other sensors (of all)")
    for sensor, of_sensor in clouds.items():
        of_others = Scan(device, entropy, tables(counts, sensor))
        of_all = Scan(device, entropy, made)
        for points in of_sensor:
            bits = []
            for step in _REPORTED:
                cloud = ready(points, step)
                sections = [scan.encode(scan.plan(*cloud)) for scan in (of_others, of_all)]
                sizes = [8 * len(section) / cloud[0].shape[1] for section in sections]
                model = TABLES[sections[0][0] & 1]
                bits.append(f"{1000 * step:g} mm {sizes[0]:.3f} ({sizes[1]:.3f}) {model}")
            print(f"{sensor}, {len(points)}: {'; '.join(bits)}")


if __name__ == "__main__":
    main()

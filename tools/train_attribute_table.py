#!/usr/bin/env python3
"""Train the table of the fields: CLOUDS/SENSOR/*.{bin,npy,pcd,ply} to OUT/attributes.bin.

Each folder holds clouds of one sensor with the fields that it sends, each in the order in which it
sent them. Every field is coded in the order of an octree and in scan order. Every sensor counts the
same, and of a sensor every field. With --held-out also write DIR/SENSOR/attributes.bin, trained
without that sensor; a folder may be empty. With --report, also print what each field takes with it.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from geoaccel_ros.compression import lines
from geoaccel_ros.compression.attributes import CONTEXTS
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.field_table import attributes_of
from geoaccel_ros.compression.fields import FieldCoder, Places, sequences_of
from geoaccel_ros.compression.grid import Grid, extents_of
from geoaccel_ros.compression.morton import Morton
from geoaccel_ros.compression.policies import FieldsConfig, field_steps
from geoaccel_ros.compression.positions import Positions
from geoaccel_ros.compression.rans import EVEN_INDEX, EntropyCoder, best_indices, flat_prior
from geoaccel_ros.pointcloud.files import read_points

_STEPS = (0.005, 0.01, 0.02)
_REPORTED = 0.01
# Events that a sensor counts for, and a context seen less often than this is told too little by.
_WEIGHT, _SEEN = 2e6, 16
# Which prediction is taken depends on the table that it is priced with.
_ROUNDS = 2


class Recorder(EntropyCoder):
    """An entropy coder that counts the events of all that it encodes."""

    counts = np.zeros((CONTEXTS, 2))

    def encode(self, events, chunk_starts, prior):
        self.counts = self.counts + self.count(events, int(chunk_starts[-1]), len(prior))
        return super().encode(events, chunk_starts, prior)


def clouds_of(folder: Path) -> dict[str, list[np.ndarray]]:
    """Return the clouds of each sensor, without points that have no finite coordinates."""
    clouds = defaultdict(list)
    for sensor in sorted(folder.iterdir()):
        for path in sorted(sensor.iterdir()):
            points = read_points(path)
            finite = np.isfinite(np.stack([points[axis] for axis in "xyz"])).all(axis=0)
            clouds[sensor.name].append(points[finite])
    return clouds


def orders_of(
    device: Device, points: np.ndarray, step: float
) -> Iterator[tuple[str, list[str], np.ndarray, Places]]:
    """Yield the name of each order, its fields, the points as they are there, and their places."""
    names = attributes_of(points.dtype)
    xyz = np.stack([points[axis].astype(np.float64) for axis in "xyz"])
    cells = np.rint(xyz / step).astype(np.int64)
    grid = Grid.around(extents_of(xyz), step, [xyz.dtype] * 3)
    codes = device.download(Morton(device).encode(xyz, grid), len(points), "u8")
    order = np.argsort(codes, kind="stable")
    yield "octree", names, points[order], Places(len(points), None, Positions(cells[:, order]))
    keys = {name: points[name].astype(np.int64) for name in lines.KEYS if name in names}
    # The decoder has the lines' key before the coordinates.
    yield "key", list(keys), points, Places(len(points))
    order = lines.find(cells, keys).order
    rest = [name for name in names if name not in keys]
    yield "scan", rest, points, Places(len(points), order, Positions(cells[:, order]))


def counted(device: Device, clouds: dict[str, list[np.ndarray]], table: np.ndarray) -> dict:
    """Return the counts of each sensor, all sensors' adding up to the same."""
    counts = {}
    for sensor, of_sensor in clouds.items():
        total = np.zeros((CONTEXTS, 2))
        for points in of_sensor:
            steps = field_steps(points, FieldsConfig())
            for step in _STEPS:
                for _, names, ordered, places in orders_of(device, points, step):
                    for name in names:
                        recorder = Recorder(device)
                        coder = FieldCoder(device, recorder, table)
                        coder.encode(sequences_of(name, ordered[name], steps[name]), places)
                        total += recorder.counts / len(points)
        if total.any():
            counts[sensor] = total * (_WEIGHT / total.sum())
    return counts


def table_of(counts: dict[str, np.ndarray], without: str = "") -> np.ndarray:
    """Return the table from the counts of all sensors but one."""
    total = sum(count for sensor, count in counts.items() if sensor != without)
    # One more of each bit: nothing is impossible.
    table = best_indices(np.rint(total).astype(np.int64) + 1)
    table[total.sum(axis=1) < _SEEN] = EVEN_INDEX
    table[0] = EVEN_INDEX
    return table


def report(device: Device, clouds: dict, counts: dict, table: np.ndarray) -> None:
    print("bits a point with a table of other sensors (of all sensors)")
    entropy = EntropyCoder(device)
    for sensor in counts:
        others = FieldCoder(device, entropy, table_of(counts, sensor))
        everything = FieldCoder(device, entropy, table)
        points = clouds[sensor][0]
        steps = field_steps(points, FieldsConfig())
        for order, names, ordered, places in orders_of(device, points, _REPORTED):
            for name in names:
                sizes = [
                    8
                    * len(coder.encode(sequences_of(name, ordered[name], steps[name]), places))
                    / len(points)
                    for coder in (others, everything)
                ]
                print(f"{sensor:12} {order:7} {name:16} {sizes[0]:7.3f} ({sizes[1]:.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clouds", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--held-out", type=Path, metavar="DIR")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    device = Device.open()
    clouds = clouds_of(arguments.clouds)
    table = flat_prior(CONTEXTS)
    for _ in range(_ROUNDS):
        counts = counted(device, clouds, table)
        table = table_of(counts)
    (arguments.out / "attributes.bin").write_bytes(table.tobytes())
    if arguments.held_out:
        for sensor in arguments.clouds.iterdir():
            folder = arguments.held_out / sensor.name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "attributes.bin").write_bytes(table_of(counts, sensor.name).tobytes())
    if arguments.report:
        report(device, clouds, counts, table)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Train the tables of the octree: CLOUDS/SENSOR/*.{bin,npy,pcd,ply} to OUT/octree_*.bin.

Each folder holds clouds of one sensor, in its frame; a ``ring`` field is used. Scans of the
simulated lidar are added, and of each cloud thinner ones: a quarter of its points, and means over
voxels. With --held-out also write DIR/SENSOR/octree_*.bin, trained without that sensor; a folder
may be empty. With --report, also print what each cloud takes with these.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyopencl as cl

from geoaccel_ros.benchmark.yard import drive
from geoaccel_ros.compression.beams import Beams, fit_beams
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.grid import Grid, extents_of
from geoaccel_ros.compression.morton import Morton
from geoaccel_ros.compression.octree import (
    KINDS,
    MULTIPLICITY_CONTEXTS,
    OCCUPANCY_CONTEXTS,
    OCCUPANCY_PARTS,
    Octree,
    kind_of,
)
from geoaccel_ros.compression.rans import EntropyCoder, best_indices, flat_prior
from geoaccel_ros.pointcloud.files import read_points

_STEPS = (0.005, 0.01, 0.02, 0.05)
_REPORTED = (0.01, 0.02)
# Edges of the voxels of thinned clouds, in metres; these at the reported steps alone. Clouds of
# fewer points than this are not quartered.
_VOXELS = (0.12, 0.2, 0.3, 0.45)
_MANY = 50_000
# A kind's table learns a little from the same sensors' sparse or dense trees, and from others.
_RELATED, _OTHER = 0.02, 0.0003
# What a context has not seen enough of, it takes from those that it is like: as events.
_BELIEF = 6.0
_FIRST_BELIEF = 2.0
# Axes of each part's contexts over which their likeness goes, from the vaguest on.
_LIKENESS = (
    ((0, 1, 2), (0, 1), (0,)),
    ((1, 2, 3), (1,)),
    ((1, 2, 3, 4), (1,)),
    ((1, 2), (2,)),
    ((0, 1, 3), (0, 3), (3,)),
)


@dataclass(frozen=True)
class Tree:
    """A cloud's cells, as the octree takes them."""

    leaves: np.ndarray
    multiplicity: np.ndarray
    grid: Grid
    beams: Beams | None


def clouds_of(folder: Path) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray | None]]]:
    """Return coordinates (3, N) and rings of each cloud of each sensor."""
    clouds = defaultdict(dict)
    for sensor in sorted(folder.iterdir()):
        for path in sorted(sensor.iterdir()):
            clouds[sensor.name][path.stem] = _parts(read_points(path))
    for number, scan in enumerate(drive(1.0)[0][::4]):
        clouds["simulated"][f"yard {number}"] = _parts(scan.points)
    return clouds


def _parts(points: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    xyz = np.stack([points[axis] for axis in "xyz"]).astype(np.float64)
    finite = np.isfinite(xyz).all(axis=0)
    ring = points["ring"][finite] if "ring" in points.dtype.names else None
    return xyz[:, finite], ring


def thinner(
    xyz: np.ndarray, ring: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yield clouds that are made of one, turned about z so that voxels lie otherwise."""
    rng = np.random.default_rng(0)
    if xyz.shape[1] > _MANY:
        kept = np.sort(rng.permutation(xyz.shape[1])[: xyz.shape[1] // 4])
        yield xyz[:, kept], None if ring is None else ring[kept]
    # Without what is measured at the sensor itself.
    xyz = xyz[:, np.hypot(xyz[0], xyz[1]) > 0.5]
    for edge in _VOXELS:
        cosine, sine = np.cos(edge * 100), np.sin(edge * 100)
        turned = np.stack(
            [cosine * xyz[0] - sine * xyz[1], sine * xyz[0] + cosine * xyz[1], xyz[2]]
        )
        _, voxel, counts = np.unique(
            np.floor(turned / edge).astype(np.int64), axis=1, return_inverse=True,
            return_counts=True,
        )  # fmt: skip
        yield np.stack([np.bincount(voxel.ravel(), axis) for axis in turned]) / counts, None


def trees_of(
    device: Device, xyz: np.ndarray, ring: np.ndarray | None, step: float
) -> Iterator[Tree]:
    """Yield a cloud's tree with the beams that are seen, with none, and with the ground alone."""
    # Where a cloud is too large for the step, what is near.
    near = (np.abs(xyz) < 2**20 * step).all(axis=0)
    xyz, ring = xyz[:, near], None if ring is None else ring[near]
    grid = Grid.around(extents_of(xyz), step, [np.dtype(np.float64)] * 3)
    codes = device.download(Morton(device).encode(xyz, grid), xyz.shape[1], "u8")
    leaves, multiplicity = np.unique(codes, return_counts=True)
    multiplicity = multiplicity.astype(np.uint32)
    seen = fit_beams(xyz, step, ring)
    yield Tree(leaves, multiplicity, grid, seen)
    if seen is not None:
        yield Tree(leaves, multiplicity, grid, None)
    ground = fit_beams(xyz, step, ground_alone=True)
    if ground is not None:
        yield Tree(leaves, multiplicity, grid, ground)


def count(
    device: Device, octree: Octree, entropy: EntropyCoder, tree: Tree
) -> tuple[int, np.ndarray, np.ndarray]:
    """Return a tree's kind, and how often each context's bit was 0 and 1."""
    leaves, cells = device.upload("trained leaves", tree.leaves), len(tree.leaves)
    place = tree.grid.origin, tree.beams
    events, starts, sizes = octree.occupancy_events(leaves, cells, tree.grid.depth, *place)
    occupancy = entropy.count(events, int(starts[-1]), OCCUPANCY_CONTEXTS)
    multiplicity = np.zeros((MULTIPLICITY_CONTEXTS, 2))
    if tree.multiplicity.max() > 1:
        events, starts = octree.multiplicity_events(leaves, cells, _starts(device, tree), *place)
        multiplicity = entropy.count(events, int(starts[-1]), MULTIPLICITY_CONTEXTS)
    return kind_of(sizes, tree.beams), occupancy, multiplicity


def _starts(device: Device, tree: Tree) -> cl.Buffer:
    """Return where each cell's points begin, as the octree takes it."""
    ends = np.append(0, np.cumsum(tree.multiplicity)).astype(np.uint32)
    return device.upload("trained starts", ends)


def shrunk(counts: np.ndarray, likeness: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Return probabilities (..., 2), those of rare contexts after contexts that they are like."""
    believed = np.full(counts.shape, 0.5)
    for axes in (*likeness, ()):
        seen = counts.sum(axis=axes, keepdims=True) if axes else counts
        belief = _FIRST_BELIEF if axes == likeness[0] else _BELIEF
        believed = (seen + belief * believed) / (seen.sum(axis=-1, keepdims=True) + belief)
    return believed


def tables(counts: dict[str, list], without: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Return the tables of all kinds and the multiplicity's, from all sensors but one."""
    others = sum((of for sensor, of in counts.items() if sensor != without), [])
    of_kinds = np.zeros((KINDS, OCCUPANCY_CONTEXTS, 2))
    for kind, occupancy, _ in others:
        of_kinds[kind] += occupancy
    probabilities = np.full(of_kinds.shape, 0.5)
    for kind in range(KINDS):
        own, related = of_kinds[kind], of_kinds[kind ^ 1]
        mixed = own + _RELATED * related + _OTHER * (of_kinds.sum(axis=0) - own - related)
        begin = 1
        for shape, likeness in zip(OCCUPANCY_PARTS, _LIKENESS, strict=True):
            end = begin + math.prod(shape)
            part = shrunk(mixed[begin:end].reshape(*shape, 2), likeness)
            probabilities[kind, begin:end] = part.reshape(-1, 2)
            begin = end
    occupancy = np.stack([_indices(kind) for kind in probabilities])
    return occupancy, _indices(sum(multiplicity for _, _, multiplicity in others) + 0.4)


def _indices(weights: np.ndarray) -> np.ndarray:
    """Return the index of the probability that suits each context's weights of a 0 and a 1."""
    share = weights / weights.sum(axis=1, keepdims=True)
    return best_indices(np.rint(1e6 * share).astype(np.int64))


def write(folder: Path, counts: dict[str, list], without: str = "") -> None:
    """Write the tables of all sensors but one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in zip(("occupancy", "multiplicity"), tables(counts, without), strict=True):
        (folder / f"octree_{name}.bin").write_bytes(table.tobytes())


def report(device: Device, clouds: dict, counts: dict) -> None:
    """Print what each cloud takes with tables of the other sensors, in bits a point."""
    print("sensor, cloud: step, bits a point: occupancy, multiplicity, beams")
    for sensor, of_sensor in clouds.items():
        octree = Octree(device, *tables(counts, sensor))
        for name, (xyz, ring) in of_sensor.items():
            for step in _REPORTED:
                tree = next(trees_of(device, xyz, ring, step))
                leaves = device.upload("trained leaves", tree.leaves)
                sections = octree.encode(
                    leaves, len(tree.leaves), _starts(device, tree), tree.grid.depth,
                    tree.grid.origin, tree.beams,
                )  # fmt: skip
                sections["beams"] = tree.beams.to_bytes() if tree.beams else b""
                bits = {key: 8 * len(section) / xyz.shape[1] for key, section in sections.items()}
                parts = ", ".join(f"{part:.3f}" for part in bits.values())
                print(f"{sensor}, {name}: {1000 * step:g} mm, {sum(bits.values()):.3f}: {parts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clouds", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--held-out", type=Path, metavar="DIR")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    device = Device.open()
    entropy = EntropyCoder(device)
    # Counting does not go by the tables.
    octree = Octree(
        device,
        np.stack([flat_prior(OCCUPANCY_CONTEXTS)] * KINDS),
        flat_prior(MULTIPLICITY_CONTEXTS),
    )
    clouds, counts = clouds_of(arguments.clouds), defaultdict(list)
    for sensor, of_sensor in clouds.items():
        for xyz, ring in of_sensor.values():
            steps = [((xyz, ring), step) for step in _STEPS]
            steps += [(thin, step) for thin in thinner(xyz, ring) for step in _REPORTED]
            for cloud, step in steps:
                # A tree of a single cell has no events.
                counts[sensor] += [
                    count(device, octree, entropy, tree)
                    for tree in trees_of(device, *cloud, step)
                    if tree.grid.depth > 0
                ]
    write(arguments.out, counts)
    if arguments.held_out:
        for sensor in arguments.clouds.iterdir():
            write(arguments.held_out / sensor.name, counts, sensor.name)
    if arguments.report:
        report(device, clouds, counts)


if __name__ == "__main__":
    main()

"""KITTI's .bin, float32 x y z intensity without a header; nuScenes' .pcd.bin has the ring too."""

from pathlib import Path

import numpy as np

from geoaccel_ros.pointcloud.formats.malformed import Malformed
from geoaccel_ros.pointcloud.layout import packed_dtype

XYZI = packed_dtype([(name, "f4") for name in ("x", "y", "z", "intensity")])
XYZIR = packed_dtype([(name, "f4") for name in ("x", "y", "z", "intensity", "ring")])


def read(path: Path) -> np.ndarray:
    """Return the points, of dtype XYZI, or XYZIR where the name ends in .pcd.bin."""
    raw = path.read_bytes()
    dtype = XYZIR if path.name.lower().endswith(".pcd.bin") else XYZI
    if len(raw) % dtype.itemsize:
        raise Malformed(
            f"{len(raw)} bytes, not a multiple of the {dtype.itemsize} of a point "
            f"({' '.join(dtype.names)} as float32)"
        )
    return np.frombuffer(raw, dtype)


def losses(points: np.ndarray) -> list[str]:
    """Return what :func:`write` does not keep of a cloud, each in a few words."""
    found = []
    dropped = [name for name in points.dtype.names if name not in XYZI.names]
    if dropped:
        found.append(f"no {', '.join(dropped)}")
    for name in XYZI.names:
        if name in points.dtype.names:
            values = points[name][np.isfinite(points[name])].astype(np.float64)
            with np.errstate(over="ignore"):
                error = np.max(np.abs(values.astype(np.float32) - values), initial=0)
            if error:
                found.append(f"{name} is up to {error:.2g} off")
    return found


def write(path: Path, points: np.ndarray) -> None:
    """Write x, y, z and intensity, 0 where there is none."""
    packed = np.zeros(len(points), XYZI)
    for name in XYZI.names:
        if name in points.dtype.names:
            packed[name] = points[name]
    packed.tofile(path)

"""Rate against distortion of our codec and its peers."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from scipy.spatial import KDTree

from geoaccel_ros.benchmark.compression_clouds import XYZ, Cloud, cases
from geoaccel_ros.benchmark.compression_contenders import codecs, geoaccel, largest_error
from geoaccel_ros.benchmark.compression_integers import Unsuitable
from geoaccel_ros.benchmark.compression_peers import DRACO, LAZ
from geoaccel_ros.benchmark.peers import Peer
from geoaccel_ros.compression.rate_distortion import STEPS, d1_psnr
from geoaccel_ros.pointcloud.layout import coordinates

_PEERS = (DRACO, LAZ)


def sweep(
    cloud: Cloud,
    device: str,
    threads: int,
    peers: Sequence[Peer],
    tables: Path | None = None,
    steps: Sequence[float] = STEPS,
) -> list[dict]:
    """Return a row for each step and contender: the coordinates alone, encoded and decoded once.

    Who cannot take the cloud at a step has none.

    Raises
    ------
    BenchmarkError
        If no OpenCL device matches, or a folder has no tables.
    """
    points, height = cases(cloud)[XYZ]
    rows = []
    for step in steps:
        makes = {
            name: partial(geoaccel, points, height, codec)
            for name, codec in codecs(step, device, threads, tables).items()
        }
        for peer in peers:
            if peer.name in _PEERS:
                makes[peer.name] = partial(peer.contender, points, step)
        for name, make in makes.items():
            try:
                encode, decode = make()
            except Unsuitable:
                continue
            stream = encode()
            decoded = decode(stream)
            distances, _ = KDTree(coordinates(decoded)).query(coordinates(points))
            rows.append(
                {
                    "contender": name,
                    "cloud": cloud.name,
                    "step_m": step,
                    "bits_per_point": 8 * len(stream) / len(points),
                    "d1_psnr_db": d1_psnr(coordinates(points), coordinates(decoded)),
                    "max_error_m": largest_error(points, decoded, step),
                    "mean_m": float(distances.mean()),
                }
            )
    return rows

"""Clouds that the codec and its peers are measured on: files of one's own, or folders of data."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geoaccel_ros.benchmark.errors import BenchmarkError
from geoaccel_ros.benchmark.yard import drive
from geoaccel_ros.pointcloud.files import PointFileError, read_points
from geoaccel_ros.pointcloud.layout import (
    LayoutError,
    PointField,
    coordinates,
    dtype_of,
    from_xyz,
    packed_dtype,
)
from geoaccel_ros.pointcloud.recordings import RecordingError, open_recording

# Cases, in the order of the tables.
XYZ, INTENSITY, MESSAGE = "xyz", "xyz + intensity", "message"
# Kinds of cloud that a claim can be about.
KITTI, SPINNING, TIMED = "kitti", "spinning", "ring and time"

INTENSITIES = ("intensity", "scalar_intensity", "reflectivity")
# Of a folder with more clouds than that: the first, the middle and the last.
_FEW = 3
# Which of a folder's files are read, in their order.
Choice = Callable[[Sequence[Path]], list[Path]]


@dataclass(frozen=True)
class Cloud:
    """A cloud as its driver sends it.

    Attributes
    ----------
    name : str
    points : ndarray, shape (N,), structured
    height : int
        Rows of an organised cloud, else 1.
    kinds : frozenset of str
        What claims are about: :data:`KITTI`, :data:`SPINNING` (a sweep of a real spinning lidar),
        :data:`TIMED` (a whole message with what its driver sends of ring and time).
    """

    name: str
    points: np.ndarray
    height: int = 1
    kinds: frozenset[str] = frozenset()

    @property
    def sensor(self) -> str:
        """What measured it, as of :data:`SENSORS`; empty: not known."""
        return next((s for begin, s in SENSORS.items() if self.name.startswith(begin)), "")


def cases(cloud: Cloud) -> dict[str, tuple[np.ndarray, int]]:
    """Return points and height by case.

    Returns
    -------
    dict of tuple
        :data:`XYZ` and, where there is one, :data:`INTENSITY` hold the points that are returns:
        finite and not all zero, as not every codec can take others; a height of 1.
        :data:`MESSAGE`, where there are other fields, is the cloud as it is.
    """
    points = cloud.points
    xyz = coordinates(points)
    returns = np.isfinite(xyz).all(axis=1) & xyz.any(axis=1)
    intensity = next((name for name in INTENSITIES if name in points.dtype.names), None)
    result = {XYZ: (_fields(points[returns], "xyz"), 1)}
    if intensity is not None:
        result[INTENSITY] = _fields(points[returns], (*"xyz", intensity)), 1
    if set(points.dtype.names) - {*"xyz", intensity}:
        result[MESSAGE] = points, cloud.height
    return result


def read_clouds(files: Sequence[str], folders: Sequence[Path]) -> Iterator[Cloud]:
    """Yield the clouds of files and folders, one at a time in memory; a simulated scan if none.

    Parameters
    ----------
    files : sequence of str
        Whatever :func:`.files.read_points` reads.
    folders : sequence of Path
        Folders of .bin, .npy, .pcd and .ply, or of such folders; of one with more than three the
        first, the middle and the last. What else is in the folders of :data:`SETS` is known by
        their names.

    Raises
    ------
    BenchmarkError
        If there is nothing to read, or something cannot be read.
    """
    if not files and not folders:
        scans, _ = drive(1.0)
        yield Cloud("yard, 16 rings", scans[-1].points)
    try:
        for file in files:
            yield _checked(Cloud(file, read_points(file)))
        for folder in folders:
            yield from map(_checked, _of_folder(folder))
    except (PointFileError, LayoutError, RecordingError, OSError) as error:
        raise BenchmarkError(str(error)) from None


def _of_folder(folder: Path) -> Iterator[Cloud]:
    if not folder.is_dir():
        raise BenchmarkError(f"'{folder}' is no folder of clouds")
    found = False
    for place in sorted([folder, *(path for path in folder.iterdir() if path.is_dir())]):
        for cloud in SETS.get(place.name, _files)(place):
            found = True
            yield cloud
    if not found:
        raise BenchmarkError(f"'{folder}' has no clouds: give a folder of .bin, .npy, .pcd or .ply")


def _checked(cloud: Cloud) -> Cloud:
    if not np.isfinite(coordinates(cloud.points)).all(axis=1).any():
        raise BenchmarkError(f"'{cloud.name}' has no finite points: give a cloud that has")
    return cloud


def read_sequence(folder: Path, count: int) -> list[np.ndarray]:
    """Return the points of the first clouds of a folder, in the order of the files' names.

    Raises
    ------
    BenchmarkError
        If there are none, or one cannot be read.
    """
    if folder.name in SETS and folder.name not in SEQUENCES:
        raise BenchmarkError(f"'{folder}' is no sequence of clouds: give a folder of one sensor's")
    if not folder.is_dir():
        raise BenchmarkError(f"'{folder}' is no folder of clouds")
    read = SEQUENCES.get(folder.name, _files)
    try:
        clouds = [cloud.points for cloud in read(folder, lambda paths: sorted(paths)[:count])]
    except (PointFileError, LayoutError, OSError) as error:
        raise BenchmarkError(str(error)) from None
    if not clouds:
        raise BenchmarkError(f"'{folder}' has no clouds: give a folder of .bin, .npy, .pcd or .ply")
    return clouds


def _some(paths: Sequence[Path]) -> list[Path]:
    """Return all of a few, of more the first, the middle and the last."""
    paths = sorted(paths)
    return paths if len(paths) <= _FEW else [paths[0], paths[len(paths) // 2], paths[-1]]


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name.split('.')[0]}"


def _files(folder: Path, choose: Choice = _some) -> Iterator[Cloud]:
    """Yield the clouds of files that are as their suffix says."""
    for path in choose(
        [p for p in folder.iterdir() if p.suffix in (".bin", ".npy", ".pcd", ".ply")]
    ):
        yield Cloud(_name(path), read_points(path))


def _reader(
    pattern: str, read: Callable[[Path], np.ndarray], *kinds: str
) -> Callable[..., Iterator[Cloud]]:
    def clouds(folder: Path, choose: Choice = _some) -> Iterator[Cloud]:
        for path in choose([*folder.glob(pattern)]):
            yield Cloud(_name(path), read(path), kinds=frozenset(kinds))

    return clouds


def _xyz32(path: Path) -> np.ndarray:
    return from_xyz(np.fromfile(path, "<f4").reshape(-1, 3))


def _xyz_and_intensity(path: Path) -> np.ndarray:
    with np.load(path) as arrays:
        return from_xyz(arrays["xyz"], arrays["intensity"])


def _differences(path: Path) -> np.ndarray:
    with np.load(path) as arrays:
        xyz = (np.cumsum(arrays["dxyz_mm"], axis=1).T / 1000.0).astype(np.float32)
        return from_xyz(xyz, arrays["intensity_pct"] / np.float32(100))


def _layouts(folder: Path) -> Iterator[Cloud]:
    """Yield clouds of different spinning lidars."""
    timed = {"velodyne_hdl32_pad32.pcd", "opencalib_top_ring_timestampF64_lzf.pcd"}
    for path in sorted([*folder.glob("*.pcd"), *folder.glob("*.pcd.bin")]):
        kinds = {SPINNING, TIMED} if path.name in timed else {SPINNING}
        yield Cloud(_name(path), read_points(path), kinds=frozenset(kinds))


# As ouster-ros sends it, but for the signal.
_OUSTER = dtype_of(
    [
        PointField("x", 0, 7), PointField("y", 4, 7), PointField("z", 8, 7), PointField("t", 20, 6),
        PointField("reflectivity", 24, 4), PointField("ring", 26, 4), PointField("near_ir", 28, 4),
        PointField("range", 32, 6),
    ],
    48,
)  # fmt: skip


def _ouster(folder: Path) -> Iterator[Cloud]:
    """Yield the message of each frame: rows are rings, columns as they were measured."""
    for path in _some([*folder.glob("*.npz")]):
        with np.load(path) as arrays:
            rows, columns = arrays["range_mm"].shape
            points = np.zeros((rows, columns), _OUSTER)
            for axis, name in enumerate("xyz"):
                points[name] = arrays["xyz"][..., axis]
            stamps = arrays["column_timestamp_ns"]
            points["t"] = stamps - stamps[0]
            points["ring"] = np.arange(rows)[:, None]
            points["range"] = arrays["range_mm"]
            points["reflectivity"], points["near_ir"] = arrays["reflectivity"], arrays["near_ir"]
        yield Cloud(_name(path), points.ravel(), rows, frozenset({SPINNING, TIMED}))


def _bags(folder: Path) -> Iterator[Cloud]:
    for path, topic in (
        (folder / "luminar_pointcloud_ros1.bag", "/luminar_pointcloud"),
        (folder / "sick_lms_rms_ros1.bag", "/cloud"),
    ):
        with open_recording(path, topic) as recording:
            messages = list(recording.clouds())
        middle = messages[len(messages) // 2]
        yield Cloud(_name(path), middle.points)


def _varied(folder: Path) -> Iterator[Cloud]:
    for cloud in _files(folder):
        # The rows of an organised cloud are lost with its file's header.
        height = 480 if cloud.name.endswith("kinect_mosd_learn0") else 1
        yield Cloud(cloud.name, cloud.points, height)


# Folders whose clouds need more than their suffix to be read or to be known for what they are: of
# one sensor, one cloud a file in the order of their names; and others.
SEQUENCES = {
    "balm_realworld": _reader("*.npz", _xyz_and_intensity, SPINNING),
    "eth_car_pair": _reader("car_cloud*.csv", read_points),
    "gicp_pair": _reader("*.ply", read_points, SPINNING),
    "kitti07_keyframes": _reader("*.bin", _xyz32),
    "kitti_odom_00_pairs": _reader("*.bin", read_points, KITTI, SPINNING),
    "kitti_raw_0005": _reader("*.npz", _differences, KITTI, SPINNING),
    "newer_college_deskew": _reader("[dr]*_??.bin", _xyz32, SPINNING),
}
SETS = {
    **SEQUENCES,
    "ouster_os1_128": _ouster,
    "pcd_layouts": _layouts,
    "rosbags_pointcloud2": _bags,
    "varied_clouds": _varied,
}

# What measured a cloud, by how its name begins.
SENSORS = {
    "balm_realworld/": "balm",
    "eth_car_pair/": "eth_car",
    "gicp_pair/": "gicp",
    "kitti": "hdl64",
    "newer_college_deskew/": "os1_64",
    "ouster_os1_128/": "os1_128",
    "pcd_layouts/nuscenes": "hdl32",
    "pcd_layouts/opencalib": "opencalib",
    "pcd_layouts/velodyne_hdl32": "hdl32",
    "pcd_layouts/velodyne_vlp16": "vlp16",
    "rosbags_pointcloud2/luminar": "luminar",
    "rosbags_pointcloud2/sick": "sick",
    "varied_clouds/airborne": "airborne",
    "varied_clouds/kinect": "kinect",
}


def _fields(points: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Return a packed copy with some of the fields."""
    result = np.empty(len(points), packed_dtype((name, points.dtype[name].str) for name in names))
    for name in names:
        result[name] = points[name]
    return result

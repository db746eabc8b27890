"""Recorded sequences of clouds: folders of scans, and bags of ROS 1 and ROS 2."""

from pathlib import Path

from geoaccel_ros.pointcloud.recordings.bag import Bag
from geoaccel_ros.pointcloud.recordings.bag_messages import SUFFIXES, find_bag
from geoaccel_ros.pointcloud.recordings.cloud import RecordedCloud, RecordingError
from geoaccel_ros.pointcloud.recordings.folder import ScanFolder

__all__ = ["Bag", "RecordedCloud", "RecordingError", "ScanFolder", "open_recording"]


def open_recording(path: Path, topic: str | None = None) -> Bag | ScanFolder:
    """Open what lies at ``path``, by its looks.

    Parameters
    ----------
    path : Path
        A bag (.bag, .mcap, .db3, or a folder with the metadata.yaml of rosbag2 or one bag's file),
        a KITTI folder, or a folder of scans.
    topic : str or None
        Of a bag with clouds on several.

    Raises
    ------
    RecordingError
        If it is none of these, is broken, or leaves a choice.
    """
    if not path.exists():
        raise RecordingError(f"'{path}' does not exist")
    bag = find_bag(path)
    if bag is not None:
        return Bag(bag, topic)
    if path.is_file():
        raise RecordingError(
            f"'{path}' is a file; give a folder of scans or a bag ({', '.join(SUFFIXES)})"
        )
    if topic is not None:
        raise RecordingError(f"'{path}' is no bag and has no topics")
    return ScanFolder(path)

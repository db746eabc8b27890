"""Point layouts of known sensors' drivers.

No layout needs an entry to be read: the reader goes by the fields that a cloud declares. The table
gives what it recognises a name, and says what each is read as; the tests hold the reader to it.
"""

from dataclasses import dataclass

import numpy as np

from geoaccel_ros.pointcloud.layout import PointField

# sensor_msgs/PointField's datatype constants.
_U1, _U2, _U4, _F4, _F8 = 2, 4, 6, 7, 8


@dataclass(frozen=True)
class SensorLayout:
    """What one driver sends.

    Attributes
    ----------
    sensor : str
    driver : str
        Where the layout comes from.
    fields : tuple of PointField
        In the driver's order, offsets in bytes.
    point_step : int
        Bytes of a point, padding included.
    time_field : str
        As :class:`geoaccel_ros.pointcloud.times.PointTimes` names it; empty: no times.
    time_unit, time_reference : str
        What is found out of real clouds of this layout.
    """

    sensor: str
    driver: str
    fields: tuple[PointField, ...]
    point_step: int
    time_field: str = ""
    time_unit: str = ""
    time_reference: str = ""


def _fields(*declared: tuple[str, int, int]) -> tuple[PointField, ...]:
    return tuple(PointField(name, offset, datatype) for name, offset, datatype in declared)


_XYZ = (("x", 0, _F4), ("y", 4, _F4), ("z", 8, _F4))

LAYOUTS = (
    SensorLayout(
        "Velodyne",
        "velodyne_pointcloud",
        _fields(*_XYZ, ("intensity", 12, _F4), ("ring", 16, _U2), ("time", 18, _F4)),
        22,
        "time", "s", "header",
    ),
    SensorLayout(
        "Velodyne without times",
        "PCL (XYZIR)",
        _fields(*_XYZ, ("intensity", 16, _F4), ("ring", 20, _U2)),
        32,
    ),
    SensorLayout(
        "Ouster",
        "ouster-ros (original)",
        _fields(
            *_XYZ, ("intensity", 16, _F4), ("t", 20, _U4), ("reflectivity", 24, _U2),
            ("ring", 26, _U2), ("ambient", 28, _U2), ("range", 32, _U4),
        ),
        48,
        "t", "ns", "header",
    ),
    SensorLayout(
        "Ouster, first drivers",
        "ouster_ros (2020)",
        _fields(
            *_XYZ, ("intensity", 16, _F4), ("t", 20, _U4), ("reflectivity", 24, _U2),
            ("ring", 26, _U1), ("ambient", 28, _U2), ("range", 32, _U4),
        ),
        48,
        "t", "ns", "header",
    ),
    SensorLayout(
        "Hesai or RoboSense",
        "HesaiLidar_ROS_2.0, rslidar_sdk (XYZIRT)",
        _fields(*_XYZ, ("intensity", 12, _F4), ("ring", 16, _U2), ("timestamp", 18, _F8)),
        26,
        "timestamp", "s", "absolute",
    ),
    SensorLayout(
        "RoboSense, 8-bit intensity",
        "rslidar PCL (XYZIRT)",
        _fields(*_XYZ, ("intensity", 16, _U1), ("ring", 18, _U2), ("timestamp", 24, _F8)),
        32,
        "timestamp", "s", "absolute",
    ),
    SensorLayout(
        "Livox",
        "livox_ros_driver2 (PointXYZRTLT)",
        _fields(
            *_XYZ, ("intensity", 12, _F4), ("tag", 16, _U1), ("line", 17, _U1),
            ("timestamp", 18, _F8),
        ),
        26,
        "timestamp", "ns", "absolute",
    ),
    SensorLayout(
        "Luminar",
        "luminar_pointcloud",
        _fields(
            *_XYZ, ("intensity", 16, _F4), ("time_sec", 20, _U4), ("time_nsec", 24, _U4),
            ("laser_id", 28, _U2),
        ),
        32,
        "time_sec + time_nsec", "ns", "absolute",
    ),
    SensorLayout(
        "nuScenes",
        ".pcd.bin",
        _fields(*_XYZ, ("intensity", 12, _F4), ("ring", 16, _F4)),
        20,
    ),
    SensorLayout(
        "SICK, KITTI and others",
        "sick_scan_xd; .bin",
        _fields(*_XYZ, ("intensity", 12, _F4)),
        16,
    ),
    SensorLayout(
        "depth camera with colour",
        "depth_image_proc",
        _fields(*_XYZ, ("rgb", 16, _F4)),
        32,
    ),
    SensorLayout("depth camera", "depth_image_proc", _fields(*_XYZ), 16),
)  # fmt: skip

_CODES = {_U1: "u1", _U2: "u2", _U4: "u4", _F4: "f4", _F8: "f8"}


def sensor_of(dtype: np.dtype) -> str:
    """Return the sensor whose fields, by names and types, are those of a point; empty: unknown.

    Order, offsets and padding do not count: drivers pack one layout in several ways.
    """
    present = {(name, dtype[name].base.str[1:]) for name in dtype.names or ()}
    for layout in LAYOUTS:
        if present == {(field.name, _CODES[field.datatype]) for field in layout.fields}:
            return layout.sensor
    return ""


def describe(dtype: np.dtype) -> str:
    """Return a point's fields with their types, and the sensor's name if it is known."""
    fields = " ".join(f"{name}:{dtype[name].base.str[1:]}" for name in dtype.names or ())
    sensor = sensor_of(dtype)
    return f"{sensor} ({fields})" if sensor else fields

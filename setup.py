"""Build script: the files that setup.cfg cannot list."""

from glob import glob

from setuptools import setup

NAME = "geoaccel_ros"

setup(
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", glob("launch/*.launch.py")),
        (f"share/{NAME}/config", glob("config/*.yaml") + glob("config/*.xml")),
        (f"share/{NAME}/rviz", glob("rviz/*.rviz")),
        # What bags of compressed clouds say of themselves, where no distribution is installed.
        (
            f"share/{NAME}/interfaces/point_cloud_interfaces/msg",
            glob("interfaces/point_cloud_interfaces/msg/*.msg"),
        ),
    ],
)
